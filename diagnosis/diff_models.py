"""From two models to a verdict: run what has to be run, then diagnose the candidate's dump."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from comparison.schema.diagnosis import Diagnosis
from comparison.schema.errors import BadInputError
from comparison.store.mapping_guard import mappings_guarded
from diagnosis.candidates_ahead import candidates_ahead
from diagnosis.diff_options import DiffOptions
from diagnosis.fma_check import require_max
from diagnosis.kept_options import run_as_dumps
from diagnosis.module_dump import Inputs
from diagnosis.module_finding import diff_modules, is_module
from diagnosis.output_folders import clear_earlier
from diagnosis.reference_run import run_reference
from diagnosis.replay.kept_modules import kept_as_they_are
from diagnosis.repro.finding import with_repro
from diagnosis.repro.repro import require_new_folder
from diagnosis.side_finding import find_side
from diagnosis.side_runs import require_side, with_prompts_of
from diagnosis.sides import EngineSide, SideSpec, parse_side
from diagnosis.vote import vote

__all__ = ["DiffOptions", "diff_models", "diff_sides"]

if TYPE_CHECKING:
    import torch


def diff_models(
    reference: torch.nn.Module | str | Path,
    candidate: torch.nn.Module | str | Path,
    inputs: Inputs | None = None,
    *,
    num_steps: int = 3,
    encoder: bool = False,
    options: DiffOptions | None = None,
) -> Diagnosis:
    """Say whether a candidate computes what the reference does, and where it first does not.

        diff_models(model, changed_copy, [[1, 5, 7, 9], [1, 8, 2]])
        diff_models("torch", "max", options=DiffOptions(run=RunOptions(pipeline="org/model")))

    Args:
        reference: a Torch module, or a side as `parse_side` takes it.
        candidate: the same; also a dump of a candidate, where the reference is a module.
        inputs: with modules only: rows of token ids, or tensors by position or keyword. With a
            dump as the candidate: the rows that it should have been run on, if they are known.
        num_steps: with rows of token ids: greedy steps, the prefill included.
        encoder: with rows of token ids: the modules embed them, in one step.
        options: with sides: how to run them; what is left as it is by default, an engine's run
            takes from the first side that is a dump.

    Raises:
        BadInputError: the arguments do not fit together, or a side cannot be read.
        EngineError: an engine cannot run a side; its own last error is quoted.
    """
    if is_module(reference):
        with kept_as_they_are(reference, candidate):
            return diff_modules(
                reference, candidate, inputs, num_steps=num_steps, encoder=encoder, options=options
            )
    if is_module(candidate):
        raise BadInputError("the candidate is a module, so the reference has to be one too")
    if inputs is not None:
        raise BadInputError("inputs are for modules; give prompts in options.run")
    sides = [parse_side(str(reference)), parse_side(str(candidate))]
    options = options or DiffOptions()
    run, taken = run_as_dumps(options.run, sides)
    if taken is not None:
        options.tell(taken)
    return diff_sides(sides[0], sides[1:], replace(options, run=run))


def diff_sides(
    reference: SideSpec, candidates: Sequence[SideSpec], options: DiffOptions
) -> Diagnosis:
    """Run the sides and diagnose each candidate.

    Args:
        reference: what is taken to be right.
        candidates: what is in question.
        options: how to run and diagnose.

    Returns:
        The candidate's diagnosis; of several, one that joins theirs.

    Raises:
        CorruptFileError: a file of a dump became shorter while it was read.
    """
    _require_unlike(candidates)
    if options.check_fma:
        require_max(candidates)
    require_new_folder(options.repro, overwrite=options.run.overwrite)
    for spec in (reference, *candidates):
        require_side(spec, options.run)
    if options.audit_config:
        options = replace(options, run=replace(options.run, watch_config=True))
    with ExitStack() as stack:
        stack.enter_context(mappings_guarded())  # dumps that others write to
        folder = options.output or Path(stack.enter_context(TemporaryDirectory(prefix="diff-")))
        names = [f"candidate{number}" for number in range(1, len(candidates) + 1)]
        names = ["candidate"] if len(candidates) == 1 else names
        ahead = stack.enter_context(
            candidates_ahead(reference, dict(zip(names, candidates, strict=True)), folder, options)
        )
        right = run_reference(reference, folder / "reference", options, ahead)
        if options.run.overwrite:
            written = ["reference"] if isinstance(reference, EngineSide) else []
            written += ["reference-sketch"] if right.sketches is not None else []
            clear_earlier(folder, besides=written)
        run = with_prompts_of(options.run, right.side.dump)
        ahead.go(run, needed=right.plan is None)
        found = [
            find_side(right, spec, folder / name, run, options, process=ahead.process(name))
            for name, spec in zip(names, candidates, strict=True)
        ]
        return with_repro(vote(found), found, options)


def _require_unlike(candidates: Sequence[SideSpec]) -> None:
    """Refuse a candidate that is named twice: its two runs would outvote the reference.

    Raises:
        BadInputError: one is.
    """
    for number, spec in enumerate(candidates):
        if spec in candidates[:number]:
            raise BadInputError(
                f"candidate {spec} is named twice: sides that are to vote have to be others; to "
                "run one several times, give --calibrate"
            )
