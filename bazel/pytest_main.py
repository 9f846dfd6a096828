"""Entry point of pytest_test: runs pytest on the files that its arguments name."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest


def pytest_arguments(environ: Mapping[str, str]) -> list[str]:
    """Turns what Bazel tells a test by its environment into arguments of pytest.

    Args:
        environ: The environment of the test.

    Returns:
        Arguments that come before those of the target.
    """
    arguments = [
        f"--rootdir={os.getcwd()}",
        "--import-mode=importlib",
        "--verbose",
        "-p",
        "no:cacheprovider",
    ]
    if "XML_OUTPUT_FILE" in environ:
        arguments.append(f"--junitxml={environ['XML_OUTPUT_FILE']}")
    if environ.get("TESTBRIDGE_TEST_ONLY"):
        arguments += ["-k", environ["TESTBRIDGE_TEST_ONLY"]]
    if environ.get("TESTBRIDGE_TEST_RUNNER_FAIL_FAST") == "1":
        arguments.append("--exitfirst")
    return arguments


class Shard:
    """Keeps this shard's part of the collected tests, when Bazel runs the target in shards."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        """Reads the shard's number and announces that sharding is understood."""
        self.index = int(environ.get("TEST_SHARD_INDEX", "0"))
        self.total = int(environ.get("TEST_TOTAL_SHARDS", "1"))
        self.collected = 0
        if "TEST_SHARD_STATUS_FILE" in environ:
            Path(environ["TEST_SHARD_STATUS_FILE"]).touch()

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Drops the tests of the other shards."""
        self.collected = len(items)
        items[:] = items[self.index :: self.total]


def main(arguments: list[str]) -> int:
    """Runs pytest.

    Args:
        arguments: The target's own arguments: test files first.

    Returns:
        pytest's exit code. 5 means that nothing was collected, which is a failure too, unless all
        of the target's tests fell to other shards.
    """
    # Child processes import what this one does; the rules may not have exported the path.
    os.environ["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    if "TEST_TMPDIR" in os.environ:
        # Engines keep what they compile, or learn of a model, under HOME, which tests cannot write.
        os.environ.setdefault("MODULAR_CACHE_DIR", f"{os.environ['TEST_TMPDIR']}/modular")
        os.environ.setdefault("VLLM_CACHE_ROOT", f"{os.environ['TEST_TMPDIR']}/vllm")
    shard = Shard(os.environ)
    code = pytest.main([*pytest_arguments(os.environ), *arguments], plugins=[shard])
    if code == pytest.ExitCode.NO_TESTS_COLLECTED and shard.total > 1 and shard.collected:
        return 0
    return int(code)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
