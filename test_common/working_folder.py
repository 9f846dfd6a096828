"""The folder that a command stands in, which code of a user's file may leave."""

import os
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def working_folder_kept() -> Iterator[None]:
    """Come back to the working folder after the block: paths of options start there."""
    # By its descriptor, since it may have been moved or removed; O_PATH needs no right to list it.
    here = os.open(".", getattr(os, "O_PATH", os.O_RDONLY))
    try:
        yield
    finally:
        os.fchdir(here)
        os.close(here)
