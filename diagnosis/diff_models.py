"""From two models to a verdict: run what has to be run, then diagnose the candidate's dump."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from comparison.align.pairing import Pairing
from comparison.schema.diagnosis import Diagnosis
from comparison.schema.errors import BadInputError
from diagnosis.diagnose import DiagnoseOptions, diagnose, find
from diagnosis.module_dump import Inputs, ModuleInputs, calls_of, dump_module, manifest_of
from diagnosis.name_map import NameMap
from diagnosis.reference_calls import calls_of_manifest
from diagnosis.reference_model import ENCODER_TASK, build_reference
from diagnosis.side_runs import RunOptions, SideDump, oracle_of, run_side, with_prompts_of
from diagnosis.sides import EngineSide, SideSpec, parse_side
from diagnosis.two_dumps import diagnose_dumps
from diagnosis.vote import Finding, vote
from oracles.registry import PIPELINE_ORACLES
from test_common.debug_options import DebugOptions

if TYPE_CHECKING:
    import torch

    from oracles.oracle import PipelineOracle


@dataclass(frozen=True, slots=True, kw_only=True)
class DiffOptions:
    """How to diff.

    Attributes:
        run: how sides that are engines are run.
        output: folder that keeps the dumps of these; None for one that goes away.
        keep_going: replay also where the runs were given unlike inputs.
        names: pairs of tensors, instead of those found.
        on_paired: is told what was paired, once a candidate.
    """

    run: RunOptions = field(default_factory=RunOptions)
    output: Path | None = None
    keep_going: bool = False
    names: NameMap = field(default_factory=dict)
    on_paired: Callable[[Pairing], None] = lambda pairing: None

    @property
    def diagnosing(self) -> DiagnoseOptions:
        """Return what of it matters to one diagnosis."""
        return DiagnoseOptions(
            keep_going=self.keep_going, names=self.names, on_paired=self.on_paired
        )


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
        options: with sides: how to run them.

    Raises:
        BadInputError: the arguments do not fit together, or a side cannot be read.
        EngineError: an engine cannot run a side; its own last error is quoted.
    """
    if _is_module(reference):
        return _diff_modules(
            reference, candidate, inputs, num_steps=num_steps, encoder=encoder, options=options
        )
    if _is_module(candidate):
        raise BadInputError("the candidate is a module, so the reference has to be one too")
    if inputs is not None:
        raise BadInputError("inputs are for modules; give prompts in options.run")
    return diff_sides(
        parse_side(str(reference)), [parse_side(str(candidate))], options or DiffOptions()
    )


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
    """
    with ExitStack() as stack:
        folder = options.output or Path(stack.enter_context(TemporaryDirectory(prefix="diff-")))
        right = run_side(reference, folder / "reference", options.run)
        run = with_prompts_of(options.run, right.dump)
        found = []
        for number, spec in enumerate(candidates, start=1):
            name = "candidate" if len(candidates) == 1 else f"candidate{number}"
            wrong = run_side(spec, folder / name, run)
            found.append(_find(right, wrong, options))
        return vote(found)


def _find(right: SideDump, wrong: SideDump, options: DiffOptions) -> Finding:
    manifest = wrong.dump.manifest
    known = _what_was_run(right, options)
    if known is None or manifest is None or not manifest.rows:
        return Finding(diagnosis=diagnose_dumps(right.dump, wrong.dump), guilty={})
    oracle, asked = known
    model = build_reference(oracle, asked, encoding=manifest.encoding)
    encoder = oracle.task_name == ENCODER_TASK
    return find(
        model,
        wrong.dump,
        calls_of_manifest(manifest, model, encoder=encoder),
        reference=right.dump.manifest,
        options=options.diagnosing,
    )


def _what_was_run(
    right: SideDump, options: DiffOptions
) -> tuple[PipelineOracle, DebugOptions] | None:
    """Return the reference's oracle and options; None where a dump does not say.

    A dump names its pipeline, but only what is registered here or what the user names is run: no
    file, folder or Hub id that stands in a manifest.
    """
    if right.oracle is not None and right.options is not None:
        return right.oracle, right.options
    manifest = right.dump.manifest
    recorded = None if manifest is None else manifest.pipeline
    name = options.run.pipeline or (recorded if recorded in PIPELINE_ORACLES else None)
    if name is None:
        return None
    oracle, _ = oracle_of(EngineSide(engine="torch", oracle=name), options.run)
    kept = {} if manifest is None else manifest.options
    return oracle, DebugOptions(
        pipeline=name,
        framework="torch",
        num_hidden_layers=kept.get("num_hidden_layers", options.run.num_hidden_layers),
        hf_config_overrides=kept.get("hf_config_overrides", options.run.hf_config_overrides),
    )


def _diff_modules(
    reference: Any,
    candidate: Any,
    inputs: Inputs | None,
    *,
    num_steps: int,
    encoder: bool,
    options: DiffOptions | None,
) -> Diagnosis:
    from comparison.store.dump import open_dump

    asked = options or DiffOptions()
    how = asked.diagnosing
    if not _is_module(candidate):
        dump = open_dump(Path(candidate))
        if dump.manifest is None or not dump.manifest.rows:
            raise BadInputError(f"{candidate} does not say which token ids it was run on")
        calls = calls_of_manifest(dump.manifest, reference, encoder=encoder)
        given = ModuleInputs.of(inputs or (), num_steps=num_steps, encoder=encoder)
        own = manifest_of(reference, given) if given.rows else None
        return diagnose(reference.eval(), dump, calls, reference=own, options=how)
    if inputs is None:
        raise BadInputError("two modules need inputs: rows of token ids, or tensors")
    given = ModuleInputs.of(inputs, num_steps=num_steps, encoder=encoder)
    with ExitStack() as stack:
        folder = asked.output or Path(stack.enter_context(TemporaryDirectory(prefix="diff-")))
        dump = dump_module(candidate, given, folder / "candidate")
        calls = calls_of(reference, given, dump)
        return diagnose(reference.eval(), dump, calls, options=how)


def _is_module(value: object) -> bool:
    import sys

    torch = sys.modules.get("torch")  # who has a module has imported torch
    return torch is not None and isinstance(value, torch.nn.Module)
