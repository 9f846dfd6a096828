"""A stand-alone script that shows a fault without this repository."""
