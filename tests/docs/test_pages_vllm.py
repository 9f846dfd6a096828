"""The commands of the pages that run vLLM, in one process and on two ranks."""

from pathlib import Path

import pytest

from tests.child_processes import ROOT, user_environment
from tests.docs.command_needs import Needs
from tests.docs.following import RunAsProcess, commands_with, follow, pages_with
from tests.docs.readers_files import Dumps, ReadersFiles

pytestmark = pytest.mark.full

NEEDED = (Needs.VLLM,)


@pytest.mark.parametrize("page", pages_with(NEEDED))
def test_commands_with_vllm(page: str, tmp_path: Path) -> None:
    dumps = Dumps(tmp_path / "dumps")
    files = ReadersFiles(tmp_path, Path(page).name, dumps, max_framework="torch")
    run = RunAsProcess(environment=user_environment(tmp_path / "cache"))
    follow(commands_with(ROOT / page, NEEDED), files, run, tmp_path)
    assert (tmp_path / "vllm_tensors" / "manifest.json").is_file()
    assert (tmp_path / "vllm_ranks" / "rank1" / "manifest.json").is_file()
