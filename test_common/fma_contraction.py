"""Measures whether MAX rounds a multiply-add once or twice on this machine.

A compiler may contract `x * y + z` into one instruction (FMA, fused multiply-add), which rounds
once where two instructions round twice. Both are right; their results differ in some last digits.
Within one graph the compiler can do so; in two graphs the product is written down in between.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import torch

# Products of these are exact in float64, so that it can be the judge.
DTYPES: Final = ("bfloat16", "float32")
_SIGNIFICANT_BITS = {"bfloat16": 8, "float32": 24}
_FEWER_ROUNDINGS = "rounding order (FMA), not a bug"


class Cause(Enum):
    """Why one graph and Torch differ, as far as was measured."""

    SAME = "same"
    ROUNDING_ORDER = "rounding order"
    OTHER = "other"


@dataclass(frozen=True, slots=True, kw_only=True)
class MultiplyAdd:
    """One multiply-add in one dtype, done in four ways; errors are against float64.

    Attributes:
        dtype: of operands and results.
        elements: number of elements.
        one_from_torch: elements in which one MAX graph and Torch differ.
        two_from_torch: elements in which two MAX graphs and Torch differ.
        one_from_two: elements in which one MAX graph and two differ.
        nearer_one: of the latter, those in which one graph is nearer to float64.
        nearer_two: those in which two graphs are nearer.
        error_one: mean absolute error of one graph.
        error_two: mean absolute error of two graphs.
        error_torch: mean absolute error of Torch.
        result_ulp: greatest difference of one graph and two, in ULP of the result: how many values
            of the dtype lie between them. Large where product and addend cancel.
        operand_ulp: the same in ULP of the product or the addend, whichever is greater.
    """

    dtype: str
    elements: int
    one_from_torch: int
    two_from_torch: int
    one_from_two: int
    nearer_one: int
    nearer_two: int
    error_one: float
    error_two: float
    error_torch: float
    result_ulp: int
    operand_ulp: float

    @property
    def cause(self) -> Cause:
        """Judge by what was measured alone.

        Rounding order it is only if writing the product down gives Torch's bits in every element,
        one graph is nearer to float64, and no element is further off than one rounding explains.
        """
        if not self.one_from_torch:
            return Cause.SAME
        explained = (
            not self.two_from_torch
            and self.error_one < self.error_two
            and self.nearer_one > self.nearer_two
            and self.operand_ulp <= 1
        )
        return Cause.ROUNDING_ORDER if explained else Cause.OTHER


def measure_contraction(*, elements: int = 4096, seed: int = 0) -> tuple[MultiplyAdd, ...]:
    """Run `x * y + z` on MAX in one graph and in two, on the CPU, in each of `DTYPES`.

    Args:
        elements: number of elements; standard normal values.
        seed: of the values.
    """
    operands = {dtype: _operands(dtype, elements, seed) for dtype in DTYPES}
    both = _run("multiply_add", lambda x, y, z: x * y + z, operands)
    firsts = {dtype: xyz[:2] for dtype, xyz in operands.items()}
    products = _run("multiply", lambda x, y: x * y, firsts)
    seconds = {dtype: [products[dtype], xyz[2]] for dtype, xyz in operands.items()}
    sums = _run("add", lambda x, y: x + y, seconds)
    return tuple(
        compare_ways(operands[dtype], one=both[dtype], two=sums[dtype]) for dtype in DTYPES
    )


def compare_ways(
    operands: Sequence[torch.Tensor], *, one: torch.Tensor, two: torch.Tensor
) -> MultiplyAdd:
    """Hold both ways of MAX against Torch and float64.

    Args:
        operands: x, y and z, of one dtype of `DTYPES` and one shape.
        one: `x * y + z` out of one graph.
        two: the same out of two graphs.
    """
    x, y, z = operands
    product = x.double() * y.double()
    exact = product + z.double()
    reference = x * y + z
    error_one, error_two = (one.double() - exact).abs(), (two.double() - exact).abs()
    dtype = str(x.dtype).removeprefix("torch.")
    scale = product.abs().maximum(z.double().abs()).maximum(exact.abs())
    apart = (one.double() - two.double()).abs()
    return MultiplyAdd(
        dtype=dtype,
        elements=x.numel(),
        one_from_torch=_count(one != reference),
        two_from_torch=_count(two != reference),
        one_from_two=_count(one != two),
        nearer_one=_count(error_one < error_two),
        nearer_two=_count(error_two < error_one),
        error_one=float(error_one.mean()),
        error_two=float(error_two.mean()),
        error_torch=float((reference.double() - exact).abs().mean()),
        result_ulp=int((_position(one) - _position(two)).abs().max()),
        operand_ulp=float((apart / _ulp(scale, dtype)).max()),
    )


def explain(found: MultiplyAdd) -> str:
    """Say in one sentence what a measurement tells."""
    dtype = found.dtype
    match found.cause:
        case Cause.SAME:
            return (
                f"{dtype}: MAX and Torch give the same bits, in one graph too: nothing is "
                "contracted. A difference in a multiply-add has another cause"
            )
        case Cause.ROUNDING_ORDER:
            return (
                f"{dtype}: {_FEWER_ROUNDINGS}: with the product written down MAX gives Torch's "
                "bits, and in one graph it is nearer to float64"
            )
        case Cause.OTHER:
            return f"{dtype}: MAX and Torch differ, and rounding order does not explain it"


def format_measurement(found: MultiplyAdd) -> str:
    """Show one dtype's figures as lines of text."""
    count = found.elements
    lines = [
        f"{found.dtype}, x * y + z of {count} elements",
        f"  differ from Torch: one graph {found.one_from_torch} / {count}, "
        f"two graphs {found.two_from_torch} / {count}",
        f"  one graph against two: {found.one_from_two} / {count} differ; nearer to float64: "
        f"one graph {found.nearer_one}, two graphs {found.nearer_two}",
        f"  mean error against float64: one graph {found.error_one:.4g}, "
        f"two graphs {found.error_two:.4g}, Torch {found.error_torch:.4g}",
        f"  greatest difference of one graph and two: {found.operand_ulp:.3g} {found.dtype} ULP of "
        f"the greater operand, {found.result_ulp} ULP of the result",
    ]
    return "\n".join(lines)


