"""Reads the commands and files that a page of documentation shows."""

import re
import shlex
import shutil
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.child_processes import ROOT

GUIDE = ROOT / "docs" / "accuracy-debugging.md"
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))

_FENCE = re.compile(r"```(\w*)$")
_EXIT_CODE = re.compile(r"# exits with (\d+)$")
_LAUNCHED = re.compile(
    r"^(?:(?:\./bazelw|bazel) run (?:--//:\S+ )?//(?P<room>tools|utils):(?P<tool>\w+)(?: --)?"
    r"|python -m (?P<module>\w+\.\w+)|python (?P<path>\w+/\w+)\.py)(?: (?P<arguments>.+))?$"
)
# Languages of blocks that are no commands; those without one are looked at line by line.
_OTHER_LANGUAGES = ("python", "json", "starlark")
_PROGRAMS = ("./bazelw", "../model_accuracy_tools/bazelw", "bazel", "bash", "cp", "pip", "python")
# Programs whose names begin lines of other kinds: Python, and options in a file for Bazel.
_ALSO_NO_PROGRAMS = ("from", "import", "test")


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """One shell command of a page.

    Attributes:
        text: as it stands there, continuation lines joined.
        exit_code: what it is said to exit with, 0 if nothing is said.
    """

    text: str
    exit_code: int = 0

    def launched(self) -> tuple[str, tuple[str, ...], str | None] | None:
        """Return the module that runs, its arguments, and where its output goes if to a file.

        None where it is no command of ours.
        """
        found = _LAUNCHED.match(self.text)
        if found is None:
            return None
        module = found["module"] or (found["path"] or f"{found['room']}/{found['tool']}")
        words = shlex.split(found["arguments"] or "", comments=True)
        log = None
        if len(words) > 1 and words[-2] == ">":
            *words, _, log = words
        return module.replace("/", "."), tuple(words), log


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """Code that a page shows.

    Attributes:
        language: as behind the fence; None where it is indented.
        text: without the indentation.
    """

    language: str | None
    text: str

    def paragraphs(self) -> list[list[str]]:
        """Return its lines, continuation lines joined, in the groups that empty lines make."""
        joined = re.sub(r" *\\\n\s*", " ", self.text)
        groups = re.split(r"\n\s*\n", joined)
        return [[line.strip() for line in group.splitlines() if line.strip()] for group in groups]


def blocks_of(page: Path) -> Iterator[Block]:
    """Yield the fenced and the indented blocks of a page in order."""
    lines = page.read_text(encoding="utf-8").splitlines()
    place, after_empty = 0, True
    while place < len(lines):
        fence = _FENCE.match(lines[place])
        first, end = place, place + 1
        if fence is not None:
            end = lines.index("```", end)
            yield Block(language=fence[1], text="\n".join(lines[first + 1 : end]) + "\n")
            end += 1
        elif after_empty and lines[first].startswith("    "):
            while end < len(lines) and (not lines[end] or lines[end].startswith("    ")):
                end += 1
            text = textwrap.dedent("\n".join(lines[first:end])).rstrip()
            yield Block(language=None, text=text + "\n")
        after_empty = not lines[end - 1]
        place = end


def commands_of(page: Path) -> Iterator[Command]:
    """Yield the shell commands of a page in order.

    Raises:
        AssertionError: a line might be a command or not.
    """
    for block in blocks_of(page):
        if block.language in _OTHER_LANGUAGES:
            continue
        for lines in block.paragraphs():
            if block.language == "sh" or (lines and _word(lines[0]) in _PROGRAMS):
                yield from map(_command, (line for line in lines if not line.startswith("#")))
            elif lines:
                _check_no_command(page, _word(lines[0]))


def _command(line: str) -> Command:
    text = line if "'" in line or '"' in line else " ".join(line.split())
    code = _EXIT_CODE.search(text)
    return Command(text=text, exit_code=int(code[1]) if code else 0)


def _check_no_command(page: Path, word: str) -> None:
    program = word.startswith(("./", "../")) or shutil.which(word) is not None
    assert not program or word in _ALSO_NO_PROGRAMS, (
        f"{page.name}: does {word!r} begin a command? Name it in _PROGRAMS, or put the block "
        f"between ```sh, or the name of another language, and ```"
    )


def _word(line: str) -> str:
    return line.split()[0]
