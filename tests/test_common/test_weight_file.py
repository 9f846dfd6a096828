"""Files of weights that are refused before an engine is asked."""

import os
import struct
from pathlib import Path

import pytest

from comparison.schema.errors import BadInputError, MissingPathError
from test_common.max_builder import build_max_pipeline
from test_common.weight_file import check_weight_file


def gguf(version: int = 3, tensors: int = 1, settings: int = 1) -> bytes:
    return struct.pack("<4sIQQ", b"GGUF", version, tensors, settings) + bytes(64)


def test_a_sound_header_passes_here_and_in_the_models_folder(tmp_path: Path) -> None:
    (tmp_path / "a.gguf").write_bytes(gguf())
    check_weight_file(str(tmp_path / "a.gguf"), model_path="org/model")
    check_weight_file("a.gguf", model_path=str(tmp_path))


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"", "0 bytes"),
        (b"junk" * 9, "begin with b'junk'"),
        (b"GGUF\3", "5 bytes"),
        (gguf(version=99), "version 2 or 3, found 99"),
        (gguf(tensors=2**62), "the file is cut off"),
        (gguf(settings=2**62), "the file is cut off"),
        (gguf(tensors=4), "the file is cut off"),
    ],
)
def test_a_broken_gguf_is_named(tmp_path: Path, content: bytes, told: str) -> None:
    path = tmp_path / "a.gguf"
    path.write_bytes(content)
    with pytest.raises(BadInputError, match=told) as caught:
        check_weight_file(str(path), model_path="org/model")
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.gguf")
    (tmp_path / "folder.gguf").mkdir()
    (tmp_path / "link.gguf").symlink_to("nowhere")
    for name in ("pipe.gguf", "folder.gguf", "link.gguf"):
        with pytest.raises(BadInputError, match=name):
            check_weight_file(name, model_path=str(tmp_path))


@pytest.mark.parametrize("path", ["", "no.gguf", "../../x.gguf", "/no/such/x.gguf"])
def test_a_file_that_is_not_there_is_named(tmp_path: Path, path: str) -> None:
    with pytest.raises(MissingPathError, match=repr(path)):
        check_weight_file(path, model_path=str(tmp_path))


def test_files_of_the_hub_are_left_to_the_engine(tmp_path: Path) -> None:
    check_weight_file("org/repo/a.gguf", model_path=str(tmp_path))
    check_weight_file("a.gguf", model_path="org/repo")


def test_max_is_not_asked_for_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(MissingPathError, match=r"no\.gguf"):
        build_max_pipeline(
            model_path=str(tmp_path), encoding="q4_k", device_specs=[], weight_path="no.gguf"
        )
