"""Observation changes nothing: every tiny oracle with capture on and off, on Torch and on MAX."""

import json
from pathlib import Path
from typing import Any

import pytest

from test_common.torch_print_hook import TorchPrintHook
from tests.e2e.observation import TINY, check_nothing_changes, tiny
from tools.debug_model import debug_model

# Left to the full run on Torch too: towers but the quickest one, and GGUF files but one.
SLOW = tiny("gemma3_multimodal", "idefics3", "pixtral", "qwen2_5_vl", "llama-q4_0", "llama-q6_k")
# What docs/oracles.md says of each: not registered, for GPUs only, more than 24 GB, or a crash.
NOT_ON_MAX = tiny("gemma3_multimodal", "idefics3", "internvl", "qwen2_5_vl", "llama-q4_0")

# Where prints keep MAX from fusing what it fuses without them: the last digits move, and the
# manifest says so.
CHANGED_ON_MAX = {"tiny-random/olmo2": 1e-6}


def cases(names: list[str], *, full: set[str]) -> list[Any]:
    marks = {name: [pytest.mark.full] if name in full else [] for name in names}
    return [pytest.param(n, marks=marks[n], id=n.partition("/")[2]) for n in names]


@pytest.mark.parametrize("name", cases(list(TINY), full=SLOW))
def test_torch(name: str, tmp_path: Path) -> None:
    check_nothing_changes("torch", name, tmp_path)


@pytest.mark.full
@pytest.mark.parametrize("name", cases([n for n in TINY if n not in NOT_ON_MAX], full=set()))
def test_max(name: str, tmp_path: Path) -> None:
    check_nothing_changes("max", name, tmp_path, most=CHANGED_ON_MAX.get(name, 0.0))


@pytest.mark.parametrize("step", [0, 1])
def test_hook_that_changes_something_is_reported(
    step: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    usual = TorchPrintHook.print_value

    def changing(self: TorchPrintHook, name: str, value: Any) -> bool:
        saved = usual(self, name, value)
        if name == "model.model.norm-output" and self.current_step == step:
            value.mul_(1.25)  # no copy: the model goes on with it
        return saved

    monkeypatch.setattr(TorchPrintHook, "print_value", changing)
    arguments = ["--framework", "torch", "--pipeline", "tiny-random/llama", "--num-steps", "2"]
    arguments += ["--verify-capture", "-o", str(tmp_path / "dump")]
    assert debug_model.main(arguments, standalone_mode=False) == 0
    manifest = json.loads((tmp_path / "dump" / "manifest.json").read_text())
    assert manifest["observer_effect"] == pytest.approx(0.25, rel=1e-3)
    told = (
        "capture changes what the model computes: a run without hooks gives values that are off "
        "by 0.25 of the greatest"
    )
    assert told in manifest["options"]["notes"]
    assert f"note: {told}" in capsys.readouterr().out.splitlines()
