"""Asks MAX itself whether it rounds a multiply-add once, and says what that means for a verdict."""

from __future__ import annotations

from collections.abc import Sequence

from comparison.schema.diagnosis import Diagnosis
from comparison.schema.errors import BadInputError
from diagnosis.sides import EngineSide, SideSpec

ENGINE = "max"


def require_max(sides: Sequence[SideSpec]) -> None:
    """Refuse the check where nothing runs on MAX.

    Args:
        sides: the candidates.

    Raises:
        BadInputError: none of them does.
    """
    if not any(isinstance(side, EngineSide) and side.engine == ENGINE for side in sides):
        raise BadInputError(
            "--check-fma builds graphs on MAX, and no candidate runs there; name the candidate "
            "`max`, or leave the option out"
        )


def with_fma_note(found: Diagnosis, spec: SideSpec, encoding: str | None) -> Diagnosis:
    """Add what the split graph shows on this machine, in the dtype of the run.

    Args:
        found: the verdict.
        spec: the candidate; where it did not run on MAX there is nothing to add.
        encoding: the dtype that it ran in.
    """
    from test_common.fma_contraction import DTYPES, Cause, explain, measure_contraction

    if not isinstance(spec, EngineSide) or spec.engine != ENGINE:
        return found
    if encoding not in DTYPES:
        return found.noting(f"multiply-adds are measured in {' and '.join(DTYPES)} only")
    measured = next(one for one in measure_contraction() if one.dtype == encoding)
    note = f"fma_rounding, measured on MAX with the graph whole and split: {explain(measured)}"
    if measured.cause is Cause.ROUNDING_ORDER:
        note += (
            f" (by at most {measured.operand_ulp:.3g} ULP in {measured.one_from_torch} of "
            f"{measured.elements} elements). It is harmless"
        )
        if found.guilty:
            note += ", and far too small for what is blamed here"
    return found.noting(note)
