"""Suggests a modular file: what could inherit from the one model that is most alike."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from utils.modular_detector.matching import Likeness, Match, Matches

_CLOSE: Final = 0.8  # a score from which inheriting saves more than it hides


def modular_skeleton(
    path: Path, found: Sequence[Matches], differences: Mapping[tuple[str, int], str]
) -> str:
    """Write a modular file for the one model that could give most.

    Args:
        path: the modeling file.
        found: the matches of its definitions.
        differences: what tells a definition, by name, from an entry, by number.

    Returns:
        Python, with comments for what no class of that model is close to; "" where nothing is
        close to anything.
    """
    base = _best_base(found)
    if base is None:
        return ""
    chosen = {matches.definition.name: _from_base(matches, base) for matches in found}
    taken = [match for match in chosen.values() if match is not None]
    modular = path.name.replace("modeling_", "", 1)
    lines = [
        f"# modular_{modular}: {len(taken)} of {len(found)} definitions are close to {base}'s",
        *_imports(taken),
    ]
    for matches in found:
        match = chosen[matches.definition.name]
        lines += _definition_lines(matches, match, differences) if match else _remark(matches)
    return "\n".join(lines)


def _best_base(found: Sequence[Matches]) -> str | None:
    sums: Counter[str] = Counter()
    for matches in found:
        best: dict[str, float] = {}
        for match in _all(matches):
            if match.score >= _CLOSE:
                best[match.entry.model] = max(match.score, best.get(match.entry.model, 0))
        sums.update(best)
    return max(sums, key=lambda model: sums[model]) if sums else None


def _all(matches: Matches) -> list[Match]:
    return [*matches.jaccard, *(matches.embedding or ())]


def _from_base(matches: Matches, base: str) -> Match | None:
    """Choose what a definition could come from: of one model, the likest of its kind."""
    close = [m for m in _all(matches) if m.entry.model == base and m.score >= _CLOSE]
    if not matches.definition.is_class:
        close = [m for m in close if _is_imported(matches, m)]
    return max(close, key=lambda match: (match.likeness, match.score), default=None)


def _is_imported(matches: Matches, match: Match) -> bool:
    same_name = match.entry.name == matches.definition.name
    return same_name and match.likeness >= Likeness.RENAMED


def _imports(taken: Sequence[Match]) -> list[str]:
    by_file: dict[str, list[str]] = {}
    for match in taken:
        by_file.setdefault(match.entry.file, []).append(match.entry.name)
    return [
        f"from ..{file.removesuffix('.py').replace('/', '.')} import "
        f"{', '.join(sorted(dict.fromkeys(names)))}"
        for file, names in sorted(by_file.items())
    ]


def _definition_lines(
    matches: Matches, match: Match, differences: Mapping[tuple[str, int], str]
) -> list[str]:
    name = matches.definition.name
    if _is_imported(matches, match) or name == match.entry.name:
        return []  # the import is enough
    remark = differences.get((name, match.number), "")
    comment = [f"    # {remark}"] if remark else []
    return ["", "", f"class {name}({match.entry.name}):", *comment, "    pass"]


def _remark(matches: Matches) -> list[str]:
    best = matches.jaccard[0] if matches.jaccard else None
    closest = f"; closest: {best.entry} ({best.score:.4f})" if best else ""
    return ["", "", f"# {matches.definition.name} is this model's own{closest}"]
