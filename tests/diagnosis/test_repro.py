"""`--repro`: planted faults, and the script that shows each without these tools."""

from __future__ import annotations

import ast
import copy
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from comparison.schema.errors import UnwritableOutputError
from diagnosis.diff_models import DiffOptions, diff_models
from diagnosis.repro import case as repro_case
from diagnosis.repro import leaf as repro_leaf
from diagnosis.repro.case import Repro
from diagnosis.repro.repro import write_repro
from tests.diagnosis.planted_repros import (
    Plant,
    embedding,
    epsilon,
    found_in,
    gelu,
    layer_of,
    run_script,
    scale,
    transposed,
    written_as_of_max,
)
from tests.test_common.tiny_models import ROWS, tiny_gemma3, tiny_llama

_FILES = {"repro.py", "tensors.safetensors", "config.json", "versions.json", "REPORT.md"}
_PACKAGES = {"numpy", "safetensors", "torch"}


def _sum_for_product(model: Any) -> None:
    mlp = layer_of(model).mlp
    mlp.forward = lambda x: mlp.down_proj(mlp.act_fn(mlp.gate_proj(x)) + mlp.up_proj(x))


def _double_residual(model: Any) -> None:
    run = layer_of(model).forward
    layer_of(model).forward = lambda x, *args, **kwargs: run(x, *args, **kwargs) + x


def _rope(model: Any) -> None:
    model.model.rotary_emb.inv_freq *= 0.99


def _window(model: Any) -> None:
    model.model.layers[2].self_attn.scaling *= 1.2


def _written(reference: Any, plant: Plant, tmp_path: Path) -> Path:
    found = found_in(reference, plant, tmp_path / "dump")
    told = write_repro(tmp_path / "repro", found.diagnosis, [found])
    assert told.startswith("the fault by itself is in"), told
    return tmp_path / "repro"


def _imports(script: str) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(script)):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add((node.module or "").partition(".")[0])
    return found - set(sys.stdlib_module_names)


@pytest.mark.parametrize(
    ("make", "plant", "kind", "first"),
    [
        pytest.param(
            tiny_llama, epsilon, "norm", "row 0, position 0", id="epsilon", marks=pytest.mark.full
        ),
        pytest.param(
            tiny_llama,
            transposed,
            "linear",
            "row 0, position 0",
            id="transposed",
            marks=pytest.mark.full,
        ),
        # token 7 is that of position 5 in the first row, and of position 2 in the second
        pytest.param(
            tiny_llama,
            embedding,
            "embedding",
            "row 0, position 5",
            id="embedding",
            marks=pytest.mark.full,
        ),
        pytest.param(tiny_llama, scale, "LlamaAttention", "row 0, position 1", id="scale"),
        pytest.param(
            tiny_gemma3,
            _window,
            "Gemma3Attention",
            "row 0, position 1",
            id="gemma3",
            marks=pytest.mark.full,
        ),
    ],
)
def test_a_script_shows_the_fault_without_these_tools(
    make: Callable[[], Any], plant: Plant, kind: str, first: str, tmp_path: Path
) -> None:
    folder = _written(make(), plant, tmp_path)
    assert {file.name for file in folder.iterdir()} == _FILES
    assert len({file.stat().st_mode for file in folder.iterdir()}) == 1
    script = (folder / "repro.py").read_text()
    assert kind in script
    assert _imports(script) == _PACKAGES

    done = run_script(folder)

    assert done.returncode == 1, done.stderr
    sound, rounding, wrong = done.stdout.splitlines()
    assert sound.startswith("module, run here in float64: max abs error ")
    assert sound.endswith("-> sound")
    assert rounding.startswith("reference, in float32: max abs error ")
    assert f"times rounding -> is WRONG, first at {first}; there, value number " in wrong


@pytest.mark.parametrize("plant", [gelu, _sum_for_product, _double_residual, _rope])
def test_other_modules_are_shown_too(plant: Plant, tmp_path: Path) -> None:
    found = found_in(tiny_llama(), plant, tmp_path)
    assert isinstance(found.repro, Repro), found.repro
    assert found.repro.measured["script"]["relative"] < 1e-9
    assert found.repro.measured["candidate"]["times_rounding"] > 100
    assert found.repro.case.size_bytes < 100_000


