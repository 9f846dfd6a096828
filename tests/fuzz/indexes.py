"""A fuzzed index of modular_model_detector: three files that must fit each other."""

import functools
import json
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save

from tests.fuzz.checked import check_reader
from tests.fuzz.json_damage import damaged_json
from tests.fuzz.steps import Steps, damaged
from utils.command import BadInputError
from utils.modular_detector.index_files import (
    EMBEDDINGS_FILE,
    INFO_FILE,
    MAP_FILE,
    TOKENS_FILE,
    read_index,
)

_ENTRIES = ["a/modeling_a.py:AMLP", "a/modeling_a.py:ANorm", "b/modeling_b.py:BMLP"]
_INFO = json.dumps(
    {
        "format": 1,
        "mark": "m",
        "definitions": 3,
        "transformers_version": "5.12.0",
        "commit": "",
        "embedding_model": "x",
        "pooling": "mean",
        "width": 4,
        "files": {},
    }
)


def index_input(data: bytes) -> None:
    """Read one index."""
    steps = Steps(data)
    files = dict(_sound())
    files[MAP_FILE] = _maybe(files[MAP_FILE], steps)
    for name in (TOKENS_FILE, EMBEDDINGS_FILE):
        if steps.below(3) == 0:
            files[name] = damaged(files[name], steps)
    info = _maybe(_INFO.encode(), steps)
    check_reader(_read, INFO_FILE, info, beside=files, refusals=BadInputError)


def _maybe(text: bytes, steps: Steps) -> bytes:
    if steps.below(3) == 0:
        return text
    return damaged_json(text.decode(), steps).encode("utf-8", "surrogatepass")


def _read(info: Path) -> None:
    read_index(info.parent)


@functools.cache
def _sound() -> dict[str, bytes]:
    arrays: dict[str, Any] = {
        "tokens": np.array([0, 1, 1, 2, 0], np.int64),
        "offsets": np.array([0, 2, 3, 5], np.int64),
        "vocabulary": np.frombuffer(b"one\ntwo\nthree", np.uint8),
    }
    embeddings = {"embeddings": np.eye(3, 4, dtype=np.float32)}
    return {
        MAP_FILE: json.dumps(dict(enumerate(_ENTRIES))).encode(),
        TOKENS_FILE: save(arrays, metadata={"mark": "m"}),
        EMBEDDINGS_FILE: save(embeddings, metadata={"mark": "m"}),
    }
