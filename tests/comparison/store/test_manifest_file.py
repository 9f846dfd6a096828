"""manifest.json and back."""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from comparison.schema.errors import (
    CorruptFileError,
    UnsupportedFormatError,
    UnwritableOutputError,
)
from comparison.schema.manifest import (
    CaptureCertificate,
    Manifest,
    Padding,
    RawTensor,
    Row,
    Skip,
    Stretch,
)
from comparison.store.manifest_file import read_manifest, write_manifest

MANIFEST = Manifest(
    engine="torch",
    versions={"torch": "2.13.0", "transformers": "5.12.1"},
    model="tiny-random/llama",
    pipeline="tiny-random/llama",
    encoding="float32",
    device="cpu",
    padding=Padding.LEFT,
    rows=(
        Row(prompt="Hi", token_ids=(1, 2, 3), generated=(4,)),
        Row(prompt=None, token_ids=(5,)),
    ),
    steps=2,
    config={"hidden_size": 256, "layer_types": ["full_attention"]},
    seed=0,
    options={"num_hidden_layers": 1},
    patches=("widen encodings",),
    certificate=CaptureCertificate(
        registered=9, fired=8, saved=21, skipped=(Skip(name="model.lm_head", reason="a tuple"),)
    ),
    complete=True,
    file_names={"long~0123": "model.layers.0.long"},
    raw_tensors={"0/x": RawTensor(dtype="bfloat16", shape=(2, 3))},
)


def changed(tmp_path: Path, **changes: Any) -> Path:
    path = tmp_path / "manifest.json"
    write_manifest(path, MANIFEST)
    value = json.loads(path.read_text()) | changes
    path.write_text(json.dumps({key: item for key, item in value.items() if item is not ...}))
    return path


def test_there_and_back(tmp_path: Path) -> None:
    write_manifest(tmp_path / "manifest.json", MANIFEST)
    assert read_manifest(tmp_path / "manifest.json") == MANIFEST
    assert [path.name for path in tmp_path.iterdir()] == ["manifest.json"]


@pytest.mark.parametrize(
    ("stretch", "token"),
    [
        ({"row": 0, "first": 0, "count": 1 << 40}, 1 << 40),
        ({"row": 0, "first": 1 << 60, "count": 1}, (1 << 60) + 1),
        ({"row": 0, "first": 3, "count": 2}, 5),
        ({"row": 1, "first": 1, "count": 2}, 3),
    ],
)
def test_no_step_computes_tokens_that_the_row_does_not_have(
    tmp_path: Path, stretch: dict[str, int], token: int
) -> None:
    path = changed(tmp_path, stretches=[[stretch]])
    with pytest.raises(CorruptFileError, match=f"which has [42] at most.*found 'token {token}'"):
        read_manifest(path)


@pytest.mark.parametrize("key", ["config", "options"])
def test_long_keys_of_a_configuration_are_refused(tmp_path: Path, key: str) -> None:
    path = changed(tmp_path, **{key: {"a": [{"k" * 1001: {}}]}})
    with pytest.raises(CorruptFileError, match=f"keys of at most 1000 characters in '{key}'"):
        read_manifest(path)


def test_infinity_in_the_config_stays_strict_json(tmp_path: Path) -> None:
    path = tmp_path / "manifest.json"
    limited = Manifest(
        engine="torch",
        versions={},
        model="m",
        pipeline="p",
        encoding="float32",
        device="cpu",
        padding=Padding.NONE,
        rows=(),
        steps=1,
        config={"limit": [0.0, math.inf]},
    )
    write_manifest(path, limited)
    assert read_manifest(path).config == {"limit": [0.0, "Infinity"]}


def test_a_later_version_says_so(tmp_path: Path) -> None:
    path = changed(tmp_path, schema_version=2)
    with pytest.raises(UnsupportedFormatError, match=r"or less, found 2; .* update them"):
        read_manifest(path)


def test_unknown_keys_are_passed_over(tmp_path: Path) -> None:
    assert read_manifest(changed(tmp_path, weather="fine")) == MANIFEST


