"""How often a cause is right when it is named, as counted on the benchmark (tests/faults)."""

from __future__ import annotations

from collections.abc import Mapping

from diagnosis.causes.search import Finding

# By cause, how often it was named rightly, and how often at all: 52 faults that the causes were
# made with, and 326 that were written blind to them.
_COUNTS: Mapping[str, tuple[int, int]] = {
    "activation": (15, 15),
    "bias": (8, 8),
    "cast": (5, 5),
    "clip": (5, 5),
    "decode_cache": (11, 17),
    "eps": (5, 5),
    "gqa_order": (5, 7),
    "kernel_rows": (10, 13),
    "mask": (4, 4),
    "moe_routing": (12, 13),
    "norm_offset": (5, 5),
    "norm_order": (10, 15),
    "overflow": (4, 4),
    "padding": (7, 9),
    "permutation": (8, 16),
    "position_ids": (8, 10),
    "quantization": (3, 4),
    "reduction": (2, 6),
    "residual": (5, 11),
    "rope_frequency": (7, 8),
    "rope_layout": (3, 7),
    "rope_partial": (1, 1),
    "rope_precision": (2, 2),
    "scale": (16, 22),
    "shard": (1, 8),
    "sliding_window": (9, 9),
    "soft_cap": (6, 6),
    "tied_weights": (3, 3),
    "transpose": (5, 5),
    "weights": (28, 59),
}
_MANY = 0.8  # at most, with several numbers taken from the candidate
_ONE_ROW = 0.75  # at most, where it gives the values of the longest row
_AN_ALTERNATIVE = 0.85  # times, where another cause gives the values as well


def share_of(cause: str) -> float:
    """Return how often a cause is right when it is named, by Laplace's rule of succession.

    Args:
        cause: its id; one that was never named has 0.5.
    """
    right, named = _COUNTS.get(cause, (0, 0))
    return (right + 1) / (named + 2)


def of_finding(finding: Finding, *, alternatives: int) -> float:
    """Return the share of such findings that are right.

    Args:
        finding: a hypothesis that gives the candidate's values.
        alternatives: how many other causes do so as well.
    """
    share = share_of(finding.cause)
    if finding.in_longest_row:
        share = min(share, _ONE_ROW)
    elif finding.numbers > 1:
        share = min(share, _MANY)
    return round(share * (_AN_ALTERNATIVE if alternatives else 1.0), 2)
