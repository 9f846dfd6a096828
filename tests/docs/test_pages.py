"""The commands of the pages of single tools, as they stand there, in one folder a page.

In the default run those that need no MAX graph, no vLLM and no packaged weights.
"""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest
from PIL import Image

from tests.child_processes import ROOT, user_environment

DOCS = ROOT / "docs"
PAGES = ("debug_model.md", "compare_tensors.md", "diff_models.md", "oracles.md")
_RUN = re.compile(r"^\./bazelw run (?:--//:\S+ )?//tools:(\w+) --")
# What the page's reader has, and a test has not.
_PLACEHOLDERS = ("my-org/", "good/")
_NEEDS_OTHERS = ("--framework vllm", "packaged/")
_NEEDS_MAX = ("--framework max", "max_tensors", "--candidate max")
ORACLE = """
from tools.create_pipelines import PIPELINE_ORACLES, GenericOracle

ORACLE = GenericOracle(
    PIPELINE_ORACLES["tiny-random/llama"].model_path,
    device_encoding_map={"cpu": ["float32"], "gpu": ["bfloat16"]},
    config_params={"max_length": 256},
)
"""


def commands_of(page: str) -> list[str]:
    """Return the commands of a page, continuation lines joined."""
    text = (DOCS / page).read_text(encoding="utf-8")
    lines = re.sub(r"\\\n\s+", " ", text).splitlines()
    return [line.strip() for line in lines if line.strip().startswith("./bazelw run ")]


def runnable(page: str, *, with_max: bool) -> list[str]:
    """Return those that can be run here."""
    left_out = _PLACEHOLDERS + _NEEDS_OTHERS
    found = [line for line in commands_of(page) if not any(mark in line for mark in left_out)]
    return found if with_max else [line for line in found if not _needs_max(line)]


def _needs_max(command: str) -> bool:
    default = "//tools:debug_model" in command and "--framework" not in command
    return default or any(mark in command for mark in _NEEDS_MAX)


def follow(commands: Iterable[str], folder: Path) -> None:
    """Run commands in order, in a folder with the files that the pages name."""
    for name, size in (("left.png", (96, 64)), ("right.jpg", (64, 80))):
        Image.linear_gradient("L").resize(size).convert("RGB").save(folder / name)
    (folder / "my_oracle.py").write_text(ORACLE)
    environment = user_environment(folder / "cache", BUILD_WORKING_DIRECTORY=str(folder))
    for command in commands:
        words = shlex.split(_RUN.sub(r"\1", command))
        done = subprocess.run(
            [sys.executable, "-P", "-m", f"tools.{words[0]}", *words[1:]],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, (command, done.stdout, done.stderr)


def test_every_page_has_commands_that_are_run() -> None:
    assert all(runnable(page, with_max=True) for page in PAGES)
    assert sum(len(runnable(page, with_max=False)) for page in PAGES) >= 4


@pytest.mark.parametrize("page", ["debug_model.md", "oracles.md"])
def test_commands_without_max(page: str, tmp_path: Path) -> None:
    follow(runnable(page, with_max=False), tmp_path)
    assert (tmp_path / "torch_tensors" / "manifest.json").is_file() or page == "oracles.md"


@pytest.mark.full
def test_every_command(tmp_path: Path) -> None:
    """The pages in the order in which one uses what another one wrote."""
    for page in PAGES:
        if page == "oracles.md":
            tmp_path = tmp_path / "oracles"
            tmp_path.mkdir()
        follow(runnable(page, with_max=True), tmp_path)


def test_links_between_pages_lead_somewhere() -> None:
    for page in PAGES:
        text = (DOCS / page).read_text(encoding="utf-8")
        for link in re.findall(r"\]\(([\w-]+\.md)(?:#[^)]*)?\)", text):
            assert os.path.exists(DOCS / link), (page, link)
