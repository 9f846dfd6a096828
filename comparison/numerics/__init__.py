"""Dtypes and the measurement of a pair of arrays."""
