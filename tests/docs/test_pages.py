"""The commands of README.md and of all pages but the guide, in order and in one folder a page.

In the default run those that need no MAX graph, no vLLM and no packaged weights, in this process;
there dumps of Torch stand for those of MAX, and the detector sees two models.
"""

import os
import re
from pathlib import Path

import pytest

from tests.child_processes import ROOT, user_environment
from tests.docs.command_needs import NOT_RUN, Needs, needs_of
from tests.docs.following import (
    RunAsProcess,
    commands_with,
    follow,
    pages_with,
    run_here,
)
from tests.docs.page_commands import GUIDE, PAGES, commands_of
from tests.docs.readers_files import Dumps, ReadersFiles
from tests.utils.model_trees import modeling_source
from utils import modular_model_detector

HERE, WITH_MAX = (Needs.NOTHING,), (Needs.NOTHING, Needs.MAX)


@pytest.fixture(scope="module")
def dumps(tmp_path_factory: pytest.TempPathFactory) -> Dumps:
    return Dumps(tmp_path_factory.mktemp("dumps"))


def two_models(folder: Path) -> Path:
    """Write the models of a small transformers: with all of them the detector takes a minute."""
    for name in ("alpha", "beta"):
        (folder / name).mkdir(parents=True)
        source = modeling_source(name, name.title())
        (folder / name / f"modeling_{name}.py").write_text(source)
    return folder


def check_what_is_left(page: str, folder: Path, printed: str) -> None:
    """Look at what the commands of some pages must have made."""
    made = {"report.md": "new.html", "compare_traces.md": "trees.html"}
    name = Path(page).name
    assert name not in made or (folder / made[name]).stat().st_size > 10_000
    if name in ("README.md", "debug_model.md"):
        assert (folder / "torch_tensors" / "manifest.json").is_file()
    if name == "README.md":
        assert "Tensor: mlp_gate vs mlp_gate" in printed
        source = "Model source file: .*modeling_llama.py"
        assert re.search(source, (folder / "torch_tensors.log").read_text())
    if name == "scan_skipped_tests.md":
        scan = folder / "scans" / "all_tests_scan_result.json"
        assert "test_inputs_embeds" in scan.read_text()
    if name == "modular_model_detector.md":
        assert "modeling_beit3.py::Beit3MLP:" in printed
    if name == "trust.md":
        assert "model" in (folder / "own_code" / "trace").read_text()


@pytest.mark.parametrize("page", pages_with(HERE))
def test_commands_without_max(
    page: str, dumps: Dumps, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from transformers import dynamic_module_utils

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(dynamic_module_utils, "HF_MODULES_CACHE", str(tmp_path / "modules"))
    models = two_models(tmp_path / "site-packages" / "transformers" / "models")
    monkeypatch.setattr(modular_model_detector, "installed_models_root", lambda: models)
    files = ReadersFiles(tmp_path, Path(page).name, dumps, max_framework="torch")
    printed = follow(commands_with(ROOT / page, HERE), files, run_here, tmp_path)
    check_what_is_left(page, tmp_path, printed)


@pytest.mark.full
@pytest.mark.parametrize("page", pages_with(WITH_MAX))
def test_commands_with_max(page: str, dumps: Dumps, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    files = ReadersFiles(tmp_path, Path(page).name, dumps, max_framework="max")
    run = RunAsProcess(environment=user_environment(cache, HF_MODULES_CACHE=str(cache)))
    printed = follow(commands_with(ROOT / page, WITH_MAX), files, run, tmp_path)
    check_what_is_left(page, tmp_path, printed)


def test_every_command_is_run_or_is_listed_with_a_reason() -> None:
    listed = set()
    for page in PAGES:
        for command in commands_of(page):
            key = (page.name, command.text)
            listed |= {key} & NOT_RUN.keys()
            is_followed = page == GUIDE or command.launched() is not None
            assert is_followed or key in NOT_RUN, (*key, "is not run: say why in NOT_RUN")
    assert listed == NOT_RUN.keys(), "these are on no page any more"


def test_there_are_commands_of_each_kind() -> None:
    found = [needs_of(command) for page in PAGES for command in commands_of(page)]
    assert {need: found.count(need) >= 2 for need in Needs} == dict.fromkeys(Needs, True)
    assert len(pages_with(HERE)) >= 9


def test_links_between_pages_lead_somewhere() -> None:
    for page in PAGES[1:]:
        text = page.read_text(encoding="utf-8")
        for link in re.findall(r"\]\(([\w-]+\.md)(?:#[^)]*)?\)", text):
            assert os.path.exists(page.parent / link), (page, link)
