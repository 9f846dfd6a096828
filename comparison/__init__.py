"""What differs between two dumps: read, pair, measure, report. NumPy only, no engine."""
