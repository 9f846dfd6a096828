"""Looks at a file of weights before an engine is asked to load it."""

import os
import struct
from pathlib import Path

from comparison.schema.errors import (
    BadInputError,
    CorruptFileError,
    MissingPathError,
    UnsupportedFormatError,
)
from comparison.store.regular_file import kind_of_file, open_regular

_MAGIC = b"GGUF"
_HEADER = struct.Struct("<4sIQQ")  # magic, version, number of tensors, number of settings
_VERSIONS = (2, 3)
# What one takes at least: a name's length, dimensions, type and offset; a key's length and type.
_LEAST_TENSOR_BYTES = 24
_LEAST_SETTING_BYTES = 13
_HUB_PARTS = 3  # organisation/repository/file


def check_weight_file(weight_path: str, *, model_path: str) -> None:
    """Refuse a file of weights that no engine can load.

    A file of a Hub repository that is not here is left to the engine.

    Args:
        weight_path: a file, here or in the model's folder, or `organisation/repository/file`.
        model_path: local folder or Hub id of the model.

    Raises:
        MissingPathError: there is no such file.
        BadInputError: it is no file, cannot be read, or is damaged.
    """
    places = [Path(weight_path), Path(model_path) / weight_path]
    found = next((place for place in places if weight_path and os.path.lexists(place)), None)
    if found is None:
        if not _may_be_on_the_hub(weight_path, model_path):
            raise MissingPathError(
                f"expected a file of weights, found nothing at {weight_path!r}, nor in "
                f"{model_path} (weight_path_map)"
            )
        return
    try:
        _check_file(found)
    except BadInputError:
        raise
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise BadInputError(f"cannot read {found}: {reason} (weight_path_map)") from None


def _may_be_on_the_hub(weight_path: str, model_path: str) -> bool:
    path = Path(weight_path)
    if not weight_path or path.is_absolute() or path.parts[0] == "..":
        return False
    return len(path.parts) >= _HUB_PARTS or not Path(model_path).exists()


def _check_file(path: Path) -> None:
    kind = kind_of_file(path.stat().st_mode)
    if kind is not None:
        raise BadInputError(f"expected a file of weights, found {kind}: {path} (weight_path_map)")
    if path.suffix == ".gguf":
        _check_gguf(path)


def _check_gguf(path: Path) -> None:
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        header = file.read(_HEADER.size)
    if header[: len(_MAGIC)] != _MAGIC or len(header) < _HEADER.size:
        raise CorruptFileError(
            f"{path}: expected a GGUF file, which begins with {_MAGIC!r}, found {size} bytes that "
            f"begin with {header[: len(_MAGIC)]!r}; make or download it again"
        )
    _, version, tensors, settings = _HEADER.unpack(header)
    if version not in _VERSIONS:
        raise UnsupportedFormatError(
            f"{path}: expected GGUF version {' or '.join(map(str, _VERSIONS))}, found {version}"
        )
    least = _HEADER.size + tensors * _LEAST_TENSOR_BYTES + settings * _LEAST_SETTING_BYTES
    if least > size:
        raise CorruptFileError(
            f"{path}: expected at least {least} bytes for {tensors} tensors and {settings} "
            f"settings, found {size}; the file is cut off, make or download it again"
        )
