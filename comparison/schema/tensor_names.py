"""Tensor names: how they are built, taken apart, and spelled as file names.

A name is `<module>-input_<i>`, `<module>-input_<keyword>`, `<module>-output`, `-output_<i>` or
`-output_<field>`; the second call of one module in a step is `<module>(2)-...`. An operation below
a module is `<module>@<nnn>.<op>`, numbered within the call.
"""

import hashlib
import re
from dataclasses import dataclass
from functools import lru_cache
from urllib.parse import quote, unquote

# Linux allows 255 bytes a name; the rest is for suffixes and temporary names.
MAX_STEM_BYTES = 200
# Everything else is percent-encoded: `/`, NUL, `:`, `%`, blanks, non-ASCII.
_SAFE_CHARACTERS = "()[]@,=+~"

_NAME = re.compile(
    r"^(?P<module>.*?)(?:\((?P<call>[0-9]{1,9})\))?-(?P<side>input|output)(?:_(?P<slot>.+))?$",
    re.DOTALL,
)
_OPERATION = re.compile(r"^(?P<module>.+)@[0-9]{3,9}\.[A-Za-z0-9_.]+$", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorName:
    """A tensor name taken apart.

    Attributes:
        module: dotted path of the module.
        call: 1 for the module's first call in a step, 2 for the second, ...
        side: `input` or `output`.
        slot: position or keyword or field, None for a sole output.
    """

    module: str
    call: int
    side: str
    slot: str | None

    def __str__(self) -> str:
        call = f"({self.call})" if self.call > 1 else ""
        slot = f"_{self.slot}" if self.slot is not None else ""
        return f"{self.module}{call}-{self.side}{slot}"


@lru_cache(maxsize=1 << 16)  # asked for again and again while two dumps are paired
def parse_tensor_name(name: str) -> TensorName | None:
    """Take a tensor name apart; None for names of another form, such as hand-saved ones."""
    match = _NAME.match(name)
    if match is None:
        return None
    return TensorName(
        module=match["module"],
        call=int(match["call"] or 1),
        side=match["side"],
        slot=match["slot"],
    )


def path_number(part: str) -> int | None:
    """Read a part of a module's path as a number, such as the 3 of `layers.3`.

    Returns:
        None for what is none, or is longer than any that counts layers.
    """
    return int(part) if part.isascii() and part.isdecimal() and len(part) < 10 else None


def operation_name(module: str, number: int, op: str) -> str:
    """Name an operation below a module.

    Args:
        module: the module's call, such as `model.layers.0.mlp`.
        number: its place within the call, from 1 on.
        op: short name of the operation.
    """
    return f"{module}@{number:03d}.{re.sub('[^A-Za-z0-9_.]', '_', op)}"


def is_operation_name(name: str) -> bool:
    """Tell the name of an operation below a module."""
    return _OPERATION.match(name) is not None


def file_stem(name: str, *, taken: frozenset[str] | set[str] = frozenset()) -> str:
    """Spell a tensor name as a file stem that is safe on every file system.

    Args:
        name: full tensor name.
        taken: case-folded stems that are in use in the same folder.

    Returns:
        The percent-encoded name; over 200 bytes its prefix, `~` and 16 digits of SHA-256; with
        `~` and a number behind it where only the case differs from a stem that is taken.
    """
    stem = quote(name, safe=_SAFE_CHARACTERS, errors="surrogatepass")
    if stem.startswith("."):  # hidden, or `.` and `..` themselves
        stem = "%2E" + stem[1:]
    if len(stem) > MAX_STEM_BYTES:
        digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:16]
        stem = f"{stem[: MAX_STEM_BYTES - 17]}~{digest}"
    unique, number = stem, 2
    while unique.casefold() in taken:
        unique = f"{stem}~{number}"
        number += 1
    return unique


def name_of_stem(stem: str) -> str:
    """Turn a file stem back into the name; stems that were shortened need the manifest's table."""
    try:
        return unquote(stem, errors="surrogatepass")
    except UnicodeDecodeError:  # bytes that are no UTF-8, in a name that someone else spelled
        return unquote(stem)
