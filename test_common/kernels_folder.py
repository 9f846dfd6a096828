"""Where compiled code is kept between runs."""

import os
from pathlib import Path


def kernels_folder() -> Path:
    """Return `${XDG_CACHE_HOME:-~/.cache}/model_accuracy_tools/kernels`."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(base) / "model_accuracy_tools" / "kernels"
