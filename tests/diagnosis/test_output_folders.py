"""What an earlier diagnosis left in its output folder."""

from pathlib import Path

import pytest
import torch

from comparison.schema.errors import UnwritableOutputError
from diagnosis.module_dump import ModuleInputs, dump_module
from diagnosis.output_folders import check_output, clear_earlier


def dumped(folder: Path) -> None:
    inputs = ModuleInputs.of((torch.ones(3, 2),), num_steps=1, encoder=False)
    dump_module(torch.nn.Sequential(torch.nn.Linear(2, 5)), inputs, folder)


def test_earlier_dumps_go_and_everything_else_stays(tmp_path: Path) -> None:
    names = ["reference", "candidate", "candidate2-fine", "reference-of-candidate-fine", "other"]
    names += ["reference-sketch", "candidate-sketch"]
    for name in names:
        dumped(tmp_path / name)
    (tmp_path / "candidate" / "notes.txt").write_text("mine")
    with pytest.raises(UnwritableOutputError, match="--overwrite replaces the dumps"):
        check_output(tmp_path, overwrite=False)
    check_output(tmp_path, overwrite=True)
    clear_earlier(tmp_path, besides=["reference", "reference-sketch"])
    kept = ["candidate", "other", "reference", "reference-sketch"]
    assert sorted(path.name for path in tmp_path.iterdir()) == kept
    clear_earlier(tmp_path, besides=["reference"])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["candidate", "other", "reference"]
    assert [path.name for path in (tmp_path / "candidate").iterdir()] == ["notes.txt"]
    assert (tmp_path / "reference" / "manifest.json").is_file()


@pytest.mark.parametrize("name", ["candidate", "reference-coarse"])
def test_what_is_no_dump_is_not_removed(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text("mine")
    with pytest.raises(UnwritableOutputError, match=f"{name} is no dump of a run"):
        check_output(tmp_path, overwrite=True)
    (tmp_path / name).unlink()
    (tmp_path / name / "0").mkdir(parents=True)
    (tmp_path / name / "0" / "checkpoint.bin").write_text("mine")
    with pytest.raises(UnwritableOutputError, match="is not part of a dump"):
        check_output(tmp_path, overwrite=True)


def test_a_new_folder_is_fine_and_a_file_is_not(tmp_path: Path) -> None:
    check_output(tmp_path / "new", overwrite=False)
    check_output(tmp_path, overwrite=False)
    (tmp_path / "file").write_text("")
    with pytest.raises(UnwritableOutputError, match="needs a new or empty folder"):
        check_output(tmp_path / "file", overwrite=True)
