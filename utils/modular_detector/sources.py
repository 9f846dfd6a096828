"""Reads again, from the folder of models, the definitions that an index speaks of."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from textwrap import dedent
from typing import Final

from utils.modular_detector.definitions import (
    ModelingFile,
    UnreadableFileError,
    read_modeling_file,
)
from utils.modular_detector.index import Index
from utils.modular_detector.provenance import digest_of
from utils.source_files import read_plain_file

# What tells how a file calls its model, in forms that are Python by themselves.
_CONFIGURATION: Final = re.compile(
    rb"^from \.\S*configuration_\w+ import (?:\([^)]*\)|[^\n(]*)", re.MULTILINE
)
_LINE_END: Final = re.compile(rb"\r\n?|\n")  # what Python takes for one
_BASE_CLASS: Final = re.compile(rb"^class \w+PreTrainedModel(?=\()", re.MULTILINE)


@dataclass(kw_only=True)
class IndexedSources:
    """The files behind an index.

    Attributes:
        index: the index.
        models_root: where the files lie.
        changed: files that are no longer as they were when the index was built.
    """

    index: Index
    models_root: Path
    changed: set[str] = field(default_factory=set)
    _sources: dict[str, bytes | None] = field(default_factory=dict)

    def definition(self, number: int) -> ModelingFile | None:
        """Read one definition, as a file that holds it and what names its model, nothing else.

        Returns:
            None where the index does not tell its place, or the file has changed.
        """
        entry = self.index.entries[number]
        source = self._source(entry.file)
        if source is None or self.index.lines is None:
            return None
        first, last = self.index.lines[number]
        own = b"\n".join(_LINE_END.split(source)[first - 1 : last]).decode(errors="replace")
        bases = [b"%s: ..." % line for line in _BASE_CLASS.findall(source)]
        # one that stands under an `if` is indented
        kept = [*_CONFIGURATION.findall(source), *bases, dedent(own).encode()]
        try:
            file = read_modeling_file(self.models_root / entry.file, b"\n".join(kept))
        except UnreadableFileError:
            return None
        return file if entry.name in file.nodes else None

    def _source(self, name: str) -> bytes | None:
        if name not in self._sources:
            self._sources[name] = self._read(name)
        return self._sources[name]

    def _read(self, name: str) -> bytes | None:
        try:
            source = read_plain_file(self.models_root / name)
        except OSError:
            return None
        known = self.index.files.get(name)
        if known is None or known.digest != digest_of(source):
            self.changed.add(name)
            return None
        return source
