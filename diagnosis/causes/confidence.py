"""How often a cause is right when it is named, as counted on the benchmark (tests/faults)."""

from __future__ import annotations

from collections.abc import Mapping

from diagnosis.causes.trying import Finding

# By cause, how often it was named rightly, and how often at all, on the 170 faults of the third
# part of the benchmark: these were written blind to the causes, and judged once.
_COUNTS: Mapping[str, tuple[int, int]] = {
    "activation": (6, 6),
    "bias": (5, 5),
    "cast": (5, 6),
    "decode_cache": (5, 6),
    "eps": (4, 4),
    "gqa_order": (3, 4),
    "kernel_rows": (4, 6),
    "mask": (6, 6),
    "moe_routing": (3, 4),
    "norm_offset": (4, 4),
    "norm_order": (3, 5),
    "overflow": (2, 2),
    "padding": (5, 5),
    "permutation": (5, 5),
    "position_ids": (3, 3),
    "quantization": (2, 2),
    "reduction": (1, 2),
    "residual": (3, 3),
    "rope_frequency": (6, 6),
    "rope_layout": (3, 4),
    "rope_precision": (2, 2),
    "scale": (7, 7),
    "shard": (3, 4),
    "sliding_window": (4, 4),
    "soft_cap": (3, 3),
    "tied_weights": (4, 4),
    "transpose": (5, 5),
    "weights": (7, 15),
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
