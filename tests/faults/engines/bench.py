"""Runs the faults on real engines: `python -m tests.faults.engines.bench [--engine E]`."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from tests.faults.bench import Result, failures, table
from tests.faults.engines.case import EngineCase
from tests.faults.engines.catalogue import ALL_CASES
from tests.faults.engines.judge import judge


def main(arguments: Sequence[str] | None = None) -> int:
    """Judge the chosen cases, and print what was right.

    Returns:
        1 where an answer is wrong, or a case is not what it says.
    """
    parser = argparse.ArgumentParser(
        prog="python -m tests.faults.engines.bench", description=__doc__
    )
    parser.add_argument("--engine", choices=["max", "vllm"], help="only this engine")
    parser.add_argument(
        "--name", action="append", help="only cases with this text in their name; may be repeated"
    )
    parser.add_argument("--json", type=Path, help="write all results to this file")
    parser.add_argument("--output", type=Path, help="keep the dumps in this folder")
    options = parser.parse_args(arguments)
    cases = [
        case
        for case in ALL_CASES
        if options.engine in (None, case.engine)
        and any(text in case.name for text in options.name or [""])
    ]
    results, invalid = [], []
    for case in cases:
        try:
            kept = None if options.output is None else options.output / case.name
            results.append(judge(case, kept))
        except Exception as error:  # a case that cannot be run is as useless as a void one
            invalid.append(f"{case.name}: {type(error).__name__}: {error}")
            continue
        print(_line(case, results[-1]), flush=True)
        if options.json:  # after each case, so that a run that is stopped leaves what it found
            options.json.write_text(json.dumps([asdict(result) for result in results], indent=1))
    if results:
        print("", table(results), failures(results), sep="\n\n")
    for line in invalid:
        print(f"INVALID {line}")
    wrong = sum(not result.right for result in results)
    print(f"{len(cases)} cases, {len(invalid)} invalid, {wrong} wrong")
    return 1 if invalid or wrong else 0


def _line(case: EngineCase, result: Result) -> str:
    return f"{'right' if result.right else 'WRONG'} {case.name}: {result.sentence}"


if __name__ == "__main__":
    sys.exit(main())
