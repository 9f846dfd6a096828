"""The commands of the pages that take weights which packages ship.

Embedding all models of transformers takes minutes: see docs/modular_model_detector.md.
"""

from pathlib import Path

import pytest

from tests.child_processes import ROOT, user_environment
from tests.docs.command_needs import Needs
from tests.docs.following import RunAsProcess, commands_with, follow, pages_with
from tests.docs.readers_files import Dumps, ReadersFiles

pytestmark = pytest.mark.full

NEEDED = (Needs.WEIGHTS,)


@pytest.mark.parametrize("page", pages_with(NEEDED))
def test_commands_with_packaged_weights(page: str, tmp_path: Path) -> None:
    dumps = Dumps(tmp_path / "dumps")
    files = ReadersFiles(tmp_path, Path(page).name, dumps, max_framework="torch")
    run = RunAsProcess(environment=user_environment(tmp_path / "cache"))
    printed = follow(commands_with(ROOT / page, NEEDED), files, run, tmp_path)
    if "modular" in page:
        assert "modeling_beit3.py::Beit3MLP:\nembedding:\n" in printed
    else:
        assert (tmp_path / "minilm_tensors" / "manifest.json").is_file()
