"""Writes matches in the documented form."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from utils.modular_detector.definitions import ModelingFile
from utils.modular_detector.difference import short_difference
from utils.modular_detector.matching import Likeness, Match, Matches
from utils.modular_detector.sources import IndexedSources

_HIGH: Final = 0.9  # a score that makes one look for what differs
_LIKENESS: Final = {
    Likeness.IDENTICAL: "identical",
    Likeness.RENAMED: "identical but for names",
}


def find_differences(
    file: ModelingFile, found: Sequence[Matches], sources: IndexedSources
) -> dict[tuple[str, int], str]:
    """Say for every high score what differs, by the definition's name and the entry's number."""
    return {
        (matches.definition.name, match.number): _remark(file, matches, match, sources)
        for matches in found
        for match in [*matches.jaccard, *(matches.embedding or ())]
        if match.score >= _HIGH or match.likeness > Likeness.NOTHING
    }


def matches_text(path: Path, matches: Matches, differences: Mapping[tuple[str, int], str]) -> str:
    """Write the matches of one definition."""
    name = matches.definition.name
    lines = [f"\n{path.name}::{name}:"]
    for title, listed in (("embedding", matches.embedding), ("jaccard", matches.jaccard)):
        if listed is not None:
            lines += [f"{title}:", *(_line(name, match, differences) for match in listed)]
    if matches.embedding is not None:
        lines += ["intersection:", *(f"    {match.entry}" for match in matches.intersection)]
    return "\n".join(lines)


def _line(name: str, match: Match, differences: Mapping[tuple[str, int], str]) -> str:
    remark = differences.get((name, match.number), "")
    return f"    {match.entry} ({match.score:.4f}){f'  {remark}' if remark else ''}"


def _remark(file: ModelingFile, matches: Matches, match: Match, sources: IndexedSources) -> str:
    if match.likeness in _LIKENESS:
        return _LIKENESS[match.likeness]
    base = sources.definition(match.number)
    if base is None:
        return ""
    try:
        difference = short_difference((base, match.entry.name), (file, matches.definition.name))
    except RecursionError:  # expressions of hundreds of levels
        return ""
    start = "same structure: " if match.likeness is Likeness.STRUCTURE else ""
    return f"{start}{difference}" if difference else ""
