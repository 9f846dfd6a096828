"""Tests this workspace as its user would, and holds what came out against what must.

A target of a wrong model must fail, with the module that is wrong in its report. Takes the place of
a test target, since Bazel cannot run in a test of Bazel.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
import zipfile
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).resolve().parent
BAZELW = HERE.parents[1] / "bazelw"
STORED = HERE / "models" / "stored"
FAULT = "model.model.layers.1.mlp.up_proj"

TESTS_FAILED = 3  # Bazel's exit code for a build that succeeds and tests that do not
RIGHT = ("ported", "ported_against_golden", "ported_against_stored")
WRONG = ("wrong", "wrong_against_golden")


def bazel(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run Bazel in this workspace."""
    print("bazelw", *arguments, flush=True)
    return subprocess.run(
        [str(BAZELW), *arguments],
        cwd=HERE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )


def folder_of(name: str) -> Path:
    """Ask Bazel where one of its folders is."""
    return Path(bazel("info", name).stdout.splitlines()[-1])


def store_golden() -> None:
    """Do what docs/bazel.md says: build a golden dump, and copy it next to the BUILD file."""
    done = bazel("build", "//models:golden", "--noshow_progress")
    if done.returncode:
        sys.exit(done.stdout)
    shutil.rmtree(STORED, ignore_errors=True)
    shutil.copytree(folder_of("bazel-bin") / "models" / "golden", STORED)
    for path in [STORED, *STORED.rglob("*")]:
        path.chmod(0o755 if path.is_dir() else 0o644)


def objections(tests: Path) -> Iterator[str]:
    """Say what is not as it must be.

    Args:
        tests: the folder of what tests leave.
    """
    for name in (*RIGHT, *WRONG):
        case = ElementTree.parse(tests / "models" / name / "test.xml").find(".//testcase")
        if case is None:
            yield f"{name}: its report names no pipeline"
            continue
        failure = case.find("failure")
        blamed = "nothing" if failure is None else str(failure.get("message"))
        if name in RIGHT and len(case):
            yield f"{name} must pass, but reports {ElementTree.tostring(case, encoding='unicode')}"
        if name in WRONG and FAULT not in blamed:
            yield f"{name} must fail and blame {FAULT}, it blames {blamed}"
        if name in WRONG and FAULT not in (tests / "models" / name / "test.log").read_text():
            yield f"{name}: its log does not name {FAULT}"
        if not any(file.endswith("/verdict.json") for file in kept_files(tests, name)):
            yield f"{name}: no verdict.json among its undeclared outputs"


def kept_files(tests: Path, name: str) -> list[str]:
    """List a test's undeclared outputs, which Bazel 7 zips."""
    folder = tests / "models" / name / "test.outputs"
    zipped = folder / "outputs.zip"
    if zipped.is_file():
        with zipfile.ZipFile(zipped) as opened:
            return opened.namelist()
    return [str(path) for path in folder.rglob("*")]


def main() -> int:
    """Return 0 if all is as it must be."""
    store_golden()
    try:
        named = [f"//models:{name}" for name in (*RIGHT, *WRONG)]
        done = bazel("test", "//...", *named, "--keep_going", "--noshow_progress")
        if done.returncode != TESTS_FAILED:
            print(done.stdout)
            print(f"expected exit code {TESTS_FAILED} of Bazel, found {done.returncode}")
            return 1
        found = list(objections(folder_of("bazel-testlogs")))
    finally:
        shutil.rmtree(STORED, ignore_errors=True)
    print(*found, sep="\n", end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
