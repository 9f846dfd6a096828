"""Entry point of accuracy_test and golden_dump: runs pipelines, judges them, writes reports."""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from comparison.schema.tolerance import Tolerance
    from diagnosis.accuracy import AccuracyCheck
    from diagnosis.accuracy_junit import CheckedCase
    from diagnosis.side_runs import RunOptions

DIVERGE = 1
BAD_INPUT = 2
FAULT = 70
TRY_AGAIN = 75

_MANIFEST = "manifest.json"


def of_this_shard(pipelines: Sequence[str], environ: Mapping[str, str]) -> list[str]:
    """Keep this shard's part of the pipelines, and announce that sharding is understood.

    Args:
        pipelines: all of the target.
        environ: the environment of the test.
    """
    if "TEST_SHARD_STATUS_FILE" in environ:
        Path(environ["TEST_SHARD_STATUS_FILE"]).touch()
    first = int(environ.get("TEST_SHARD_INDEX", "0"))
    return list(pipelines[first :: int(environ.get("TEST_TOTAL_SHARDS", "1"))])


def worst(codes: Iterable[int]) -> int:
    """Return the exit code that tells most: a difference outranks what could not be judged."""
    ranks = (DIVERGE, FAULT, BAD_INPUT, TRY_AGAIN, 0)
    return min(codes, key=ranks.index, default=0)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def accuracy() -> None:
    """Do what the targets of //bazel:accuracy.bzl do."""


@accuracy.command()
@click.argument("pipelines", nargs=-1, required=True)
@click.option("--reference", required=True, help="Engine; or a dump, its folder or manifest.json.")
@click.option("--candidate", required=True, help="Engine.")
@click.option("--rtol", type=click.FloatRange(min=0))
@click.option("--atol", type=click.FloatRange(min=0))
@click.option("--run", "settings", default="{}", help="JSON: how to run.")
def test(
    pipelines: tuple[str, ...],
    reference: str,
    candidate: str,
    rtol: float | None,
    atol: float | None,
    settings: str,
) -> int:
    """Judge every pipeline; the exit code is the worst."""
    from diagnosis.accuracy_junit import junit_report

    cases = []
    for pipeline in of_this_shard(pipelines, os.environ):
        started = time.monotonic()
        try:
            check = _check(pipeline, reference, candidate, _tolerance(rtol, atol), settings)
            code, sentence, lines = _judge(check)
        except Exception as error:  # the next pipeline is judged all the same
            code, sentence = _failed(error)
            lines = traceback.format_exc().splitlines() if code == FAULT else []
        print(f"{pipeline}: {sentence}")
        if code:
            print(*lines, sep="\n")
        cases.append(_case(pipeline, code, sentence, lines, time.monotonic() - started))
    if "XML_OUTPUT_FILE" in os.environ:
        report = junit_report(os.environ.get("TEST_TARGET", "accuracy_test"), cases)
        Path(os.environ["XML_OUTPUT_FILE"]).write_text(report, encoding="utf-8")
    return worst(case.exit_code for case in cases)


@accuracy.command()
@click.argument("pipeline")
@click.option("--framework", required=True, help="Engine.")
@click.option("--output", required=True, type=click.Path(path_type=Path), help="New folder.")
@click.option("--run", "settings", default="{}", help="JSON: how to run.")
def dump(pipeline: str, framework: str, output: Path, settings: str) -> int:
    """Write the dump of a pipeline."""
    from diagnosis.side_runs import run_side
    from diagnosis.sides import EngineSide

    run_side(EngineSide(engine=framework), output, _run_options(pipeline, settings))
    return 0


def _check(
    pipeline: str, reference: str, candidate: str, tolerance: Tolerance | None, settings: str
) -> AccuracyCheck:
    from comparison.schema.errors import BadInputError
    from diagnosis.accuracy import AccuracyCheck
    from diagnosis.sides import EngineSide, parse_side

    side = parse_side(candidate)
    if not isinstance(side, EngineSide):
        raise BadInputError(f"candidate {candidate}: expected an engine, found a folder")
    path = Path(reference)  # what a golden_dump of stored files is known by
    return AccuracyCheck(
        reference=parse_side(f"{path.parent}/" if path.name == _MANIFEST else reference),
        candidate=side,
        run=_run_options(pipeline, settings),
        tolerance=tolerance,
    )


def _judge(check: AccuracyCheck) -> tuple[int, str, list[str]]:
    from comparison.schema.tensor_names import file_stem
    from diagnosis.accuracy import check_accuracy, write_reports

    with TemporaryDirectory(prefix="dumps-", dir=os.environ.get("TEST_TMPDIR")) as folder:
        result = check_accuracy(check, Path(folder))
    kept = os.environ.get("TEST_UNDECLARED_OUTPUTS_DIR")
    if kept is not None:
        write_reports(result, Path(kept) / file_stem(str(check.run.pipeline)))
    return result.exit_code, result.sentence, list(result.lines())


def _case(
    pipeline: str, code: int, sentence: str, lines: Sequence[str], seconds: float
) -> CheckedCase:
    from diagnosis.accuracy_junit import CheckedCase

    return CheckedCase(
        pipeline=pipeline, exit_code=code, sentence=sentence, lines=lines, seconds=seconds
    )


def _run_options(pipeline: str, settings: str) -> RunOptions:
    from comparison.schema.errors import BadInputError
    from diagnosis.side_runs import RunOptions

    given: dict[str, Any] = json.loads(settings)
    try:
        return RunOptions(
            pipeline=pipeline, **{**given, "prompts": tuple(given.get("prompts", ()))}
        )
    except TypeError as error:
        raise BadInputError(f"--run {settings}: {error}") from error


def _tolerance(rtol: float | None, atol: float | None) -> Tolerance | None:
    from comparison.schema.tolerance import Tolerance

    if rtol is None and atol is None:
        return None
    return Tolerance(rtol=rtol or 0.0, atol=atol or 0.0)


def _failed(error: Exception) -> tuple[int, str]:
    from comparison.schema.errors import AccuracyToolsError, TryAgainError

    if isinstance(error, TryAgainError):
        return TRY_AGAIN, f"error: {error}"
    if isinstance(error, AccuracyToolsError | click.ClickException):
        text = error.format_message() if isinstance(error, click.ClickException) else error
        return BAD_INPUT, f"error: {text}"
    return FAULT, f"error: a fault of ours: {type(error).__name__}: {error}"


def main(arguments: list[str]) -> int:
    """Run one of the commands.

    Args:
        arguments: of the command line.

    Returns:
        0 agree, 1 diverge, 2 bad input or inconclusive, 75 try again later, 70 a fault of ours.
    """
    # Child processes import what this one does; the rules may not have exported the path.
    os.environ["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    with TemporaryDirectory(prefix="accuracy-", dir=os.environ.get("TEST_TMPDIR")) as scratch:
        _give_caches(scratch)
        try:
            return int(accuracy.main(arguments, standalone_mode=False) or 0)
        except Exception as error:
            code, text = _failed(error)
            if code == FAULT:
                traceback.print_exc()
            print(text, file=sys.stderr)
            return code


def _give_caches(scratch: str) -> None:
    """Give engines folders for what they compile: neither tests nor actions write to HOME."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    os.environ.setdefault("HOME", scratch)
    os.environ.setdefault("MODULAR_CACHE_DIR", f"{scratch}/modular")
    os.environ.setdefault("VLLM_CACHE_ROOT", f"{scratch}/vllm")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
