"""Makes a checkpoint with a LoRA adapter merged into its weights, for every engine to load.

Merged, since MAX 26.7 runs adapters beside the weights on GPUs only ("SGMV only supported on
GPUs"), and since peft's wrappers rename every module they are put on: merged weights keep the names
that a comparison pairs by.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from comparison.schema.errors import (
    BadInputError,
    CorruptFileError,
    MissingPathError,
    UnsupportedFormatError,
)
from comparison.store.regular_file import open_regular
from test_common.checkpoint_cache import content_key, default_cache_dir, ensure_folder
from test_common.config_file import read_config, read_config_text
from test_common.lora_adapter import (
    CONFIG_FILE,
    FLOATS,
    WEIGHTS_FILE,
    LoraAdapter,
    check_modules,
    read_lora_adapter,
)
from test_common.model_load_errors import load_errors

if TYPE_CHECKING:
    import torch

_PART_BYTES = 1 << 20
_LAYOUT = 1  # raise it when the code changes what a merge gives
_SOURCE_FILE = "merged_lora.json"  # a merged folder tells with it what it was made of
# What a model's files say of weights that are no plain floats.
_QUANTISED_KEYS = ("quantization_config", "compression_config")
_QUANTISED_FILES = ("hf_quant_config.json", "quantize_config.json", "quant_config.json")
# Names of dtypes in safetensors files.
_DTYPES = {"F32": "float32", "BF16": "bfloat16", "F16": "float16", "F64": "float64"}


def ensure_merged_checkpoint(
    model_path: str,
    lora_path: str | Path,
    *,
    revision: str | None = None,
    cache_dir: Path | None = None,
) -> Path:
    """Return a folder like the model's with the adapter merged in, making it if need be.

    The sum is made in float32, of float64 weights in float64, and rounded to the weight's own
    dtype. Files that the adapter does not touch are links to the model's. The folder may be the
    model of a further adapter.

    Args:
        model_path: local folder or Hub id of the model that the adapter was trained on.
        lora_path: the adapter's folder.
        revision: Hub revision of the model.
        cache_dir: where to keep it; by default the user's cache folder.

    Raises:
        MissingPathError: the adapter is not there, or the model has no safetensors.
        CorruptFileError: a file of the adapter or of the model cannot be read.
        UnsupportedFormatError: the adapter is no plain LoRA, or the model is quantised.
        BadInputError: the adapter does not fit the model, or a sum leaves the weight's dtype.
        UnwritableOutputError: the cache folder cannot be written.
    """
    adapter = read_lora_adapter(Path(lora_path))
    base = _local_folder(model_path, revision)
    shards = sorted(base.glob("*.safetensors"))
    if not shards:
        raise MissingPathError(f"{base} has no safetensors to merge a LoRA adapter into")
    _refuse_quantised(base)
    headers = _headers(shards)
    _refuse_other_dtypes(adapter, {name: dtype for name, (dtype, _) in headers.items()}, base)
    check_modules(adapter, {name: shape for name, (_, shape) in headers.items()})
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


def _refuse_quantised(base: Path) -> None:
    """Refuse a model whose weights a scale belongs to: the sum of a part is no sum."""
    said = [name for name in _QUANTISED_FILES if (base / name).is_file()]
    config = base / "config.json"
    if config.is_file():
        said += [f"{key} of config.json" for key in _quantised_keys(read_config(config))]
    if said:
        raise UnsupportedFormatError(
            f"{base} is quantised ({', '.join(said)}): a LoRA adapter can be merged into plain "
            "floats only; take the model before quantisation"
        )


def _quantised_keys(config: Any) -> list[str]:
    """Return the keys that say so, in a configuration and in those directly inside it."""
    if not isinstance(config, dict):
        return []
    inner = [value for value in config.values() if isinstance(value, dict)]
    return [key for key in _QUANTISED_KEYS if any(one.get(key) for one in (config, *inner))]


def _headers(shards: list[Path]) -> Mapping[str, tuple[str, tuple[int, ...]]]:
    """Return the dtype and the shape of each weight, as the files' headers have them."""
    from safetensors import safe_open

    headers: dict[str, tuple[str, tuple[int, ...]]] = {}
    for shard in shards:
        if not shard.is_file():
            raise CorruptFileError(f"{shard} is no file, or a link to none")
        with _shard_errors(shard), safe_open(shard, framework="pt") as opened:
            for name in opened.keys():  # noqa: SIM118  # no dictionary: it has no other iterator
                weight = opened.get_slice(name)
                headers[name] = (str(weight.get_dtype()), tuple(weight.get_shape()))
    return headers


