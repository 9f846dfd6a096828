"""Files written by torch.save. The only module of this room that imports torch, and lazily.

Loading is always the safe kind (`weights_only=True`): a pickle with code in it is refused.
"""

import pickle
import re
import warnings
import zipfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from comparison.numerics.dtypes import Array, dtype_of_name
from comparison.schema.errors import CorruptFileError, UnsupportedFormatError
from comparison.store.mapped_array import MOST_COPIED_BYTES, check_unpacked, unpack_nibbles
from comparison.store.mapping_guard import note_mapping
from comparison.store.pt_check import check_pt_file
from comparison.store.regular_file import open_regular

if TYPE_CHECKING:
    import torch

# The pickle of a lone tensor, as torch.save writes it (protocol 2), begins with the function that
# makes it and ends with its call. A tuple of tensors begins alike and ends with its closing.
_LONE_TENSOR = re.compile(
    rb"\x80\x02ctorch\._utils\n_rebuild_(?:tensor|param).*R(?:q.|r.{4})\.", re.DOTALL
)
_MOST_LONE_PICKLE_BYTES = 1 << 16
# More than any checkpoint has; lists that hold one list twice, and so on, have 2**depth entries.
_MOST_VALUES = 1_000_000
_MOST_DEPTH = 100
_MOST_NAME_CHARACTERS = 100_000_000  # of all names of a file together
_KEY_TYPES = (str, bytes, int, float, complex, type(None))
_MOST_KEY_PARTS = 100
# Tensors may be larger than what is stored of them, such as a mask that torch.Tensor.expand made:
# all of a file together so many times, or so many bytes.
_MOST_EXPANSION = 8
_MOST_EXPANDED_BYTES = 1 << 28


def list_pt_keys(path: Path) -> tuple[str, ...] | None:
    """List the tensors of a .pt file; None for a file of a lone tensor.

    A lone tensor is told by the bytes of its pickle, without importing torch.

    Raises:
        CorruptFileError: cut off or malformed.
        UnsupportedFormatError: the file needs code to be run, or holds no tensor, or too much.
    """
    if _is_plainly_a_lone_tensor(path):
        return None
    content = _load_cached(path)
    return tuple(content) if isinstance(content, dict) else None


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
        _check_expansion(path, [content])
        return _as_array(path, content)
    tensors = _load_cached(path)
    if not isinstance(tensors, dict):
        raise CorruptFileError(f"{path}: expected a tensor {key!r:.200}, found a lone tensor")
    if key not in tensors:
        raise CorruptFileError(
            f"{path}: expected a tensor {key!r:.200}, found {len(tensors)} others"
        )
    return _as_array(path, tensors[key])


def _is_plainly_a_lone_tensor(path: Path) -> bool:
    with open_regular(path) as file:
        try:
            with zipfile.ZipFile(file) as archive:
                names = [name for name in archive.namelist() if name.endswith("/data.pkl")]
                if len(names) != 1:
                    return False
                with archive.open(names[0]) as pickled:
                    content = pickled.read(_MOST_LONE_PICKLE_BYTES)
        # An older form, or no .pt file at all, on which zipfile and the decompressors behind it
        # raise many kinds of error: loading it will tell.
        except Exception:
            return False
    return _LONE_TENSOR.fullmatch(content) is not None


def _load_cached(path: Path) -> "torch.Tensor | dict[str, torch.Tensor]":
    stat = path.stat()
    return _load_stamped(path, stat.st_size, stat.st_mtime_ns)


# A dictionary is loaded once, not once for each of its tensors; two dumps take turns.
@lru_cache(maxsize=4)
def _load_stamped(
    path: Path, _size_bytes: int, _mtime_ns: int
) -> "torch.Tensor | dict[str, torch.Tensor]":
    content = _load(path)
    if _is_tensor(content):
        return cast("torch.Tensor", content)
    tensors = _flatten(path, content)
    if not tensors:
        raise UnsupportedFormatError(
            f"{path}: expected a tensor or a dictionary of tensors, "
            f"found {type(content).__name__} without any"
        )
    _check_expansion(path, tensors.values())
    return tensors


def _load(path: Path) -> Any:
    import torch

    # Only the zip form can be mapped; the one before torch 1.6 is read whole, as far as
    # check_pt_file lets it be. A small one is, too.
    mapped = check_pt_file(path) and path.stat().st_size > MOST_COPIED_BYTES
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # on foreign pickles, which are refused just after
            return torch.load(path, map_location="cpu", weights_only=True, mmap=mapped)
    except pickle.UnpicklingError as error:
        raise _refusal(path, str(error)) from None
    # torch raises nearly every class of error on malformed files, none of its own.
    except Exception as error:
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
    reason = (
        f"{str(error).strip().splitlines()[0]:.200}" if str(error).strip() else type(error).__name__
    )
    return CorruptFileError(f"{path}: expected a file of torch.save, found {reason}; dump it again")


def _is_tensor(value: Any) -> bool:
    import torch

    return isinstance(value, torch.Tensor)


def _flatten(path: Path, content: Any) -> "dict[str, torch.Tensor]":
    """Give all tensors, by the keys that lead to them, joined with points.

    Where several come to one name (`{"a.b": x, "a": {"b": y}}`), each of these is called by its
    keys as Python writes them: `['a.b']`, `['a']['b']`.
    """
    found = list(_walk(path, content))
    count = Counter(_joined(keys) for keys, _ in found)
    taken, numbers = set(count), Counter[str]()
    tensors: dict[str, torch.Tensor] = {}
    for keys, tensor in found:
        name = _joined(keys)
        if count[name] > 1:
            name = _spelled(keys, taken, numbers)
            taken.add(name)
        tensors[name] = tensor
    return tensors


