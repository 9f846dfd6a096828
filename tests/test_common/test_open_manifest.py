"""The manifest on disk names, at each moment, the files that are there."""

from pathlib import Path

import pytest

from comparison.schema.errors import UnwritableOutputError
from comparison.schema.manifest import RawTensor
from comparison.store.manifest_file import MANIFEST_NAME, read_manifest
from test_common.open_manifest import OpenManifest
from tests.test_common.tiny_manifest import MANIFEST

LONG = "model." + "x" * 300 + "-output"


def test_a_name_that_its_file_does_not_spell_is_told_at_once(tmp_path: Path) -> None:
    manifest = OpenManifest(tmp_path)
    manifest.write(MANIFEST)
    assert manifest.stem("model.norm-output") == "model.norm-output"
    assert read_manifest(tmp_path / MANIFEST_NAME).file_names == {}
    stem = manifest.stem(LONG)
    assert stem != LONG
    assert read_manifest(tmp_path / MANIFEST_NAME).file_names == {stem: LONG}
    assert manifest.stem(LONG) == stem


def test_nothing_is_written_before_there_is_a_manifest(tmp_path: Path) -> None:
    manifest = OpenManifest(tmp_path)
    stem = manifest.stem(LONG)
    manifest.note_raw_tensor(tmp_path / "0" / "a", RawTensor(dtype="float32", shape=(3, 5)))
    manifest.tell_raw_tensors()
    assert list(tmp_path.iterdir()) == []
    manifest.write(MANIFEST)
    written = read_manifest(tmp_path / MANIFEST_NAME)
    assert written.file_names == {stem: LONG}
    assert written.raw_tensors == {"0/a": RawTensor(dtype="float32", shape=(3, 5))}
    assert manifest.current == written


def test_files_of_bare_bytes_are_told_once(tmp_path: Path) -> None:
    manifest = OpenManifest(tmp_path)
    manifest.write(MANIFEST)
    raw = RawTensor(dtype="bfloat16", shape=(7,))
    manifest.note_raw_tensor(tmp_path / "1" / "b", raw)
    assert read_manifest(tmp_path / MANIFEST_NAME).raw_tensors == {}
    manifest.tell_raw_tensors()
    assert read_manifest(tmp_path / MANIFEST_NAME).raw_tensors == {"1/b": raw}
    (tmp_path / MANIFEST_NAME).unlink()
    manifest.tell_raw_tensors()  # knows that it did
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(UnwritableOutputError, match="gone"):
        OpenManifest(tmp_path / "gone").write(MANIFEST)
