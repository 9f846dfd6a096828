"""The records that the rooms exchange, and the errors they raise."""
