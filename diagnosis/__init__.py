"""Who is wrong, where, and why: replay of the reference on what the candidate really computed."""
