"""Every tiny-random oracle has a target here, and every target an oracle."""

import ast
from pathlib import Path
from typing import Any

import pytest

from oracles.registry import PIPELINE_ORACLES

PREFIX = "tiny-random/"


def read_lists(text: str) -> dict[str, Any]:
    """Read what a .bzl file assigns: literals of Starlark are literals of Python."""
    found = [node for node in ast.parse(text).body if isinstance(node, ast.Assign)]
    return {ast.unparse(node.targets[0]): ast.literal_eval(node.value) for node in found}


@pytest.fixture(scope="module")
def lists() -> dict[str, Any]:
    return read_lists((Path(__file__).parent / "targets.bzl").read_text())


def test_every_oracle_has_a_target_and_every_target_an_oracle(lists: dict[str, Any]) -> None:
    oracles = {key.removeprefix(PREFIX) for key in PIPELINE_ORACLES if key.startswith(PREFIX)}
    assert len(oracles) >= 20
    assert set(lists["MODELS"]) == oracles


def test_those_that_always_run_are_few_and_the_exceptions_known(lists: dict[str, Any]) -> None:
    always, on_gpu, by_name = (set(lists[name]) for name in ("ALWAYS", "ON_GPU", "BY_NAME"))
    assert 1 <= len(always) <= 3
    assert on_gpu == {"gemma3_multimodal", "qwen2_5_vl"}
    assert by_name == {
        "bert",
        "idefics3",
        "internvl",
        "llama-q4_0",
        "llama-q4_k",
        "mpnet",
        "pixtral",
    }
    assert set(lists["TOLERANCES"]) == {"olmo2", "qwen3"}
    assert always | on_gpu | by_name <= set(lists["MODELS"])
    assert not always & (on_gpu | by_name)


def test_each_says_how_many_layers_it_runs(lists: dict[str, Any]) -> None:
    assert all(run["num_hidden_layers"] in {1, 2, 3} for run in lists["MODELS"].values())
