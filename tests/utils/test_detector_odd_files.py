"""The detector on files and indexes that no one would write on purpose."""

import datetime
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.numpy import save_file
from safetensors.torch import save_file as save_torch_file

from tests.child_processes import run_module, user_environment
from tests.utils.model_trees import make_models, make_sentence_model, modeling_source, three_models
from utils.command import BadInputError
from utils.modular_detector.build import IndexBuilder
from utils.modular_detector.definitions import (
    UnreadableFileError,
    definitions_of,
    read_modeling_file,
)
from utils.modular_detector.embedder import load_embedder
from utils.modular_detector.index import Index
from utils.modular_detector.index_files import read_index, write_index
from utils.modular_detector.matching import candidates
from utils.modular_detector.provenance import is_before
from utils.modular_detector.sources import IndexedSources
from utils.source_files import read_plain_file

DEEP = "def deep(x):\n    return " + " + ".join(["x"] * 700) + "\n"


def builder(models: Path) -> IndexBuilder:
    return IndexBuilder(models_root=models, index_dir=models.parent / "index", embedder=None)


def built(models: Path) -> Index:
    return builder(models).build(lambda files: files)


def test_a_definition_that_is_nested_too_deep_leaves_its_file_out(tmp_path: Path) -> None:
    models = make_models(tmp_path, {"deep": DEEP, "plain": modeling_source("plain", "Plain")})
    building = builder(models)
    assert {entry.model for entry in building.build(lambda files: files).entries} == {"plain"}
    assert len(building.unreadable) == 1
    assert building.unreadable[0].endswith("modeling_deep.py:1: deep is nested too deep")
    with pytest.raises(UnreadableFileError, match="deep is nested too deep"):
        definitions_of(read_modeling_file(models / "deep" / "modeling_deep.py"))


def test_a_row_of_a_thousand_elifs_is_read(tmp_path: Path) -> None:
    path = tmp_path / "modeling_row.py"
    path.write_text("if a:\n    b()\n" + "elif a:\n    b()\n" * 1000 + "else:\n    def f(): pass\n")
    assert list(read_modeling_file(path).nodes) == ["f"]


def test_pipes_and_folders_out_of_reach_are_named(tmp_path: Path) -> None:
    models = three_models(tmp_path / "lib")
    os.mkfifo(models / "modeling_pipe.py")
    folder = os.open(models, os.O_RDONLY)
    for _ in range(17):  # deeper than a path may be long
        os.mkdir("d" * 250, dir_fd=folder)
        below = os.open("d" * 250, os.O_RDONLY, dir_fd=folder)
        os.close(folder)
        folder = below
    os.close(folder)
    building = builder(models)
    assert len(building.build(lambda files: files).files) == 3
    shutil.rmtree(models)  # pytest could not
    too_long, pipe = building.unreadable
    assert too_long.endswith(f"{'d' * 250}: File name too long")
    assert pipe.endswith("modeling_pipe.py: no plain file")


