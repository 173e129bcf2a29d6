"""Helpers shared by the measuring scripts; the product does not import them."""