@contextmanager
def _shard_errors(shard: Path) -> Iterator[None]:
    from safetensors import SafetensorError

    try:
        yield
    # KeyError is of a dtype that Torch lacks.
    except (SafetensorError, OSError, KeyError) as error:
        raise CorruptFileError(f"{shard} cannot be read as safetensors: {error}") from error


def _refuse_other_dtypes(adapter: LoraAdapter, dtypes: Mapping[str, str], base: Path) -> None:
    for module in adapter.modules:
        dtype = dtypes.get(f"{module}.weight")
        if dtype is not None and dtype not in _DTYPES:
            raise UnsupportedFormatError(
                f"{base}: {module}.weight is {dtype}: a LoRA adapter can be merged into "
                f"{', '.join(FLOATS)} only; take the model before quantisation"
            )


def _digest(folder: Path) -> str:
    digest = hashlib.sha256(read_config_text(folder / CONFIG_FILE) + b"\0")
    with open_regular(folder / WEIGHTS_FILE) as file:
        while part := file.read(_PART_BYTES):
            digest.update(part)
    return digest.hexdigest()


def _state(base: Path) -> list[list[str | int]]:
    """Return what tells that a model's files are the same as before, without reading them."""
    files = sorted(path for path in base.iterdir() if path.is_file())
    stats = [(path, path.stat()) for path in files]
    return [[str(path), stat.st_size, stat.st_mtime_ns] for path, stat in stats]


def _merge(base: Path, adapter: LoraAdapter, folder: Path) -> None:
    for path in base.iterdir():
        if path.name == _SOURCE_FILE or not path.is_file():
            continue
        if path.suffix == ".safetensors":
            _merge_shard(path, adapter, folder / path.name)
        else:
            (folder / path.name).symlink_to(path.resolve())
    source = {"model": str(base), "lora": str(adapter.folder.resolve())}
    # A new file or none: what is here may be a link to a file of the user's.
    with (folder / _SOURCE_FILE).open("x") as file:
        file.write(json.dumps(source, indent=2) + "\n")


def _merge_shard(shard: Path, adapter: LoraAdapter, target: Path) -> None:
    from safetensors.torch import load_file, save_file

    with _shard_errors(shard):
        weights = load_file(shard)
    touched = [name for name in adapter.modules if f"{name}.weight" in weights]
    if not touched:
        target.symlink_to(shard.resolve())
        return
    for module in touched:
        weights[f"{module}.weight"] = _sum(weights[f"{module}.weight"], adapter, module)
    save_file(weights, target, metadata={"format": "pt"})


def _sum(weight: torch.Tensor, adapter: LoraAdapter, module: str) -> torch.Tensor:
    """Return a weight [O, I] with the adapter's product added."""
    import torch

    wide = torch.promote_types(weight.dtype, torch.float32)
    merged = (weight.to(wide) + adapter.delta(module).to(wide)).to(weight.dtype)
    if bool(weight.isfinite().all()) and not bool(merged.isfinite().all()):
        raise BadInputError(
            f"LoRA adapter {adapter.folder}: added to {module}.weight it leaves the range of "
            f"{str(weight.dtype).removeprefix('torch.')}"
        )
    return merged
