"""Dumps that hold a part of a model: what lies between is named, not who comes after it."""

import copy
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from comparison.schema.diagnosis import Diagnosis
from comparison.store.manifest_file import read_manifest, write_manifest
from diagnosis.diff_models import DiffOptions, diff_models
from tests.test_common.tiny_models import ROWS, SIZES, tiny_llama


def _pruned(
    model: Any, faulty: Any, folder: Path, keep: Callable[[str], bool], **given: Any
) -> Diagnosis:
    """Diagnose what is left of a dump when tensors are taken out of it."""
    diff_models(model, faulty, ROWS, options=DiffOptions(output=folder))
    dump = folder / "candidate"
    for names in dump.rglob("tensor_names.txt"):
        kept = [name for name in names.read_text().splitlines() if keep(name)]
        gone = [path for path in names.parent.glob("*.pt") if path.stem not in kept]
        names.write_text("\n".join(kept) + "\n")
        for path in gone:
            path.unlink()
    manifest = read_manifest(dump / "manifest.json")
    write_manifest(dump / "manifest.json", replace(manifest, certificate=None))
    return diff_models(model, dump, ROWS, **given)


def _four_layers() -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(**{**SIZES, "num_hidden_layers": 4})
    model = LlamaForCausalLM._from_config(config, attn_implementation="eager")
    for parameter in model.parameters():
        parameter.data.mul_(5 if parameter.dim() > 1 else 1)
    return model.eval()


def test_pruned_layers_are_said_to_be_absent(tmp_path: Path) -> None:
    model = _four_layers()
    faulty = copy.deepcopy(model)
    faulty.model.layers[2].mlp.down_proj.weight.data[3] *= 1.5
    leaves = ("proj-output", "norm-output", "embed_tokens-output", "lm_head-output")
    found = _pruned(
        model,
        faulty,
        tmp_path,
        lambda name: name.endswith(leaves) and ".1." not in name and ".2." not in name,
    )
    assert found.culprit is not None
    assert found.culprit.module == "model.model"
    assert found.culprit.between == (
        "model.model.layers.0.mlp.down_proj-output",
        "model.model.layers.3.input_layernorm-output",
    )
    assert (
        "layers 1..2 are absent from this dump; the divergence is between layer 0 and 3"
        in found.guilty[0].where
    )


@pytest.mark.parametrize("leaf", ["q_proj", "v_proj", "up_proj"])
def test_a_leaf_of_which_only_outputs_are_known_is_still_blamed(tmp_path: Path, leaf: str) -> None:
    model = tiny_llama()
    faulty = copy.deepcopy(model)
    modules = dict(faulty.model.layers[1].named_modules())
    (name,) = (path for path in modules if path.endswith(leaf))
    modules[name].weight.data[3] *= 1.5
    found = _pruned(model, faulty, tmp_path, lambda tensor: tensor.endswith("-output"))
    assert found.culprit is not None
    assert found.culprit.module == f"model.model.layers.1.{name}"


def test_the_pruned_dump_is_what_the_tests_say(tmp_path: Path) -> None:
    model = tiny_llama()
    found = _pruned(model, copy.deepcopy(model), tmp_path, lambda name: ".1." not in name)
    assert json.loads(json.dumps(found.verdict)) == "agree"
