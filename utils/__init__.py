"""Scripts for people who work on models; they import nothing of the other rooms."""
