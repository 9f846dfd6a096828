"""Files written by torch.save. The only module of this room that imports torch, and lazily.

Loading is always the safe kind (`weights_only=True`): a pickle with code in it is refused.
"""

import pickle
import warnings
import zipfile
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from comparison.numerics.dtypes import Array, dtype_of_name
from comparison.schema.errors import CorruptFileError, UnsupportedFormatError
from comparison.store.mapped_array import unpack_nibbles

if TYPE_CHECKING:
    import torch

# How the pickle of a lone tensor begins, as torch.save writes it (protocol 2).
_LONE_TENSOR = (b"\x80\x02ctorch._utils\n_rebuild_tensor", b"\x80\x02ctorch._utils\n_rebuild_param")


def list_pt_keys(path: Path) -> tuple[str, ...] | None:
    """List the tensors of a .pt file; None for a file of a lone tensor.

    A lone tensor is told by the first bytes of its pickle, without importing torch.

    Raises:
        CorruptFileError: cut off or malformed.
        UnsupportedFormatError: the file needs code to be run, or holds no tensor.
    """
    if _begins_as_lone_tensor(path):
        return None
    content = _load_cached(path)
    if _is_tensor(content):
        return None
    keys = tuple(_flatten(content))
    if not keys:
        raise UnsupportedFormatError(
            f"{path}: expected a tensor or a dictionary of tensors, "
            f"found {type(content).__name__} without any"
        )
    return keys


def read_pt_tensor(path: Path, key: str | None = None) -> Array:
    """Map one tensor of a .pt file.

    Args:
        path: the file.
        key: as list_pt_keys gives it; None for the lone tensor.

    Raises:
        CorruptFileError: cut off or malformed, or there is no such tensor.
        UnsupportedFormatError: the file needs code to be run, or a kind of tensor that is no
            plain array.
    """
    if key is None:
        content = _load(path)
        if not _is_tensor(content):
            raise CorruptFileError(f"{path}: expected a tensor, found {type(content).__name__}")
        return _as_array(path, content)
    tensors = _flatten(_load_cached(path))
    if key not in tensors:
        raise CorruptFileError(f"{path}: expected a tensor {key!r}, found {len(tensors)} others")
    return _as_array(path, tensors[key])


def _begins_as_lone_tensor(path: Path) -> bool:
    try:
        with zipfile.ZipFile(path) as archive:
            names = [name for name in archive.namelist() if name.endswith("/data.pkl")]
            if len(names) != 1:
                return False
            with archive.open(names[0]) as pickled:
                return pickled.read(64).startswith(_LONE_TENSOR)
    except (zipfile.BadZipFile, NotImplementedError, EOFError, ValueError, RuntimeError, OSError):
        return False  # an older form, or no .pt file at all: loading it will tell


def _load_cached(path: Path) -> Any:
    stat = path.stat()
    return _load_stamped(path, stat.st_size, stat.st_mtime_ns)


@lru_cache(maxsize=1)  # a dictionary is loaded once, not once for each of its tensors
def _load_stamped(path: Path, _size_bytes: int, _mtime_ns: int) -> Any:
    return _load(path)


def _load(path: Path) -> Any:
    import torch

    # Only the zip form can be mapped; the one before torch 1.6 is read whole.
    with path.open("rb") as file:
        mapped = file.read(4) == b"PK\x03\x04"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # on foreign pickles, which are refused just after
            return torch.load(path, map_location="cpu", weights_only=True, mmap=mapped)
    except pickle.UnpicklingError as error:
        raise _refusal(path, str(error)) from None
    # torch raises nearly every class of error on malformed files, none of its own.
    except (RuntimeError, ValueError, TypeError, LookupError, EOFError, AttributeError) as error:
        raise _malformed(path, error) from None
    except (OSError, ImportError, AssertionError, RecursionError, OverflowError) as error:
        raise _malformed(path, error) from None


def _refusal(path: Path, message: str) -> CorruptFileError | UnsupportedFormatError:
    marks = ("GLOBAL", "Unsupported class", "Unsupported operand", "REDUCE", "BUILD", "trusted")
    found = next((line for line in message.splitlines() if "GLOBAL" in line), "")
    if not any(mark in message for mark in marks):
        return CorruptFileError(f"{path}: expected a file of torch.save, found {message[:200]}")
    detail = f" ({found.strip()[:160]})" if found else ""
    return UnsupportedFormatError(
        f"{path}: expected tensors, found a pickle that would run code or is no file of "
        f"torch.save{detail}; it was not run. Save plain tensors or a dictionary of tensors"
    )


def _malformed(path: Path, error: Exception) -> CorruptFileError:
    reason = str(error).splitlines()[0][:200] if str(error) else type(error).__name__
    return CorruptFileError(f"{path}: expected a file of torch.save, found {reason}; dump it again")


def _is_tensor(value: Any) -> bool:
    import torch

    return isinstance(value, torch.Tensor)


def _flatten(content: Any) -> "dict[str, torch.Tensor]":
    tensors: dict[str, torch.Tensor] = {}
    for name, tensor in _walk(content, prefix=""):
        tensors.setdefault(name, tensor)
    return tensors


def _walk(content: Any, *, prefix: str) -> "Iterator[tuple[str, torch.Tensor]]":
    if _is_tensor(content):
        yield prefix, content
        return
    if isinstance(content, Mapping):
        items = [(str(key), value) for key, value in content.items()]
    elif isinstance(content, list | tuple):
        items = [(str(position), value) for position, value in enumerate(content)]
    else:
        return
    for name, value in items:
        yield from _walk(value, prefix=f"{prefix}.{name}" if prefix else name)


def _as_array(path: Path, tensor: "torch.Tensor") -> Array:
    import torch

    name = str(tensor.dtype).removeprefix("torch.")
    if tensor.layout is not torch.strided or tensor.is_quantized or tensor.device.type != "cpu":
        raise UnsupportedFormatError(
            f"{path}: expected a dense tensor with values, found {tensor.layout} {name} on "
            f"{tensor.device}; save tensor.to_dense() or tensor.dequantize()"
        )
    tensor = tensor.detach().resolve_conj().resolve_neg()
    if name == "complex32":  # numpy has none
        return np.asarray(tensor.to(torch.complex64).numpy())
    if name == "float4_e2m1fn_x2":
        packed = tensor.contiguous().view(torch.uint8).numpy()
        shape = (*packed.shape[:-1], 2 * packed.shape[-1]) if packed.ndim else (2,)
        return unpack_nibbles(packed, dtype=dtype_of_name("float4_e2m1fn"), shape=shape)
    dtype = dtype_of_name(name)
    if name.startswith(("bfloat", "float8")):  # numpy and torch share only the bits of these
        bits = torch.uint16 if dtype.itemsize == 2 else torch.uint8
        return np.asarray(tensor.view(bits).numpy()).view(dtype)
    return np.asarray(tensor.numpy())
