import pytest

from comparison.schema.errors import BadInputError
from test_common.step_range import parse_steps


@pytest.mark.parametrize(
    ("text", "steps"),
    [("0", {0}), ("1-3", {1, 2, 3}), ("2-", {2, 3, 4}), ("0, 3-4", {0, 3, 4}), ("4-", {4})],
)
def test_ranges_of_five_steps(text: str, steps: set[int]) -> None:
    assert parse_steps(text, num_steps=5) == steps


@pytest.mark.parametrize("text", ["", "x", "-1", "1-2-3", "1,", "1.5"])
def test_other_forms_are_refused(text: str) -> None:
    with pytest.raises(BadInputError, match="steps must be like 0, 1-3"):
        parse_steps(text, num_steps=5)


@pytest.mark.parametrize("text", ["5", "3-5", "3-2", "7-", "99999"])
def test_steps_that_are_not_run_are_refused(text: str) -> None:
    with pytest.raises(BadInputError, match="whose steps are 0 to 4"):
        parse_steps(text, num_steps=5)
