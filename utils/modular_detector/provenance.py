"""Where modeling files come from: their release, commit, dates and contents."""

from __future__ import annotations

import datetime
import hashlib
import importlib.util
import re
import subprocess
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from utils.command import BadInputError
from utils.source_files import find_files, read_plain_file

_VERSION: Final = re.compile(r"^__version__\s*=\s*[\"']([^\"']+)", re.MULTILINE)
_ADDED: Final = re.compile(r"added to Hugging Face Transformers on\s+(\d{4}-\d{2}-\d{2})")
_COPYRIGHT: Final = re.compile(r"Copyright\D{0,20}(\d{4})")
_HEAD_BYTES: Final = 4096  # of a file, where its copyright stands


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """The state of a folder of models.

    Attributes:
        version: of the transformers around it, or "unknown".
        commit: the last one that touched it, or "" outside of a checkout.
    """

    version: str
    commit: str

    def __str__(self) -> str:
        return f"transformers {self.version}" + (f", commit {self.commit}" if self.commit else "")


def installed_models_root() -> Path:
    """Find the models of the installed transformers, without importing it.

    Raises:
        BadInputError: it is not installed.
    """
    spec = importlib.util.find_spec("transformers")
    if spec is None or not spec.submodule_search_locations:
        raise BadInputError(
            "transformers is not installed for this Python; name the folder of the models with "
            "--models-root, or run ./bazelw run //utils:modular_model_detector, which has it"
        )
    return Path(spec.submodule_search_locations[0]) / "models"


def modeling_files(models_root: Path, failed: Callable[[OSError], None]) -> list[Path]:
    """Find all modeling files below a folder.

    Args:
        models_root: the folder.
        failed: is told of each folder in it that cannot be listed.

    Raises:
        BadInputError: there are none.
    """
    found = find_files(models_root, "modeling_*.py", failed)
    if not found:
        raise BadInputError(
            f"no modeling_*.py below {models_root}; expected the folder src/transformers/models of "
            "a checkout, or transformers/models of an installation"
        )
    return found


def provenance_of(models_root: Path) -> Provenance:
    """Tell the release and the commit of a folder of models."""
    package = models_root.resolve().parent / "__init__.py"
    try:
        version = _VERSION.search(read_plain_file(package).decode())
    except (OSError, UnicodeDecodeError):
        version = None
    return Provenance(
        version=version.group(1) if version else "unknown", commit=_commit(models_root)
    )


def digest_of(source: bytes) -> str:
    """Tell contents apart."""
    return hashlib.sha256(source).hexdigest()


def date_of(models_root: Path, model: str, source: bytes) -> str:
    """Tell when a model came: the day that its page names, else the year of the copyright.

    Returns:
        "2024-01-31", "2024", or "" where neither tells.
    """
    pages = models_root.resolve().parents[2:3]
    for page in (f"{model}.md", f"{model.replace('_', '-')}.md"):
        for root in pages:
            path = root / "docs" / "source" / "en" / "model_doc" / page
            with suppress(OSError):  # most models have a page under one of the names
                added = _ADDED.search(read_plain_file(path).decode(errors="replace"))
                if added:
                    return added.group(1)
    year = _COPYRIGHT.search(source[:_HEAD_BYTES].decode(errors="replace"))
    return year.group(1) if year else ""


def is_before(date: str, limit: datetime.date) -> bool:
    """Tell whether a date of `date_of` lies wholly before a day; an unknown one does not."""
    last = date if "-" in date else f"{date}-12-31"
    try:
        return datetime.date.fromisoformat(last) < limit
    except ValueError:  # nothing, or a day that there never was
        return False


def _commit(folder: Path) -> str:
    """Ask git for the folder's last commit; a folder that it does not hold has none."""
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), "log", "-1", "--format=%H", "--", "."],
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
