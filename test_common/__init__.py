"""How to run a model on an engine and capture what passes through its modules."""
