"""Tensors as torch prints them in scientific notation, without what makes that slow.

torch prints a tensor by way of many small tensors: each number that is shown is one, and so is each
single statistic. Here the shown numbers are taken out at once, and the text is made from those.
What this does not cover (complex, quantized, sparse and packed numbers, subclasses, tensors with a
gradient) torch prints itself. Precision, threshold and edgeitems are those of
`torch.set_printoptions`, which is left as it was.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

LINE_WIDTH = 120
_OPENING = "tensor("


@dataclass(frozen=True, slots=True, kw_only=True)
class _Layout:
    """How the numbers of one tensor are laid out.

    Attributes:
        edge: how many entries of a long dimension are shown at each end, None for all.
        shape: of the whole tensor.
        width: characters of a number, at least.
    """

    edge: int | None
    shape: tuple[int, ...]
    width: int

    def is_cut(self, dim: int) -> bool:
        """Tell whether only the ends of a dimension are shown."""
        return self.edge is not None and self.shape[dim] > 2 * self.edge


def tensor_text(tensor: torch.Tensor) -> str:
    """Return what `repr` gives with sci_mode=True and lines of 120 characters.

    Args:
        tensor: any dtype, device, shape and strides.
    """
    if not is_plain(tensor):
        with torch_options():
            return repr(tensor)
    if tensor.numel() == 0:
        return _with_suffixes(f"{_OPENING}[]", tensor)
    return _text_of(tensor, _shown(tensor))


def _shown(tensor: torch.Tensor) -> list[Any]:
    """List the numbers that are shown of a plain tensor."""
    options = _options()
    shown = _ends(tensor, options.edgeitems) if tensor.numel() > options.threshold else tensor
    numbers: list[Any] = shown.reshape(-1).tolist()
    return numbers


def _text_of(tensor: torch.Tensor, numbers: list[Any]) -> str:
    """Make the text of a plain tensor from the numbers that are shown."""
    options = _options()
    texts, width = _number_texts(numbers, options.precision, is_float=tensor.is_floating_point())
    edge = options.edgeitems if tensor.numel() > options.threshold else None
    layout = _Layout(edge=edge, shape=tuple(tensor.shape), width=width)
    padded = iter([text.rjust(width) for text in texts])
    return _with_suffixes(_OPENING + _body(padded, layout, dim=0, indent=len(_OPENING)), tensor)


def number_texts(values: Sequence[float], like: torch.Tensor) -> list[str]:
    """Return what `repr` gives for statistics of a tensor, tensors of no dimension.

    Args:
        values: the numbers.
        like: a plain tensor of the same dtype and device.
    """
    form = f"{_OPENING}%.{_options().precision}e{''.join(f', {end}' for end in _suffixes(like))})"
    short = form[: len(_OPENING)] + "%s" + form[form.index("e", len(_OPENING)) + 1 :]
    return [
        form % value if value and value - value == 0 else short % _short(value) for value in values
    ]


def is_plain(tensor: torch.Tensor) -> bool:
    """Tell tensors whose text this module makes itself."""
    import torch

    return (
        type(tensor) is torch.Tensor
        and str(tensor.dtype) in _PLAIN_DTYPES
        and tensor.layout is torch.strided
        and tensor.device.type in ("cpu", "cuda")
        and not tensor.requires_grad
        and not tensor.is_neg()
        and not tensor.is_nested
        and _options().edgeitems > 0
        and not torch._C._functorch.is_functorch_wrapped_tensor(tensor)
        and not torch.overrides._get_current_function_mode_stack()
    )


@contextmanager
def torch_options() -> Iterator[None]:
    """Let torch print in scientific notation within the block, and as before afterwards."""
    import torch

    before = _options()
    restored = {name: getattr(before, name) for name in ("sci_mode", "linewidth")}
    torch.set_printoptions(sci_mode=True, linewidth=LINE_WIDTH)
    try:
        yield
    finally:
        # Not by set_printoptions: it takes sci_mode=None for "leave it".
        for name, value in restored.items():
            setattr(_options(), name, value)


_PLAIN_DTYPES = frozenset(
    f"torch.{name}"
    for name in (
        *("float16", "bfloat16", "float32", "float64", "bool"),
        *("uint8", "int8", "int16", "int32", "int64"),
    )
)


def _options() -> Any:
    """Return the options of `torch.set_printoptions`; torch has no public way to read them."""
    import torch

    return torch._tensor_str.PRINT_OPTS


def _ends(tensor: torch.Tensor, edge: int) -> torch.Tensor:
    """Take the entries that are shown of a tensor: both ends of its long dimensions."""
    dims = tensor.dim()
    return tensor[
        tuple(
            _positions(size, edge, dims - dim - 1, tensor.device)
            for dim, size in enumerate(tensor.shape)
        )
    ]


@lru_cache(maxsize=256)
def _positions(size: int, edge: int, behind: int, device: torch.device) -> torch.Tensor:
    """Index a dimension's ends, or all of it where it is short, with `behind` dimensions after."""
    import torch

    numbers = [*range(edge), *range(size - edge, size)] if size > 2 * edge else range(size)
    return torch.tensor(numbers, device=device).reshape(-1, *[1] * behind)


