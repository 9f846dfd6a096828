"""Every command of the guide, in order and in one folder, as a user types them.

In the default run those that need no MAX graph. The whole page builds two graphs of Llama and three
small ones; by hand on two cores shared with four other jobs, 2026-11-29: 323 s, of which 234 s of
processor time, with a part of the graphs cached.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.child_processes import ROOT, user_environment
from tests.docs.command_needs import follows_max
from tests.docs.page_commands import GUIDE as PAGE
from tests.docs.page_commands import Command, blocks_of, commands_of

_BAZEL_RUN = re.compile(r"^bazel run //tools:(\w+)(?: --)?")
# The edits that the guide asks for between two commands, by a part of the command before them.
TORCH_LINE = "        down_proj = self.down_proj("
MAX_LINE = "        if self.swiglu_limit > 0:\n"
SAVED = ("mlp_A_input", "mlp_B_activated")


class Follower:
    """Does what the guide says, in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.printed = ""
        (folder / "utils").symlink_to(ROOT / "utils")
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        self._environment = user_environment(folder / "my cache", PATH=path)

    def follow(self, commands: Iterable[Command]) -> None:
        """Run commands in order, and make the edits that come after them."""
        script = ["set -u"]
        for command in commands:
            self._write_files()
            line = without_bazel(command)
            # One shell a command, with the variables of those before.
            if "=$(" in line:
                script.append(line)
                continue
            done = subprocess.run(
                ["bash", "-c", "\n".join([*script, line])],
                cwd=self.folder,
                env=self._environment,
                capture_output=True,
                text=True,
                check=False,
            )
            assert done.returncode == command.exit_code, (command.text, done.stdout, done.stderr)
            self.printed += done.stdout
            self._edit_after(command.text)

    def _write_files(self) -> None:
        for block in python_blocks():
            if block.startswith("# my_oracle.py\n"):
                (self.folder / "my_oracle.py").write_text(block)

    def _edit_after(self, command: str) -> None:
        if "setup_local_transformers.sh" in command:
            (copies,) = self.folder.glob("my cache/*/local_transformers/*/transformers")
            modeling = copies / "models" / "llama" / "modeling_llama.py"
            shown = next(b for b in python_blocks() if "modeling_llama.py" in b)
            body = shown.split("def forward(self, x):\n")[1].replace("        ...\n", "")
            insert_before(modeling, TORCH_LINE, body)
        if "my_llama3/llama3.py" in command:
            shown = next(b for b in python_blocks() if "my_llama3/mlp.py" in b)
            lines = [f"{line}\n" for line in shown.splitlines() if ".print(" in line]
            insert_before(self.folder / "my_llama3" / "mlp.py", MAX_LINE, "".join(lines))


def without_bazel(command: Command) -> str:
    """Return the command as it is without Bazel."""
    return _BAZEL_RUN.sub(rf"{shlex.quote(sys.executable)} -P -m tools.\1", command.text)


def python_blocks() -> list[str]:
    """Return the files and parts of files in Python that the page shows."""
    return [block.text for block in blocks_of(PAGE) if block.language == "python"]


def insert_before(file: Path, line: str, inserted: str) -> None:
    source = file.read_text()
    assert line in source, file
    file.write_text(source.replace(line, inserted + line, 1))


@pytest.fixture
def follower(tmp_path: Path) -> Follower:
    return Follower(tmp_path)


def test_there_are_commands_of_both_kinds() -> None:
    commands = list(commands_of(PAGE))
    assert len([c for c in commands if follows_max(c)]) >= 8
    assert len([c for c in commands if not follows_max(c)]) >= 8
    assert {command.exit_code for command in commands} == {0, 1}


def test_commands_without_max(follower: Follower) -> None:
    follower.follow(command for command in commands_of(PAGE) if not follows_max(command))
    assert sorted(path.stem for path in (follower.folder / "torch_debug").iterdir()) == [*SAVED]
    assert (follower.folder / "torch_tensors" / "0" / "tensor_names.txt").is_file()
    assert "Your edited files are kept in" in follower.printed
    layers = follower.folder / "torch_3_layers" / "0"
    assert (layers / "model.model.layers.2.mlp-output.pt").is_file()
    assert not (layers / "model.model.layers.3.mlp-output.pt").exists()


@pytest.mark.full
def test_every_command(follower: Follower) -> None:
    follower.follow(commands_of(PAGE))
    for name in SAVED:
        assert f"Tensor: {name} vs {name}" in follower.printed
        assert (follower.folder / "max_tensors" / "0" / f"{name}.max").is_file()
    names = (follower.folder / "max_tensors" / "0" / "tensor_names.txt").read_text().split()
    assert tuple(names[-2:]) == SAVED
    assert "float32" in follower.printed
    shutil.rmtree(follower.folder / "my cache")


def test_the_page_names_only_what_exists() -> None:
    text = PAGE.read_text(encoding="utf-8")
    for linked in ("oracles.md", "compare_tensors.md", "notebooks/intermediate_tensors.ipynb"):
        assert f"({linked})" in text
        assert (PAGE.parent / linked).is_file()
