"""The reference's modules, run again on what the candidate really computed."""
