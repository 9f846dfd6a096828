"""A candidate that is a module of this process, or a dump, held against a reference module."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from comparison.schema.diagnosis import Diagnosis
from comparison.schema.errors import BadInputError
from comparison.store.dump import Dump, open_dump
from diagnosis.calibration import Rerun
from diagnosis.capture_plan import CapturePlan
from diagnosis.diagnose import find
from diagnosis.diff_options import DiffOptions
from diagnosis.drill.dump import with_inside
from diagnosis.drill.sides import OFF, DrillPlan, drilled
from diagnosis.finding import Finding
from diagnosis.given_inputs import pictures_of, require_pictures
from diagnosis.module_dump import (
    Inputs,
    ModuleInputs,
    calls_of,
    dump_module,
    manifest_of,
    measure_module,
)
from diagnosis.replay.reference_calls import calls_of_manifest
from diagnosis.replay.reruns import module_again
from diagnosis.repro.finding import cut_out, with_repro
from diagnosis.repro.repro import require_new_folder
from diagnosis.two_passes import Passes


def diff_modules(
    reference: Any,
    candidate: Any,
    inputs: Inputs | None,
    *,
    num_steps: int,
    encoder: bool,
    options: DiffOptions | None,
) -> Diagnosis:
    """Diagnose; the arguments are those of `diagnosis.diff_models.diff_models`.

    Raises:
        BadInputError: the arguments do not fit together, or a dump cannot be read.
        EngineError: a module raises as it is run.
    """
    asked = options or DiffOptions()
    _require_some(inputs)
    require_new_folder(asked.repro, overwrite=asked.run.overwrite)
    if asked.audit_config:
        raise BadInputError("audit_config watches models being built: name sides, not modules")
    how = asked.diagnosing()
    if not is_module(candidate):
        dump = open_dump(Path(candidate))
        if dump.manifest is None or not dump.manifest.rows:
            raise BadInputError(f"{candidate} does not say which token ids it was run on")
        pictures = pictures_of(dump)
        require_pictures(dump, pictures)
        calls = calls_of_manifest(dump.manifest, reference, encoder=encoder, pictures=pictures)
        given = ModuleInputs.of(inputs or (), num_steps=num_steps, encoder=encoder)
        own = manifest_of(reference, given) if given.rows else None
        found = find(reference.eval(), dump, calls, reference=own, options=how)
        found = cut_out(found, own, dump.manifest, asked)
        found = drilled(found, DrillPlan(dump=dump))
        return with_repro(found.diagnosis, [found], asked)
    if inputs is None:
        raise BadInputError("two modules need inputs: rows of token ids, or tensors")
    given = ModuleInputs.of(inputs, num_steps=num_steps, encoder=encoder)
    with ExitStack() as stack:
        folder = asked.output or Path(stack.enter_context(TemporaryDirectory(prefix="diff-")))
        return _find_in_modules(reference, candidate, given, folder, asked)


def _require_some(inputs: Inputs | None) -> None:
    """Refuse inputs that hold nothing, which no module is to be blamed for.

    Raises:
        BadInputError: there are no rows or tensors, or a row is of no token.
    """
    if inputs is None:
        return
    if not len(inputs):
        raise BadInputError(
            "expected rows of token ids, or tensors by position or keyword, found none in inputs: "
            "give at least one row, such as [[1, 5, 7]]"
        )
    empty = [number for number, row in enumerate(inputs) if isinstance(row, list) and not row]
    if empty:
        raise BadInputError(
            f"expected at least one token id in each row, found none in row {empty[0]} of inputs: "
            "leave it out, or give it a token"
        )


def _find_in_modules(
    reference: Any, candidate: Any, given: ModuleInputs, folder: Path, options: DiffOptions
) -> Diagnosis:
    def find_in(dump: Dump, least_modules: int | None = None) -> Finding:
        calls = calls_of(reference, given, dump)
        with TemporaryDirectory(prefix="again-") as again:
            reruns: Iterable[Rerun] = ()
            if options.calibrate:
                reruns = module_again(candidate, given, Path(again), globs=asked[-1])
            how = options.diagnosing(least_modules, reruns)
            return find(reference.eval(), dump, calls, options=how)

    asked: list[tuple[str, ...] | None] = [None]
    captured: list[Dump] = []

    def capture(name: str, globs: tuple[str, ...]) -> Dump:
        asked.append(globs)
        captured.append(dump_module(candidate, given, folder / f"candidate-{name}", globs=globs))
        return captured[-1]

    def look_below(found: Finding, dump: Dump) -> Diagnosis:
        def run_again(globs: tuple[str, ...]) -> Dump:
            inside = with_inside(globs)
            return dump_module(
                candidate, given, folder / "candidate-drill", globs=inside, ops=globs
            )

        how = DrillPlan(dump=dump, run_again=run_again, is_off=options.drill == OFF)
        found = drilled(cut_out(found, None, dump.manifest, options), how)
        return with_repro(found.diagnosis, [found], options)

    dump, sizes = measure_module(
        candidate, given, folder / "candidate", max_bytes=options.max_bytes
    )
    if dump is not None:
        return look_below(find_in(dump), dump)
    passes = Passes(
        capture=capture,
        find=find_in,
        plan=CapturePlan(sizes),
        max_bytes=options.max_bytes,
        tell=options.tell,
        engine="torch",
    )
    return look_below(passes.run(), captured[-1])


def is_module(value: object) -> bool:
    """Tell a Torch module; torch is not imported for it."""
    import sys

    torch = sys.modules.get("torch")  # who has a module has imported torch
    return torch is not None and isinstance(value, torch.nn.Module)
