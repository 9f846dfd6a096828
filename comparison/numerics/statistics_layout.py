"""What the compiled statistics and those who call them have in common."""

CHUNK = 1 << 15  # words of 64 bits; the fingerprint counts in these
NUMBERS = 4  # of a chunk: least, greatest, sum, sum of squares
