"""The graph of operations: how far it looks, and what that costs where a file makes it long."""

import time

from comparison.schema.operations import CapturedOperation, OperationOutput, StepOperations
from diagnosis.drill.flow import Flow

LONG = 20_000


def operation(
    name: str, *inputs: str, op: str = "aten.mul.Tensor", view: bool = False
) -> CapturedOperation:
    of = inputs[0] if view else None
    output = OperationOutput(name=name, dtype="float32", shape=(2, 3), view_of=of, saved=False)
    return CapturedOperation(op=op, module="m", inputs=inputs, outputs=(output,))


def flow(*operations: CapturedOperation) -> Flow:
    return Flow(StepOperations(operations=operations, tensors={"m-input_0": "x"}))


def test_what_is_made_of_weights_and_numbers_alone_is_constant() -> None:
    found = flow(
        operation("a", "weight:w"),
        operation("b", "a", "constant:0"),
        operation("c", "b", "m-input_0"),
        operation("d", "c"),
        operation("e", "c", op="aten.zeros_like.default"),
    )
    assert [name for name in "abcdex" if found.is_constant(name)] == ["a", "b", "e"]


def test_a_long_chain_is_no_deep_recursion() -> None:
    names = [f"c{number}" for number in range(LONG)]
    chain = [
        operation(name, before) for name, before in zip(names, ["weight:w", *names], strict=False)
    ]
    assert flow(*chain).is_constant(names[-1])


def test_the_end_of_a_long_chain_of_views_is_looked_for_once() -> None:
    names = [f"v{number}" for number in range(LONG)]
    views = [
        operation(name, before, op="aten.slice.Tensor", view=True)
        for name, before in zip(names, ["x", *names], strict=False)
    ]
    users = [operation(f"u{number}", names[-1]) for number in range(LONG)]
    began = time.process_time()
    found = flow(*views, *users)
    assert [found.source(name) for name in (names[0], names[-1])] == ["x", "x"]
    assert len(found.users("x")) == LONG
    assert time.process_time() - began < 5


def test_a_file_that_goes_round_has_an_end() -> None:
    found = flow(
        operation("a", "c", view=True),
        operation("b", "a", view=True),
        operation("c", "b", view=True),
        operation("d", "e"),
        operation("e", "d"),
    )
    assert found.source("a") == found.source("b") == found.source("c")
    assert not found.is_constant("d")
