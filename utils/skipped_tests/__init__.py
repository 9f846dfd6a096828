"""Which models skip which of the tests that all models inherit."""
