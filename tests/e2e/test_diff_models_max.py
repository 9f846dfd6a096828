"""diff_models with MAX as the candidate, the command and the function, on real engines.

Its graphs are those that test_max_against_torch.py builds too: keep it so.
"""

import json
import os
import shutil
from pathlib import Path

import pytest

from comparison.schema.diagnosis import Diagnosis, Judgement
from diagnosis.diff_models import DiffOptions, diff_models
from diagnosis.side_runs import RunOptions
from oracles.registry import find_oracle
from tests.child_processes import run_module, user_environment

MLP = "model.model.layers.0.mlp"
ORACLE = """\
from oracles.generic_oracle import GenericOracle

CHANGED = GenericOracle(
    {model!r},
    device_encoding_map={{"cpu": ["float32"]}},
    config_params={{"max_length": 512}},  # part of the graph: that of tiny-random/llama
)
"""


def command(*arguments: str | Path, cwd: Path) -> tuple[int, str, dict[str, object]]:
    """Run the command on one layer of llama; return exit code, what it printed, its result."""
    environment = user_environment(
        Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")),
        BUILD_WORKING_DIRECTORY=str(cwd),
    )
    done = run_module(
        "tools.diff_models",
        *("--pipeline", "tiny-random/llama", "--reference", "torch", *arguments),
        *("--num-hidden-layers", "1", "--json", "found.json"),
        cwd=cwd,
        environment=environment,
    )
    print(done.stderr)
    return done.returncode, done.stdout, json.loads((cwd / "found.json").read_text())


def function(arch: str, layers: int) -> Diagnosis:
    run = RunOptions(pipeline=f"tiny-random/{arch}", num_hidden_layers=layers)
    return diff_models("torch", "max", options=DiffOptions(run=run))


def test_command_says_that_max_agrees(tmp_path: Path) -> None:
    code, said, found = command("--candidate", "max", "--side-by-side", cwd=tmp_path)
    assert code == 0, said
    assert "Verdict: agree\n" in said
    assert "max agrees with torch: rounding explains every difference" in said
    assert found["verdict"] == "agree"
    assert found["exit_code"] == 0
    assert found["culprit"] is None
    assert found["guilty"] == []


def test_command_blames_the_projection_whose_weight_max_was_given_wrong(tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    changed = tmp_path / "changed"
    shutil.copytree(str(find_oracle("tiny-random/llama").model_path), changed)
    weights = load_file(changed / "model.safetensors")
    weights["model.layers.0.mlp.down_proj.weight"][7] *= 1.01
    save_file(weights, changed / "model.safetensors", metadata={"format": "pt"})
    (tmp_path / "wrong.py").write_text(ORACLE.format(model=str(changed)))
    code, said, found = command("--candidate", "max@wrong.py:CHANGED", cwd=tmp_path)
    assert code == 1, said
    assert "Verdict: diverge\n" in said
    assert found["verdict"] == "diverge"
    culprit = found["culprit"]
    assert isinstance(culprit, dict)
    assert culprit["side"] == "candidate"
    assert culprit["engine"] == "max"
    assert culprit["module"] == f"{MLP}.down_proj"
    assert culprit["candidate_module"] == "model.layers.layers.0.mlp.down_proj"
    assert culprit["between"] is None
    assert (culprit["step"], culprit["row"], culprit["position"]) == (0, 0, 0)


@pytest.mark.full
@pytest.mark.parametrize(("arch", "layers"), [("qwen2", 2), ("gemma3", 3)])
def test_max_agrees_with_torch(arch: str, layers: int) -> None:
    found = function(arch, layers)
    assert found.verdict is Judgement.AGREE, found.sentence
    assert not found.guilty
    assert found.coverage.modules_checked > 20
