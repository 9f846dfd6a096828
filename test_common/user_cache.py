"""The folder that a user's programs keep what they can make again in."""

import os
from pathlib import Path


def user_cache() -> Path | None:
    """Return `${XDG_CACHE_HOME:-~/.cache}`; None where neither names a folder.

    A relative XDG_CACHE_HOME counts as none, as the XDG Base Directory Specification asks for: it
    would be another folder wherever a command is run.
    """
    told = os.environ.get("XDG_CACHE_HOME", "")
    if os.path.isabs(told):
        return Path(told)
    home = os.path.expanduser("~")  # stays as it is for a user who has none
    return Path(home, ".cache") if os.path.isabs(home) else None
