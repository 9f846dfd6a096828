"""What outcomes amount to."""

from pathlib import Path

import pytest

from comparison.schema.comparison import Comparison, DumpSummary, Finding, Pair, Verdict
from comparison.schema.estimate import Estimate, Estimated
from comparison.schema.html_summary import html_summary
from comparison.schema.outcome import (
    Compared,
    Extreme,
    Judged,
    Metrics,
    NonFiniteCounts,
    NotComparable,
    NothingFinite,
    NotJudged,
    Outcome,
    RowDistance,
    ShapeDiffers,
)
from comparison.schema.tensor_entry import TensorEntry

ENTRY = TensorEntry(name="a", step=0, order=0, path=Path("a.max"))
EMPTY = NothingFinite(reason="the tensors are empty")
_EXTREME = Extreme(value=0.5, index=(1,), reference=1.0, candidate=1.5)
NUMBERS = Metrics(
    elements=3,
    greatest_absolute=_EXTREME,
    greatest_relative=_EXTREME,
    mean_absolute=0.5,
    relative_l2=0.5,
    cosine=1.0,
    greatest_ulp=None,
    worst_row=RowDistance(index=(), relative_l2=0.5),
)


def compared(
    judgement: Judged | NotJudged,
    *,
    counts: NonFiniteCounts | None = None,
    dtypes: tuple[str, str] = ("float32", "float32"),
    metrics: Metrics | NothingFinite = NUMBERS,
) -> Compared:
    return Compared(
        shape=(0,) if metrics is EMPTY else (3,),
        reference_dtype=dtypes[0],
        candidate_dtype=dtypes[1],
        metrics=metrics,
        non_finite=counts or NonFiniteCounts(),
        judgement=judgement,
    )


PASSED, FAILED = Judged(failed=0, total=3), Judged(failed=1, total=3)
AGREES, MEASURED, DIFFERS = compared(PASSED), compared(NotJudged()), compared(FAILED)
BROKEN = NotComparable(reason="broken")
NO_ELEMENTS = compared(Judged(failed=0, total=0), metrics=EMPTY)
ALL_NAN = NothingFinite(reason="no element is finite on both sides")


def comparison(*outcomes: Outcome, complete: bool = True) -> Comparison:
    summary = DumpSummary(path=Path("d"), engine=None, tensors=len(outcomes), complete=complete)
    pairs = [Pair(reference=ENTRY, candidate=ENTRY, reason="", outcome=o) for o in outcomes]
    return Comparison(reference=summary, candidate=summary, tolerance=None, pairs=tuple(pairs))


@pytest.mark.parametrize(
    ("outcome", "finding"),
    [
        (AGREES, Finding.AGREES),
        (MEASURED, Finding.MEASURED),
        (DIFFERS, Finding.DIFFERS),
        (compared(PASSED, dtypes=("float32", "bfloat16")), Finding.DIFFERS),
        (compared(PASSED, dtypes=("uint8", "int64")), Finding.AGREES),
        (compared(PASSED, counts=NonFiniteCounts(nan_candidate_only=1)), Finding.DIFFERS),
        (compared(NotJudged(), counts=NonFiniteCounts(inf_opposite_sign=1)), Finding.DIFFERS),
        (compared(NotJudged(), counts=NonFiniteCounts(nan_both=1)), Finding.MEASURED),
        (ShapeDiffers(reason=""), Finding.DIFFERS),
        (BROKEN, Finding.NOT_COMPARED),
    ],
)
def test_findings(outcome: Outcome, finding: Finding) -> None:
    pair = Pair(reference=ENTRY, candidate=ENTRY, reason="", outcome=outcome)
    assert pair.finding is finding


@pytest.mark.parametrize(
    ("outcomes", "complete", "code"),
    [
        ((AGREES, AGREES), True, 0),
        ((MEASURED,), True, 0),
        ((AGREES, DIFFERS), True, 1),
        ((), True, 2),
        ((BROKEN,), True, 2),
        ((AGREES, BROKEN), True, 2),
        ((AGREES,), False, 2),
        ((MEASURED,), False, 2),
        ((DIFFERS,), False, 1),
        ((DIFFERS, BROKEN), True, 1),
        ((NO_ELEMENTS, NO_ELEMENTS), True, 2),
        ((NO_ELEMENTS, AGREES), True, 0),
        ((compared(NotJudged(), metrics=ALL_NAN),), True, 2),
        ((compared(PASSED, metrics=ALL_NAN),), True, 0),  # --equal-nan was given
        ((compared(FAILED, metrics=ALL_NAN),), True, 1),
    ],
)
def test_exit_codes(outcomes: tuple[Outcome, ...], complete: bool, code: int) -> None:
    result = comparison(*outcomes, complete=complete)
    assert result.exit_code == code
    assert (result.verdict is Verdict.INCONCLUSIVE) == (code == 2)


def test_a_notebook_is_told_of_what_differs_without_a_tolerance() -> None:
    page = comparison(ShapeDiffers(reason="(3,), (5,)"), MEASURED)._repr_html_()
    assert "2 pairs, 1 that differ, 0 tensors" in page


def test_a_notebook_can_store_every_name() -> None:
    page = html_summary(
        "differ", "a\x1b[31m\ud800<b>", is_good=False, rows=[("name",), ("x\u202e\udcff\n é",)]
    )
    page.encode("utf-8")
    assert r"a\x1b[31m\ud800&lt;b&gt;" in page
    assert r"<td>x\u202e\udcff\n é</td>" in page


def test_a_notebook_is_shown_how_far_pairs_are_apart() -> None:
    interval = Estimate(value=0.25, low=0.2, high=0.3)
    estimated = Estimated(
        shape=(3,),
        reference_dtype="float32",
        candidate_dtype="float32",
        relative_l2=interval,
        cosine=interval,
        basis="projections",
        identical=False,
        certain="by far",
    )
    page = comparison(DIFFERS, estimated, BROKEN)._repr_html_()
    assert "<td>0</td><td>a</td><td>a</td><td>0.5</td><td>0.5</td>" in page
    assert "<td>0</td><td>a</td><td>a</td><td></td><td>0.25</td>" in page
    assert "3 pairs, 2 that differ" in page


def test_a_summary_without_rows_has_no_table() -> None:
    page = html_summary("agree", "all is well", is_good=True, rows=[("name", "value")])
    assert page == '<div><b style="color:#1a7f37">agree</b> all is well</div>'
    odd = html_summary("differ", "", is_good=None, rows=[("value",), (float("nan"),), (None,)])
    assert "<tbody><tr><td>nan</td></tr><tr><td></td></tr></tbody>" in odd
