"""Runs a pipeline once more without hooks, and says whether capture changed what it computes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from comparison.store.manifest_file import MANIFEST_NAME, read_manifest, write_manifest
from test_common.capture_job import Captured, CaptureJob
from test_common.observer_effect import measured_effect

Oracle = TypeVar("Oracle")
VERIFIED = "a run without hooks gives"  # in the notes of a run that was verified


def verified(
    capture: Callable[[Oracle, CaptureJob], Captured],
    oracle: Oracle,
    job: CaptureJob,
    captured: Captured,
) -> Captured:
    """Run again without hooks, and note by how much these change the logits of any step.

    Args:
        capture: the engine's runner.
        oracle: what was run.
        job: how.
        captured: what it gave with hooks.
    """
    bare = replace(
        job,
        capture=False,
        writer=None,
        weights=False,
        ops=(),
        check_observer=False,
        watch_config=False,
        on_built=lambda: None,
    )
    effect = measured_effect(captured.logits, lambda: capture(oracle, bare).logits)
    return replace(captured, observer_effect=effect, notes=(*captured.notes, _note(effect)))


def add_effect(folder: Path, captured: Captured) -> None:
    """Put what was measured into the manifest of a dump that another process has written.

    Args:
        folder: of the dump.
        captured: what was measured.
    """
    path = folder / MANIFEST_NAME
    manifest = read_manifest(path)
    notes = dict.fromkeys([*manifest.options.get("notes", ()), *captured.notes])
    options = {**manifest.options, "notes": list(notes)}
    effect = captured.observer_effect
    write_manifest(path, replace(manifest, options=options, observer_effect=effect))


def _note(effect: float | None) -> str:
    match effect:
        case None:
            return (
                f"verified: {VERIFIED} other values each time, so whether capture changes anything "
                "cannot be told"
            )
        case 0.0:
            return f"verified: {VERIFIED} the same bits in every step"
        case _:
            return (
                f"capture changes what the model computes: {VERIFIED} values that "
                f"are off by {effect:.3g} of the greatest"
            )
