"""Makes a checkpoint with a LoRA adapter merged into its weights, for every engine to load.

Merged, since MAX 26.7 runs adapters beside the weights on GPUs only ("SGMV only supported on
GPUs"), and since peft's wrappers rename every module they are put on: merged weights keep the names
that a comparison pairs by.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

from comparison.schema.errors import MissingPathError
from test_common.checkpoint_cache import content_key, default_cache_dir, ensure_folder
from test_common.lora_adapter import (
    CONFIG_FILE,
    WEIGHTS_FILE,
    LoraAdapter,
    check_modules,
    read_lora_adapter,
)
from test_common.model_load_errors import load_errors

_LAYOUT = 1  # raise it when the code changes what a merge gives


def ensure_merged_checkpoint(
    model_path: str,
    lora_path: str | Path,
    *,
    revision: str | None = None,
    cache_dir: Path | None = None,
) -> Path:
    """Return a folder like the model's with the adapter merged in, making it if need be.

    The sum is made in float32 and rounded to the weight's own dtype. Files that the adapter does
    not touch are links to the model's.

    Args:
        model_path: local folder or Hub id of the model that the adapter was trained on.
        lora_path: the adapter's folder.
        revision: Hub revision of the model.
        cache_dir: where to keep it; by default the user's cache folder.

    Raises:
        MissingPathError: the adapter is not there, or the model has no safetensors.
        CorruptFileError: the adapter cannot be read.
        UnsupportedFormatError: the adapter is no plain LoRA.
        BadInputError: the adapter does not fit the model.
        UnwritableOutputError: the cache folder cannot be written.
    """
    adapter = read_lora_adapter(Path(lora_path))
    base = _local_folder(model_path, revision)
    shards = sorted(base.glob("*.safetensors"))
    if not shards:
        raise MissingPathError(f"{base} has no safetensors to merge a LoRA adapter into")
    check_modules(adapter, _shapes(shards))
    recipe = {"layout": _LAYOUT, "adapter": _digest(adapter.folder), "base": _state(base)}
    key = content_key(recipe, ("torch", "safetensors"))
    folder = (cache_dir or default_cache_dir()) / f"lora-{base.name[:40]}-{key}"
    return ensure_folder(folder, lambda partial: _merge(base, adapter, partial))


def _local_folder(model_path: str, revision: str | None) -> Path:
    path = Path(model_path).expanduser()
    if path.is_dir():
        return path.resolve()
    from huggingface_hub import snapshot_download

    with load_errors(model_path, engine="transformers"):
        return Path(snapshot_download(model_path, revision=revision))


def _shapes(shards: list[Path]) -> Mapping[str, tuple[int, ...]]:
    from safetensors import safe_open

    shapes: dict[str, tuple[int, ...]] = {}
    for shard in shards:
        with safe_open(shard, framework="pt") as opened:
            names = opened.keys()
            shapes |= {name: tuple(opened.get_slice(name).get_shape()) for name in names}
    return shapes


def _digest(folder: Path) -> str:
    parts = [(folder / name).read_bytes() for name in (CONFIG_FILE, WEIGHTS_FILE)]
    return hashlib.sha256(b"\0".join(parts)).hexdigest()


def _state(base: Path) -> list[list[str | int]]:
    """Return what tells that a model's files are the same as before, without reading them."""
    files = sorted(path for path in base.iterdir() if path.is_file())
    stats = [(path, path.stat()) for path in files]
    return [[str(path), stat.st_size, stat.st_mtime_ns] for path, stat in stats]


def _merge(base: Path, adapter: LoraAdapter, folder: Path) -> None:
    for path in base.iterdir():
        if path.suffix == ".safetensors":
            _merge_shard(path, adapter, folder / path.name)
        elif path.is_file():
            (folder / path.name).symlink_to(path.resolve())
    source = {"model": str(base), "lora": str(adapter.folder.resolve())}
    (folder / "merged_lora.json").write_text(json.dumps(source, indent=2) + "\n")


def _merge_shard(shard: Path, adapter: LoraAdapter, target: Path) -> None:
    from safetensors.torch import load_file, save_file

    weights = load_file(shard)
    touched = [name for name in adapter.modules if f"{name}.weight" in weights]
    if not touched:
        target.symlink_to(shard.resolve())
        return
    for module in touched:
        weight = weights[f"{module}.weight"]
        weights[f"{module}.weight"] = (weight.float() + adapter.delta(module)).to(weight.dtype)
    save_file(weights, target, metadata={"format": "pt"})
