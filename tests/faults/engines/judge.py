"""Runs one case on the real engines and asks the tool about it."""

from __future__ import annotations

import time
import traceback
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from comparison.schema.diagnosis import Diagnosis
from diagnosis.diff_models import diff_models
from oracles.registry import find_oracle
from test_common.debug_options import DebugOptions
from test_common.debug_run import DebugRun, run_debug_model
from tests.faults.bench import Result
from tests.faults.engines.case import EngineCase

_STEPS = 3
# Of the logits' root mean square; float32 engines differ by 1e-6 to 1e-5.
LEAST_FAULT, MOST_CLEAN = 1e-4, 3e-5


def judge(case: EngineCase, output: Path | None = None) -> Result:
    """Run a case on Torch and on its engine, and let the tool diagnose the engine.

    Args:
        case: what to run.
        output: keeps both dumps; None for a folder that goes away.

    Raises:
        ValueError: the case is not what it says.
    """
    with TemporaryDirectory(prefix="engine-fault-") as temporary:
        folder = output or Path(temporary)
        reference, candidate = folder / "reference", folder / "candidate"
        check_validity(case, difference_of(*run_both(case, reference, candidate)))
        begin = time.perf_counter()
        try:
            found = diff_models(str(reference), str(candidate))
        except Exception as error:  # a tool that dies is wrong, and the others go on
            last = traceback.extract_tb(error.__traceback__)[-1]
            where = f"{Path(last.filename).name}:{last.lineno}"
            return _result(case, None, f"{type(error).__name__}: {error} ({where})", begin)
        return _result(case, found, found.sentence, begin)


def run_both(case: EngineCase, reference: Path, candidate: Path) -> tuple[DebugRun, DebugRun]:
    """Dump a case's reference and its candidate.

    Args:
        case: what to run.
        reference: folder for Torch's dump.
        candidate: folder for the engine's.
    """
    oracle = find_oracle(case.pipeline)
    asked = DebugOptions(
        pipeline=case.pipeline,
        framework="torch",
        output=reference,
        num_hidden_layers=case.layers,
        num_steps=_STEPS,
        prompts=case.prompts,
    )
    right = run_debug_model(oracle, asked)
    with case.plant():
        wrong = run_debug_model(
            oracle,
            replace(
                asked, framework=case.engine, output=candidate, prefer_module_v3=case.module_v3
            ),
        )
    return right, wrong


def difference_of(right: DebugRun, wrong: DebugRun) -> float:
    """Return how far the logits are apart, relative to their size, while the tokens are equal."""
    found = []
    for step, (reference, candidate) in enumerate(zip(right.logits, wrong.logits, strict=True)):
        tokens = [[row.generated[:step] for row in run.manifest.rows] for run in (right, wrong)]
        if tokens[0] == tokens[1]:
            size = float(np.sqrt(np.mean(np.square(reference))))
            found.append(float(np.abs(candidate - reference).max()) / size)
    return float(np.max(found))  # a NaN stays one


def check_validity(case: EngineCase, difference: float) -> None:
    """Raise for a fault that is void, and for a clean run that is not clean.

    Raises:
        ValueError: the logits do not say what the case says.
    """
    if case.is_fault and difference <= LEAST_FAULT:
        raise ValueError(f"{case.name} is void: the logits differ by {difference:.2g}")
    if not case.is_fault and not difference <= MOST_CLEAN:
        raise ValueError(f"{case.name} is not clean: the logits differ by {difference:.2g}")


def _result(case: EngineCase, found: Diagnosis | None, sentence: str, begin: float) -> Result:
    verdict = "error" if found is None else str(found.verdict)
    culprit = None if found is None else found.culprit
    cause = "" if found is None or found.cause is None else found.cause.id
    module = "" if culprit is None else culprit.module
    between = None if culprit is None else culprit.between
    wanted = "diverge" if case.is_fault else "agree"
    blamed = module in case.modules if case.is_fault else not module
    within = case.between in (None, between)
    return Result(
        name=case.name,
        kind=f"{case.engine} {case.origin}",
        is_fault=case.is_fault,
        right=verdict == wanted and blamed and within,
        verdict=verdict,
        place_right=_place_right(case, culprit),
        cause_right=cause == case.cause if case.is_fault else None,
        expected=f"{wanted} {' | '.join(case.modules)} {case.cause} {_told(case.place)}",
        got=f"{verdict} {module} {cause} {'' if culprit is None else _told(culprit.spot)}",
        sentence=sentence,
        seconds=time.perf_counter() - begin,
    )


def _place_right(case: EngineCase, culprit: Any) -> bool | None:
    names = ("step", "row", "position")
    asked = {n: getattr(case.place, n) for n in names if getattr(case.place, n) is not None}
    if not asked:
        return None
    return culprit is not None and all(getattr(culprit.spot, n) == v for n, v in asked.items())


def _told(place: Any) -> str:
    names = ("step", "row", "position")
    told = [f"{name} {getattr(place, name)}" for name in names]
    return ", ".join(text for text in told if not text.endswith("None"))
