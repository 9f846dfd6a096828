"""Tests of what is said of tensors without counterpart."""

from comparison.report.unpaired_text import unpaired_summary
from comparison.schema.comparison import UnpairedTensor, lacks_step
from comparison.schema.outcome import Side


def tensors(side: Side, reason: str, *names: str, steps: int = 1) -> list[UnpairedTensor]:
    return [
        UnpairedTensor(side=side, tensor=name, step=step, rank=None, reason=reason)
        for name in names
        for step in range(steps)
    ]


def test_each_reason_is_a_line_with_its_count_and_first_names() -> None:
    layers = [f"layers.{layer}.mlp-input_1" for layer in (0, 1, 2, 5)]
    listed = [
        *tensors(Side.CANDIDATE, "sampling", "a-output", "b-output", "c-output", "d-output"),
        *tensors(Side.REFERENCE, "no such tensor", *layers, steps=3),
        *tensors(Side.CANDIDATE, "other", "e-output"),
    ]
    assert list(unpaired_summary(listed)) == [
        "",
        "Only in the reference: 12 tensor(s)",
        "  12: no such tensor (layers.[0-2,5].mlp-input_1, step 0-2)",
        "",
        "Only in the candidate: 5 tensor(s)",
        "  4: sampling (a-output; b-output; 2 more kinds)",
        "  1: other (e-output)",
    ]


def test_steps_that_one_side_lacks_are_one_line_without_names() -> None:
    listed = [
        UnpairedTensor(
            side=Side.CANDIDATE,
            tensor=name,
            step=step,
            rank=None,
            reason=lacks_step(Side.REFERENCE, step),
        )
        for step in (1, 2, 4)
        for name in ("a-output", "b-output")
    ]
    listed += tensors(Side.CANDIDATE, "other", "e-output")
    assert list(unpaired_summary(listed)) == [
        "",
        "Only in the candidate: 7 tensor(s)",
        "  1: other (e-output)",
        "  6: the reference has no step 1-2,4",
    ]


def test_nothing_is_said_where_all_is_paired() -> None:
    assert list(unpaired_summary([])) == []


def test_names_from_files_cannot_steer_a_terminal() -> None:
    (line,) = list(unpaired_summary(tensors(Side.REFERENCE, "x\x1b[2J", "n\x1b[31m-output")))[2:]
    assert "\x1b" not in line
