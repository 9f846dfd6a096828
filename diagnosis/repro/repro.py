"""`--repro DIR`: the fault of the guilty module, small and by itself, to attach to a bug report."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np

from comparison.report.names import printable
from comparison.schema.diagnosis import Diagnosis, Judgement
from comparison.schema.errors import UnwritableOutputError
from comparison.schema.manifest import Manifest
from comparison.schema.outcome import Side
from comparison.store.atomic_file import write_text
from diagnosis.check import Check
from diagnosis.checks import Checker
from diagnosis.replay.module_watch import module_of
from diagnosis.repro.case import (
    Case,
    Kept,
    NoReproError,
    Repro,
    around_the_first,
    require_small,
    up_to_the_first,
)
from diagnosis.repro.clean import cleaned_config, cleaned_json, cleaned_text
from diagnosis.repro.files import measurements_of, write_data
from diagnosis.repro.leaf import case_of_leaf
from diagnosis.repro.module import cases_of_module
from diagnosis.repro.recording import record, tensor_leaves
from diagnosis.repro.report import report_of, title_of, versions_of

if TYPE_CHECKING:
    from diagnosis.finding import Finding

REPRO_FILES = frozenset(
    {"REPORT.md", "config.json", "repro.py", "tensors.safetensors", "versions.json"}
)
_SOUND = 1e-6  # as the script has it


def require_new_folder(folder: Path | None, *, overwrite: bool = False) -> None:
    """Refuse a folder that cannot be filled, before anything is run.

    Args:
        folder: where a repro is to go; None for none.
        overwrite: whether an earlier repro in it may be replaced.

    Raises:
        UnwritableOutputError: it is no folder, is not empty, or cannot be made.
    """
    if folder is None:
        return
    there = {path.name for path in folder.iterdir()} if folder.is_dir() else set()
    foreign = sorted(there - REPRO_FILES if overwrite else there)
    if foreign or (folder.exists() and not folder.is_dir()):
        why = f" with {foreign[0]}, which is no part of a repro" if foreign and overwrite else ""
        raise UnwritableOutputError(f"--repro needs a new or empty folder, got {folder}{why}")
    above = next(part for part in (folder, *folder.absolute().parents) if part.exists())
    if not above.is_dir() or not os.access(above, os.W_OK):
        raise UnwritableOutputError(f"--repro cannot make {folder}: {above} cannot be written")


def repro_of(
    found: Finding, *, reference: Manifest | None, candidate: Manifest | None
) -> Repro | str:
    """Cut the fault that was found out.

    Args:
        found: of one candidate, with its guilty tensor.
        reference: of the reference's run, where there was one.
        candidate: of the candidate's run.

    Returns:
        The repro, or why there is none.
    """
    if found.diagnosis.verdict is not Judgement.DIVERGE:
        return f"the verdict is {found.diagnosis.verdict}"
    if found.drill is None or found.diagnosis.culprit is None:
        return "no module is blamed"
    try:
        repro = _first_that_shows_it(found.diagnosis, found.drill.checker, found.drill.first)
    except NoReproError as error:
        return str(error)
    return replace(repro, versions=versions_of(reference, candidate))


def write_repro(folder: Path, joined: Diagnosis, found: Sequence[Finding]) -> str:
    """Write a repro, if there is one.

    Args:
        folder: as `require_new_folder` has passed it; what an earlier repro left is removed.
        joined: the final diagnosis.
        found: one a candidate, each with its repro or why there is none.

    Returns:
        What was done, in one line.

    Raises:
        UnwritableOutputError: the folder cannot be written.
    """
    finding = _blamed(joined, found)
    repro = finding.repro
    _clear(folder)
    if not isinstance(repro, Repro):
        return printable(f"no repro is written: {repro}")
    against_reference = joined.culprit is not None and joined.culprit.side is Side.REFERENCE
    told = joined if against_reference else finding.diagnosis
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_data(folder, repro.case, repro.config)
    except OSError as error:
        raise UnwritableOutputError(f"cannot write {folder}: {error.strerror}") from error
    versions = json.dumps(cleaned_json(repro.versions), indent=2)
    write_text(folder / "versions.json", versions + "\n")
    report = report_of(told, repro.case, repro.measured, repro.versions)
    write_text(folder / "REPORT.md", cleaned_text(report))
    return f"the fault by itself is in {folder}: run repro.py there, and read REPORT.md"


def _clear(folder: Path) -> None:
    try:
        for name in REPRO_FILES:
            (folder / name).unlink(missing_ok=True)
    except OSError as error:
        raise UnwritableOutputError(f"cannot write {folder}: {error.strerror}") from error


def _blamed(joined: Diagnosis, found: Sequence[Finding]) -> Finding:
    """Choose the candidate that the final diagnosis is of, which is the first one if none is."""
    wrong = [
        finding
        for finding in found
        if joined.culprit is not None
        and finding.diagnosis.culprit is not None
        and finding.diagnosis.culprit.tensor == joined.culprit.tensor
    ]
    shown = [finding for finding in wrong if isinstance(finding.repro, Repro)]
    return [*shown, *wrong, *found][0]


def _first_that_shows_it(found: Diagnosis, checker: Checker, check: Check) -> Repro:
    """Try the cuts and ways to build, and take the first whose script shows the fault."""
    if check.excess is None or check.choice is not None:
        raise NoReproError(
            f"{check.name} holds whole numbers, a mask or choices, which a script by itself "
            "does not judge"
        )
    if np.iscomplexobj(check.candidate) or np.iscomplexobj(check.exact):
        raise NoReproError(f"{check.name} is complex, which a script by itself does not judge")
    config = cleaned_config(_config_of(checker.wide_model))
    reasons: list[str] = []
    for case in _cases(checker, check, reasons):
        case = replace(
            case,
            case={
                "title": cleaned_text(title_of(found)),
                "engine": found.candidate_engine,
                **case.case,
            },
        )
        try:
            return _tried(require_small(case), config)
        except NoReproError as error:
            reasons.append(str(error))
    raise NoReproError(f"{module_of(check.owner)} cannot be shown by itself: {reasons[-1]}")


def _cases(checker: Checker, check: Check, reasons: list[str]) -> Iterator[Case]:
    module = checker.submodule(module_of(check.owner))
    ways = [up_to_the_first(check), up_to_the_first(check, whole=True)]
    if not any(True for _ in module.children()):
        try:
            yield _leaf(checker, module, around_the_first(check))
        except NoReproError as error:
            reasons.append(str(error))
    for kept in ways:
        try:
            yield from cases_of_module(checker, kept)
        except NoReproError as error:
            reasons.append(str(error))


def _leaf(checker: Checker, module: Any, kept: Kept) -> Case:
    call = record(checker, kept.check, kept.row)
    leaves = tensor_leaves((call.args, call.kwargs))
    if len(leaves) != 1:
        raise NoReproError(f"{type(module).__name__} takes more than one tensor")
    return case_of_leaf(module, leaves[0], kept)


def _tried(case: Case, config: Mapping[str, Any]) -> Repro:
    """Run the script, and let it through if it is sound and shows the fault."""
    with TemporaryDirectory(prefix="repro-") as folder:
        write_data(Path(folder), case, config)
        try:
            measured = measurements_of(Path(folder))
        # Code of any model is built and run here, without what it usually stands in.
        except Exception as error:
            reason = f"{type(error).__name__}: {error}".splitlines()[0]
            raise NoReproError(f"the script does not run: {reason}") from error
    if not measured["script"]["relative"] <= _SOUND:
        raise NoReproError("run by itself, it does not give what it gives within the model")
    if not measured["candidate"]["is_wrong"]:
        raise NoReproError("what fits into a script does not show the fault")
    return Repro(case=case, config=config, measured=measured)


def _config_of(model: Any) -> dict[str, Any]:
    as_json = getattr(getattr(model, "config", None), "to_json_string", None)
    return {} if as_json is None else json.loads(as_json(use_diff=False))
