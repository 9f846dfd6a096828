"""What is looked at in a .pt file before torch reads it: sizes, and what the reading would cost.

torch's safe loading runs no code of the file, but a few hundred bytes may still ask for all the
memory, or for all the time, that there is: by a record that unpacks to terabytes, by
`bytearray(2**40)`, or by a dictionary key that is a tuple of one tuple twice, sixty times over.
"""

from __future__ import annotations

import pickletools
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, cast

from comparison.schema.errors import CorruptFileError, UnsupportedFormatError
from comparison.store.regular_file import open_regular

ZIP_MAGIC = b"PK\x03\x04"
# torch.save writes a handful for each tensor; this is more than any checkpoint has.
_MOST_RECORDS = 1_000_000
# Instructions of a pickle, and values that these go through. A tensor takes about 50.
_MOST_STEPS = 10_000_000
# What torch reads as a whole: of the zip form all but the values, which it maps.
_MOST_WHOLE_BYTES = 1 << 28
# The form before zip: three pickles of constants, that of the content, that of the storages.
_OLD_FORM_PICKLES = 5
_PICKLE_BEGIN = b"\x80"
_REPEATS = "bytearray"  # of a number: as many bytes, out of nothing
_ENCODES = "encode"  # of bytes, to a codec that makes them longer, again and again
_PLAIN_CODECS = ("latin1", "")
_MOST_HARMLESS_BYTES = 1000
_MOST_HARMLESS_REPEATS = 16
_SIZE = "Size"  # a tuple, too
_GROW = ("APPEND", "APPENDS", "SETITEM", "SETITEMS", "ADDITEMS")


def check_pt_file(path: Path) -> bool:
    """Refuse a file that would take more memory or time than what it holds is worth.

    Args:
        path: the file.

    Returns:
        Whether it has the zip form, which can be mapped.

    Raises:
        CorruptFileError: records that are packed, that overlap, or that are larger than the file;
            or a large file of another form.
        UnsupportedFormatError: a pickle that makes bytes out of nothing, or that never ends; or
            more than should be read as a whole.
    """
    with open_regular(path) as file:
        is_zip = file.read(4) == ZIP_MAGIC
        file.seek(0)
        if is_zip:
            _check_zip(path, file)
        else:
            _check_old_form(path, file)
    return is_zip


def _check_whole(path: Path, size_bytes: int, *, what: str) -> None:
    """Refuse a large file, which may hold nothing at all (holes), before torch reads all of it."""
    if size_bytes > _MOST_WHOLE_BYTES:
        raise UnsupportedFormatError(
            f"{path}: expected at most {_MOST_WHOLE_BYTES} bytes {what}, found {size_bytes}; save "
            "it anew with torch.save of torch 1.6 or later"
        )


def _check_zip(path: Path, file: BinaryIO) -> None:
    size_bytes = file.seek(0, 2)
    try:
        archive = zipfile.ZipFile(file)
    except Exception as error:  # zipfile raises many kinds of error on damage
        raise _damaged(path, error) from None
    with archive:
        records = archive.infolist()
        if len(records) > _MOST_RECORDS:
            raise _too_much(path, f"at most {_MOST_RECORDS} records", f"{len(records)}")
        packed = next((r for r in records if r.compress_type != zipfile.ZIP_STORED), None)
        if packed is not None:
            raise CorruptFileError(
                f"{path}: expected records as they are, found {packed.filename!r:.200} compressed "
                f"to {packed.compress_size} bytes of {packed.file_size}; save it with torch.save"
            )
        total = sum(max(record.file_size, record.compress_size) for record in records)
        if total > size_bytes:
            raise CorruptFileError(
                f"{path}: expected records of at most {size_bytes} bytes, found {total}; "
                "dump it again"
            )
        whole = [record for record in records if "/data/" not in record.filename]
        _check_whole(path, sum(r.file_size for r in whole), what="beside the tensors' values")
        _check_byte_order(path, archive, whole, size_bytes)
        for record in whole:
            if record.filename.endswith("/data.pkl"):
                _check_record(path, archive, record)


def _check_byte_order(
    path: Path, archive: zipfile.ZipFile, records: list[zipfile.ZipInfo], size_bytes: int
) -> None:
    """Refuse many values of another byte order, which torch swaps in memory."""
    for record in records:
        if record.filename.endswith("/byteorder") and _read(path, archive, record, 8) == b"big":
            _check_whole(path, size_bytes, what="of big-endian values")


def _read(path: Path, archive: zipfile.ZipFile, record: zipfile.ZipInfo, most_bytes: int) -> bytes:
    try:
        with archive.open(record) as opened:
            return opened.read(most_bytes)
    except Exception as error:  # such as that of a checksum
        raise _damaged(path, error) from None


def _damaged(path: Path, error: Exception) -> CorruptFileError:
    return CorruptFileError(
        f"{path}: expected a file of torch.save, found {error!s:.200}; dump it again"
    )


def _check_record(path: Path, archive: zipfile.ZipFile, record: zipfile.ZipInfo) -> None:
    try:
        with archive.open(record) as pickled:
            if not _is_harmless(pickled.read(_MOST_HARMLESS_BYTES + 1)):
                pickled.seek(0)
                _check_pickle(path, cast("BinaryIO", pickled))
    except (CorruptFileError, UnsupportedFormatError):
        raise
    except Exception as error:  # such as that of a checksum
        raise _damaged(path, error) from None


