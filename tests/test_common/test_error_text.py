"""Tests of the short texts of any exception and any value."""

import pytest

from test_common.error_text import describe, line_in_file, shown


class Hostile(Exception):
    def __str__(self) -> str:
        raise ValueError("no text")

    __repr__ = __str__


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ValueError("first\n  last \n\n"), "ValueError: last"),
        (ValueError(), "ValueError: no message"),
        (SystemExit(3), "SystemExit: 3"),
        (Hostile(), "Hostile: its message cannot be shown"),
    ],
)
def test_exception_is_its_class_and_last_line(error: BaseException, text: str) -> None:
    assert describe(error) == text


def test_long_texts_are_cut() -> None:
    assert len(describe(ValueError("x" * 5000))) < 600
    assert shown("x" * 100) == "'" + "x" * 56 + "..."


@pytest.mark.parametrize(("value", "text"), [(5, "5"), ("a", "'a'"), (Hostile(), "<Hostile>")])
def test_any_value_is_shown(value: object, text: str) -> None:
    assert shown(value) == text


def test_number_that_is_too_long_to_be_spelled_is_shown_by_its_type() -> None:
    assert shown([10**5000]) == "<list>"


def test_line_is_the_innermost_one_of_the_file() -> None:
    with pytest.raises(ValueError, match="invalid literal") as raised:
        int("x")
    assert line_in_file(raised.value, __file__) == raised.traceback[0].lineno + 1
    assert line_in_file(raised.value, "other.py") is None
