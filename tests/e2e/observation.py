"""Holds what a tiny oracle gives with capture against what it gives without, on one engine."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from oracles.registry import PIPELINE_ORACLES, find_oracle
from test_common.debug_options import DebugOptions
from test_common.debug_run import run_debug_model
from test_common.observer_effect import observer_effect

TINY = tuple(name for name in PIPELINE_ORACLES if name.startswith("tiny-random/"))
_STEPS = 2
# Of gemma3 two sliding layers and a full one: MAX takes no model without one of either kind.
_LAYERS = {"tiny-random/gemma3": 3}


def tiny(*architectures: str) -> set[str]:
    """Return the oracles of these architectures, which have to be registered."""
    names = {f"tiny-random/{arch}" for arch in architectures}
    assert names <= set(TINY), names - set(TINY)
    return names


def check_nothing_changes(framework: str, name: str, folder: Path, *, most: float = 0.0) -> None:
    """Run an oracle with `verify_capture`, and hold what the manifest says against two more runs.

    Logits, or embeddings, have to be the same bit by bit. Where an engine does not repeat itself,
    the difference of two runs without capture is the bound.

    Args:
        framework: the engine.
        name: of the oracle.
        folder: where to dump.
        most: what capture is known to change, as `observer_effect` counts; the manifest has to tell
            how much it is.
    """
    oracle = find_oracle(name)
    options = {"pipeline": name, "framework": framework, "device": "cpu", "num_steps": _STEPS}
    options["num_hidden_layers"] = _LAYERS.get(name, 1)
    watched = run_debug_model(
        oracle, DebugOptions(**options, output=folder / "dump", verify_capture=True)
    )
    plain = run_debug_model(oracle, DebugOptions(**options), capture=False)
    manifest = json.loads((folder / "dump" / "manifest.json").read_text())
    told = [note for note in manifest["options"]["notes"] if "a run without hooks" in note]
    assert manifest["certificate"]["saved"] > 10
    assert [logits.dtype for logits in watched.logits] == [np.float32] * len(plain.logits)
    if _bits(watched.logits) == _bits(plain.logits):
        assert manifest["observer_effect"] == 0.0
        assert told == ["verified: a run without hooks gives the same bits in every step"]
        return
    effect = observer_effect(watched.logits, plain.logits)
    assert len(told) == 1
    if most:
        assert 0 < manifest["observer_effect"] == effect <= most, (effect, told)
        return
    again = run_debug_model(oracle, DebugOptions(**options), capture=False)
    noise = observer_effect(again.logits, plain.logits)
    assert effect <= noise, (noise, told)


def _bits(steps: Sequence[np.ndarray[Any, Any]]) -> list[tuple[tuple[int, ...], bytes]]:
    return [(logits.shape, logits.tobytes()) for logits in steps]
