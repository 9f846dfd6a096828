"""The commands of pages whose tools need no engine, in this process, as they stand there."""

import importlib
import json
import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.child_processes import ROOT
from tests.comparison.traces.traced_llama import trace_llama
from tests.utils.scan_trees import make_root, one_class

_COMMAND = re.compile(
    r"^(?:\./bazelw run (?:--//:\S+ )?//(?P<room>tools|utils):(?P<tool>\w+) --"
    r"|python (?P<path>(?:tools|utils)/\w+)\.py) (?P<arguments>.+)$"
)
PAGES = ("report.md", "compare_reports.md", "compare_traces.md", "scan_skipped_tests.md")


def commands_of(page: str) -> Iterator[tuple[str, list[str]]]:
    """Yield the module of each command and its arguments, continuation lines joined."""
    text = re.sub(r"\\\n\s+", " ", (ROOT / "docs" / page).read_text(encoding="utf-8"))
    for line in text.splitlines():
        found = _COMMAND.match(line.strip())
        if found is not None:
            module = found["path"] or f"{found['room']}/{found['tool']}"
            yield module.replace("/", "."), shlex.split(found["arguments"])


@pytest.fixture(scope="module")
def dump(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from oracles.registry import find_oracle
    from test_common.debug_options import DebugOptions
    from test_common.debug_run import run_debug_model

    pipeline, folder = "tiny-random/llama", tmp_path_factory.mktemp("dump") / "torch_tensors"
    options = DebugOptions(pipeline=pipeline, framework="torch", output=folder)
    run_debug_model(find_oracle(pipeline), options)
    return folder


def make_files(folder: Path, dump: Path) -> None:
    """Lay out what the reader of the pages has."""
    for name in ("torch_tensors", "max_tensors", "good", "new"):
        shutil.copytree(dump, folder / name)
    for name in ("good_trace", "new_trace"):
        trace_llama(folder / name)
    tests = one_class("@unittest.skip('too slow')\ndef test_inputs_embeds(self):\n    pass")
    make_root(folder / "transformers", {"bert": tests})


def follow(page: str, folder: Path) -> list[int]:
    """Run the commands of a page; return their exit codes."""
    codes = []
    for module, arguments in commands_of(page):
        command = getattr(importlib.import_module(module), module.rpartition(".")[2])
        given = [re.sub("^~", str(folder), argument) for argument in arguments]  # as a shell does
        codes.append(command.main(given, standalone_mode=False) or 0)
    return codes


@pytest.mark.parametrize("page", PAGES)
def test_every_command(
    page: str, dump: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_files(tmp_path, dump)
    monkeypatch.chdir(tmp_path)
    if page == "compare_reports.md":
        from tools.compare_tensors import compare_tensors

        for name in ("yesterday.json", "today.json"):
            arguments = ["--torch-tensor", "good/", "--max-tensor", "new/", "--rtol", "1e-3"]
            given = [*arguments, "--json", name]
            assert not compare_tensors.main(given, standalone_mode=False)
    # The dump is of another model than the traces here.
    wanted = [
        int(module == "tools.compare_traces" and "torch_tensors/" in arguments)
        for module, arguments in commands_of(page)
    ]
    assert 0 in wanted
    assert follow(page, tmp_path) == wanted
    made = {"report.md": "new.html", "compare_traces.md": "trees.html"}
    assert page not in made or (tmp_path / made[page]).stat().st_size > 10_000
    if page == "scan_skipped_tests.md":
        scan = json.loads((tmp_path / "scans" / "all_tests_scan_result.json").read_text())
        assert "test_inputs_embeds" in scan
