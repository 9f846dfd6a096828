"""manifest.json: the JSON edge of the Manifest record."""

import dataclasses
import json
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from comparison.schema.errors import UnsupportedFormatError
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
from comparison.store.json_fields import JsonFields, read_json

MANIFEST_NAME = "manifest.json"
# More than any run has, and few enough to list.
_MOST_STEPS = 1_000_000
_LONGEST_KEY = 1000
_MOST_LEVELS = 60  # of a configuration in a configuration


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
    fields = JsonFields(path, read_json(path, "a manifest"), "the manifest")
    version = fields.integer("schema_version", least=1)
    if version > SCHEMA_VERSION:
        raise UnsupportedFormatError(
            f"{path}: expected schema_version {SCHEMA_VERSION} or less, found {version}; "
            "this dump was made by a later version of these tools, update them"
        )
    return _manifest(fields)


def _manifest(fields: JsonFields) -> Manifest:
    certificate = fields.optional("certificate", dict)
    raw_tensors: dict[str, Any] = fields.take("raw_tensors", dict, {})
    rows = fields.records("rows", _row)
    return Manifest(
        engine=fields.text("engine"),
        versions=fields.text_table("versions"),
        model=fields.text("model"),
        pipeline=fields.text("pipeline"),
        encoding=fields.text("encoding"),
        device=fields.text("device"),
        padding=_padding(fields),
        rows=rows,
        steps=fields.integer("steps", most=_MOST_STEPS),
        config=_free_object(fields, "config"),
        revision=fields.optional("revision", str),
        seed=fields.optional("seed", int),
        options=_free_object(fields, "options"),
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
        stretches=_stretches(fields, rows),
        observer_effect=fields.optional("observer_effect", float),
        schema_version=fields.integer("schema_version"),
    )


def _free_object(fields: JsonFields, key: str) -> dict[str, Any]:
    """Return an object of any JSON values, nested no deeper than what walks through it later.

    What does joins the keys on the way to each value, so that these are of bounded length too.
    """
    value: dict[str, Any] = fields.take(key, dict, {})
    level: list[Any] = [value]
    for _ in range(_MOST_LEVELS):
        longest = max(
            (len(name) for whole in level if isinstance(whole, dict) for name in whole), default=0
        )
        if longest > _LONGEST_KEY:
            raise fields.error(
                f"keys of at most {_LONGEST_KEY} characters in {key!r}", f"one of {longest}"
            )
        level = [part for whole in level for part in _parts(whole)]
    if level:
        raise fields.error(f"at most {_MOST_LEVELS} levels in {key!r}", "more")
    return value


def _parts(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


def _padding(fields: JsonFields) -> Padding:
    value = fields.text("padding")
    if value not in list(Padding):
        raise fields.error(f"a padding of {', '.join(Padding)}", value)
    return Padding(value)


def _stretches(fields: JsonFields, rows: Sequence[Row]) -> tuple[tuple[Stretch, ...], ...]:
    steps: list[Any] = fields.take("stretches", list, [])
    # A step computes one token behind the prompt, or as many as the run chose in it.
    ends = [len(row.token_ids) + max(len(row.generated), len(steps)) for row in rows]
    return tuple(
        fields.inner({"step": step}, f"stretches[{number}]").records(
            "step", partial(_stretch, ends=ends)
        )
        for number, step in enumerate(steps)
    )


def _stretch(fields: JsonFields, *, ends: Sequence[int]) -> Stretch:
    row = fields.integer("row")
    if row >= len(ends):
        raise fields.error(f"the number of one of {len(ends)} row(s) as 'row'", row)
    stretch = Stretch(
        row=row,
        first=fields.integer("first"),
        count=fields.integer("count", least=1),
    )
    end = stretch.first + stretch.count
    if end > ends[row]:
        raise fields.error(f"tokens of row {row}, which has {ends[row]} at most", f"token {end}")
    return stretch


def _config_reads(fields: JsonFields) -> dict[str, list[str]] | None:
    table = fields.optional("config_reads", dict)
    if table is None:
        return None
    inner = fields.inner(table, "config_reads")
    return {name: list(inner.texts(name)) for name in table}


def _row(fields: JsonFields) -> Row:
    return Row(
        prompt=fields.optional("prompt", str),
        token_ids=fields.integers("token_ids"),
        generated=fields.integers("generated", []),
    )


def _certificate(fields: JsonFields) -> CaptureCertificate:
    return CaptureCertificate(
        registered=fields.integer("registered"),
        fired=fields.integer("fired"),
        saved=fields.integer("saved"),
        skipped=fields.records("skipped", _skip, []),
    )


def _skip(fields: JsonFields) -> Skip:
    return Skip(name=fields.text("name"), reason=fields.text("reason"))


def _raw_tensor(fields: JsonFields) -> RawTensor:
    shape = fields.integers("shape")
    return RawTensor(dtype=fields.text("dtype"), shape=shape)
