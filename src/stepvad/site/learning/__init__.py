"""A site that learns its own model: footage, rounds of fitting, versions and their schedule."""
