"""How much of each tensor a capture keeps."""

from __future__ import annotations

from enum import StrEnum


class CaptureMode(StrEnum):
    """What is written of a tensor.

    Attributes:
        FULL: all of it.
        SKETCH: statistics, a fingerprint, and projections of a few KB; see docs/sketches.md.
        STATS: statistics and a fingerprint.
    """

    FULL = "full"
    SKETCH = "sketch"
    STATS = "stats"
