"""Call-tree traces: read, paired and compared."""
