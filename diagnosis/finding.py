"""What was found of one candidate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from comparison.schema.diagnosis import Diagnosis
from diagnosis.check import Check

if TYPE_CHECKING:
    from diagnosis.drill.drill import Drill
    from diagnosis.repro.case import Repro


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A diagnosis with the checks that found its guilty modules.

    Attributes:
        diagnosis: of one candidate.
        guilty: by the reference's tensor name; empty where nothing was replayed.
        drill: looks below the first guilty module; None where there is none.
        repro: the fault by itself, or why there is none; None where that was not asked for.
    """

    diagnosis: Diagnosis
    guilty: dict[str, Check]
    drill: Drill | None = None
    repro: Repro | str | None = None
