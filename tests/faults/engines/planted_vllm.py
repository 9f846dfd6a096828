"""The vLLM worker with a fault: `python -m tests.faults.engines.planted_vllm PLANT FOLDER`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from test_common.patching import apply_patches
from test_common.vllm_worker import main as run_worker
from tests.faults.engines.vllm_plants import PLANTS


def main(arguments: Sequence[str]) -> int:
    """Run the job of a folder in an engine with a fault in it.

    Args:
        arguments: name of the fault, and the folder, as the worker takes it.
    """
    plant, folder = arguments
    with apply_patches([PLANTS[plant]()]):
        return run_worker(Path(folder))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
