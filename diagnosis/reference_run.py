"""Runs the reference, or takes what an earlier run of the same gave."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from comparison.store.dump import open_dump
from diagnosis.candidates_ahead import CandidatesAhead
from diagnosis.capture_plan import CapturePlan
from diagnosis.diff_options import DiffOptions
from diagnosis.reference_cache import ReferenceCache, default_folder
from diagnosis.reference_key import NotCacheableError, key_of_run
from diagnosis.side_errors import side_errors
from diagnosis.side_finding import Reference
from diagnosis.side_runs import (
    EngineOracle,
    RunOptions,
    SideDump,
    called,
    debug_options,
    measure_side,
    oracle_of,
    run_side,
    sizes_of_dump,
)
from diagnosis.sides import EngineSide, SideSpec
from diagnosis.sketch_pass import sizes_of_sketches, sketch_side
from test_common.capture_mode import CaptureMode
from test_common.file_digests import FileDigests
from test_common.run_rows import token_ids_of_run

_INDEX = "digests.json"


def run_reference(
    spec: SideSpec, folder: Path, options: DiffOptions, ahead: CandidatesAhead
) -> Reference:
    """Run the reference, and plan two passes where a full dump is too large.

    Args:
        spec: the reference.
        folder: where its dump goes.
        options: how to diff.
        ahead: candidates that wait for the token ids.

    Raises:
        BadInputError: there is no such pipeline, oracle or dump.
        EngineError: it cannot be run.
    """
    measured: SideDump | None = None
    asked = options.running_reference
    if options.mode is not CaptureMode.FULL and isinstance(spec, EngineSide):
        return _sketched(spec, folder, asked)
    if not isinstance(spec, EngineSide):
        measured = run_side(spec, folder, asked)
        sizes = sizes_of_dump(measured.dump)
    elif spec.engine == "torch":
        measured, sizes = _run_on_torch(spec, folder, options, ahead)
    else:
        _, sizes = measure_side(spec, folder, asked, max_bytes=0)
    plan = CapturePlan(sizes)
    if plan.total_bytes <= options.max_bytes:
        return Reference(side=measured or run_side(spec, folder, asked))
    coarse = replace(asked, filter=plan.coarse())
    if measured is not None or not isinstance(spec, EngineSide):
        return Reference(side=measured or run_side(spec, folder, coarse), plan=plan)
    sketches = sketch_side(spec, folder.with_name(f"{folder.name}-sketch"), asked)
    return Reference(side=run_side(spec, folder, coarse), plan=plan, sketches=sketches)


def _sketched(spec: EngineSide, folder: Path, asked: RunOptions) -> Reference:
    """Keep sketches of all tensors, and dump what layers give."""
    sketches = sketch_side(spec, folder.with_name(f"{folder.name}-sketch"), asked)
    if spec.engine == "torch":
        sizes = sizes_of_sketches(sketches)
    else:
        _, sizes = measure_side(spec, folder, asked, max_bytes=0)
    plan = CapturePlan(sizes)
    coarse = replace(asked, filter=plan.coarse())
    return Reference(side=run_side(spec, folder, coarse), plan=plan, sketches=sketches)


def _run_on_torch(
    spec: EngineSide, folder: Path, options: DiffOptions, ahead: CandidatesAhead
) -> tuple[SideDump | None, dict[str, int]]:
    asked = options.running_reference
    if not ahead.is_wanted and not options.cache_reference:
        return measure_side(spec, folder, asked, max_bytes=options.max_bytes)
    with side_errors(called(spec, folder, asked)):
        known = oracle_of(spec, asked)
        rows = token_ids_of_run(known[0], debug_options(spec, known[1], folder, asked))
    if rows is not None:
        ahead.give(known[0], rows)
    if not options.cache_reference:
        return measure_side(spec, folder, asked, max_bytes=options.max_bytes, known=known)
    return _kept_or_run(spec, folder, options, known, rows)


def _kept_or_run(
    spec: EngineSide,
    folder: Path,
    options: DiffOptions,
    known: EngineOracle,
    rows: list[list[int]] | None,
) -> tuple[SideDump | None, dict[str, int]]:
    """Take the dump from the cache, or run the reference and keep its dump there."""
    asked, may_link = options.running_reference, options.output is None
    how = debug_options(spec, known[1], folder, asked)
    cache = ReferenceCache(default_folder())
    digests = FileDigests(cache.folder / _INDEX)
    file = _file_of(spec, options)

    def key() -> str | None:
        try:
            return key_of_run(known[0], how, rows, digests, file=file)
        except (NotCacheableError, OSError):
            return None

    before = key()
    if before is not None:
        kept = cache.take(
            before,
            folder,
            overwrite=asked.overwrite,
            may_link=may_link,
            max_bytes=options.max_bytes,
        )
        digests.save()
        if kept is not None:
            options.tell("the reference's dump is from the cache")
            side = SideDump(
                spec=spec,
                dump=open_dump(folder),
                oracle=known[0],
                options=how,
                cached_at=kept.made_at,
            )
            return side, kept.sizes
    side_and_sizes = measure_side(spec, folder, asked, max_bytes=options.max_bytes, known=known)
    # What was changed while it ran may or may not be in the dump.
    if side_and_sizes[0] is not None and before is not None and key() == before:
        cache.keep(before, folder, side_and_sizes[1], may_link=may_link)
    return side_and_sizes


def _file_of(spec: EngineSide, options: DiffOptions) -> Path | None:
    """Return the user's file of oracles that the side names."""
    name = spec.oracle or options.run.pipeline or ""
    file, separator, _ = name.partition(".py:")
    if separator or name.endswith(".py"):
        return Path(f"{file}.py" if separator else name).expanduser()
    return None