def _operands(dtype: str, elements: int, seed: int) -> list[torch.Tensor]:
    import torch

    generator = torch.Generator().manual_seed(seed)
    return [
        torch.randn(elements, generator=generator, dtype=torch.float64).to(getattr(torch, dtype))
        for _ in range(3)
    ]


def _run(
    name: str, operation: Callable[..., Any], inputs: Mapping[str, Sequence[torch.Tensor]]
) -> dict[str, torch.Tensor]:
    """Build one graph that does the operation in every dtype, and run it."""
    import torch
    from max.driver import CPU, Buffer
    from max.engine import InferenceSession
    from max.graph import Graph

    with Graph(name, input_types=[_type(v) for values in inputs.values() for v in values]) as graph:
        values = iter([value.tensor for value in graph.inputs])
        arguments = [[next(values) for _ in tensors] for tensors in inputs.values()]
        graph.output(*[operation(*of_dtype) for of_dtype in arguments])
    model = InferenceSession(devices=[CPU()]).load(graph)
    flat = [Buffer.from_dlpack(v.contiguous()) for values in inputs.values() for v in values]
    results = [torch.from_dlpack(result).clone() for result in model.execute(*flat)]
    return dict(zip(inputs, results, strict=True))


def _type(tensor: torch.Tensor) -> Any:
    from max.dtype import DType
    from max.graph import DeviceRef, TensorType

    dtype = getattr(DType, str(tensor.dtype).removeprefix("torch."))
    return TensorType(dtype, list(tensor.shape), DeviceRef.CPU())


def _count(mask: torch.Tensor) -> int:
    return int(mask.sum())


def _position(tensor: torch.Tensor) -> torch.Tensor:
    """Number the values of a dtype in their order, so that neighbours are 1 apart."""
    import torch

    kind = torch.int16 if tensor.element_size() == 2 else torch.int32
    bits = tensor.view(kind).long()
    top = 1 << (8 * tensor.element_size() - 1)
    return torch.where(bits < 0, -(bits + top), bits)


def _ulp(values: torch.Tensor, dtype: str) -> torch.Tensor:
    """Return the distance of neighbours at the magnitude of positive float64 values."""
    import torch

    _, exponent = torch.frexp(values)  # values = m * 2**exponent with 0.5 <= m < 1
    return torch.ldexp(torch.ones_like(values), exponent - _SIGNIFICANT_BITS[dtype])
