"""Where compiled code is kept between runs."""

from pathlib import Path

from test_common.user_cache import user_cache


def kernels_folder() -> Path | None:
    """Return `${XDG_CACHE_HOME:-~/.cache}/model_accuracy_tools/kernels`, None for nowhere."""
    base = user_cache()
    return None if base is None else base / "model_accuracy_tools" / "kernels"