def _number_texts(numbers: list[Any], precision: int, *, is_float: bool) -> tuple[list[str], int]:
    """Write numbers in the notation that fits all of them, and find the width that they need."""
    if not is_float:
        texts = [str(number) for number in numbers]
        return texts, max(map(len, texts))
    form = f"%.{precision}e"
    texts = [form % number for number in numbers]
    # Zeros, infinities and NaN have no say: of those alone the notation is another.
    lengths = [
        len(text)
        for text, number in zip(texts, numbers, strict=True)
        if number and number - number == 0
    ]
    if lengths:
        return texts, max(lengths)
    return [_short(number) for number in numbers], 1


def _short(number: float) -> str:
    """Write a zero, an infinity or NaN."""
    return f"{number:.0f}" + ("." if number == 0 else "")


def _body(texts: Iterator[str], layout: _Layout, *, dim: int, indent: int) -> str:
    """Write what stands between the brackets of one dimension and those below it."""
    dims = len(layout.shape)
    if dim == dims:
        return next(texts)
    cut = layout.is_cut(dim)
    size = 2 * (layout.edge or 0) if cut else layout.shape[dim]
    if dim == dims - 1:
        return _row(list(islice(texts, size)), layout, cut=cut, indent=indent)
    parts = [_body(texts, layout, dim=dim + 1, indent=indent + 1) for _ in range(size)]
    if cut:
        parts.insert(size // 2, "...")
    between = "," + "\n" * (dims - dim - 1) + " " * (indent + 1)
    return f"[{between.join(parts)}]"


def _row(texts: list[str], layout: _Layout, *, cut: bool, indent: int) -> str:
    """Write the numbers of the last dimension, in as many lines as they need."""
    if cut:
        texts.insert(len(texts) // 2, " ...")
    a_line = max(1, (LINE_WIDTH - indent) // (layout.width + 2))
    lines = (", ".join(texts[i : i + a_line]) for i in range(0, len(texts), a_line))
    return "[" + (",\n" + " " * (indent + 1)).join(lines) + "]"


def _suffixes(tensor: torch.Tensor) -> list[str]:
    """List what torch says behind the numbers of a plain tensor."""
    import torch

    device, dtype, found = tensor.device, tensor.dtype, []
    elsewhere = device.type == "cuda" and device.index != torch.cuda.current_device()
    if device.type != torch._C._get_default_device() or elsewhere:
        found.append(f"device='{device}'")
    is_empty = tensor.numel() == 0
    if is_empty and tensor.dim() != 1:
        found.append(f"size={tuple(tensor.shape)}")
    usual = {torch.get_default_dtype()} | (set() if is_empty else {torch.int64, torch.bool})
    if dtype not in usual:
        found.append(f"dtype={dtype}")
    return found


def _with_suffixes(text: str, tensor: torch.Tensor) -> str:
    """Put device and dtype behind the numbers, on a new line where the last one is full."""
    length = len(text) - text.rfind("\n") + 1
    for suffix in _suffixes(tensor):
        if length + len(suffix) + 2 > LINE_WIDTH:
            text += ",\n" + " " * len(_OPENING) + suffix
            length = len(_OPENING) + len(suffix)
        else:
            text += f", {suffix}"
            length += len(suffix) + 2
    return text + ")"
