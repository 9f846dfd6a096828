"""From two models to a verdict: run what has to be run, then diagnose the candidate's dump."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from comparison.schema.diagnosis import Diagnosis
from comparison.schema.errors import BadInputError
from comparison.schema.manifest import Manifest
from comparison.store.dump import Dump
from diagnosis.calibration import Rerun
from diagnosis.capture_notes import capture_notes
from diagnosis.capture_plan import CapturePlan
from diagnosis.config_audit import audit_config, default_config, max_graphs
from diagnosis.decoded_text import decoder_of
from diagnosis.diagnose import find
from diagnosis.diff_options import DiffOptions
from diagnosis.drill.dump import with_inside
from diagnosis.drill.sides import OFF, DrillPlan, drilled, plan_of_side
from diagnosis.fma_check import require_max, with_fma_note
from diagnosis.given_inputs import given_differences, pictures_of, require_pictures
from diagnosis.inputs import require_one_model
from diagnosis.module_dump import (
    Inputs,
    ModuleInputs,
    calls_of,
    dump_module,
    manifest_of,
    measure_module,
)
from diagnosis.output_folders import clear_earlier
from diagnosis.replay.kept_modules import kept_as_they_are
from diagnosis.replay.reference_calls import calls_of_manifest
from diagnosis.replay.reference_model import ENCODER_TASK, build_reference
from diagnosis.replay.reruns import module_again, side_again
from diagnosis.repro.repro import repro_of, require_new_folder, write_repro
from diagnosis.sentence import named
from diagnosis.side_runs import (
    RunOptions,
    SideDump,
    measure_side,
    oracle_of,
    run_side,
    sizes_of_dump,
    with_prompts_of,
)
from diagnosis.sides import EngineSide, SideSpec, parse_side
from diagnosis.two_dumps import diagnose_dumps
from diagnosis.two_passes import Passes
from diagnosis.vote import Finding, vote
from oracles.registry import PIPELINE_ORACLES
from test_common.debug_options import DebugOptions

__all__ = ["DiffOptions", "diff_models", "diff_sides"]

if TYPE_CHECKING:
    import torch

    from oracles.oracle import PipelineOracle


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
        with kept_as_they_are(reference, candidate):
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
    if options.check_fma:
        require_max(candidates)
    require_new_folder(options.repro, overwrite=options.run.overwrite)
    if options.audit_config:
        options = replace(options, run=replace(options.run, watch_config=True))
    with ExitStack() as stack:
        folder = options.output or Path(stack.enter_context(TemporaryDirectory(prefix="diff-")))
        right, plan = _run_reference(reference, folder / "reference", options)
        if options.run.overwrite:
            written = "reference" if isinstance(reference, EngineSide) else ""
            clear_earlier(folder, besides=written)
        run = with_prompts_of(options.run, right.dump)
        found = []
        for number, spec in enumerate(candidates, start=1):
            name = "candidate" if len(candidates) == 1 else f"candidate{number}"
            found.append(_find_side(right, spec, folder / name, run, plan, options))
        return _with_repro(vote(found), found, options)


def _with_repro(joined: Diagnosis, found: Sequence[Finding], options: DiffOptions) -> Diagnosis:
    """Write the fault by itself, if that was asked for, and tell so."""
    if options.repro is not None:
        options.tell(write_repro(options.repro, joined, found))
    return joined


def _cut_out(
    found: Finding, reference: Manifest | None, candidate: Manifest | None, options: DiffOptions
) -> Finding:
    if options.repro is None:
        return found
    return replace(found, repro=repro_of(found, reference=reference, candidate=candidate))


def _find_side(
    right: SideDump,
    spec: SideSpec,
    folder: Path,
    run: RunOptions,
    plan: CapturePlan | None,
    options: DiffOptions,
) -> Finding:
    """Run one candidate, diagnose it, and look below its culprit."""
    asked = replace(run, ops=options.operations)
    if plan is None or not isinstance(spec, EngineSide):
        wrong = run_side(spec, folder, asked)
        found = _find(right, wrong, options)
    else:
        found, wrong = _in_two_passes(right, spec, folder, asked, plan, options)
    found = _audited(found, right, wrong, options)
    found = _cut_out(found, right.dump.manifest, wrong.dump.manifest, options)
    how = plan_of_side(
        spec, wrong.dump, folder.with_name(f"{folder.name}-drill"), run, command=options.command
    )
    found = drilled(found, replace(how, is_off=options.drill == OFF, asked=options.asked_below))
    if options.check_fma:
        options.tell("building three small graphs on MAX, to see how multiply-adds are rounded")
        encoding = None if wrong.dump.manifest is None else wrong.dump.manifest.encoding
        found = replace(found, diagnosis=with_fma_note(found.diagnosis, spec, encoding))
    if options.run.verify_capture:
        notes = capture_notes(right.dump.manifest, wrong.dump.manifest)
        found = replace(found, diagnosis=found.diagnosis.noting(*notes))
    options.on_found(right.dump, wrong.dump, found.diagnosis)
    return found


def _run_reference(
    spec: SideSpec, folder: Path, options: DiffOptions
) -> tuple[SideDump, CapturePlan | None]:
    """Run the reference, and plan two passes where a full dump is too large."""
    measured: SideDump | None = None
    if not isinstance(spec, EngineSide):
        measured = run_side(spec, folder, options.run)
        sizes = sizes_of_dump(measured.dump)
    elif spec.engine == "torch":
        measured, sizes = measure_side(spec, folder, options.run, max_bytes=options.max_bytes)
    else:
        _, sizes = measure_side(spec, folder, options.run, max_bytes=0)
    plan = CapturePlan(sizes)
    if plan.total_bytes <= options.max_bytes:
        return measured or run_side(spec, folder, options.run), None
    coarse = replace(options.run, filter=plan.coarse())
    return measured or run_side(spec, folder, coarse), plan


def _in_two_passes(
    right: SideDump,
    spec: EngineSide,
    folder: Path,
    run: RunOptions,
    plan: CapturePlan,
    options: DiffOptions,
) -> tuple[Finding, SideDump]:
    """Capture coarsely, then finely where something is suspect; kept dumps are of both sides."""
    captured: list[SideDump] = []

    def capture(name: str, globs: tuple[str, ...]) -> SideDump:
        asked = replace(run, filter=globs)
        if name == "fine" and options.output is not None and isinstance(right.spec, EngineSide):
            run_side(right.spec, folder.with_name(f"reference-of-{folder.name}-fine"), asked)
        captured.append(run_side(spec, folder.with_name(f"{folder.name}-{name}"), asked))
        return captured[-1]

    found = Passes(
        capture=capture,
        find=lambda wrong, least: _find(right, wrong, options, least_modules=least),
        plan=plan,
        max_bytes=options.max_bytes,
        tell=options.tell,
        engine=spec.engine,
    ).run()
    return found, captured[-1]


def _find(
    right: SideDump,
    wrong: SideDump,
    options: DiffOptions,
    *,
    least_modules: int | None = None,
) -> Finding:
    manifest = wrong.dump.manifest
    if not options.keep_going:
        require_one_model(right.dump.manifest, manifest)
    known = _what_was_run(right, options)
    if known is None or manifest is None or not manifest.rows:
        weaker = Finding(diagnosis=diagnose_dumps(right.dump, wrong.dump), guilty={})
        return _named(weaker, right, wrong)
    oracle, asked = known
    model = build_reference(oracle, asked, encoding=manifest.encoding)
    encoder = oracle.task_name == ENCODER_TASK
    pictures = pictures_of(wrong.dump) or pictures_of(right.dump)
    require_pictures(wrong.dump, pictures)
    calls = calls_of_manifest(manifest, model, encoder=encoder, pictures=pictures)
    given = tuple(given_differences(right.dump, wrong.dump))
    with TemporaryDirectory(prefix="again-") as again:
        reruns = side_again(wrong, Path(again)) if options.calibrate else ()
        how = replace(
            options.diagnosing(least_modules, reruns), inputs=given, decode=decoder_of(oracle)
        )
        found = find(model, wrong.dump, calls, reference=right.dump.manifest, options=how)
        return _named(found, right, wrong)


def _named(found: Finding, right: SideDump, wrong: SideDump) -> Finding:
    """Call the sides as the user did."""
    reference, candidate = str(right.spec), str(wrong.spec)
    told = named(found.diagnosis, reference=reference, candidate=candidate)
    return replace(found, diagnosis=told)


def _audited(found: Finding, right: SideDump, wrong: SideDump, options: DiffOptions) -> Finding:
    """Add the fields of the configuration that do not reach the candidate, if asked for."""
    reference, candidate = right.dump.manifest, wrong.dump.manifest
    known = _what_was_run(right, options)
    if not options.audit_config or known is None or reference is None or candidate is None:
        return found
    graph_of = None
    if candidate.engine == "max" and wrong.oracle is not None and wrong.options is not None:
        options.tell(
            "building MAX's graph again for every field that the reference reads, uncompiled "
            "(seconds each, and as long as it takes to load the weights)"
        )
        graph_of = max_graphs(wrong.oracle, wrong.options, rows=len(candidate.rows))
    audit = audit_config(reference, candidate, default_config(known[0]), graph_of)
    return replace(found, diagnosis=replace(found.diagnosis, config_audit=audit))


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
    require_new_folder(asked.repro, overwrite=asked.run.overwrite)
    if asked.audit_config:
        raise BadInputError("audit_config watches models being built: name sides, not modules")
    how = asked.diagnosing()
    if not _is_module(candidate):
        dump = open_dump(Path(candidate))
        if dump.manifest is None or not dump.manifest.rows:
            raise BadInputError(f"{candidate} does not say which token ids it was run on")
        pictures = pictures_of(dump)
        require_pictures(dump, pictures)
        calls = calls_of_manifest(dump.manifest, reference, encoder=encoder, pictures=pictures)
        given = ModuleInputs.of(inputs or (), num_steps=num_steps, encoder=encoder)
        own = manifest_of(reference, given) if given.rows else None
        found = find(reference.eval(), dump, calls, reference=own, options=how)
        found = _cut_out(found, own, dump.manifest, asked)
        found = drilled(found, DrillPlan(dump=dump))
        return _with_repro(found.diagnosis, [found], asked)
    if inputs is None:
        raise BadInputError("two modules need inputs: rows of token ids, or tensors")
    given = ModuleInputs.of(inputs, num_steps=num_steps, encoder=encoder)
    with ExitStack() as stack:
        folder = asked.output or Path(stack.enter_context(TemporaryDirectory(prefix="diff-")))
        return _find_in_modules(reference, candidate, given, folder, asked)


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
        found = drilled(_cut_out(found, None, dump.manifest, options), how)
        return _with_repro(found.diagnosis, [found], options)

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


def _is_module(value: object) -> bool:
    import sys

    torch = sys.modules.get("torch")  # who has a module has imported torch
    return torch is not None and isinstance(value, torch.nn.Module)
