"""Files of a model that claim more than anyone should read."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from comparison.schema.errors import BadInputError, CorruptFileError
from oracles.generic_oracle import GenericOracle
from oracles.oracle_file import load_oracle_file
from oracles.registry import find_oracle
from test_common.batch_file import read_batch
from test_common.config_file import read_config, read_config_object
from test_common.early_refusals import refuse_early
from test_common.lora_config import read_lora_config
from test_common.resumed_step import own_list
from test_common.step_header import complete_partial_files

_TERABYTE = 2**40


def _refuse_early(folder: Path) -> None:
    oracle = GenericOracle(str(folder), device_encoding_map={"cpu": ["float32"]})
    refuse_early(oracle, encoding=None, device="default", num_hidden_layers=3, overrides={})


READERS: list[tuple[str, Callable[[Path], object]]] = [
    ("prompts.txt", lambda folder: read_batch(folder / "prompts.txt")),
    ("prompts.json", lambda folder: read_batch(folder / "prompts.json")),
    ("config.json", _refuse_early),
    ("config.json", lambda folder: find_oracle(str(folder))),
    ("adapter_config.json", lambda folder: read_lora_config(folder / "adapter_config.json")),
    ("mine.py", lambda folder: load_oracle_file(str(folder / "mine.py"))),
    ("tensor_names.txt", own_list),
    ("tensors.partial.json", complete_partial_files),
]


@pytest.mark.parametrize(("name", "read"), READERS)
def test_a_file_of_a_terabyte_is_refused(
    tmp_path: Path, name: str, read: Callable[[Path], object]
) -> None:
    (tmp_path / name).touch()
    (tmp_path / "tensors.partial").touch()  # which the list of this name is of
    os.truncate(tmp_path / name, _TERABYTE)  # a hole
    with pytest.raises(BadInputError, match=rf"{name}(:| is) .*(at most|larger than) \d+ bytes"):
        read(tmp_path)


@pytest.mark.parametrize(
    ("text", "found"),
    [('{"a": 1, "b": [2], "a": 3}', {"a": 3, "b": [2]}), ("[1, null]", [1, None]), ("2.5", 2.5)],
)
def test_of_a_key_twice_the_last_counts(tmp_path: Path, text: str, found: Any) -> None:
    path = tmp_path / "config.json"
    path.write_text(text)
    assert read_config(path) == found
    if not isinstance(found, dict):
        with pytest.raises(CorruptFileError, match=r"config\.json is not a JSON object"):
            read_config_object(path)


def test_what_is_no_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(CorruptFileError, match="pipe: expected a file, found a pipe"):
        read_config(tmp_path / "pipe")
    with pytest.raises(CorruptFileError, match="gone cannot be read: No such file or directory"):
        read_config(tmp_path / "gone")
