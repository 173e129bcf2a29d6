"""Messages to people: when they are due, what they say, and how they are sent."""