@pytest.mark.parametrize("kind", ["pipe", "folder", "device"])
def test_only_plain_files_are_read(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "x"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    else:
        path.symlink_to("/dev/zero")
    with pytest.raises(OSError, match="Is a directory" if kind == "folder" else "no plain file"):
        read_plain_file(path)


def test_a_file_of_holes_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "modeling_holes.py"
    path.touch()
    os.truncate(path, 20 << 30)
    with pytest.raises(OSError, match="larger than 256 MiB"):
        read_plain_file(path)


@pytest.mark.parametrize("place", ["deprecated/old/modeling_old.py", "modeling_old.py"])
def test_a_file_at_any_depth_never_matches_itself(tmp_path: Path, place: str) -> None:
    models = three_models(tmp_path / "lib")
    path = models / place
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(modeling_source("old", "Old"))
    index = built(models)
    allowed = candidates(index, path, models_root=models)
    files = {entry.file for entry, counts in zip(index.entries, allowed, strict=True) if counts}
    assert place in index.files
    assert files == set(index.files) - {place}


@pytest.mark.parametrize("date", ["0000", "2024-13-45", "", "soon", "2024-02-30"])
def test_a_day_that_there_never_was_is_before_none(date: str) -> None:
    assert not is_before(date, datetime.date(2030, 1, 1))


def test_parts_of_files_have_names_of_their_own_that_fit(tmp_path: Path) -> None:
    models = three_models(tmp_path / "lib")
    long = "a" * 140
    places = ["a__b/modeling_c.py", "a/b/modeling_c.py", f"{long}/modeling_{long}.py"]
    for place in places:
        (models / place).parent.mkdir(parents=True)
        (models / place).write_text(modeling_source("c", "Cc"))
    assert set(places) <= set(built(models).files)
    assert len(list((tmp_path / "lib" / "index" / "parts").iterdir())) == 6


def test_lines_that_end_in_old_ways_are_found_again(tmp_path: Path) -> None:
    models = make_models(tmp_path, {"mac": ""})
    source = modeling_source("mac", "Mac").replace("\n", "\r").encode()
    (models / "mac" / "modeling_mac.py").write_bytes(source)
    index = built(models)
    sources = IndexedSources(index=index, models_root=models)
    assert all(sources.definition(number) is not None for number in range(len(index)))


Damage = Callable[[dict[str, Any]], None]


@pytest.mark.parametrize(
    "damage",
    [
        lambda a: a.update(tokens=a["tokens"] + 10**9),
        lambda a: a.update(tokens=-a["tokens"]),
        lambda a: a.update(tokens=a["tokens"].astype(np.float32)),
        lambda a: a.update(tokens=a["tokens"].reshape(1, -1)),
        lambda a: a.update(offsets=a["offsets"] * 1000),
        lambda a: a.update(offsets=a["offsets"][::-1]),
        lambda a: a.update(offsets=a["offsets"] + 1),
        lambda a: a.update(prints=a["prints"].reshape(-1)),
        lambda a: a.update(prints=a["prints"][:2]),
        lambda a: a.update(lines=a["lines"][:1]),
        lambda a: a.update(lines=-a["lines"]),
        lambda a: a.update(vocabulary=a["vocabulary"][:9]),
        lambda a: a.update(vocabulary=np.full(9, 255, np.uint8)),
        lambda a: a.pop("offsets"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(tmp_path: Path, damage: Damage) -> None:
    write_index(built(three_models(tmp_path / "lib")), tmp_path / "index")
    read_index(tmp_path / "index")
    path = tmp_path / "index" / "code_index_tokens.safetensors"
    with safe_open(path, "np") as file:
        metadata = file.metadata()
        arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  # no mapping
    damage(arrays)
    save_file({n: np.ascontiguousarray(a) for n, a in arrays.items()}, path, metadata=metadata)
    with pytest.raises(BadInputError, match="build it anew with --build"):
        read_index(tmp_path / "index")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("index.json", "[" * 10**5),
        ("code_index_map.json", '{"a":' * 10**5),
        ("index.json", {"files": {"a": {"digest": "x", "date": 5}}}),
        ("index.json", {"files": [1]}),
        ("code_index_map.json", {str(number): 5 for number in range(12)}),
    ],
)
def test_json_that_does_not_fit_is_refused(tmp_path: Path, name: str, text: Any) -> None:
    write_index(built(three_models(tmp_path / "lib")), tmp_path / "index")
    path = tmp_path / "index" / name
    if not isinstance(text, str):
        text = json.dumps(json.loads(path.read_text()) | text)
    path.write_text(text)
    with pytest.raises(BadInputError, match="build it anew with --build"):
        read_index(tmp_path / "index")


@pytest.mark.parametrize(
    ("numbered", "tokens"),
    [
        ({"1": "a/b.py:c"}, {}),
        ({"0": 5}, {}),
        ({"0": "a/b.py:c"}, {"a/b.py:c": 5}),
        ({"0": "a/b.py:c"}, {"a/b.py:c": [[1]]}),
        ({"0": "a/b.py:c"}, {"a/b.py:c": [1, "a"]}),
    ],
)
def test_an_index_of_others_that_does_not_fit_is_refused(
    tmp_path: Path, numbered: Any, tokens: Any
) -> None:
    (tmp_path / "code_index_map.json").write_text(json.dumps(numbered))
    (tmp_path / "code_index_tokens.json").write_text(json.dumps(tokens))
    save_file({"embeddings": np.ones((1, 4), np.float32)}, tmp_path / "embeddings.safetensors")
    with pytest.raises(BadInputError, match="build it anew with --build"):
        read_index(tmp_path)


def test_embeddings_of_a_dtype_that_numpy_lacks_are_refused(tmp_path: Path) -> None:
    (tmp_path / "code_index_map.json").write_text('{"0": "a/b.py:c"}')
    (tmp_path / "code_index_tokens.json").write_text("{}")
    rows = torch.ones(1, 4, dtype=torch.bfloat16)
    save_torch_file({"embeddings": rows}, tmp_path / "embeddings.safetensors")
    # in a process of its own: packages of other tests teach NumPy the dtype
    done = run_module(
        "utils.modular_model_detector",
        "--modeling-file",
        three_models(tmp_path / "lib") / "apple" / "modeling_apple.py",
        "--models-root",
        tmp_path / "lib" / "models",
        "--index-dir",
        tmp_path,
        cwd=tmp_path,
        environment=user_environment(tmp_path / "cache"),
    )
    assert done.returncode == 2
    assert "embeddings.safetensors of the index (data type 'bfloat16' not" in done.stderr


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("model.safetensors", "x" * 10),
        ("config.json", "[1]"),
        ("tokenizer.json", "{}"),
        ("sentence_bert_config.json", "[]"),
    ],
)
def test_a_damaged_sentence_model_is_named(tmp_path: Path, name: str, text: str) -> None:
    folder = make_sentence_model(tmp_path / "sentence")
    (folder / name).write_text(text)
    with pytest.raises(BadInputError, match="cannot be loaded"):
        load_embedder(str(folder))


def test_a_model_that_cannot_embed_is_named(tmp_path: Path) -> None:
    folder = make_sentence_model(tmp_path / "sentence")
    path = folder / "tokenizer_config.json"
    settings = json.loads(path.read_text())
    del settings["pad_token"]
    path.write_text(json.dumps(settings))
    with pytest.raises(BadInputError, match="cannot embed code: Asking to pad"):
        load_embedder(str(folder)).encode(["a", "bc"])


def test_parts_of_another_model_in_the_same_folder_are_made_again(tmp_path: Path) -> None:
    models = three_models(tmp_path / "lib")
    folder = tmp_path / "sentence"
    found = []
    for width in (24, 30):
        shutil.rmtree(folder, ignore_errors=True)
        embedder = load_embedder(str(make_sentence_model(folder, width)))
        building = IndexBuilder(models_root=models, index_dir=tmp_path / "index", embedder=embedder)
        found.append(building.build(lambda files: files).embeddings)
    assert [array.shape[1] for array in found if array is not None] == [24, 30]
