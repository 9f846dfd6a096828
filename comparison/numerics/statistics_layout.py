"""What the compiled statistics and those who call them have in common."""

CHUNK = 1 << 15  # words of 64 bits; the fingerprint counts in these
BLOCK = 512  # words, which stay in the processor's first cache
STEP = 0x9E3779B97F4A7C15  # odd; makes the order of blocks count, and that of chunks
NUMBERS = 4  # of a chunk: least, greatest, sum, sum of squares
