"""Builds an index, file by file; what a stopped run finished, or what did not change, is kept."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from utils.command import BadInputError, ensure_folder
from utils.modular_detector.definitions import (
    Definition,
    UnreadableFileError,
    definitions_of,
    read_modeling_file,
)
from utils.modular_detector.index import EmbeddingInfo, Entry, Index, SourceFile, number_tokens
from utils.modular_detector.index_files import read_arrays, write_arrays
from utils.modular_detector.provenance import date_of, digest_of, modeling_files, provenance_of
from utils.source_files import read_plain_file

if TYPE_CHECKING:
    from utils.modular_detector.embedder import Embedder
    from utils.modular_detector.index import Floats, Integers

_LAYOUT: Final = 1  # raise it when the code changes what a part holds
_PARTS: Final = "parts"
_MOST_BYTES: Final = 150  # of a part's name, far below what file systems take


class _Row(NamedTuple):
    name: str
    tokens: list[str]
    prints: list[int]
    lines: list[int]
    key: str  # of the code, for what has been embedded already


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """What the index holds of one file."""

    file: str
    source: SourceFile
    rows: list[_Row]
    embeddings: Floats


@dataclass(kw_only=True)
class IndexBuilder:
    """Makes an index of a folder of models.

    Attributes:
        models_root: the folder.
        index_dir: where the index and its parts are kept.
        embedder: embeds code; None for Jaccard alone.
        unreadable: the files that could not be read, with the reason.
    """

    models_root: Path
    index_dir: Path
    embedder: Embedder | None
    unreadable: list[str] = field(default_factory=list)
    _known: dict[str, Floats] = field(default_factory=dict)

    def build(self, progress: Callable[[list[Path]], Iterable[Path]]) -> Index:
        """Build the index; each finished file is on disk before the next one is begun.

        Args:
            progress: shows how far a list of files has been gone through.

        Raises:
            BadInputError: there is no modeling file, none has a definition, or the folder cannot
                be written.
        """
        ensure_folder(self.index_dir / _PARTS)
        files = modeling_files(self.models_root, self._folder_failed)
        parts = list(self._parts(progress(files)))
        if not any(part.rows for part in parts):
            raise BadInputError(f"no class or function in the modeling files of {self.models_root}")
        return self._join(parts)

    def _folder_failed(self, error: OSError) -> None:
        self.unreadable.append(f"{error.filename}: {error.strerror}")

    def _parts(self, files: Iterable[Path]) -> Iterator[_Part]:
        for path in files:
            try:
                yield self._part(path)
            except UnreadableFileError as error:
                self.unreadable.append(str(error))

    def _part(self, path: Path) -> _Part:
        try:
            source = read_plain_file(path)
        except OSError as error:
            raise UnreadableFileError(f"{path}: {error.strerror}") from error
        name = path.relative_to(self.models_root).as_posix()
        stored = self.index_dir / _PARTS / f"{_part_stem(name)}.safetensors"
        recipe = {"layout": str(_LAYOUT), "digest": digest_of(source), "embedding": self._model()}
        part = _read_part(stored, name, recipe)
        if part is None:
            part = self._make(path, name, source, recipe["digest"])
            rows = json.dumps(part.rows)
            metadata = {**recipe, "rows": rows, "date": part.source.date}
            write_arrays(stored, {"embeddings": part.embeddings}, metadata)
        self._known |= dict(zip((row.key for row in part.rows), part.embeddings, strict=True))
        return part

    def _model(self) -> str:
        if self.embedder is None:
            return ""
        # a folder may hold another model by now
        return f"{self.embedder.name} {self.embedder.pooling} {self.embedder.digest}"

    def _make(self, path: Path, name: str, source: bytes, digest: str) -> _Part:
        definitions = definitions_of(read_modeling_file(path, source))
        model = Entry(file=name, name="").model
        return _Part(
            file=name,
            source=SourceFile(digest=digest, date=date_of(self.models_root, model, source)),
            rows=[_row(definition) for definition in definitions],
            embeddings=self._embed(definitions),
        )

    def _embed(self, definitions: list[Definition]) -> Floats:
        """Embed code, [n, width]; what is written alike in another file is embedded once."""
        if self.embedder is None:
            return np.zeros((len(definitions), 0), dtype=np.float32)
        codes = {_key(definition): definition.code for definition in definitions}
        fresh = {key: code for key, code in codes.items() if key not in self._known}
        vectors = self.embedder.encode(list(fresh.values()))
        self._known |= dict(zip(fresh, vectors, strict=True))
        rows = [self._known[_key(definition)] for definition in definitions]
        return np.array(rows, dtype=np.float32).reshape(len(rows), self.embedder.width)

    def _join(self, parts: list[_Part]) -> Index:
        rows = [row for part in parts for row in part.rows]
        vocabulary, tokens, offsets = number_tokens(row.tokens for row in rows)
        embedder = self.embedder
        return Index(
            entries=[Entry(file=p.file, name=row.name) for p in parts for row in p.rows],
            provenance=provenance_of(self.models_root),
            files={part.file: part.source for part in parts},
            embedding=_info(embedder),
            embeddings=None
            if embedder is None
            else np.concatenate([part.embeddings for part in parts]),
            vocabulary=vocabulary,
            tokens=tokens,
            offsets=offsets,
            prints=_integers([row.prints for row in rows]),
            lines=_integers([row.lines for row in rows]),
        )


def _part_stem(name: str) -> str:
    """Name the part of a file, such that no two files share one."""
    flat = name.replace("/", "__")
    raw = os.fsencode(flat)
    if len(raw) <= _MOST_BYTES and "__" not in name:
        return flat
    return f"{os.fsdecode(raw[:_MOST_BYTES])}~{digest_of(os.fsencode(name))[:16]}"


def _info(embedder: Embedder | None) -> EmbeddingInfo | None:
    if embedder is None:
        return None
    return EmbeddingInfo(model=embedder.name, pooling=embedder.pooling, width=embedder.width)


def _row(definition: Definition) -> _Row:
    prints = definition.prints
    return _Row(
        name=definition.name,
        tokens=sorted(definition.tokens),
        prints=[prints.exact, prints.renamed, prints.structure, prints.size],
        lines=[definition.first_line, definition.last_line],
        key=_key(definition),
    )


def _key(definition: Definition) -> str:
    return digest_of(definition.code.encode())


def _integers(rows: list[list[int]]) -> Integers:
    return np.array(rows, dtype=np.int64)


def _read_part(path: Path, file: str, recipe: dict[str, str]) -> _Part | None:
    """Read what an earlier run kept of a file, if that was made of the same in the same way."""
    if not path.is_file():
        return None
    try:
        arrays, metadata = read_arrays(path)
        if any(metadata.get(key) != value for key, value in recipe.items()):
            return None
        return _Part(
            file=file,
            source=SourceFile(digest=recipe["digest"], date=metadata["date"]),
            rows=[_Row(*row) for row in json.loads(metadata["rows"])],
            embeddings=arrays["embeddings"],
        )
    except (BadInputError, KeyError, TypeError, ValueError):
        return None  # made again
