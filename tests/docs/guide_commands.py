"""Reads the commands and files that a page of documentation shows."""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_BLOCK = re.compile(r"^```(?P<language>\w+)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
_EXIT_CODE = re.compile(r"# exits with (\d+)$")
_BAZEL_RUN = re.compile(r"^bazel run //tools:(\w+)(?: --)?")
# What only a machine with time for MAX graphs can run.
_OF_MAX = ("--framework max", "max_tensors", "explain_fma", "my_llama3", "$architecture")


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """One shell command of a page.

    Attributes:
        text: as it stands there, continuation lines joined.
        exit_code: what it is said to exit with, 0 if nothing is said.
    """

    text: str
    exit_code: int = 0

    @property
    def needs_max(self) -> bool:
        """Whether MAX builds a graph for it, or it uses what such a command left."""
        return any(mark in self.text for mark in _OF_MAX)

    def with_python(self, python: str) -> str:
        """Return the command as it is without Bazel."""
        return _BAZEL_RUN.sub(rf"{shlex.quote(python)} -P -m tools.\1", self.text)


def blocks_of(page: Path, language: str) -> list[str]:
    """Return the fenced blocks of one language."""
    found = _BLOCK.finditer(page.read_text(encoding="utf-8"))
    return [match["text"] for match in found if match["language"] == language]


def commands_of(page: Path) -> Iterator[Command]:
    """Yield the shell commands of a page in order."""
    for block in blocks_of(page, "sh"):
        for line in block.replace("\\\n", " ").splitlines():
            text = " ".join(line.split()) if "'" not in line else line.strip()
            if text and not text.startswith("#"):
                code = _EXIT_CODE.search(text)
                yield Command(text=text, exit_code=int(code[1]) if code else 0)
