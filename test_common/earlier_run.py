"""What an earlier run has left in a folder, for a run that is to go on with it (`--resume`)."""

from __future__ import annotations

import os
import shutil
from dataclasses import asdict
from pathlib import Path
from typing import Any

from comparison.schema.errors import UnwritableOutputError
from comparison.schema.json_values import strict_json_value
from comparison.schema.manifest import Manifest
from comparison.store.manifest_file import MANIFEST_NAME, read_manifest
from test_common.output_folder import clear_temporary_files, dump_links, is_dump_name, unwritable
from test_common.secret_text import manifest_without_tokens

_SAME = ("engine", "versions", "model", "pipeline", "revision", "encoding", "device", "seed")
_SHOWN_CHARACTERS = 60
ANOTHER_WAY = "give --overwrite to replace the dump, or another folder"


def check_resumable(out: Path) -> None:
    """Refuse a folder whose dump no run can go on with.

    Args:
        out: a folder that `check_output_folder` has passed as one to be overwritten, or none.

    Raises:
        UnwritableOutputError: it has steps and no manifest, or links, which a writer would follow.
        BadInputError: the manifest cannot be read.
    """
    try:
        links = dump_links(out) if out.is_dir() else []
        has_steps = out.is_dir() and any(is_dump_name(entry.name) for entry in out.iterdir())
    except OSError as error:
        raise unwritable(out, error) from error
    if links:
        raise UnwritableOutputError(
            f"output folder {out}: expected files and folders of a dump, found a link, {links[0]}: "
            f"{ANOTHER_WAY}"
        )
    if earlier_manifest(out) is None and has_steps:
        raise UnwritableOutputError(
            f"output folder {out} has no {MANIFEST_NAME}, which would tell what run it is of: "
            f"{ANOTHER_WAY}"
        )


def earlier_manifest(out: Path) -> Manifest | None:
    """Return the manifest of the dump in a folder, None where there is none.

    Raises:
        BadInputError: it cannot be read.
    """
    path = out / MANIFEST_NAME
    return read_manifest(path) if os.path.lexists(path) else None


def check_same_run(out: Path, earlier: Manifest, draft: Manifest) -> None:
    """Refuse to go on with the dump of another run.

    Args:
        out: the dump folder.
        earlier: its manifest.
        draft: what is known of this run before it begins.

    Raises:
        UnwritableOutputError: something differs; all that does is named.
    """
    unlike = _differences(_told(earlier), _told(draft))
    if unlike:
        raise UnwritableOutputError(
            f"output folder {out} holds another run, which this one cannot go on with: "
            f"{'; '.join(unlike)}. Run with the same options, or {ANOTHER_WAY}"
        )


def mixed_runs(folder: Path, what: str) -> UnwritableOutputError:
    """Say that what is there is not what this run gives.

    Args:
        folder: of the dump or of a step.
        what: differs.
    """
    return UnwritableOutputError(f"the dump in {folder} would mix two runs: {what}; {ANOTHER_WAY}")


def clear_leftovers(out: Path) -> None:
    """Remove what a killed run was in the middle of: temporary files and steps of an engine.

    Args:
        out: a folder that `check_resumable` has passed.

    Raises:
        UnwritableOutputError: something cannot be removed.
    """
    try:
        clear_temporary_files(out)
        for entry in sorted(out.iterdir()):
            if is_dump_name(entry.name) and entry.name.endswith(".partial"):
                shutil.rmtree(entry)
            elif is_dump_name(entry.name):
                clear_temporary_files(entry)
    except OSError as error:
        raise unwritable(out, error) from error


def _told(manifest: Manifest) -> dict[str, Any]:
    """Return what must be the same in two runs that are one, as it is read from a file."""
    value: dict[str, Any] = strict_json_value(asdict(manifest_without_tokens(manifest)))
    told = {name: value[name] for name in _SAME}
    for number, row in enumerate(value["rows"]):
        told[f"prompt of row {number}"] = row["prompt"]
        told[f"token ids of row {number}"] = list(row["token_ids"])
    told["number of steps"] = value["steps"]
    options = (item for item in value["options"].items() if item[0] != "notes")
    return told | {f"option {name}": option for name, option in options}


def _differences(earlier: dict[str, Any], ours: dict[str, Any]) -> list[str]:
    names = dict.fromkeys([*ours, *earlier])
    return [
        f"{name} is {_shown(ours.get(name))} here and {_shown(earlier.get(name))} there"
        for name in names
        if ours.get(name) != earlier.get(name)
    ]


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}..."
