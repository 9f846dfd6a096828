"""A comparison as text and as JSON."""
