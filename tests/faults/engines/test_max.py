"""Faults in the real MAX, its own, and none: what the tool says of each."""

from __future__ import annotations

import pytest

from tests.faults.engines import max_cases
from tests.faults.engines.case import EngineCase
from tests.faults.engines.judge import judge

pytestmark = pytest.mark.full  # each builds a graph of its own
CASES = (*max_cases.PLANTED, *max_cases.ENGINE_FAULTS, *max_cases.CLEAN)


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_verdict_is_right(case: EngineCase) -> None:
    result = judge(case)
    print(result.sentence)
    assert result.right, (result.expected, result.got, result.sentence)
    assert result.place_right is not False, (result.expected, result.got)
