"""Runs a pipeline once more without hooks, and says whether capture changed what it computes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from comparison.store.manifest_file import MANIFEST_NAME, read_manifest, write_manifest
from test_common.capture_job import Captured, CaptureJob
from test_common.observer_effect import Observation, observed

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
    seen = observed(captured.logits, lambda: capture(oracle, bare).logits)
    return replace(captured, observer_effect=seen.told, notes=(*captured.notes, _note(seen)))


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


def _note(seen: Observation) -> str:
    if not seen.effect:
        equal = "the same bits" if seen.same_bits else "equal values, but for the sign of zeros,"
        return f"verified: {VERIFIED} {equal} in every step"
    off = f"values that are off by {seen.effect:.3g} of the greatest"
    if not seen.noise:
        return f"capture changes what the model computes: {VERIFIED} {off}"
    if seen.effect <= seen.noise:
        return (
            f"verified within the engine's own noise: {VERIFIED} {off}, and another one without "
            f"hooks is off from that by {seen.noise:.3g}"
        )
    return (
        f"verified, and whether capture changes anything cannot be told: {VERIFIED} {off}, and "
        f"another one without hooks is off from that by {seen.noise:.3g}"
    )
