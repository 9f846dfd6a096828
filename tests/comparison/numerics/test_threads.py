"""Tasks are done once each, by however many threads there are."""

import os
import threading

import pytest

from comparison.numerics.threads import share


@pytest.mark.parametrize("count", [0, 1, 3, 4, 57])
@pytest.mark.parametrize("cores", ["usable", "of the machine", "unknown"])
def test_each_task_is_done_once(monkeypatch: pytest.MonkeyPatch, count: int, cores: str) -> None:
    if cores != "usable":  # as on systems that do not tell what a process may use
        monkeypatch.delattr(os, "sched_getaffinity")
        monkeypatch.setattr(os, "cpu_count", lambda: 3 if cores == "of the machine" else None)
    made: list[list[int]] = []

    def make_work() -> list[int]:
        made.append([])
        return made[-1]

    share(lambda own, number: own.append(number), count, make_work=make_work)
    assert sorted(number for own in made for number in own) == list(range(count))
    expected = {"usable": len(made), "of the machine": 3 if count > 3 else 1, "unknown": 1}
    assert len(made) == expected[cores]


def test_after_an_error_nothing_more_is_begun() -> None:
    done = []

    def task(_: None, number: int) -> None:
        if threading.current_thread() is threading.main_thread():
            raise KeyboardInterrupt
        done.append(number)

    with pytest.raises(KeyboardInterrupt):
        share(task, 1_000_000, make_work=lambda: None)
    assert len(done) < 1_000_000