def _is_harmless(pickled: bytes) -> bool:
    """Tell a pickle that cannot cost much whatever it says, such as that of a lone tensor.

    What is there twice comes from the memo, by the instructions h and j; as few as these multiply
    what is there by less than 3**6, wherever they are put.
    """
    return (
        len(pickled) <= _MOST_HARMLESS_BYTES
        and pickled.count(b"h") + pickled.count(b"j") <= _MOST_HARMLESS_REPEATS
        and _REPEATS.encode() not in pickled
        and _ENCODES.encode() not in pickled
    )


def _check_old_form(path: Path, file: BinaryIO) -> None:
    size_bytes = file.seek(0, 2)
    file.seek(0)
    if size_bytes > _MOST_WHOLE_BYTES and file.read(1) != _PICKLE_BEGIN:
        raise CorruptFileError(
            f"{path}: expected a file of torch.save, found {size_bytes} bytes of another form"
        )
    file.seek(0)
    _check_whole(path, size_bytes, what="of a file that is no zip archive")
    for _ in range(_OLD_FORM_PICKLES):
        if not _check_pickle(path, file):
            return


def _check_pickle(path: Path, pickled: BinaryIO) -> bool:
    """Go through a pickle without making its values; False for one that breaks off.

    Where it breaks off, torch stops as well, and says what it found.
    """
    machine = _Machine(path)
    try:
        for opcode, argument, _ in pickletools.genops(pickled):
            machine.step(opcode, argument)
    except (CorruptFileError, UnsupportedFormatError):
        raise
    except Exception:  # pickletools and zipfile raise many kinds
        return False
    return True


@dataclass(slots=True, kw_only=True)
class _Value:
    """What is known of a value on the stack; lists and dictionaries grow.

    Attributes:
        weight: values in it, those that are there several times counted as often: what it costs
            to hash a tuple, or to go through a list.
        label: the name of a global, a text, or the last label in a tuple.
    """

    weight: int = 1
    label: str = ""


class _Machine:
    """The stack and memo of an unpickler, with sizes in place of values."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._stack: list[_Value | None] = []  # None is a mark
        self._memo: dict[int, _Value] = {}
        self._steps = 0

    def step(self, opcode: pickletools.OpcodeInfo, argument: object) -> None:
        """Take one instruction.

        Raises:
            UnsupportedFormatError: it costs too much.
            IndexError: it does not fit what was before.
            KeyError: as IndexError.
        """
        name = opcode.name
        self._spend(1)
        if name == "MARK":
            self._stack.append(None)
        elif name in ("BINPUT", "LONG_BINPUT", "PUT"):
            self._memo[_number(argument)] = self._top()
        elif name == "MEMOIZE":
            self._memo[len(self._memo)] = self._top()
        elif name in ("BINGET", "LONG_BINGET", "GET"):
            self._stack.append(self._memo[_number(argument)])
        else:
            taken = self._take(opcode)
            self._give(opcode, taken, argument)

    def _top(self) -> _Value:
        value = self._stack[-1]
        return _Value() if value is None else value

    def _take(self, opcode: pickletools.OpcodeInfo) -> list[_Value]:
        before = opcode.stack_before
        taken: list[_Value] = []
        if pickletools.markobject in before:
            while (value := self._stack.pop()) is not None:
                taken.append(value)
            before = before[: before.index(pickletools.markobject)]
        for _ in before:
            taken.append(self._stack.pop() or _Value())
        return taken[::-1]

    def _give(self, opcode: pickletools.OpcodeInfo, taken: list[_Value], argument: object) -> None:
        name = opcode.name
        if name in _GROW:
            self._grow(taken)
            return
        made = _Value(label=argument if isinstance(argument, str) else "")
        if name == "GLOBAL":
            made.label = made.label.rpartition(" ")[2]
            if made.label == _REPEATS:
                raise self._refuse("it makes a bytearray, which may be of any size")
        elif name.startswith("TUPLE") or name == "REDUCE":
            self._check_function(name, taken)
            weight = 1 + sum(value.weight for value in taken)
            self._spend(weight)
            made.label = taken[-1].label if taken else ""
            if name != "REDUCE" or taken[0].label == _SIZE:
                made.weight = weight
        self._stack += [made] * len(opcode.stack_after)

    def _grow(self, taken: list[_Value]) -> None:
        """Put values into the list or dictionary that was taken first, and give it back."""
        added = sum(value.weight for value in taken[1:])
        self._spend(added)
        taken[0].weight += added
        self._stack.append(taken[0])

    def _check_function(self, name: str, taken: list[_Value]) -> None:
        """Refuse a function that makes bytes of any number, called or passed to another."""
        if name == "REDUCE" and taken[0].label == _ENCODES:
            codec = taken[-1].label
            if codec not in _PLAIN_CODECS:
                raise self._refuse(f"it encodes bytes as {codec!r:.40}")
        elif any(value.label == _ENCODES for value in taken):
            raise self._refuse("it passes a function on")

    def _spend(self, steps: int) -> None:
        self._steps += steps
        if self._steps > _MOST_STEPS:
            raise _too_much(self._path, f"a pickle of at most {_MOST_STEPS} steps", "more")

    def _refuse(self, reason: str) -> UnsupportedFormatError:
        return UnsupportedFormatError(
            f"{self._path}: expected tensors, found a pickle that would run code: {reason}; it was "
            "not run. Save plain tensors or a dictionary of tensors"
        )


def _number(argument: object) -> int:
    assert isinstance(argument, int)  # so pickletools gives it for these
    return argument


def _too_much(path: Path, expected: str, found: str) -> UnsupportedFormatError:
    return UnsupportedFormatError(
        f"{path}: expected {expected}, found {found}; save a flat dictionary of tensors"
    )
