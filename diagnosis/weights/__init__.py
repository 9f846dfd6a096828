"""The weights that both sides loaded, compared by value."""