class _Named(torch.nn.Module):
    def __init__(self, name: str) -> None:
        super().__init__()
        self.add_module(name, torch.nn.Linear(5, 7))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        (part,) = self.children()
        return part(x)


def test_names_of_modules_are_text_in_the_script(tmp_path: Path) -> None:
    name = "of (r=8) '''\n# <img src=x>\n\"\"\"open('LEFT','w')\n\\x\"]); open('LEFT', 'w'); ([\""
    reference = _Named(name)
    candidate = copy.deepcopy(reference)
    with torch.no_grad():
        candidate.get_parameter(f"{name}.weight").mul_(1.3)
    folder = tmp_path / 'it\'s $(a) "b"'
    diff_models(reference, candidate, (torch.ones(2, 5),), options=DiffOptions(repro=folder))

    done = run_script(folder)

    assert done.returncode == 1, done.stderr
    assert not (folder / "LEFT").exists()
    raw = [line for line in (folder / "REPORT.md").read_text().split("\n") if "<img" in line]
    assert all(line.startswith("- ") and line.count("`") == 2 for line in raw), raw


@pytest.mark.full
def test_a_mended_candidate_gives_exit_code_zero(tmp_path: Path) -> None:
    folder = _written(tiny_llama(), scale, tmp_path)
    tensors = load_file(folder / "tensors.safetensors")
    np.save(tmp_path / "mended.npy", tensors["reference"].numpy())

    mended = run_script(folder, "--candidate", str(tmp_path / "mended.npy"))
    assert mended.returncode == 0, mended.stderr
    assert mended.stdout.splitlines()[-1].endswith("-> is right")

    tensors["candidate"] = tensors["reference"].clone()
    save_file(tensors, folder / "tensors.safetensors")
    assert run_script(folder).returncode == 0


@pytest.mark.full
def test_another_module_than_was_recorded_is_not_sound(tmp_path: Path) -> None:
    folder = _written(tiny_llama(), scale, tmp_path)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "num_key_value_heads": 1}))
    done = run_script(folder)
    assert done.returncode != 0
    tensors = load_file(folder / "tensors.safetensors")
    tensors["expected"] *= 1.001
    save_file(tensors, folder / "tensors.safetensors")
    (folder / "config.json").write_text(json.dumps(config))
    done = run_script(folder)
    assert done.returncode == 2
    assert done.stdout.splitlines()[0].endswith("-> NOT SOUND")


def test_only_the_tokens_that_show_it_are_there(tmp_path: Path) -> None:
    found = found_in(tiny_llama(), scale, tmp_path)
    assert isinstance(found.repro, Repro)
    shapes = {name: tuple(value.shape) for name, value in found.repro.case.tensors.items()}
    assert shapes["kwargs.hidden_states"] == (1, 6, 32)  # token 1 is wrong first; four behind it
    assert shapes["kwargs.attention_mask"] == (1, 1, 6, 6)
    assert not [name for name in shapes if name.startswith("weights.")]
    assert set(found.repro.case.case["parts"]) == {"q_proj", "k_proj", "v_proj"}


def test_large_weights_are_cut_to_what_is_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(repro_leaf, "_LARGEST", 100)
    monkeypatch.setattr(repro_leaf, "_KEPT_CHANNELS", 4)

    def one_row(model: Any) -> None:
        model.lm_head.weight.data[33] = 0

    found = found_in(tiny_llama(), one_row, tmp_path / "head")
    assert isinstance(found.repro, Repro), found.repro
    assert found.repro.case.tensors["weight"].shape == (4, 32)
    assert 33 in found.repro.case.case["channels"]
    assert found.repro.measured["candidate"]["channel"] == 33

    found = found_in(tiny_llama(), embedding, tmp_path / "embedding")
    assert isinstance(found.repro, Repro), found.repro
    assert len(found.repro.case.tensors["weight"]) < 20
    assert "renumbered" in found.repro.case.notes[0]


def test_what_stays_too_large_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repro_case, "MAX_BYTES", 1000)
    found = found_in(tiny_llama(), scale, tmp_path / "dump")
    told = write_repro(tmp_path / "repro", found.diagnosis, [found])
    assert "no repro is written: model.model.layers.1.self_attn cannot be shown by itself" in told
    assert "a repro has at most" in told
    assert not (tmp_path / "repro").exists()


