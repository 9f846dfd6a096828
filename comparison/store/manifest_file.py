"""manifest.json: the JSON edge of the Manifest record."""

import dataclasses
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from comparison.schema.errors import BadInputError, CorruptFileError, UnsupportedFormatError
from comparison.schema.json_values import strict_json_value
from comparison.schema.manifest import (
    SCHEMA_VERSION,
    CaptureCertificate,
    Manifest,
    Padding,
    RawTensor,
    Row,
    Skip,
    Stretch,
)
from comparison.store.atomic_file import write_text
from comparison.store.regular_file import open_regular

MANIFEST_NAME = "manifest.json"
# More than any run has, and few enough to list.
_MOST_STEPS = 1_000_000

T = TypeVar("T")


def write_manifest(path: Path, manifest: Manifest) -> None:
    """Write `manifest.json`, whole or not at all.

    Raises:
        UnwritableOutputError: the folder does not exist or cannot be written.
    """
    value = strict_json_value(dataclasses.asdict(manifest))
    write_text(path, json.dumps(value, indent=2, allow_nan=False) + "\n")


def read_manifest(path: Path) -> Manifest:
    """Read `manifest.json`; keys that are not known are passed over.

    Raises:
        CorruptFileError: no file, no JSON, or a value that is missing, absurd or of another type.
        UnsupportedFormatError: a later version of the layout.
    """
    try:
        with open_regular(path) as file:
            text = file.read()
    except BadInputError:
        raise
    except OSError as error:  # a link to nothing, or in a circle
        raise CorruptFileError(f"{path}: expected a manifest, found {error.strerror}") from None
    try:
        value = json.loads(text.decode("utf-8"))
    except (ValueError, RecursionError) as error:  # of too many digits, too: a bare ValueError
        raise CorruptFileError(f"{path}: expected JSON, found {error}") from None
    fields = _Fields(path, value, "the manifest")
    version = fields.integer("schema_version", least=1)
    if version > SCHEMA_VERSION:
        raise UnsupportedFormatError(
            f"{path}: expected schema_version {SCHEMA_VERSION} or less, found {version}; "
            "this dump was made by a later version of these tools, update them"
        )
    return _manifest(fields)


class _Fields:
    """A JSON object whose values are checked when they are taken."""

    def __init__(self, path: Path, value: Any, where: str) -> None:
        self._path, self._where = path, where
        if not isinstance(value, dict):
            raise self._error("a JSON object", value)
        self._value: dict[str, Any] = value

    def _error(self, expected: str, found: Any) -> CorruptFileError:
        return CorruptFileError(
            f"{self._path}: expected {expected} in {self._where}, found {found!r:.80}"
        )

    def take(self, key: str, check: type[T] | tuple[type[T], ...], default: Any = ...) -> T:
        value = self._value.get(key, default)
        if value is ...:
            raise CorruptFileError(f"{self._path}: expected {key!r} in {self._where}, found none")
        if not isinstance(value, check) or (isinstance(value, bool) and check is not bool):
            raise self._error(f"another type as {key!r}", value)
        return value

    def text(self, key: str, default: Any = ...) -> str:
        return self.take(key, str, default)

    def integer(self, key: str, *, least: int = 0, most: int | None = None) -> int:
        value = self.take(key, int)
        if value < least or (most is not None and value > most):
            end = "" if most is None else f" and at most {most}"
            raise self._error(f"an integer of at least {least}{end} as {key!r}", value)
        return value

    def optional(self, key: str, check: type[T]) -> T | None:
        return None if self._value.get(key) is None else self.take(key, check)

    def integers(self, key: str, default: Any = ...) -> tuple[int, ...]:
        items = self.take(key, list, default)
        if not all(type(item) is int for item in items):
            raise self._error(f"integers as {key!r}", items)
        return tuple(items)

    def texts(self, key: str) -> tuple[str, ...]:
        items = self.take(key, list, [])
        if not all(isinstance(item, str) for item in items):
            raise self._error(f"texts as {key!r}", items)
        return tuple(items)

    def text_table(self, key: str) -> dict[str, str]:
        table: Mapping[str, Any] = self.take(key, dict, {})
        if not all(isinstance(item, str) for item in table.values()):
            raise self._error(f"texts in {key!r}", table)
        return dict(table)

    def records(
        self, key: str, read: "Callable[[_Fields], T]", default: Any = ...
    ) -> tuple[T, ...]:
        items = self.take(key, list, default)
        return tuple(read(self.inner(item, f"{key}[{n}]")) for n, item in enumerate(items))

    def inner(self, value: Any, where: str) -> "_Fields":
        return _Fields(self._path, value, where)

    def padding(self) -> Padding:
        value = self.text("padding")
        if value not in list(Padding):
            raise self._error(f"a padding of {', '.join(Padding)}", value)
        return Padding(value)


def _manifest(fields: _Fields) -> Manifest:
    certificate = fields.optional("certificate", dict)
    raw_tensors: dict[str, Any] = fields.take("raw_tensors", dict, {})
    return Manifest(
        engine=fields.text("engine"),
        versions=fields.text_table("versions"),
        model=fields.text("model"),
        pipeline=fields.text("pipeline"),
        encoding=fields.text("encoding"),
        device=fields.text("device"),
        padding=fields.padding(),
        rows=fields.records("rows", _row),
        steps=fields.integer("steps", most=_MOST_STEPS),
        config=fields.take("config", dict, {}),
        revision=fields.optional("revision", str),
        seed=fields.optional("seed", int),
        options=fields.take("options", dict, {}),
        patches=fields.texts("patches"),
        certificate=None
        if certificate is None
        else _certificate(fields.inner(certificate, "certificate")),
        complete=fields.take("complete", bool, False),
        file_names=fields.text_table("file_names"),
        raw_tensors={
            path: _raw_tensor(fields.inner(value, f"raw_tensors[{path}]"))
            for path, value in raw_tensors.items()
        },
        config_reads=_config_reads(fields),
        stretches=_stretches(fields),
        observer_effect=fields.optional("observer_effect", float),
        schema_version=fields.integer("schema_version"),
    )


def _stretches(fields: _Fields) -> tuple[tuple[Stretch, ...], ...]:
    steps: list[Any] = fields.take("stretches", list, [])
    return tuple(
        fields.inner({"step": step}, f"stretches[{number}]").records("step", _stretch)
        for number, step in enumerate(steps)
    )


def _stretch(fields: _Fields) -> Stretch:
    return Stretch(
        row=fields.integer("row"),
        first=fields.integer("first"),
        count=fields.integer("count", least=1),
    )


def _config_reads(fields: _Fields) -> dict[str, list[str]] | None:
    table = fields.optional("config_reads", dict)
    if table is None:
        return None
    inner = fields.inner(table, "config_reads")
    return {name: list(inner.texts(name)) for name in table}


def _row(fields: _Fields) -> Row:
    return Row(
        prompt=fields.optional("prompt", str),
        token_ids=fields.integers("token_ids"),
        generated=fields.integers("generated", []),
    )


def _certificate(fields: _Fields) -> CaptureCertificate:
    return CaptureCertificate(
        registered=fields.integer("registered"),
        fired=fields.integer("fired"),
        saved=fields.integer("saved"),
        skipped=fields.records("skipped", _skip, []),
    )


def _skip(fields: _Fields) -> Skip:
    return Skip(name=fields.text("name"), reason=fields.text("reason"))


def _raw_tensor(fields: _Fields) -> RawTensor:
    shape = fields.integers("shape")
    return RawTensor(dtype=fields.text("dtype"), shape=shape)
