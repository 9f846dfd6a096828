"""One candidate's run held against the reference's: the replay, the audit, the look below."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from comparison.schema.manifest import Manifest
from comparison.store.dump import Dump
from diagnosis.capture_notes import capture_notes, steps_left
from diagnosis.capture_plan import CapturePlan
from diagnosis.config_audit import audit_config, default_config, max_graphs
from diagnosis.decoded_text import decoder_of
from diagnosis.diagnose import find
from diagnosis.diff_options import DiffOptions
from diagnosis.drill.sides import OFF, drilled, plan_of_side
from diagnosis.dumped_reference import DumpedReference, check_reference
from diagnosis.finding import Finding
from diagnosis.fma_check import with_fma_note
from diagnosis.given_inputs import given_differences, pictures_of, require_pictures
from diagnosis.inputs import require_one_model
from diagnosis.kept_options import kept_layers, kept_overrides
from diagnosis.reference_cache import age_text
from diagnosis.replay.reference_calls import calls_of_manifest
from diagnosis.replay.reference_model import ENCODER_TASK, build_reference
from diagnosis.replay.reruns import side_again
from diagnosis.repro.finding import cut_out
from diagnosis.sentence import named
from diagnosis.side_process import SideProcess
from diagnosis.side_runs import RunOptions, SideDump, oracle_of, run_side
from diagnosis.sides import DumpSide, EngineSide, SideSpec
from diagnosis.sketch_pass import SketchedSuspects, sketch_side, suspects_in_sketches
from diagnosis.two_dumps import diagnose_dumps
from diagnosis.two_passes import Passes
from oracles.registry import PIPELINE_ORACLES
from test_common.debug_options import DebugOptions

if TYPE_CHECKING:
    import torch

    from oracles.oracle import PipelineOracle


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """The reference as candidates are held against it.

    Attributes:
        side: its run, or its dump.
        plan: how to capture in two passes; None where a full dump is small enough.
        sketches: sketches of all its tensors, to begin with in place of a coarse pass.
        checked: what is known of it where it is a dump, once that was found out.
    """

    side: SideDump
    plan: CapturePlan | None = None
    sketches: Path | None = None
    checked: list[DumpedReference] = field(default_factory=list)


def find_side(
    reference: Reference,
    spec: SideSpec,
    folder: Path,
    run: RunOptions,
    options: DiffOptions,
    *,
    process: SideProcess | None = None,
) -> Finding:
    """Run one candidate, diagnose it, and look below its culprit.

    Args:
        reference: what it is held against.
        spec: the candidate.
        folder: where its dump goes.
        run: how it is run.
        options: how to diagnose.
        process: where it runs already; None for running it here.

    Raises:
        BadInputError: it cannot be read.
        EngineError: it cannot be run.
    """
    right = reference.side
    found, wrong = _found(reference, spec, folder, run, options, process=process)
    found = _audited(found, right, wrong, options)
    found = cut_out(found, right.dump.manifest, wrong.dump.manifest, options)
    how = plan_of_side(
        spec, wrong.dump, folder.with_name(f"{folder.name}-drill"), run, command=options.command
    )
    found = drilled(found, replace(how, is_off=options.drill == OFF, asked=options.asked_below))
    if options.check_fma:
        options.tell("building three small graphs on MAX, to see how multiply-adds are rounded")
        encoding = None if wrong.dump.manifest is None else wrong.dump.manifest.encoding
        found = replace(found, diagnosis=with_fma_note(found.diagnosis, spec, encoding))
    found = replace(found, diagnosis=found.diagnosis.noting(*_notes(right, wrong, options)))
    options.on_found(right.dump, wrong.dump, found.diagnosis)
    return found


def _found(
    reference: Reference,
    spec: SideSpec,
    folder: Path,
    run: RunOptions,
    options: DiffOptions,
    *,
    process: SideProcess | None,
) -> tuple[Finding, SideDump]:
    asked = replace(run, ops=options.operations)
    if reference.plan is not None and isinstance(spec, EngineSide):
        return _in_two_passes(reference, spec, folder, asked, reference.plan, options)
    if process is None or not isinstance(spec, EngineSide):
        wrong = run_side(spec, folder, asked)
        return _find(reference, wrong, options), wrong
    model = _model_ahead(reference.side, options) if process.is_beside else None
    process.wait()
    wrong = replace(run_side(DumpSide(path=folder), folder, asked), spec=spec)
    return _find(reference, wrong, options, ahead=model), wrong


def _notes(right: SideDump, wrong: SideDump, options: DiffOptions) -> Iterator[str]:
    if options.run.verify_capture:
        yield from capture_notes(right.dump.manifest, wrong.dump.manifest)
    yield from steps_left(right.dump.manifest, wrong.dump.manifest)
    if right.cached_at is not None:
        yield (
            f"the reference was run {age_text(right.cached_at)}, and its dump was taken from the "
            "cache (--no-cache runs it again)"
        )


def _model_ahead(right: SideDump, options: DiffOptions) -> tuple[str, torch.nn.Module] | None:
    """Build the model of the replay while the candidate still runs, by the reference's encoding."""
    known, manifest = _what_was_run(right, options), right.dump.manifest
    if known is None or manifest is None:
        return None
    oracle, asked = known
    stream = options.stream_reference
    model = build_reference(oracle, asked, encoding=manifest.encoding, stream=stream)
    return manifest.encoding, model


