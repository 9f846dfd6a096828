"""Writes and reads an index: three files that carry one mark, so that none is taken for another."""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from utils.command import BadInputError, ensure_folder, whole_file
from utils.modular_detector.index import (
    EmbeddingInfo,
    Entry,
    Index,
    SourceFile,
    number_tokens,
)
from utils.modular_detector.index_checks import check_index
from utils.modular_detector.provenance import Provenance
from utils.source_files import read_plain_file

if TYPE_CHECKING:
    import numpy.typing as npt

FORMAT: Final = 1
INFO_FILE: Final = "index.json"
MAP_FILE: Final = "code_index_map.json"
TOKENS_FILE: Final = "code_index_tokens.safetensors"
EMBEDDINGS_FILE: Final = "embeddings.safetensors"
FOREIGN_TOKENS_FILE: Final = "code_index_tokens.json"
INDEX_FILES: Final = (INFO_FILE, MAP_FILE, TOKENS_FILE, EMBEDDINGS_FILE)
_REBUILD: Final = "build it anew with --build"


def write_index(index: Index, folder: Path) -> None:
    """Write an index; a killed run leaves the old one or one that is refused.

    Raises:
        BadInputError: the folder cannot be written.
    """
    ensure_folder(folder)
    mark = uuid.uuid4().hex
    arrays = {
        "tokens": index.tokens,
        "offsets": index.offsets,
        "vocabulary": np.frombuffer("\n".join(index.vocabulary).encode(), dtype=np.uint8),
    }
    arrays |= {"prints": index.prints} if index.prints is not None else {}
    arrays |= {"lines": index.lines} if index.lines is not None else {}
    write_arrays(folder / TOKENS_FILE, arrays, {"mark": mark})
    if index.embeddings is not None:
        write_arrays(folder / EMBEDDINGS_FILE, {"embeddings": index.embeddings}, {"mark": mark})
    else:
        (folder / EMBEDDINGS_FILE).unlink(missing_ok=True)
    numbered = {str(n): f"{entry.file}:{entry.name}" for n, entry in enumerate(index.entries)}
    _write_json(folder / MAP_FILE, numbered)
    _write_json(folder / INFO_FILE, _info(index, mark))


def holds_index(folder: Path) -> bool:
    """Tell whether a folder holds an index, ours or one of the documented form."""
    return (folder / MAP_FILE).is_file()


def read_index(folder: Path) -> Index:
    """Read an index.

    Raises:
        BadInputError: a file is missing, damaged, of another format, or of another build.
    """
    try:
        index = _read_own(folder) if (folder / INFO_FILE).exists() else _read_foreign(folder)
        check_index(index)
    except (KeyError, TypeError, AttributeError, ValueError, IndexError) as error:
        if isinstance(error, BadInputError):
            raise
        raise BadInputError(
            f"the index in {folder} is damaged ({error!r:.200}); {_REBUILD}"
        ) from error
    return index


def write_arrays(path: Path, arrays: dict[str, Any], metadata: dict[str, str]) -> None:
    """Write arrays as safetensors.

    Raises:
        BadInputError: the file cannot be written.
    """
    from safetensors.numpy import save

    contiguous = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    with whole_file(path) as file:
        file.write(save(contiguous, metadata=metadata))


def read_arrays(path: Path) -> tuple[dict[str, npt.NDArray[Any]], dict[str, str]]:
    """Read arrays and metadata of a safetensors file.

    Raises:
        BadInputError: the file is missing or damaged.
    """
    from safetensors import SafetensorError, safe_open

    if (
        path.exists() and not path.is_file()
    ):  # the library would wait for whoever writes into a pipe
        raise BadInputError(f"cannot read {path} of the index (no plain file); {_REBUILD}")
    try:
        with safe_open(path, framework="numpy") as file:
            return {name: file.get_tensor(name) for name in file.keys()}, file.metadata() or {}  # noqa: SIM118  # no mapping
    except (OSError, SafetensorError, TypeError) as error:  # TypeError: a dtype NumPy lacks
        raise BadInputError(
            f"cannot read {path} of the index ({error!s:.200}); {_REBUILD}"
        ) from error


