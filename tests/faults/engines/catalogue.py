"""All cases on real engines."""

from __future__ import annotations

from tests.faults.engines import max_cases, vllm_cases
from tests.faults.engines.case import EngineCase

ALL_CASES: tuple[EngineCase, ...] = (
    *max_cases.PLANTED,
    *max_cases.ENGINE_FAULTS,
    *max_cases.CLEAN,
    *vllm_cases.PLANTED,
    *vllm_cases.CLEAN,
)
