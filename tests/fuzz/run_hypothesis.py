"""Feeds readers with as many inputs of hypothesis as are asked for, others at each run.

    python -m tests.fuzz.run_hypothesis 200000 [READER ...]

Without names all readers are run, one after the other.
"""

import sys
import time
from collections.abc import Callable

import hypothesis
from hypothesis import strategies

from tests.fuzz.checked import OUTCOMES
from tests.fuzz.readers import READERS

MOST_BYTES = 120


def main() -> None:
    """Run the readers of the command line; the first finding ends the run with its input."""
    count, *names = sys.argv[1:] or ["?"]
    unknown = [name for name in names if name not in READERS]
    if not count.isdecimal() or unknown:
        sys.exit(f"expected a number of inputs, and readers of {', '.join(READERS)}")
    for name in names or READERS:
        OUTCOMES.clear()
        begin = time.monotonic()
        feed(READERS[name], count=int(count), derandomize=False)
        seconds = time.monotonic() - begin
        told = ", ".join(f"{what} {number}" for what, number in sorted(OUTCOMES.items()))
        print(f"{name}: {count} inputs at most in {seconds:.0f} s; {told}", flush=True)


def feed(read: Callable[[bytes], None], *, count: int, derandomize: bool) -> None:
    """Give a reader inputs that hypothesis chooses, and shrink the first that it fails on.

    Args:
        read: a function of one input.
        count: how many inputs at most; fewer where hypothesis knows no others.
        derandomize: whether it is the same inputs at each run.

    Raises:
        Exception: what the reader raised; a note tells the input.
    """

    @hypothesis.settings(
        max_examples=count,
        deadline=None,
        derandomize=derandomize,
        database=None,
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    @hypothesis.given(strategies.binary(min_size=1, max_size=MOST_BYTES))
    def one_input(data: bytes) -> None:
        read(data)

    one_input()


if __name__ == "__main__":
    main()
