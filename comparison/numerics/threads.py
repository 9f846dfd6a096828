"""Sharing work that gives up Python's lock among threads."""

import os
import threading
from collections.abc import Callable
from typing import TypeVar

Work = TypeVar("Work")
_MOST_THREADS = 8
_FEWEST_TASKS = 4  # for less, starting a thread costs more than it saves


def share(task: Callable[[Work, int], None], count: int, *, make_work: Callable[[], Work]) -> None:
    """Do tasks 0 .. count - 1, on several threads where that pays.

    Args:
        task: takes what its thread works with, and its number.
        count: number of tasks.
        make_work: makes what one thread works with.
    """
    threads = 1 if count < _FEWEST_TASKS else min(usable_cores(), _MOST_THREADS)
    if threads == 1:
        alone = make_work()
        for number in range(count):
            task(alone, number)
        return
    numbers = iter(range(count))
    lock = threading.Lock()

    def work() -> None:
        own = make_work()
        while True:
            with lock:
                number = next(numbers, None)
            if number is None:
                return
            task(own, number)

    helpers = [threading.Thread(target=work) for _ in range(threads - 1)]
    for helper in helpers:
        helper.start()
    try:
        work()
    finally:
        with lock:
            numbers = iter(())  # after Ctrl-C, nothing is left to do
        for helper in helpers:
            helper.join()


def usable_cores() -> int:
    """Return the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