def _in_two_passes(
    reference: Reference,
    spec: EngineSide,
    folder: Path,
    run: RunOptions,
    plan: CapturePlan,
    options: DiffOptions,
) -> tuple[Finding, SideDump]:
    """Capture coarsely, then finely where something is suspect; kept dumps are of both sides."""
    captured: list[SideDump] = []
    right, sketches = reference.side, reference.sketches

    def capture(name: str, globs: tuple[str, ...]) -> SideDump:
        asked = replace(run, filter=globs)
        if name != "coarse" and options.output is not None and isinstance(right.spec, EngineSide):
            kept = folder.with_name(f"reference-of-{folder.name}-{name}")
            run_side(right.spec, kept, replace(asked, stream=options.stream_reference))
        captured.append(run_side(spec, folder.with_name(f"{folder.name}-{name}"), asked))
        return captured[-1]

    def sketched(sketches: Path) -> SketchedSuspects:
        own = sketch_side(spec, folder.with_name(f"{folder.name}-sketch"), run)
        return suspects_in_sketches(sketches, own, plan)

    found = Passes(
        capture=capture,
        find=lambda wrong, least: _find(reference, wrong, options, least_modules=least),
        plan=plan,
        max_bytes=options.max_bytes,
        tell=options.tell,
        engine=spec.engine,
        sketched=None if sketches is None else partial(sketched, sketches),
    ).run()
    return found, captured[-1]


def _find(
    reference: Reference,
    wrong: SideDump,
    options: DiffOptions,
    *,
    least_modules: int | None = None,
    ahead: tuple[str, torch.nn.Module] | None = None,
) -> Finding:
    """Diagnose a candidate's dump; `ahead` is an encoding and the reference's model in it."""
    right, manifest = reference.side, wrong.dump.manifest
    if not options.keep_going:
        require_one_model(right.dump.manifest, manifest)
    known = _what_was_run(right, options)
    if known is None or not _tells_rows(manifest) or not _tells_rows(right.dump.manifest):
        weaker = diagnose_dumps(right.dump, wrong.dump)
        return _named(Finding(diagnosis=weaker, guilty={}), right, wrong)
    assert manifest is not None
    oracle, asked = known
    if ahead is not None and ahead[0] == manifest.encoding:
        model = ahead[1]
    else:
        model = build_reference(
            oracle, asked, encoding=manifest.encoding, stream=options.stream_reference
        )
    encoder = oracle.task_name == ENCODER_TASK
    dumped = None
    if isinstance(right.spec, DumpSide):
        if not reference.checked:
            reference.checked.append(_checked(right.dump, known, model, manifest.encoding, options))
        dumped = reference.checked[0]
        if dumped.is_another:
            weaker = diagnose_dumps(right.dump, wrong.dump).noting(dumped.note)
            return _named(Finding(diagnosis=weaker, guilty={}), right, wrong)
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
        if dumped is not None:
            found = replace(found, diagnosis=dumped.applied(found.diagnosis))
        return _named(found, right, wrong)


def _tells_rows(manifest: Manifest | None) -> bool:
    return manifest is not None and bool(manifest.rows)


def _checked(
    dump: Dump,
    known: tuple[PipelineOracle, DebugOptions],
    model: torch.nn.Module,
    encoding: str,
    options: DiffOptions,
) -> DumpedReference:
    """Hold a reference's dump against its pipeline; `model` is that in the encoding given."""
    options.progress("replaying the reference's dump on its own values ...")
    oracle, asked = known
    assert dump.manifest is not None
    if dump.manifest.encoding != encoding:
        model = build_reference(
            oracle, asked, encoding=dump.manifest.encoding, stream=options.stream_reference
        )
    return check_reference(dump, model, encoder=oracle.task_name == ENCODER_TASK)


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
    return oracle, DebugOptions(
        pipeline=name,
        framework="torch",
        num_hidden_layers=kept_layers(right.dump, options.run),
        hf_config_overrides=kept_overrides(right.dump, options.run),
        # Not what the manifest says of it: a dump allows nothing.
        trust_remote_code=options.run.trust_remote_code,
        stream=options.stream_reference,
    )
