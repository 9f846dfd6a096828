"""Measures branch coverage of comparison/ and diagnosis/ by their own tests.

Run by hand, with coverage installed beside the packages of requirements/cpu.txt:

    python -m tests.branch_coverage [--fresh] [TEST FILE OR FOLDER...]

Each file or folder that is named is one process; what it starts is measured as well, and what
several runs measured is added up until `--fresh`. Exit code 1 where a room is below the bound, in
branches or in statements and branches together. Left out are functions that numba compiles, since
compiled code runs unseen, and what `exclude_also` names below.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parents[1]
ROOMS: Final = ("comparison", "diagnosis")
LEAST_PERCENT: Final = 95.0
_TESTS: Final = (
    "tests/comparison",
    "tests/cases",
    "tests/fuzz",
    "tests/tools",
    "tests/diagnosis",
    "tests/faults",
)
# The modules that import numba are imported to be compiled, and their functions run unseen.
_COMPILED: Final = re.compile(r"^(import|from) numba\b", re.MULTILINE)
# What cannot run (an import for the type checker, a match that is complete) or has no body.
_SETTINGS: Final = """
[run]
branch = True
parallel = True
patch = subprocess
source = {rooms}
omit = {omit}
data_file = {folder}/data
[report]
omit = {omit}
exclude_also =
    if TYPE_CHECKING:
    assert_never\\(
    raise NotImplementedError
    @overload
    \\.\\.\\.$
"""


def main(arguments: Sequence[str]) -> int:
    """Measure, print a table, and return the exit code."""
    parser = argparse.ArgumentParser(description="Measure branch coverage.")
    parser.add_argument("tests", nargs="*", default=_TESTS)
    parser.add_argument("--folder", type=Path, default=Path.home() / ".cache/branch_coverage")
    parser.add_argument("--fresh", action="store_true", help="forget earlier runs")
    given = parser.parse_args(arguments)
    if given.fresh:
        shutil.rmtree(given.folder, ignore_errors=True)
    given.folder.mkdir(parents=True, exist_ok=True)
    settings = given.folder / "coveragerc"
    # Whole paths: what tests start runs in other folders.
    rooms, omit = (",".join(map(str, found)) for found in (_rooms(), _compiled_files()))
    text = _SETTINGS.format(folder=given.folder.resolve(), rooms=rooms, omit=omit)
    settings.write_text(text, encoding="utf-8")
    failed = [path for path in given.tests if not _measure(path, settings)]
    files = _report(settings, given.folder / "report.json")
    for line in _table(files):
        print(line)
    for path in failed:
        print(f"tests failed: {path}")
    short = [room for room in ROOMS if min(_percents(_of(room, files))) < LEAST_PERCENT]
    for room in short:
        print(f"{room}/ is below {LEAST_PERCENT:g} %")
    return int(bool(failed or short))


def _rooms() -> Iterator[Path]:
    return (ROOT / room for room in ROOMS)


def _compiled_files() -> Iterator[Path]:
    for room in _rooms():
        for path in sorted(room.rglob("*.py")):
            if _COMPILED.search(path.read_text(encoding="utf-8")):
                yield path


def _measure(path: str, settings: Path) -> bool:
    """Run tests in one process, and tell whether they passed."""
    print(path, flush=True)
    run = _coverage("run", settings, "-m", "pytest", "-q", "-p", "no:cacheprovider", path)
    # 5: all of the tests are left to the full run
    if run.returncode not in (0, 5):
        print("\n".join(run.stdout.splitlines()[-3:]))
    _coverage("combine", settings, "--append", "--quiet")
    return run.returncode in (0, 5)


def _report(settings: Path, path: Path) -> Mapping[str, Mapping[str, int]]:
    """Return the counts of each file."""
    _coverage("json", settings, "-q", "-o", str(path)).check_returncode()
    report: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return {name: file["summary"] for name, file in report["files"].items()}


def _coverage(command: str, settings: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "coverage", command, f"--rcfile={settings}", *arguments],
        cwd=ROOT,
        check=False,
        capture_output=True,
        text=True,
    )


Files = Mapping[str, Mapping[str, int]]


def _table(files: Files) -> Iterator[str]:
    """Yield the files below the bound, the worst first, then folders, rooms and the total."""
    yield "branches  with statements"
    worst = sorted(files.items(), key=lambda item: _percents([item[1]]))
    for name, counts in worst:
        if min(_percents([counts])) < LEAST_PERCENT:
            yield _line([counts], name)
    folders: defaultdict[str, list[Mapping[str, int]]] = defaultdict(list)
    for name, counts in files.items():
        folders[name.rpartition("/")[0]].append(counts)
    for folder, counted in sorted(folders.items()):
        yield _line(counted, f"{folder}/*, {len(counted)} files")
    for room in ROOMS:
        yield _line(_of(room, files), f"{room}/, {len(_of(room, files))} files")
    yield _line(list(files.values()), "all")


def _of(room: str, files: Files) -> list[Mapping[str, int]]:
    return [counts for name, counts in files.items() if name.startswith(f"{room}/")]


def _line(counted: Sequence[Mapping[str, int]], name: str) -> str:
    branches, together = _percents(counted)
    return f"{branches:6.1f} %  {together:12.1f} %  {name}"


def _percents(counted: Sequence[Mapping[str, int]]) -> tuple[float, float]:
    """Return what was run of branches, and of statements and branches, as coverage counts them."""
    branches = sum(c["covered_branches"] for c in counted), sum(c["num_branches"] for c in counted)
    lines = sum(c["covered_lines"] for c in counted), sum(c["num_statements"] for c in counted)
    return _percent(*branches), _percent(branches[0] + lines[0], branches[1] + lines[1])


def _percent(run: int, every: int) -> float:
    return 100 * run / every if every else 100.0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
