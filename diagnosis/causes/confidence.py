"""How often a cause with such evidence is right, as counted on the benchmark (tests/faults)."""

from __future__ import annotations

from diagnosis.causes.search import Finding

_PLAIN = 0.97  # gives all values, no number taken from the candidate
_FITTED = 0.92  # gives all values, with one number
_MANY = 0.8  # with several numbers
_ONE_ROW = 0.75  # gives those of the longest row
_AN_ALTERNATIVE = 0.85  # times, where another cause gives the values as well


def of_finding(finding: Finding, *, alternatives: int) -> float:
    """Return the share of such findings that are right.

    Args:
        finding: a hypothesis that gives the candidate's values.
        alternatives: how many other causes do so as well.
    """
    if finding.in_longest_row:
        share = _ONE_ROW
    elif finding.numbers == 0:
        share = _PLAIN
    else:
        share = _FITTED if finding.numbers == 1 else _MANY
    return round(share * (_AN_ALTERNATIVE if alternatives else 1.0), 2)
