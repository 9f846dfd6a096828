"""Faults in the real vLLM, and none: what the tool says of each."""

from __future__ import annotations

import pytest

from tests.faults.engines import vllm_cases
from tests.faults.engines.case import EngineCase
from tests.faults.engines.judge import judge

pytestmark = pytest.mark.full  # each starts vLLM anew
CASES = (*vllm_cases.PLANTED, *vllm_cases.CLEAN)


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_verdict_is_right(case: EngineCase) -> None:
    result = judge(case)
    print(result.sentence)
    assert result.right, (result.expected, result.got, result.sentence)
    assert result.place_right is not False, (result.expected, result.got)
