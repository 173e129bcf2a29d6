"""Pictures for people: score timelines."""
