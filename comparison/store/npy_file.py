"""Files of one array as numpy writes them."""

import warnings
from pathlib import Path

from numpy.lib import format as npy_format

from comparison.numerics.dtypes import Array, dtype_name
from comparison.schema.errors import CorruptFileError, UnsupportedFormatError
from comparison.store.mapped_array import map_array
from comparison.store.regular_file import open_regular

_MOST_HEADER_BYTES = 10_000  # as numpy


def read_npy_file(path: Path) -> Array:
    """Map the array of a .npy file; never unpickles.

    Raises:
        CorruptFileError: cut off or malformed.
        UnsupportedFormatError: an array of objects, text, records, or of a dtype that the format
            cannot name (bfloat16).
    """
    with open_regular(path) as file, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # on headers of Python 2, which are read all the same
        try:
            version = npy_format.read_magic(file)
            read, width = {
                (1, 0): (npy_format.read_array_header_1_0, 2),
                (2, 0): (npy_format.read_array_header_2_0, 4),
            }[version]
            begin = file.tell()
            header_bytes = int.from_bytes(file.read(width), "little")
            if header_bytes > _MOST_HEADER_BYTES:  # numpy reads all of it before it looks
                raise ValueError(f"a header of {header_bytes} bytes")
            file.seek(begin)
            shape, fortran_order, dtype = read(file)
        except KeyError:
            raise UnsupportedFormatError(
                f"{path}: expected .npy version 1.0 or 2.0, found another"
            ) from None
        # The header is parsed as Python, whose tokenizer and parser raise many kinds of error.
        except Exception as error:
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise CorruptFileError(f"{path}: expected a .npy file, found {reason:.200}") from None
        offset = file.tell()
    if any(type(n) is not int or n < 0 for n in shape):
        raise CorruptFileError(f"{path}: expected sizes as shape, found {shape!s:.200}")
    if dtype.kind == "O":
        raise UnsupportedFormatError(
            f"{path}: expected numbers, found Python objects, which would have to be unpickled; "
            "save a numeric array"
        )
    if dtype.kind == "V":
        raise UnsupportedFormatError(
            f"{path}: expected numbers, found {dtype!s:.200}; .npy has no name for bfloat16 and "
            "float8, save as .safetensors, .pt or .max"
        )
    try:
        dtype_name(dtype)  # refuse text and dates before anything is mapped
    except UnsupportedFormatError as error:
        raise UnsupportedFormatError(f"{path}: {error}") from None
    if fortran_order:
        return map_array(path, dtype=dtype, shape=tuple(shape[::-1]), offset=offset).T
    return map_array(path, dtype=dtype, shape=tuple(shape), offset=offset)
