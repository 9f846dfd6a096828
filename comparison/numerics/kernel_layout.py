"""What the compiled code of `kernels` is given and gives back, by index."""

from typing import Final

# Sums of |d|, d * d, r * r, c * c and r * c; then what is greatest: |d|, the relative difference,
# |d| by the power of two of the reference, and the square of the relative L2 of a row.
ABSOLUTE, SQUARES, REFERENCE, CANDIDATE, PRODUCT = range(5)
PEAK_ABSOLUTE, PEAK_RELATIVE, PEAK_ULP, WORST_ROW = range(5, 9)
SUMS: Final = 9

# Numbers of elements that do not pass and that are finite; positions of both greatest differences,
# number of the worst row, position of the first unlike class (-1 for none); then the number of
# elements of each class, in the order of NonFiniteCounts.
FAILED, FINITE, AT_ABSOLUTE, AT_RELATIVE, AT_ROW, AT_UNLIKE, CLASSES = range(7)
COUNTS: Final = 13

# How the elements of a side are widened.
FLOAT32, BFLOAT16, FLOAT16, E5M2, E4M3FN, BY_CODE, INT16, UINT16, INT32, UINT32 = range(10)

# Three buffers of float64 of this length are 24 KiB, what a first cache of 32 KiB holds.
BLOCK: Final = 1024
