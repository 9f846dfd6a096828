"""How a report names the guilty operation."""

from dataclasses import replace

from comparison.report.operation_text import operation_lines
from comparison.schema.diagnosis import Coverage, Diagnosis, Judgement, Operation

OPERATION = Operation(
    name="model.mlp@003.mul",
    op="aten.mul.Tensor(x, 1.5)",
    inputs=("model.mlp@002.silu", "weight:model.mlp.gate.weight"),
    source="model.py:17",
    last="model.mlp@005.add",
    step=2,
    is_missing=False,
    reference="model.mlp@004.mul",
    reference_op="aten.mul.Tensor(x, 2)",
    reference_inputs=("model.mlp@003.silu",),
    reference_source="",
    local_error=0.25,
    bound=1.5e-7,
    operations=9,
    paired=6,
    unproven=("weight:model.mlp.gate.weight",),
)


def lines(operation: Operation | None) -> list[str]:
    diagnosis = Diagnosis(
        verdict=Judgement.DIVERGE,
        sentence="It differs.",
        reference_engine="torch",
        candidate_engine="max",
        coverage=Coverage(paired=9, unpaired=1, replayed=8, modules=7, modules_checked=6),
        operation=operation,
    )
    return [line.strip() for line in operation_lines(diagnosis)]


def test_nothing_without_an_operation() -> None:
    assert lines(None) == []


def test_operation_that_is_wrong_by_itself() -> None:
    found = lines(replace(OPERATION, is_proven=True, inputs=("a", "b"), unproven=()))
    assert found[1] == "The operation below that is wrong by itself, in step 2:"
    assert found[4] == "from a, b, which are right"


def test_operation_whose_inputs_were_not_shown_to_be_equal_is_not_called_wrong() -> None:
    found = lines(replace(OPERATION, inputs=("a", "mask", "p"), unproven=("mask", "p")))
    assert found[1] == "The first operation below without a counterpart, in step 2:"
    assert found[4] == "from a, mask, p; mask, p were not shown to be right"


def test_operation_that_takes_a_weight() -> None:
    assert lines(OPERATION) == [
        "",
        "The first operation below without a counterpart, in step 2:",
        "model.mlp@003.mul (model.py:17)",
        "the candidate computes aten.mul.Tensor(x, 1.5)",
        "from model.mlp@002.silu, weight:model.mlp.gate.weight; weight:model.mlp.gate.weight was "
        "not shown to be right by this search, which does not look at weights and buffers: where "
        "both sides tell theirs (a dump with debug_model --weights), the verdict names those that "
        "differ",
        "the reference computes aten.mul.Tensor(x, 2)",
        "from model.mlp@003.silu",
        "error 0.25, rounding explains 1.5e-07",
        "nothing from there to model.mlp@005.add has a counterpart",
        "6 of the candidate's 9 operations there have a counterpart in the reference",
    ]


def test_operation_after_which_one_is_left_out() -> None:
    found = lines(
        replace(OPERATION, is_missing=True, inputs=("a",), local_error=None, last=OPERATION.name)
    )
    assert found[1] == "The operation below that leaves something out, in step 2:"
    assert found[4] == "from a, which is right"
    assert found[5] == "the reference then computes aten.mul.Tensor(x, 2)"
    assert not any(line.startswith(("error", "nothing")) for line in found)


def test_module_that_passes_on_what_it_is_given() -> None:
    found = lines(replace(OPERATION, op="", inputs=(), source=""))
    assert found[2:4] == ["model.mlp@003.mul", "the candidate passes on what it is given"]


def test_reference_that_does_nothing_there() -> None:
    found = lines(replace(OPERATION, reference=""))
    assert "the reference does nothing there, and goes on with what it has" in found


def test_names_cannot_forge_lines() -> None:
    found = lines(replace(OPERATION, name="a\nThe operation below", reference_op="x\r\x1b[2J"))
    assert len(found) == len(lines(OPERATION))
    assert "\x1b" not in "".join(found)
