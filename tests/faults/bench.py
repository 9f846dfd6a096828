"""Runs the benchmark: `python -m tests.faults.bench [--kind K] [--arch A] [--name N]`."""

from __future__ import annotations

import argparse
import json
import sys
import time
import traceback
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.faults.catalogue import all_pairs, fast_pairs, held_out_pairs, third_part_pairs
from tests.faults.dump_pair import LogitDifference, logit_difference, write_pair
from tests.faults.models import is_encoder, reference
from tests.faults.pair import Pair

# In units of rounding: what a fault must exceed, and a harmless change must not.
LEAST_FAULT = 5.0
MOST_HARMLESS = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What the tool said of one pair.

    Attributes:
        name: name of the pair.
        kind: kind of the pair.
        is_fault: whether there is anything to find.
        right: the verdict is right, and for a fault the module too.
        verdict: the tool's verdict, `error` where it died.
        place_right: the place is right; None where it is not asked.
        cause_right: the cause is right; None for pairs without, or whose cause has no name.
        second_right: of two faults, the later one is found, with its cause; None for others.
        confidence: how sure the tool said to be of the cause; None where it did not say.
        expected: what was expected, in words.
        got: what the tool found, in words.
        sentence: the tool's sentence.
        seconds: how long the tool took.
        held_out: as in Pair.
    """

    name: str
    kind: str
    is_fault: bool
    right: bool
    verdict: str
    place_right: bool | None
    cause_right: bool | None
    expected: str
    got: str
    sentence: str
    seconds: float
    held_out: bool = False
    second_right: bool | None = None
    confidence: float | None = None

    @property
    def is_false_alarm(self) -> bool:
        """Whether the tool found a fault where there is none."""
        return not self.is_fault and self.verdict == "diverge"

    @property
    def is_open(self) -> bool:
        """Whether the tool said nothing: inconclusive, or dead."""
        return self.verdict in ("inconclusive", "error")


def check_validity(pair: Pair) -> LogitDifference:
    """Raise for a fault that is void, and for a harmless change that does harm.

    Raises:
        ValueError: the logits do not say what the pair says.
    """
    found = logit_difference(pair)
    if pair.is_fault and pair.modules:
        least = 0.0 if pair.subtle else LEAST_FAULT * found.noise
        if found.largest <= least:
            raise ValueError(f"{pair.name} is void: {found}")
    if not pair.is_fault:
        moved = found.shifted if pair.shift else found.largest
        if not moved <= MOST_HARMLESS * found.noise:
            raise ValueError(f"{pair.name} does harm: {found}")
    return found


def judge(pair: Pair) -> Result:
    """Let the tool diagnose one pair."""
    from diagnosis.diff_models import diff_models

    with TemporaryDirectory(prefix="fault-") as folder:
        dump = write_pair(pair, Path(folder) / "dump")
        rows = [list(row) for row in pair.rows]
        begin = time.perf_counter()
        try:
            found = diff_models(reference(pair.arch), dump, rows, encoder=is_encoder(pair.arch))
        except Exception as error:  # a tool that dies is wrong, and the others go on
            last = traceback.extract_tb(error.__traceback__)[-1]
            where = f"{Path(last.filename).name}:{last.lineno}"
            return _result(pair, None, f"{type(error).__name__}: {error} ({where})", begin)
        return _result(pair, found, found.sentence, begin)


def _result(pair: Pair, found: Any, sentence: str, begin: float) -> Result:
    verdict = str(found.verdict) if found is not None else "error"
    culprit = found.culprit if found is not None else None
    cause = found.cause.id if found is not None and found.cause is not None else ""
    module = culprit.module if culprit is not None else ""
    blamed = module in pair.modules if pair.modules else not module
    right = verdict == pair.verdict and blamed
    if pair.is_fault and not pair.modules:
        right = right and cause == pair.cause
    spot = culprit.spot if culprit is not None else None
    return Result(
        name=pair.name,
        kind=pair.kind,
        is_fault=pair.is_fault,
        right=right,
        verdict=verdict,
        place_right=_place_right(pair, spot),
        cause_right=_cause_right(pair, cause),
        second_right=_second_right(pair, found),
        confidence=found.cause.confidence if found is not None and found.cause else None,
        expected=" ".join([pair.verdict, " | ".join(pair.modules), pair.cause, _asked(pair)]),
        got=f"{verdict} {module} {cause} {_told(spot)}",
        sentence=sentence,
        seconds=time.perf_counter() - begin,
        held_out=pair.held_out,
    )


def _cause_right(pair: Pair, cause: str) -> bool | None:
    if not pair.is_fault or pair.cause in ("", "unknown"):
        return None
    return cause == pair.cause


def _second_right(pair: Pair, found: Any) -> bool | None:
    """Tell whether the later of two faults is among the guilty, with its cause."""
    if not pair.second:
        return None
    guilty = [] if found is None else [g for g in found.guilty if g.module in pair.second]
    return any(g.cause is not None and g.cause.id == pair.second_cause for g in guilty)


def _place_right(pair: Pair, spot: Any) -> bool | None:
    asked = {name: value for name, value in asdict(pair.place).items() if value is not None}
    if not asked:
        return None
    return spot is not None and all(getattr(spot, name) == value for name, value in asked.items())


def _asked(pair: Pair) -> str:
    asked = {name: value for name, value in asdict(pair.place).items() if value is not None}
    return ", ".join(f"{name} {value}" for name, value in asked.items())


def _told(spot: Any) -> str:
    return "" if spot is None else f"step {spot.step}, row {spot.row}, position {spot.position}"


def table(results: Sequence[Result]) -> str:
    """Count by kind."""
    lines = [
        f"{'kind':16} {'pairs':>5} {'right':>5} {'place':>7} {'cause':>7} {'false':>5} {'s':>7}"
    ]
    kinds = sorted({(not r.is_fault, r.kind) for r in results})
    for harmless, kind in kinds:
        rows = [r for r in results if r.kind == kind and r.is_fault is not harmless]
        lines.append(_line(kind, rows))
    for title, chosen in (("all faults", True), ("all harmless", False)):
        rows = [r for r in results if r.is_fault is chosen]
        if rows:
            lines.append(_line(title, rows))
    return "\n".join(lines)


def _line(title: str, rows: Sequence[Result]) -> str:
    places = [r.place_right for r in rows if r.place_right is not None]
    causes = [r.cause_right for r in rows if r.cause_right is not None]
    false, silent = sum(r.is_false_alarm for r in rows), sum(r.is_open for r in rows)
    return (
        f"{title:16} {len(rows):5} {sum(r.right for r in rows):5} "
        f"{f'{sum(places)}/{len(places)}':>7} {f'{sum(causes)}/{len(causes)}':>7} "
        f"{false:5} {silent:5} {sum(r.seconds for r in rows):7.1f}"
    )


def calibration(results: Iterable[Result]) -> str:
    """Hold how sure the tool said to be of causes against how often it was right."""
    sure = [(r.confidence, r.cause_right) for r in results if r.cause_right is not None]
    lines = [f"{'said':>9} {'causes':>6} {'right':>5}"]
    for low, high in ((0.95, 1.01), (0.9, 0.95), (0.8, 0.9), (0.0, 0.8)):
        rows = [right for said, right in sure if said is not None and low <= said < high]
        if rows:
            share = f"{sum(rows) / len(rows):.0%}"
            lines.append(f"{low:4.0%}-{min(high, 1.0):4.0%} {len(rows):6} {share:>5}")
    unsure = sum(said is None for said, _ in sure)
    return "\n".join([*lines, f"{'unknown':>9} {unsure:6}"])


def failures(results: Iterable[Result]) -> str:
    """Tell of each wrong answer what was expected and what the tool said."""
    found = []
    for result in results:
        wrong = {
            "WRONG": not result.right,
            "PLACE": result.place_right is False,
            "CAUSE": result.cause_right is False,
            "SECOND": result.second_right is False,
        }
        what = next((word for word, is_so in wrong.items() if is_so), None)
        if what is None:
            continue
        found.append(
            f"{what} {result.name}\n  expected {result.expected}\n  got      {result.got}\n"
            f"  said     {result.sentence}"
        )
    return "\n".join(found)


def _pairs_of(part: str, *, fast: bool) -> tuple[Pair, ...]:
    """Choose a part; the fast choice is of the first."""
    match part:
        case "held-out":
            return held_out_pairs()
        case "third":
            return third_part_pairs()
        case "all" if not fast:
            return (*all_pairs(), *held_out_pairs())
        case _:
            return fast_pairs() if fast else all_pairs()


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults.bench", description=__doc__)
    parser.add_argument("--kind", help="only this kind")
    parser.add_argument("--arch", help="only this architecture")
    parser.add_argument("--name", help="only pairs with this text in their name")
    parser.add_argument("--subset", choices=["all", "fast", "third"], default="all")
    parser.add_argument(
        "--part",
        choices=["first", "held-out", "third", "all"],
        default="all",
        help="the pairs that the tool was made with, those it was not, or both; third by itself",
    )
    parser.add_argument("--json", type=Path, help="write all results to this file")
    parser.add_argument("--check-only", action="store_true", help="only check the pairs themselves")
    options = parser.parse_args(arguments)
    part = "third" if options.subset == "third" else options.part
    pairs = [
        pair
        for pair in _pairs_of(part, fast=options.subset == "fast")
        if options.kind in (None, pair.kind)
        and options.arch in (None, pair.arch, pair.arch.partition("@")[0])
        and (options.name or "") in pair.name
    ]
    results, invalid = [], []
    for pair in pairs:
        try:
            check_validity(pair)
        except Exception as error:  # a pair that cannot be run is as useless as a void one
            invalid.append(f"{pair.name}: {type(error).__name__}: {error}")
            continue
        if not options.check_only:
            results.append(judge(pair))
            print("." if results[-1].right else "F", end="", file=sys.stderr, flush=True)
        if options.json:  # after each pair, so that a run that is stopped leaves what it found
            options.json.write_text(json.dumps([asdict(result) for result in results], indent=1))
    print(file=sys.stderr)
    if results:
        for title, held_out in (("first part", False), ("held out", True)):
            part = [r for r in results if r.held_out is held_out]
            if part:
                print(f"{title}:", table(part), calibration(part), failures(part), sep="\n\n")
    for line in invalid:
        print(f"INVALID {line}")
    print(f"{len(pairs)} pairs, {len(invalid)} invalid, {sum(not r.right for r in results)} wrong")
    return 1 if invalid or not all(r.right for r in results) else 0


if __name__ == "__main__":
    sys.exit(main())
