"""Looks below the culprit: in the dump that there is, in one more run, or not, with what to do."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from comparison.schema.diagnosis import Culprit, Diagnosis
from comparison.schema.outcome import Side
from comparison.store.dump import Dump
from diagnosis.drill.drill import Drill
from diagnosis.drill.dump import covers, module_globs, operations_of, with_inside
from diagnosis.finding import Finding
from diagnosis.side_runs import RunOptions, run_side
from diagnosis.sides import EngineSide, SideSpec

OFF = "off"


@dataclass(frozen=True, slots=True, kw_only=True)
class DrillPlan:
    """How one candidate is looked into.

    Attributes:
        dump: what was diagnosed.
        run_again: runs the candidate once more and captures the operations of modules that fit
            the globs; None where that costs too much, or where there is nothing to run.
        advice: what to do for it instead, from the name of the module; None for not saying any.
        is_off: whether nothing is run for it.
        asked: the module that the user asked for; None where none.
    """

    dump: Dump
    run_again: Callable[[tuple[str, ...]], Dump] | None = None
    advice: Callable[[str], str] | None = None
    is_off: bool = False
    asked: str | None = None


def drilled(finding: Finding, plan: DrillPlan) -> Finding:
    """Add the guilty operation to a diagnosis, as far as it can be found.

    Args:
        finding: of one candidate.
        plan: how to look.

    Raises:
        BadInputError: the operations of the dump cannot be read.
        EngineError: the candidate does not run a second time.
    """
    found, drill = finding.diagnosis, finding.drill
    finding = replace(finding, drill=None)  # it holds a model
    if found.culprit is None or drill is None or found.culprit.side is not Side.CANDIDATE:
        return finding if plan.asked is None else _not_looked_into(finding, plan.asked)
    module = found.culprit.candidate_module or found.culprit.module
    if drill.module != found.culprit.module:  # a mask is blamed on the attention that it is for
        note = f"{found.culprit.tensor} is made by {drill.module}, not below {module}"
        return replace(finding, diagnosis=found.noting(note))
    if _holds(plan.dump, module, found.culprit):
        return replace(finding, diagnosis=_looked_into(found, drill, plan.dump))
    if plan.run_again is not None and not plan.is_off:
        dump = plan.run_again(module_globs(found.culprit.candidate_module, found.culprit.module))
        return replace(finding, diagnosis=_looked_into(found, drill, dump, plan.dump))
    if plan.advice is None or plan.is_off:
        return finding
    return replace(finding, diagnosis=found.noting(plan.advice(module)))


def plan_of_side(
    spec: SideSpec, dump: Dump, folder: Path, run: RunOptions, *, command: str
) -> DrillPlan:
    """Say how a side is looked into: on Torch it is run again, elsewhere the user is told how.

    Args:
        spec: the side.
        dump: its dump.
        folder: where a further dump goes.
        run: how the side was run.
        command: what the user ran.
    """
    if not isinstance(spec, EngineSide):
        return DrillPlan(dump=dump, advice=_advice_for_dump)
    if spec.engine == "torch":
        return DrillPlan(
            dump=dump,
            run_again=lambda globs: (
                run_side(spec, folder, replace(run, filter=with_inside(globs), ops=globs)).dump
            ),
        )
    cost = "another graph, which takes minutes to build" if spec.engine == "max" else "another run"
    return DrillPlan(
        dump=dump,
        advice=lambda module: (
            f"to look at the operations below {module} ({cost}): "
            f"{command} --drill {shlex.quote(module)}"
        ),
    )


def _not_looked_into(finding: Finding, asked: str) -> Finding:
    note = (
        f"below {asked}: its operations were captured, and not judged, since no module of the "
        "candidate is blamed; with --output they stay in its dump"
    )
    return replace(finding, diagnosis=finding.diagnosis.noting(note))


def _advice_for_dump(module: str) -> str:
    return (
        f"to look at the operations below {module}, dump the candidate anew with "
        f"debug_model --ops {shlex.quote(module)}"
    )


def _holds(dump: Dump, module: str, culprit: Culprit) -> bool:
    own, _ = operations_of(dump, culprit.spot.step)
    return own is not None and (covers(own, module) or covers(own, culprit.module))


def _looked_into(
    found: Diagnosis, drill: Drill, dump: Dump, before: Dump | None = None
) -> Diagnosis:
    assert found.culprit is not None  # the caller made sure
    module = found.culprit.module
    result = drill.into(dump, found.culprit.spot.step)
    if before is not None and _generated(before) != _generated(dump):
        found = found.noting("the run that captured the operations chose other tokens")
    if result.operation is None:
        return found.noting(f"below {module}: {result.note}")
    return replace(found, operation=result.operation)


def _generated(dump: Dump) -> object:
    return None if dump.manifest is None else [row.generated for row in dump.manifest.rows]
