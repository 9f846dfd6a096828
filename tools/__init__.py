"""The commands, and the documented places of what they use."""
