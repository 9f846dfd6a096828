"""Large blocks go back to the system when they are freed, whatever stays between them."""

import subprocess
import sys

import pytest

from tests.child_processes import ROOT

# Frees every second one of many large blocks, after one of them taught glibc to keep such blocks.
CODE = """
import sys
import numpy as np
from test_common.returned_memory import give_back_large_blocks

def held():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("RssAnon")) >> 10

if sys.argv[1] == "given back":
    give_back_large_blocks()
np.ones(30 << 20, np.uint8)
before = held()
blocks = [np.ones(4 << 20, np.uint8) for _ in range(40)]
small = [bytes(5000) for _ in range(1000)]
del blocks[::2], blocks[:-1]
print(held() - before)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc's malloc")
def test_freed_blocks_are_the_systems() -> None:
    found = {
        way: int(
            subprocess.run(
                [sys.executable, "-c", CODE, way],
                cwd=ROOT,
                capture_output=True,
                text=True,
                check=True,
            ).stdout
        )
        for way in ("kept", "given back")
    }
    assert found["given back"] < 25  # of 160 MiB: one block of 4, and the small ones
    assert found["kept"] > 100