def _joined(keys: "tuple[Any, ...]") -> str:
    return ".".join(str(key) for key in keys)


def _spelled(keys: "tuple[Any, ...]", taken: set[str], numbers: Counter[str]) -> str:
    """Spell keys as no name in `taken`; `numbers` tells which were tried: NaN is no other's key."""
    spelled = "".join(f"[{key!r}]" for key in keys)
    unique = spelled
    while unique in taken:
        numbers[spelled] += 1
        unique = f"{spelled}~{numbers[spelled] + 1}"
    return unique


def _walk(path: Path, content: Any) -> "Iterator[tuple[tuple[Any, ...], torch.Tensor]]":
    """Give the tensors of nested dictionaries and lists in order, each with its keys."""
    values = characters = 0
    open_values: list[tuple[tuple[Any, ...], Any]] = [((), content)]
    while open_values:
        keys, value = open_values.pop()
        if _is_tensor(value):
            characters += sum(_characters(path, key) for key in keys)
            if characters > _MOST_NAME_CHARACTERS:
                raise _too_much(path, f"names of {_MOST_NAME_CHARACTERS} characters", "more")
            yield keys, value
            continue
        items = _items(value)
        values += len(items)
        if values > _MOST_VALUES:
            raise _too_much(path, f"at most {_MOST_VALUES} values", "more")
        if items and len(keys) >= _MOST_DEPTH:
            raise _too_much(path, f"nesting of at most {_MOST_DEPTH} levels", "more")
        open_values += [((*keys, key), item) for key, item in reversed(items)]


def _characters(path: Path, key: Any) -> int:
    """Count what a key comes to as text, without spelling it; refuse one that is no name.

    A tensor as key, or a tuple that holds one long text many times, takes long to spell.
    """
    parts = key if isinstance(key, tuple) else (key,)
    if len(parts) > _MOST_KEY_PARTS:
        raise _too_much(path, f"keys of at most {_MOST_KEY_PARTS} parts", f"{len(parts)}")
    others = {type(part).__name__ for part in parts if not isinstance(part, _KEY_TYPES)}
    if others:
        raise _too_much(path, "texts, numbers or tuples of them as keys", min(others))
    return sum(len(part) if isinstance(part, str | bytes) else 1 for part in parts)


def _items(value: Any) -> list[tuple[Any, Any]]:
    if isinstance(value, Mapping):
        return list(value.items())
    return list(enumerate(value)) if isinstance(value, list | tuple) else []


def _too_much(path: Path, expected: str, found: str) -> UnsupportedFormatError:
    return UnsupportedFormatError(
        f"{path}: expected {expected}, found {found}; save a flat dictionary of tensors"
    )


def _check_expansion(path: Path, tensors: "Iterable[torch.Tensor]") -> None:
    """Refuse tensors that together are far larger than their file."""
    held = path.stat().st_size
    most = max(_MOST_EXPANSION * held, _MOST_EXPANDED_BYTES)
    total = sum(tensor.numel() * tensor.element_size() for tensor in tensors if _is_dense(tensor))
    if total > most:
        raise UnsupportedFormatError(
            f"{path}: expected tensors of at most {most} bytes together, found {total} out of "
            f"{held}, as views of the same values; save tensor.contiguous() or tensor.clone() of "
            "each"
        )


def _is_dense(tensor: "torch.Tensor") -> bool:
    import torch

    strided = not tensor.is_nested and tensor.layout is torch.strided
    return strided and not tensor.is_quantized and tensor.device.type == "cpu"


def _check_stored(path: Path, tensor: "torch.Tensor") -> None:
    """Refuse a tensor of values that the file does not hold."""
    stored, held = tensor.untyped_storage().nbytes(), path.stat().st_size
    if stored > held:
        raise CorruptFileError(
            f"{path}: expected tensors of at most {held} bytes, found one of {stored}; dump "
            "it again"
        )


def _as_array(path: Path, tensor: "torch.Tensor") -> Array:
    import torch

    name = str(tensor.dtype).removeprefix("torch.")
    if not _is_dense(tensor):
        kind = "nested" if tensor.is_nested else str(tensor.layout)
        raise UnsupportedFormatError(
            f"{path}: expected a dense tensor with values, found {kind} {name} on "
            f"{tensor.device}; save tensor.to_dense(), tensor.dequantize() or "
            "tensor.to_padded_tensor(0.0)"
        )
    _check_stored(path, tensor)
    storage = tensor.untyped_storage()
    note_mapping(path, storage.data_ptr(), storage.nbytes())  # as far as it is mapped
    if name == "complex32" or tensor.is_conj() or tensor.is_neg():
        itemsize = max(tensor.element_size(), np.dtype(np.complex64).itemsize)
        check_unpacked(path, tensor.numel() * itemsize)
    tensor = tensor.detach().resolve_conj().resolve_neg()
    if name == "complex32":  # numpy has none
        return np.asarray(tensor.to(torch.complex64).numpy())
    if name == "float4_e2m1fn_x2":
        check_unpacked(path, 2 * tensor.numel())
        packed = tensor.contiguous().view(torch.uint8).numpy()
        shape = (*packed.shape[:-1], 2 * packed.shape[-1]) if packed.ndim else (2,)
        return unpack_nibbles(path, packed, dtype=dtype_of_name("float4_e2m1fn"), shape=shape)
    dtype = dtype_of_name(name)
    if name.startswith(("bfloat", "float8")):  # numpy and torch share only the bits of these
        bits = torch.uint16 if dtype.itemsize == 2 else torch.uint8
        return np.asarray(tensor.view(bits).numpy()).view(dtype)
    return np.asarray(tensor.numpy())
