"""Planted faults, each cut out, and the run of a script outside of this repository."""

from __future__ import annotations

import copy
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from comparison.store.dump import open_dump
from diagnosis.diagnose import DiagnoseOptions, find
from diagnosis.finding import Finding
from diagnosis.module_dump import ModuleInputs, calls_of, dump_module
from diagnosis.repro.case import Repro
from diagnosis.repro.repro import repro_of, write_repro
from tests.test_common.tiny_models import ROWS, tiny_llama

Plant = Callable[[Any], None]
INPUTS = ModuleInputs.of(ROWS, num_steps=2, encoder=False)


def layer_of(model: Any) -> Any:
    return model.model.layers[1]


def epsilon(model: Any) -> None:
    layer_of(model).input_layernorm.variance_epsilon = 0.01


def transposed(model: Any) -> None:
    weight = torch.randn(32, 32, generator=torch.Generator().manual_seed(3)) * 0.3
    for other in model.plain:  # of the reference too, so that it can be square
        other.model.layers[1].self_attn.o_proj.weight.data[:, :32] = weight
    layer_of(model).self_attn.o_proj.weight.data[:, :32] = weight.T


def embedding(model: Any) -> None:
    model.model.embed_tokens.weight.data[7] *= 2


def scale(model: Any) -> None:
    layer_of(model).self_attn.scaling *= 1.3


def gelu(model: Any) -> None:
    layer_of(model).mlp.act_fn.forward = torch.nn.functional.gelu


def found_in(reference: Any, plant: Plant, folder: Path) -> Finding:
    candidate = copy.deepcopy(reference)
    candidate.plain = [reference]
    plant(candidate)
    dump_module(candidate, INPUTS, folder)
    dump = open_dump(folder)
    calls = calls_of(reference, INPUTS, dump)
    found = find(reference, dump, calls, options=DiagnoseOptions(causes=False))
    return replace(found, repro=repro_of(found, reference=None, candidate=dump.manifest))


def written_as_of_max(plant: Plant, tmp_path: Path) -> Path:
    """Write a repro whose candidate is said to be MAX."""
    found = found_in(tiny_llama(), plant, tmp_path / "dump")
    assert isinstance(found.repro, Repro), found.repro
    case = replace(found.repro.case, case={**found.repro.case.case, "engine": "max"})
    diagnosis = replace(found.diagnosis, candidate_engine="max")
    repro = replace(found.repro, case=case)
    found = replace(found, diagnosis=diagnosis, repro=repro)
    write_repro(tmp_path / "repro", diagnosis, [found])
    return tmp_path / "repro"


def run_script(
    folder: Path, *arguments: str, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run the script where nothing of this repository can be imported."""
    packages = [path for path in sys.path if "-packages" in path]
    return subprocess.run(
        [sys.executable, "repro.py", *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(packages), "HF_HUB_OFFLINE": "1"},
        capture_output=True,
        text=True,
        timeout=900,
    )
