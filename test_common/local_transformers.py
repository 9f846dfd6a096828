"""An editable copy of transformers that is found before the installed one.

The installed package is never changed. A copy lies in the cache folder, one a version, with a list
of what its files were. While there is one of the installed version, commands import that.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from importlib import metadata
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any

from comparison.schema.errors import BadInputError
from test_common.checkpoint_cache import default_cache_dir, ensure_folder

_PACKAGE = "transformers"
_ORIGINAL = "original.json"
_COMPILED = "__pycache__"
_SETUP = "utils/local_transformers_setup/setup_local_transformers.sh"
_CLEANUP = "utils/local_transformers_setup/cleanup_local_transformers.sh"
# Set by Bazel and by pytest: what a test gives must not hang on what lies in someone's cache.
_TESTS = ("TEST_TMPDIR", "PYTEST_VERSION")


class LocalTransformersError(BadInputError):
    """The local copy of transformers, or the installed package, is not as it must be."""


def copies_folder() -> Path:
    """Return `${XDG_CACHE_HOME:-~/.cache}/model_accuracy_tools/local_transformers`."""
    return default_cache_dir().parent / "local_transformers"


def set_up_copy() -> tuple[Path, bool]:
    """Make the editable copy of this environment's transformers, unless it is there.

    Returns:
        The copy's folder `transformers`, and whether it was made just now.

    Raises:
        LocalTransformersError: the copy has edits, which would be lost; or no transformers is
            installed.
        UnwritableOutputError: the cache folder cannot be written.
    """
    source = _installed()
    home = copies_folder() / metadata.version(_PACKAGE)
    files = _digests(source)
    if home.is_dir():
        edited = edited_files(home)
        if edited:
            raise LocalTransformersError(
                f"{home / _PACKAGE} has edits, which are kept ({_listing(edited)}); it is in use "
                f"already. For a fresh copy run {_CLEANUP} first"
            )
        if _original(home) == files:
            return home / _PACKAGE, False
        _remove(home)

    def make(folder: Path) -> None:
        shutil.copytree(
            source,
            folder / _PACKAGE,
            ignore=shutil.ignore_patterns(_COMPILED),
            copy_function=shutil.copyfile,  # without the mode: the installed files may be read-only
        )
        text = json.dumps({"source": str(source), "files": files})
        (folder / _ORIGINAL).write_text(text, encoding="utf-8")

    ensure_folder(home, make)
    return home / _PACKAGE, True


def clean_up_copies() -> tuple[tuple[str, ...], tuple[Path, ...]]:
    """Remove every copy, so that the installed package is used again.

    Returns:
        The versions whose copies were removed, and where edited files were put aside.

    Raises:
        LocalTransformersError: an installed package is not what it was when it was copied.
    """
    versions, kept, changed = [], [], []
    for home in _copies():
        versions.append(home.name)
        edited = edited_files(home)
        if edited:
            kept.append(_put_aside(home, edited))
        source, files = _source(home), _original(home)
        _remove(home)
        if source is not None and source.is_dir() and _digests(source) != files:
            changed.append(str(source))
    if changed:
        raise LocalTransformersError(
            f"the copies are removed, but {', '.join(changed)} is not what was copied from it: "
            "install that package again"
        )
    return tuple(versions), tuple(kept)


def edited_files(home: Path) -> tuple[str, ...]:
    """List the files of a copy that were changed, added or removed, by their path in it.

    Args:
        home: the copy's folder, named by its version.
    """
    original, now = _original(home), _digests(home / _PACKAGE)
    return tuple(sorted({name for name, _ in original.items() ^ now.items()}))


def offer_local_transformers() -> None:
    """Let the first import of transformers in this process find the local copy, if there is one.

    Nothing is looked up before that import. Tests are left out.
    """
    if any(name in os.environ for name in _TESTS):
        return
    if not is_offered():
        sys.meta_path.insert(0, _LocalFinder())


def is_offered() -> bool:
    """Tell whether this process would take the local copy, if there is one."""
    return any(isinstance(finder, _LocalFinder) for finder in sys.meta_path)


class _LocalFinder(MetaPathFinder):
    """Puts the copy's folder at the front of `sys.path` when transformers is about to be found."""

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,
        target: ModuleType | None = None,
    ) -> ModuleSpec | None:
        del path, target
        if fullname == _PACKAGE:
            home = _copy_in_use()
            if home is not None and str(home) not in sys.path:
                print(f"local transformers in use: {home / _PACKAGE}", file=sys.stderr, flush=True)
                sys.path.insert(0, str(home))
        return None


def _copy_in_use() -> Path | None:
    """Return the copy that goes with the installed version."""
    copies = _copies()
    if not copies:
        return None
    version = metadata.version(_PACKAGE)
    for home in copies:
        if home.name == version:
            return home
    edited = [home.name for home in copies if edited_files(home)]
    if not edited:
        return None
    raise LocalTransformersError(
        f"the edited local copy is of transformers {', '.join(edited)}, and {version} is installed "
        f"here: the edits would not run. Run {_SETUP} for a copy of {version} beside it, or "
        f"{_CLEANUP} to be rid of it"
    )


def _copies() -> list[Path]:
    found = copies_folder().glob(f"*/{_ORIGINAL}")
    return sorted(path.parent for path in found if not path.parent.name.startswith("."))


def _installed() -> Path:
    """Return the folder of the installed package, which is not imported."""
    copies = copies_folder()
    places = [place for place in sys.path if copies not in Path(place).absolute().parents]
    spec = PathFinder.find_spec(_PACKAGE, places)
    if spec is None or spec.origin is None:
        raise LocalTransformersError(
            f"no transformers is installed for {sys.executable}; install requirements/cpu.txt"
        )
    return Path(spec.origin).resolve().parent


def _digests(folder: Path) -> dict[str, str]:
    """Return path and SHA-256 of each file of a package, without what Python compiles."""
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.parent.name != _COMPILED
    }


def _original(home: Path) -> Mapping[str, str]:
    files: Mapping[str, str] = _marker(home)["files"]
    return files


def _source(home: Path) -> Path | None:
    source = _marker(home).get("source")
    return Path(source) if source else None


def _marker(home: Path) -> dict[str, Any]:
    path = home / _ORIGINAL
    try:
        marker = json.loads(path.read_text(encoding="utf-8"))
        return {"source": str(marker["source"]), "files": dict(marker["files"])}
    except (OSError, ValueError, LookupError, TypeError, RecursionError) as error:
        raise LocalTransformersError(
            f"cannot read {path}, so edits cannot be told: {error}; save what you need from "
            f"{home} and remove that folder"
        ) from error


def _put_aside(home: Path, edited: Sequence[str]) -> Path:
    """Copy edited files to a new folder of their own."""
    number = 1
    while (aside := copies_folder() / "edits" / f"{home.name}-{number}").exists():
        number += 1
    aside.mkdir(parents=True)
    for name in edited:
        if (home / _PACKAGE / name).is_file():  # not one that was removed
            (aside / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(home / _PACKAGE / name, aside / name)
    return aside


def _remove(home: Path) -> None:
    # Renamed first, so that an interrupted removal leaves no half of a copy in use.
    doomed = home.with_name(f".{home.name}.removed")
    if doomed.exists():
        shutil.rmtree(doomed)
    home.rename(doomed)
    shutil.rmtree(doomed)


def _listing(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")
