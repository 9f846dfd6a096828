"""What difference is allowed."""

import math

import pytest

from comparison.schema.errors import BadInputError
from comparison.schema.tolerance import Tolerance


@pytest.mark.parametrize("value", [-1e-9, math.nan, math.inf, -math.inf])
def test_tolerances_that_mean_nothing(value: float) -> None:
    with pytest.raises(BadInputError, match="rtol must be a finite number of at least 0, found"):
        Tolerance(rtol=value)
    with pytest.raises(BadInputError, match="atol must be a finite number of at least 0, found"):
        Tolerance(atol=value)


def test_what_is_allowed() -> None:
    tolerance = Tolerance(rtol=0.1, atol=1.0)
    assert tolerance.allowed(-20.0) == 3.0
    assert tolerance.allowed(3 + 4j) == 1.5
    assert tolerance.allowed(20) == 0.0
