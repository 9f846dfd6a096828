"""What belongs together: names, rows and shapes of two dumps."""
