"""The files that an engine has written into a step's folder by itself."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path

from comparison.schema.tensor_names import name_of_stem
from comparison.store.step_folder import ORDER_FILE_NAME
from test_common.tensor_folder import NameList


def list_engine_files(folder: Path, stems: Mapping[str, str], *, suffix: str) -> tuple[str, ...]:
    """Write down the names of a step's tensors, and say which are missing.

    Files that no name stands for were printed by hand in the model's source. They are listed too,
    after the others, since the engine does not tell when it wrote them.

    Args:
        folder: the step's folder.
        stems: full tensor names in order of execution, with their files' stems.
        suffix: suffix of the engine's files.

    Returns:
        The names without a file; they are not in the list.

    Raises:
        OSError: the folder cannot be read or written.
    """
    files = {name: f"{stem}{suffix}" for name, stem in stems.items()}
    missing = tuple(name for name, file in files.items() if not (folder / file).is_file())
    written = [name for name in files if name not in missing]
    names = NameList(folder)
    for name in (*written, *_printed_by_hand(folder, set(files.values()), suffix=suffix)):
        names.append(name)
    names.close()
    return missing


def _printed_by_hand(folder: Path, hooked: Collection[str], *, suffix: str) -> list[str]:
    """Name the files that an engine wrote without a hook, oldest first."""
    found = [
        path
        for path in folder.iterdir()
        if path.name.endswith(suffix) and path.name not in {ORDER_FILE_NAME, *hooked}
    ]
    found.sort(key=lambda path: (path.stat().st_mtime_ns, path.name))
    return [name_of_stem(path.name.removesuffix(suffix)) for path in found]
