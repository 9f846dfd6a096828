"""One file, of whatever format its suffix says."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from comparison.numerics.dtypes import Array, dtype_of_name
from comparison.schema.errors import (
    BadInputError,
    CorruptFileError,
    MissingPathError,
    UnsupportedFormatError,
)
from comparison.schema.manifest import RawTensor
from comparison.schema.tensor_entry import TensorEntry
from comparison.schema.tensor_names import name_of_stem
from comparison.store.mapped_array import map_array
from comparison.store.max_file import read_max_file, read_max_header
from comparison.store.npy_file import read_npy_file
from comparison.store.partial_file import PARTIAL_SUFFIX, list_partial_file, read_partial_tensor
from comparison.store.pt_file import list_pt_keys, read_pt_tensor
from comparison.store.safetensors_file import list_safetensors, read_safetensors_tensor

TENSOR_SUFFIXES = (".pt", ".pth", ".max", ".safetensors", ".npy")


def list_file(
    path: Path, file_names: Mapping[str, str], *, step: int = 0, rank: int | None = None
) -> tuple[TensorEntry, ...]:
    """List the tensors of a file, in the file's own order.

    Args:
        path: the file.
        file_names: the manifest's table of stems that do not spell their name.
        step: the step that it is of.
        rank: the rank that it is of.

    Raises:
        BadInputError: the file cannot be read; the message names it.
    """
    with _errors_of(path):
        keys_and_names = tuple(_keys_and_names(path, file_names))
    return tuple(
        TensorEntry(name=name, step=step, order=0, path=path, key=key, rank=rank)
        for key, name in keys_and_names
    )


@contextmanager
def _errors_of(path: Path) -> Iterator[None]:
    """Turn whatever a reader raises into an error that names the file.

    Readers know most kinds of damage, never all: one bad file must not end the comparison of a
    folder.
    """
    try:
        yield
    except BadInputError as error:
        if str(path) in str(error):
            raise
        raise type(error)(f"{path}: {error}") from None
    except FileNotFoundError:
        raise MissingPathError(f"expected a file, found nothing at {path}") from None
    except OSError as error:
        raise CorruptFileError(f"cannot read {path}: {error.strerror or error}") from None
    except ImportError as error:
        raise UnsupportedFormatError(
            f"{path}: expected torch to read it with, found {error}; install torch"
        ) from None
    except Exception as error:
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        raise CorruptFileError(
            f"{path}: expected a {path.suffix} file, found damage: {reason:.200}; dump it again"
        ) from error


def _keys_and_names(path: Path, file_names: Mapping[str, str]) -> Iterator[tuple[str | None, str]]:
    stem = path.stem
    stem_name = file_names[stem] if stem in file_names else name_of_stem(stem)
    match path.suffix:
        case ".max":
            label = read_max_header(path).key
            # The engine writes the label as file name with `/` and blanks replaced. Where the
            # file has another name, someone renamed it, and meant something by that.
            faithful = stem not in file_names and _file_stem_of_label(label) == stem
            yield None, name_of_stem(label) if faithful else stem_name
        case ".safetensors":
            yield from list_safetensors(path)
        case suffix if suffix == PARTIAL_SUFFIX:
            yield from list_partial_file(path)
        case ".pt" | ".pth":
            keys = list_pt_keys(path)
            if keys is None:
                yield None, stem_name
            else:
                yield from ((key, key) for key in keys)
        case ".npy":
            read_npy_file(path)
            yield None, stem_name
        case _:
            raise UnsupportedFormatError(
                f"expected a file of {', '.join(TENSOR_SUFFIXES)}, found {path}"
            )


def _file_stem_of_label(label: str) -> str:
    return label.replace("/", "_").replace(" ", "_")


def read_tensor(entry: TensorEntry, *, raw: RawTensor | None = None) -> Array:
    """Map one tensor; memory is taken as its pages are looked at.

    Args:
        entry: the tensor.
        raw: dtype and shape, for a file of bare bytes.

    Raises:
        BadInputError: the file cannot be read; the message names it.
    """
    with _errors_of(entry.path):
        return _read(entry, raw)


def _read(entry: TensorEntry, raw: RawTensor | None) -> Array:
    if raw is not None:
        return _read_raw(entry.path, raw)
    match entry.path.suffix:
        case ".max":
            return read_max_file(entry.path)
        case ".safetensors":
            return read_safetensors_tensor(entry.path, entry.key or "")
        case suffix if suffix == PARTIAL_SUFFIX:
            return read_partial_tensor(entry.path, entry.key or "")
        case ".npy":
            return read_npy_file(entry.path)
        case _:
            return read_pt_tensor(entry.path, entry.key)


def _read_raw(path: Path, raw: RawTensor) -> Array:
    array = map_array(path, dtype=dtype_of_name(raw.dtype), shape=raw.shape, offset=0)
    if path.stat().st_size != array.nbytes:
        raise CorruptFileError(
            f"{path}: expected {array.nbytes} bytes for {raw.dtype} {raw.shape}, "
            f"found {path.stat().st_size}"
        )
    return array