@pytest.mark.parametrize("key", ["engine", "rows", "steps", "padding", "schema_version"])
def test_missing_keys(tmp_path: Path, key: str) -> None:
    path = changed(tmp_path, **{key: ...})
    with pytest.raises(CorruptFileError, match=f"expected '{key}' in the manifest, found none"):
        read_manifest(path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"steps": "2"}, "expected another type as 'steps' in the manifest, found '2'"),
        ({"steps": True}, "expected another type as 'steps'"),
        ({"steps": -1}, "an integer of at least 0 and at most 1000000 as 'steps' .* found -1"),
        ({"steps": 10**30}, "at most 1000000 as 'steps' in the manifest, found 1000000"),
        ({"schema_version": 0}, "an integer of at least 1 as 'schema_version' .* found 0"),
        ({"schema_version": -1}, "an integer of at least 1 as 'schema_version' .* found -1"),
        ({"padding": "middle"}, "expected a padding of none, left, right, ragged"),
        ({"rows": [{"token_ids": ["a"]}]}, r"expected integers as 'token_ids' in rows\[0\]"),
        ({"rows": [3]}, r"expected a JSON object in rows\[0\], found 3"),
        ({"versions": {"torch": 2}}, "expected texts in 'versions'"),
        ({"raw_tensors": {"0/x": {"dtype": "f"}}}, r"expected 'shape' in raw_tensors\[0/x\]"),
        ({"complete": 1}, "expected another type as 'complete'"),
    ],
)
def test_values_of_another_type(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(CorruptFileError, match=message):
        read_manifest(changed(tmp_path, **changes))


def test_values_nested_without_end(tmp_path: Path) -> None:
    nested: Any = 1
    for _ in range(300):
        nested = {"a": [nested]}
    for key in ("config", "options"):
        path = changed(tmp_path, **{key: nested})
        with pytest.raises(CorruptFileError, match=f"at most 60 levels in '{key}'"):
            read_manifest(path)


def test_a_key_that_is_there_twice(tmp_path: Path) -> None:
    path = changed(tmp_path)
    path.write_text(path.read_text().replace('"engine"', '"engine": "max", "engine"', 1))
    with pytest.raises(CorruptFileError, match="found the key 'engine' twice in one object"):
        read_manifest(path)


def test_numbers_of_endless_digits(tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text('{"schema_version": ' + "9" * 5000 + "}")
    with pytest.raises(CorruptFileError, match=r"manifest\.json: expected JSON .*, found .*digits"):
        read_manifest(tmp_path / "manifest.json")


def test_every_truncation_is_told(tmp_path: Path) -> None:
    path = tmp_path / "manifest.json"
    write_manifest(path, MANIFEST)
    content = path.read_text().rstrip()
    for length in range(len(content)):
        path.write_text(content[:length])
        with pytest.raises(CorruptFileError, match=r"manifest\.json: expected"):
            read_manifest(path)


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UnwritableOutputError, match="the folder must exist"):
        write_manifest(tmp_path / "no" / "manifest.json", MANIFEST)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"patches": ["one", 2]}, "expected texts as 'patches' in the manifest, found "),
        ({"config_reads": {"theta": [3]}}, "expected texts as 'theta' in config_reads, found"),
        ({"stretches": [[{"row": 0, "first": 0, "count": 0}]]}, "an integer of at least 1"),
        (
            {"stretches": [[], [{"row": 9, "first": 0, "count": 1}]]},
            r"one of 2 row\(s\) .* found 9",
        ),
        ({"stretches": [3]}, r"expected another type as 'step' in stretches\[0\], found 3"),
    ],
)
def test_lists_inside_are_checked(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(CorruptFileError, match=message):
        read_manifest(changed(tmp_path, **changes))


def test_what_the_model_read_and_computed_is_read_again(tmp_path: Path) -> None:
    stretches = ((Stretch(row=0, first=1, count=2),), (Stretch(row=0, first=3, count=1),))
    written = replace(MANIFEST, config_reads={"theta": ["model.rotary_emb"]}, stretches=stretches)
    write_manifest(tmp_path / "manifest.json", written)
    assert read_manifest(tmp_path / "manifest.json") == written
