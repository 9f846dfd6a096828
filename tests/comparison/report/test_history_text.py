"""What became of faults, line by line."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from comparison.report.history_text import history_lines
from comparison.schema.fault_history import Fault, FaultHistory, ResultKind, SavedResult

BEFORE = Fault(
    candidate="max",
    module="model.layers.3.mlp",
    tensor="model.layers.3.mlp-output",
    place="step 0, row 1",
    cause="scale",
    evidence="local error 0.5",
)
NOTHING = Fault(candidate="", module="", tensor="ids", place="", cause="", evidence="")


def history(*, notes: tuple[str, ...] = (), **faults: object) -> list[str]:
    result = SavedResult(
        path=Path("r.json"),
        kind=ResultKind.DIAGNOSIS,
        verdict="diverge",
        sentence="",
        conclusive=True,
        faults=(),
        checked=frozenset(),
        hides_later=False,
    )
    kinds: dict[str, object] = dict.fromkeys(
        ("fixed", "added", "moved", "unchanged", "unchecked"), ()
    )
    told: Any = {**kinds, **faults}
    found = FaultHistory(old=result, new=result, notes=notes, **told)
    return list(history_lines(found))


def test_without_faults_the_verdicts_are_all() -> None:
    assert history() == ["Faults: none in either result", "Verdict: diverge, then diverge"]


def test_what_changed_of_a_fault_that_stayed_is_said() -> None:
    now = replace(BEFORE, place="step 1, row 1", cause="bias", evidence="local error 0.25")
    found = history(unchanged=((BEFORE, now), (replace(NOTHING, cause=""), NOTHING)))
    assert found[2:] == [
        "",
        "Unchanged:",
        "  max: model.layers.3.mlp: step 1, row 1, cause bias, local error 0.25 (was at step 0, "
        "row 1; the cause was said to be scale; was local error 0.5)",
        "  ids: ",
    ]


def test_a_cause_that_was_not_sought_before() -> None:
    now = replace(BEFORE, module="model.layers.4.mlp")
    (line,) = history(moved=((replace(BEFORE, cause=""), now),))[4:]
    assert line.endswith("(was in model.layers.3.mlp; the cause was said to be not sought)")


def test_notes_and_what_was_not_checked_come_last() -> None:
    found = history(unchecked=(BEFORE,), notes=("the tolerances\ndiffer",))
    assert found[0] == "Faults: 1 not checked again"
    assert found[-3:-1] == [
        "Not checked again:",
        "  max: model.layers.3.mlp: step 0, row 1, cause scale, local error 0.5",
    ]
    assert found[-1].startswith("note: the tolerances")
    assert "\n" not in found[-1]
