"""Pictures for people: timelines, sheets of skeletons, curves and heat maps."""
