"""Runs the commands as child processes, the way a user runs them and not the way a test does."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parents[1]
# What tells a process that it is part of a test; local transformers are not used there.
_OF_TESTS = ("TEST_TMPDIR", "PYTEST_VERSION", "PYTEST_CURRENT_TEST", "BUILD_WORKING_DIRECTORY")


def user_environment(cache: Path, **more: str) -> dict[str, str]:
    """Return this process's environment without the marks of a test.

    Args:
        cache: the cache folder, as `XDG_CACHE_HOME`.
        **more: further variables.
    """
    kept = {name: value for name, value in os.environ.items() if name not in _OF_TESTS}
    path = os.pathsep.join(dict.fromkeys([str(ROOT), *filter(None, sys.path)]))
    own = {"PYTHONPATH": path, "XDG_CACHE_HOME": str(cache), "HF_HUB_OFFLINE": "1"}
    return {**kept, **own, **more}


def run_module(
    module: str, *arguments: str | Path, cwd: Path, environment: Mapping[str, str]
) -> subprocess.CompletedProcess[str]:
    """Run `python -m module` in a folder, and keep what it prints."""
    return subprocess.run(
        [sys.executable, "-P", "-m", module, *map(str, arguments)],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