def _info(index: Index, mark: str) -> dict[str, Any]:
    provenance, embedding = index.provenance, index.embedding
    return {
        "format": FORMAT,
        "mark": mark,
        "definitions": len(index),
        "transformers_version": provenance.version if provenance else "unknown",
        "commit": provenance.commit if provenance else "",
        "embedding_model": embedding.model if embedding else None,
        "pooling": embedding.pooling if embedding else None,
        "width": embedding.width if embedding else None,
        "files": {name: file._asdict() for name, file in index.files.items()},
    }


def _read_own(folder: Path) -> Index:
    info = _read_json(folder / INFO_FILE)
    if info.get("format") != FORMAT:
        raise BadInputError(
            f"{folder / INFO_FILE} is of format {info.get('format')!r:.80}, expected {FORMAT}; "
            f"{_REBUILD}"
        )
    arrays, metadata = read_arrays(folder / TOKENS_FILE)
    embedding = embeddings = None
    marks = {info["mark"], metadata.get("mark")}
    if info["embedding_model"] is not None:
        embedding = EmbeddingInfo(
            model=info["embedding_model"], pooling=info["pooling"], width=info["width"]
        )
        found, metadata = read_arrays(folder / EMBEDDINGS_FILE)
        embeddings = found["embeddings"]
        marks.add(metadata.get("mark"))
    entries = _entries(_read_json(folder / MAP_FILE))
    _check_whole(folder, len(entries) == info["definitions"] == len(arrays["offsets"]) - 1)
    _check_whole(folder, len(marks) == 1)
    _check_whole(folder, embeddings is None or len(embeddings) == len(entries))
    tokens = arrays["vocabulary"].tobytes().decode().split("\n")
    return Index(
        entries=entries,
        provenance=Provenance(version=info["transformers_version"], commit=info["commit"]),
        files={name: SourceFile(**file) for name, file in info["files"].items()},
        embedding=embedding,
        embeddings=embeddings,
        vocabulary={token: number for number, token in enumerate(tokens)},
        tokens=arrays["tokens"],
        offsets=arrays["offsets"],
        prints=arrays.get("prints"),
        lines=arrays.get("lines"),
    )


def _check_whole(folder: Path, is_whole: bool) -> None:
    if not is_whole:
        raise BadInputError(f"the files in {folder} are of different builds; {_REBUILD}")


def _read_foreign(folder: Path) -> Index:
    """Read an index of the documented form, which says nothing of its making."""
    entries = _entries(_read_json(folder / MAP_FILE))
    tokens = _read_json(folder / FOREIGN_TOKENS_FILE)
    rows = [tokens.get(f"{entry.file}:{entry.name}", ()) for entry in entries]
    vocabulary, numbers, offsets = number_tokens(rows)
    found, _ = read_arrays(folder / EMBEDDINGS_FILE)
    embeddings = next((array for array in found.values() if array.ndim == 2), None)
    if embeddings is None or len(embeddings) != len(entries):
        raise BadInputError(
            f"{folder / EMBEDDINGS_FILE} must hold one row for each of the {len(entries)} entries "
            f"of {MAP_FILE}; {_REBUILD}"
        )
    return Index(
        entries=entries,
        provenance=None,
        files={},
        embedding=None,
        embeddings=embeddings.astype(np.float32),
        vocabulary=vocabulary,
        tokens=numbers,
        offsets=offsets,
        prints=None,
        lines=None,
    )


def _entries(numbered: dict[str, str]) -> list[Entry]:
    parts = (numbered[str(number)].rpartition(":") for number in range(len(numbered)))
    return [Entry(file=file, name=name) for file, _, name in parts]


def _write_json(path: Path, value: object) -> None:
    with whole_file(path) as file:
        file.write(f"{json.dumps(value, indent=1)}\n".encode())


def _read_json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(read_plain_file(path))
    except OSError as error:
        raise BadInputError(f"cannot read {path} of the index: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise BadInputError(f"{path} of the index is no JSON ({error}); {_REBUILD}") from error
    if not isinstance(value, dict):
        raise BadInputError(f"{path} of the index holds no object; {_REBUILD}")
    return value
