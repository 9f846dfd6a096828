"""Observation changes nothing: every tiny oracle with capture on and off, on vLLM."""

from pathlib import Path

import pytest

from oracles.registry import PIPELINE_ORACLES
from tests.e2e.observation import TINY, check_nothing_changes, tiny

pytestmark = pytest.mark.full

# vLLM 0.32 does not have MPNet, and pictures are for Torch and MAX.
NOT_ON_VLLM = tiny("mpnet") | {name for name in TINY if PIPELINE_ORACLES[name].takes_images}


@pytest.mark.parametrize("name", [name for name in TINY if name not in NOT_ON_VLLM])
def test_vllm(name: str, tmp_path: Path) -> None:
    check_nothing_changes("vllm", name, tmp_path)