def test_a_class_that_nobody_has_is_refused(tmp_path: Path) -> None:
    class Own(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.factor = 2.0

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.cumsum(-1) * self.factor

    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(6, 10), Own())
    other = copy.deepcopy(model)
    other[1].factor = 3.0
    told: list[str] = []
    options = DiffOptions(repro=tmp_path / "repro", tell=told.append)
    diff_models(model, other, (torch.randn(7, 6),), options=options)
    assert "defined in" in told[0]
    assert "no part of torch or transformers" in told[0]
    assert not (tmp_path / "repro").exists()


def test_nothing_private_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    secret = "hf_planted0123456789abcdef"
    monkeypatch.setenv("HF_TOKEN", secret)
    monkeypatch.setenv("MY_SERVICE_PASSWORD", "correct-horse")
    monkeypatch.setenv("LOGNAME", "plantedperson")
    monkeypatch.setenv("HOME", "/home/plantedperson")
    model = tiny_llama()
    for name, value in {
        "_name_or_path": "/home/plantedperson/checkpoints/mine",
        "auth_token": secret,
        "tokenizer_file": "/mnt/planted/vocab.json",
        "remark": "made by plantedperson with correct-horse",
        "nested": {"hub_token": secret, "list": ["/srv/planted/x", "C:\\planted\\x"]},
    }.items():
        setattr(model.config, name, value)
    folder = _written(model, scale, tmp_path)
    for file in folder.iterdir():
        content = file.read_bytes().decode("latin-1")
        for private in ("planted", "correct-horse", str(tmp_path), str(Path.cwd())):
            assert private not in content, file.name
    config = json.loads((folder / "config.json").read_text())
    assert config["bos_token_id"] == 1
    assert config["nested"] == {"list": ["<path>", "<path>"]}
    assert run_script(folder).returncode == 1


def test_the_whole_way_with_a_report(tmp_path: Path) -> None:
    reference = tiny_llama()
    candidate = copy.deepcopy(reference)
    scale(candidate)
    told: list[str] = []
    folder = tmp_path / "new" / "repro"
    options = DiffOptions(repro=folder, tell=told.append, drill="off")
    found = diff_models(reference, candidate, ROWS, options=options)
    assert told == [f"the fault by itself is in {folder}: run repro.py there, and read REPORT.md"]
    report = (folder / "REPORT.md").read_text()
    assert found.sentence in report
    assert report.startswith("# torch computes something else than the reference in model.model.")
    for text in (
        "- Expected: scaling is 0.25",
        "- Done instead: it takes 0.325 for scaling",
        "What is left over then",
        "| the candidate (torch), in float32 | ",
        "    python repro.py",
        "give what the candidate gave: `q_proj`, `k_proj`, `v_proj`",
        "torch does not run in the script",
    ):
        assert text.lower() in report.lower(), text
    versions = json.loads((folder / "versions.json").read_text())
    assert versions["candidate"]["engine"] == "torch"
    assert {"python", "platform", "torch"} <= set(versions["where the repro was made"])


def test_agreement_writes_nothing_and_says_so(tmp_path: Path) -> None:
    told: list[str] = []
    model = tiny_llama()
    options = DiffOptions(repro=tmp_path / "repro", tell=told.append)
    diff_models(model, copy.deepcopy(model), ROWS, options=options)
    assert told == ["no repro is written: the verdict is agree"]
    assert not (tmp_path / "repro").exists()


def test_a_folder_that_holds_something_is_refused_before_anything_runs(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    class Fails(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            raise AssertionError("it ran")

    for folder in (tmp_path, tmp_path / "file"):
        with pytest.raises(UnwritableOutputError, match="--repro needs a new or empty folder"):
            diff_models(Fails(), Fails(), (torch.ones(2),), options=DiffOptions(repro=folder))
    below = DiffOptions(repro=tmp_path / "file" / "below")
    with pytest.raises(UnwritableOutputError, match="cannot be written"):
        diff_models(Fails(), Fails(), (torch.ones(2),), options=below)


def test_an_attention_of_max_does_not_run_by_itself(tmp_path: Path) -> None:
    folder = written_as_of_max(scale, tmp_path)
    assert "max does not run in the script" in (folder / "REPORT.md").read_text()
    done = run_script(folder, "--engine", "max")
    assert "invalid choice: 'max'" in done.stderr
