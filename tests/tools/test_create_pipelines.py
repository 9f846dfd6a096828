"""Tests that the documented names are there and cost nothing."""

import os
import subprocess
import sys

import pytest

import oracles.registry
from oracles.generic_oracle import GenericOracle
from oracles.oracle import PipelineOracle
from tools import create_pipelines, hf_config_overrides

_PROBE = """
import sys, time
start = time.process_time()
import {module}
took = time.process_time() - start
engines = [name for name in ("torch", "max", "transformers", "vllm") if name in sys.modules]
print(took, *engines)
"""


def _best_import(module: str) -> tuple[float, list[str]]:
    """Return the least CPU time of three imports, in seconds, and the engines they pulled in."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    best, engines = float("inf"), []
    for _ in range(3):
        done = subprocess.run(
            [sys.executable, "-c", _PROBE.format(module=module)],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
        took, *engines = done.stdout.split()
        best = min(best, float(took))
    return best, engines


@pytest.mark.parametrize(
    "module",
    [
        "tools.create_pipelines",
        "tools.hf_config_overrides",
        "oracles.registry",
        "oracles.oracle_file",
        "test_common.config_overrides",
        "test_common.torch_builder",
        "test_common.prompts",
        "test_common.packaged_weights",
        "test_common.tiny_checkpoints",
    ],
)
def test_import_is_quick_and_brings_no_engine(module: str) -> None:
    seconds, engines = _best_import(module)
    assert engines == []
    assert seconds < 0.5


def test_names_are_the_real_ones() -> None:
    assert create_pipelines.PIPELINE_ORACLES is oracles.registry.PIPELINE_ORACLES
    assert create_pipelines.GenericOracle is GenericOracle
    assert create_pipelines.PipelineOracle is PipelineOracle


def test_layer_overrides_are_where_the_documentation_puts_them() -> None:
    assert hf_config_overrides.create_layer_overrides("no/such-model", "all") == {}
