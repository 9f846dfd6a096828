"""Measures branch coverage of comparison/ and diagnosis/ by their own tests.

Run by hand, with coverage installed beside the packages of requirements/cpu.txt:

    python -m tests.branch_coverage [TEST FILE OR FOLDER...]

Each file or folder that is named is one process, and what several runs measured is added up until
`--fresh`. Compiled code and child processes are not seen: numba's kernels are left out, and what
only a child runs counts as not run. Exit code 1 where the total is below the bound.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parents[1]
ROOMS: Final = ("comparison", "diagnosis")
LEAST_PERCENT: Final = 95.0
_TESTS: Final = ("tests/comparison", "tests/cases", "tests/tools", "tests/diagnosis")
_SETTINGS: Final = """
[run]
branch = True
source = comparison,diagnosis
omit = comparison/numerics/kernels.py
data_file = {folder}/data
[report]
exclude_also =
    if TYPE_CHECKING:
    assert_never\\(
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
    given.folder.mkdir(parents=True, exist_ok=True)
    settings = given.folder / "coveragerc"
    settings.write_text(_SETTINGS.format(folder=given.folder))
    if given.fresh:
        (given.folder / "data").unlink(missing_ok=True)
    failed = [path for path in given.tests if not _measure(path, settings)]
    report = _report(settings, given.folder / "report.json")
    for line in _table(report):
        print(line)
    for path in failed:
        print(f"tests failed: {path}")
    return int(bool(failed) or report["totals"]["percent_covered"] < LEAST_PERCENT)


def _measure(path: str, settings: Path) -> bool:
    """Run tests in one process, and tell whether they passed."""
    print(path, flush=True)
    coverage = [sys.executable, "-m", "coverage", "run", "--append", f"--rcfile={settings}"]
    pytest = ["-m", "pytest", "-q", "-p", "no:cacheprovider", path]
    done = subprocess.run(
        [*coverage, *pytest], cwd=ROOT, check=False, capture_output=True, text=True
    )
    if done.returncode not in (0, 5):  # 5: all of them are left to the full run
        print("\n".join(done.stdout.splitlines()[-3:]))
    return done.returncode in (0, 5)


def _report(settings: Path, path: Path) -> dict[str, Any]:
    command = [sys.executable, "-m", "coverage", "json", "-q", f"--rcfile={settings}"]
    subprocess.run([*command, "-o", str(path)], cwd=ROOT, check=True)
    return dict(json.loads(path.read_text()))


def _table(report: Mapping[str, Any]) -> Iterator[str]:
    """Yield the files below the bound, the worst first, then the rooms and the total."""
    files: Mapping[str, Any] = {name: file["summary"] for name, file in report["files"].items()}
    for name, summary in sorted(files.items(), key=lambda item: item[1]["percent_covered"]):
        if summary["percent_covered"] < LEAST_PERCENT:
            yield f"{summary['percent_covered']:6.1f} %  {name}"
    for room in ROOMS:
        of_room = [summary for name, summary in files.items() if name.startswith(f"{room}/")]
        yield f"{_percent(of_room):6.1f} %  {room}/, {len(of_room)} files"
    yield f"{report['totals']['percent_covered']:6.1f} %  all"


def _percent(summaries: Sequence[Mapping[str, int]]) -> float:
    """Return what of statements and branches was run, in percent, as coverage counts it."""
    run = sum(s["covered_lines"] + s["covered_branches"] for s in summaries)
    return 100 * run / max(1, sum(s["num_statements"] + s["num_branches"] for s in summaries))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
