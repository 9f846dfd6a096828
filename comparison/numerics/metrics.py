"""Measuring a pair of arrays in one pass, chunk by chunk."""

from collections.abc import Sequence

from comparison.numerics.blocks import Block, iterate_chunks
from comparison.numerics.differences import check_kinds
from comparison.numerics.dtypes import Array, dtype_name
from comparison.numerics.fused import FusedKernel
from comparison.numerics.measurement import Measurement
from comparison.numerics.ulp import UlpUnit
from comparison.schema.outcome import Compared, KindDiffers, Shape, ShapeDiffers
from comparison.schema.tolerance import Tolerance


def measure(
    reference: Array, candidate: Array, *, tolerance: Tolerance | None = None
) -> Compared | KindDiffers | ShapeDiffers:
    """Measure two arrays of one shape.

    Args:
        reference: any shape and strides, any numeric dtype; may be memory-mapped.
        candidate: any shape and strides.
        tolerance: what to judge by; None measures without a verdict.

    Raises:
        UnsupportedFormatError: an array that holds no numbers.
    """
    if reference.shape != candidate.shape:
        return ShapeDiffers(reason=f"{reference.shape} against {candidate.shape}")
    block = Block(reference=reference, candidate=candidate)
    return measure_blocks([block], shape=reference.shape, tolerance=tolerance)


def measure_blocks(
    blocks: Sequence[Block],
    *,
    shape: Shape,
    tolerance: Tolerance | None = None,
    kernel: FusedKernel | None = None,
) -> Compared | KindDiffers:
    """Measure a tensor that is given as stretches along its first dimension.

    Args:
        blocks: at least one, in order, each side of one dtype throughout.
        shape: the shape of the whole.
        tolerance: what to judge by; None measures without a verdict.
        kernel: measures what it takes; None leaves all to NumPy. Sums differ in their last digits.

    Raises:
        UnsupportedFormatError: an array that holds no numbers.
    """
    reference, candidate = blocks[0].reference, blocks[0].candidate
    names = (dtype_name(reference.dtype), dtype_name(candidate.dtype))
    kind = check_kinds(reference, candidate)
    if kind is None:
        return KindDiffers(reference_dtype=names[0], candidate_dtype=names[1])
    wide = any(name in ("float64", "complex128") for name in names)
    unit = UlpUnit.of(reference.dtype, candidate.dtype)
    measurement = Measurement(shape=shape, kind=kind, tolerance=tolerance, wide=wide, unit=unit)
    for block in blocks:
        if kernel is not None and kernel.takes(block):
            for stretch in kernel.measure(block, tolerance=tolerance, unit=unit):
                measurement.add_stretch(stretch, block)
        else:
            for chunk in iterate_chunks([block]):
                measurement.add(chunk)
    return Compared(
        shape=shape,
        reference_dtype=names[0],
        candidate_dtype=names[1],
        metrics=measurement.metrics(),
        non_finite=measurement.non_finite(),
        judgement=measurement.judgement(),
    )
