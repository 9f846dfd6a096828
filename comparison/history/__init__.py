"""What changed between two reports: saved results, read back and held against each other."""
