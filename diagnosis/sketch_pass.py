"""Where to look, from sketches of all tensors of both sides: a few KB each instead of a full dump.

An error that a layer inherits stays about as large, relative to what the layer gives; one that
it makes itself adds to it. So a module is suspect whose output is further off than what came
before it by more than both estimates leave open. What is not seen so, because other errors drown
it, the pass that follows still judges by the replay.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from comparison.numerics.dtypes import dtype_of_name
from comparison.numerics.severity import unit_of
from comparison.pipeline import CompareOptions
from comparison.schema.comparison import Comparison, Finding, Pair
from comparison.schema.estimate import Estimated
from comparison.schema.tensor_names import parse_tensor_name
from comparison.sketch_comparison import compare_sketches
from comparison.store.sketch_dump import open_sketches
from diagnosis.capture_plan import CapturePlan
from diagnosis.side_errors import side_errors
from diagnosis.side_runs import RunOptions, called, debug_options, oracle_of
from diagnosis.sides import EngineSide
from test_common.capture_mode import CaptureMode

_GROWTH = 3.0  # times what came before: a sound layer was at most 1.6 times that, on Torch
_ROUNDINGS = 16.0  # of the coarser dtype, which any engine may be off by


@dataclass(frozen=True, slots=True, kw_only=True)
class SketchedSuspects:
    """What the sketches of both sides tell.

    Attributes:
        modules: those that are suspect, in order of execution.
        tensors: number of pairs that were estimated.
        size_bytes: of the candidate's sketches.
    """

    modules: tuple[str, ...]
    tensors: int
    size_bytes: int


def sketch_side(spec: EngineSide, folder: Path, options: RunOptions) -> Path:
    """Run a side and keep sketches of all its tensors.

    Args:
        spec: the side.
        folder: where the sketches go.
        options: how to run.

    Returns:
        The folder.

    Raises:
        BadInputError: there is no such pipeline or oracle.
        EngineError: the engine cannot run it.
    """
    from test_common.debug_run import run_debug_model

    with side_errors(called(spec, folder, options)):
        oracle, name = oracle_of(spec, options)
        asked = debug_options(spec, name, folder, replace(options, verify_capture=False))
        run_debug_model(
            oracle,
            replace(asked, mode=CaptureMode.SKETCH, weights=False, ops=(), check_observer=False),
        )
    return folder


def sizes_of_sketches(folder: Path) -> dict[str, int]:
    """Return the bytes that each tensor would take, all steps together, by its name.

    Args:
        folder: a dump of sketches.
    """
    sizes: dict[str, int] = {}
    for entry, sketch in open_sketches(folder).sketches.items():
        size = math.prod(sketch.shape) * dtype_of_name(sketch.dtype).itemsize
        sizes[entry.name] = sizes.get(entry.name, 0) + size
    return sizes


def suspects_in_sketches(reference: Path, candidate: Path, plan: CapturePlan) -> SketchedSuspects:
    """Hold the sketches of both sides against each other.

    Args:
        reference: its sketches.
        candidate: its sketches.
        plan: which modules are layers.
    """
    compared = compare_sketches(reference, candidate, CompareOptions())
    files = candidate.glob("*/sketch.safetensors")
    return SketchedSuspects(
        modules=tuple(dict.fromkeys(_suspects(compared, plan))),
        tensors=compared.compared,
        size_bytes=sum(file.stat().st_size for file in files),
    )


def _suspects(compared: Comparison, plan: CapturePlan) -> Iterator[str]:
    """Name the modules whose error grows, step by step."""
    step, before = -1, 0.0
    for pair in compared.pairs:
        module = _judged_module(pair, plan)
        if module is None:
            continue
        if pair.reference.step != step:
            step, before = pair.reference.step, 0.0
        if not isinstance(pair.outcome, Estimated):
            if pair.finding is Finding.DIFFERS:  # a shape, or another kind of numbers
                yield module
            continue
        estimate, least = pair.outcome.relative_l2, _least(pair.outcome)
        if pair.outcome.certain or estimate.low > max(_GROWTH * before, least):
            yield module
        before = max(before, estimate.high)


def _judged_module(pair: Pair, plan: CapturePlan) -> str | None:
    """Return the layer or module outside of layers that the pair is the output of."""
    parsed = parse_tensor_name(pair.reference.name)
    if parsed is None or parsed.side != "output":
        return None
    layer = plan.layer_of(parsed.module)
    return parsed.module if layer is None or parsed.module == str(layer) else None


def _least(estimated: Estimated) -> float:
    """Return the error that rounding alone explains; none for integers."""
    unit = unit_of(estimated)
    return 0.0 if unit is None else _ROUNDINGS * unit
