"""--verify-capture: a second run without hooks, and what that tells."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from comparison.store.dump import open_dump
from comparison.store.manifest_file import read_manifest, write_manifest
from oracles.made_checkpoint import MadeCheckpointOracle
from oracles.registry import find_oracle
from test_common.debug_options import DebugOptions
from test_common.debug_run import run_debug_model
from test_common.observer_effect import observed
from test_common.verified_capture import add_effect

LLAMA = "tiny-random/llama"


class ShyOracle:
    """A llama whose norm gives other values while it has hooks, from the second step on."""

    def __init__(self, *, noises: tuple[float, ...] = (0.0,), shyness: float = 0.5) -> None:
        self._oracle = find_oracle(LLAMA)
        self._noises = noises
        self._shyness = shyness
        self.builds = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._oracle, name)

    def create_torch_pipeline(self, **given: Any) -> Any:
        assert isinstance(self._oracle, MadeCheckpointOracle)
        built = self._oracle.create_torch_pipeline(**given)
        norm = built.model.model.norm
        usual = norm.forward
        noise = 1 + self._noises[self.builds % len(self._noises)]
        self.builds += 1

        def forward(x: Any) -> Any:
            shy = 1 + self._shyness * (bool(norm._forward_hooks) and x.shape[1] == 1)
            return usual(x) * shy * noise

        norm.forward = forward
        return built


def run(oracle: Any, folder: Path, **given: Any) -> Any:
    options = DebugOptions(pipeline=LLAMA, framework="torch", output=folder, num_steps=2, **given)
    return run_debug_model(oracle, options).manifest


def test_sound_run_is_verified(tmp_path: Path) -> None:
    manifest = run(find_oracle(LLAMA), tmp_path / "d", verify_capture=True)
    assert manifest.observer_effect == 0.0
    assert (
        "verified: a run without hooks gives the same bits in every step"
        in (manifest.options["notes"])
    )
    assert open_dump(tmp_path / "d").manifest == manifest


def test_effect_of_a_later_step_is_seen(tmp_path: Path) -> None:
    assert run(ShyOracle(), tmp_path / "first", check_observer=True).observer_effect == 0.0
    manifest = run(ShyOracle(), tmp_path / "all", verify_capture=True)
    assert manifest.observer_effect == pytest.approx(0.5, rel=1e-3)
    assert any("capture changes what the model computes" in n for n in manifest.options["notes"])


@pytest.mark.parametrize(
    ("shyness", "words"),
    [
        (0.0, "verified within the engine's own noise: a run without hooks gives values that are "),
        (0.5, "verified, and whether capture changes anything cannot be told: a run without "),
    ],
)
def test_model_that_does_not_repeat_itself_is_not_blamed_on_capture(
    tmp_path: Path, shyness: float, words: str
) -> None:
    oracle = ShyOracle(noises=(0.1, 0.2, 0.0), shyness=shyness)
    manifest = run(oracle, tmp_path / "d", verify_capture=True)
    assert manifest.observer_effect is None
    assert oracle.builds == 3
    (note,) = (note for note in manifest.options["notes"] if note.startswith(words))
    assert "hooks is off from that by 0.2" in note


def test_zeros_of_another_sign_are_not_called_the_same_bits() -> None:
    plain = np.array([[0.0, 1.5]], dtype=np.float32)
    seen = observed([plain * np.float32([-1.0, 1.0])], lambda: [plain])
    assert (seen.told, seen.same_bits) == (0.0, False)
    assert observed([plain], lambda: [plain.copy()]).same_bits


def test_manifest_of_another_process_is_completed(tmp_path: Path) -> None:
    manifest = run(find_oracle(LLAMA), tmp_path / "d")
    assert manifest.observer_effect is None
    write_manifest(tmp_path / "d" / "manifest.json", replace(manifest, engine="vllm"))

    class Measured:
        notes = ("verified: so it is",)
        observer_effect = 0.25

    add_effect(tmp_path / "d", Measured())  # type: ignore[arg-type]  # what is read of it
    found = read_manifest(tmp_path / "d" / "manifest.json")
    assert (found.engine, found.observer_effect) == ("vllm", 0.25)
    assert "verified: so it is" in found.options["notes"]
