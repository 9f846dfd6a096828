"""The manifest of a dump that is being written, which names the files that are there by now."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from comparison.schema.manifest import Manifest, RawTensor
from comparison.store.manifest_file import MANIFEST_NAME, write_manifest
from test_common.secret_text import manifest_without_tokens
from test_common.tensor_stems import TensorStems
from test_common.write_errors import write_errors


class OpenManifest:
    """Writes the manifest anew whenever a killed run could not be read without that.

    Attributes:
        current: what was written last, None before the first time.
        raw_tensors: dtype and shape of the files of bare bytes so far, by their path below the
            folder.
    """

    def __init__(self, out: Path) -> None:
        """Know nothing yet.

        Args:
            out: the dump folder.
        """
        self.current: Manifest | None = None
        self.raw_tensors: dict[str, RawTensor] = {}
        self._out = out
        self._stems = TensorStems()

    @property
    def file_names(self) -> dict[str, str]:
        """The stems that do not spell their tensor's name, with that name."""
        return self._stems.file_names

    def stem(self, name: str) -> str:
        """Return the file stem of a tensor, the same in every step.

        Args:
            name: full tensor name.
        """
        stem, unlike = self._stems.stem(name)
        if unlike and self.current is not None:
            self.write(self.current)
        return stem

    def note_raw_tensor(self, path: Path, raw: RawTensor) -> None:
        """Keep dtype and shape of a file of bare bytes.

        Args:
            path: the file, in a step's final folder.
            raw: its dtype and shape.
        """
        self.raw_tensors[path.relative_to(self._out).as_posix()] = raw

    def tell_raw_tensors(self) -> None:
        """Write down what is known of files of bare bytes, if the manifest does not have it."""
        if self.current is None or self.raw_tensors.keys() <= self.current.raw_tensors.keys():
            return
        self.write(self.current)

    def write(self, manifest: Manifest) -> None:
        """Write a manifest, with the files known so far.

        Args:
            manifest: all else.

        Raises:
            UnwritableOutputError: the folder cannot be written.
        """
        self.current = replace(
            manifest,
            file_names=manifest.file_names | self.file_names,
            raw_tensors=manifest.raw_tensors | self.raw_tensors,
        )
        path = self._out / MANIFEST_NAME
        with write_errors(path):
            write_manifest(path, manifest_without_tokens(self.current))
