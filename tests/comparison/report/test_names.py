"""Names as they are shown."""

import pytest

from comparison.report.names import MOST_SHOWN, printable


@pytest.mark.parametrize("length", [0, 1, 4096, MOST_SHOWN])
def test_names_that_someone_may_read_are_whole(length: int) -> None:
    assert printable("n" * length) == "n" * length


def test_of_a_longer_one_the_ends_are_kept_and_the_rest_is_counted() -> None:
    shown = printable("a" * 5_000_000 + "-output")
    assert len(shown) <= MOST_SHOWN
    begin, words, end = shown.split("...")
    assert begin == "a" * len(begin)
    assert end.endswith("a-output")
    assert words == f" {5_000_007 - len(begin) - len(end)} characters left out "


def test_what_is_cut_can_steer_nothing_either() -> None:
    shown = printable("\n" * 5_000_000)
    assert "\n" not in shown
    assert len(shown) <= 2 * MOST_SHOWN
    assert printable("::error::" + "x" * 5_000_000).startswith(r"\x3a:error::")
