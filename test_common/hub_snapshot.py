"""Where the files of a model lie on this machine."""

from __future__ import annotations

from pathlib import Path

_CONFIG = "config.json"


def local_snapshot(place: str, *, revision: str | None = None) -> Path | None:
    """Return the folder or file that a model is loaded from; nothing is downloaded.

    Args:
        place: local folder or file, or Hub id.
        revision: of the Hub's repository, None for its main branch.

    Returns:
        The place; None where the Hub's repository is not here.
    """
    path = Path(place)
    if path.exists():
        return path
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    try:
        found = try_to_load_from_cache(place, _CONFIG, revision=revision)
    except HFValidationError:
        return None
    return Path(found).parent if isinstance(found, str) else None


def size_of_weights(place: str, *, revision: str | None = None) -> int | None:
    """Return the bytes of a model's files; None where they are not here yet."""
    from test_common.file_digests import files_below

    folder = local_snapshot(place, revision=revision)
    if folder is None:
        return None
    return sum(path.stat().st_size for path in files_below(folder))
