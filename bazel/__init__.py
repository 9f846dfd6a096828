"""What builds and tests this repository."""
