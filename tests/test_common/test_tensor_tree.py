from collections import OrderedDict, deque, namedtuple
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from test_common.tensor_tree import TensorTree, input_tensors, output_tensors


def is_array(value: Any) -> bool:
    return isinstance(value, np.ndarray)


def outputs(value: Any) -> TensorTree:
    return output_tensors(value, is_tensor=is_array)


def suffixes(value: Any) -> list[str]:
    return [suffix for suffix, _ in outputs(value).tensors]


A, B, C = (np.full((2,), number) for number in (1, 2, 3))


@dataclass
class Fields:
    logits: Any
    hidden: Any = None


class Cache:
    """Holds tensors, but not as a container."""

    def __init__(self) -> None:
        self.keys = A


def test_sole_tensor_has_no_slot() -> None:
    tree = outputs(A)
    assert tree.tensors == [("output", A)]


def test_tensors_come_with_their_suffix_in_order() -> None:
    tree = outputs((A, [B, {"k": C}]))
    assert [(suffix, tensor[0]) for suffix, tensor in tree.tensors] == [
        ("output_0", 1),
        ("output_1_0", 2),
        ("output_1_1_k", 3),
    ]


def test_every_container_is_looked_into() -> None:
    point = namedtuple("point", ["x", "y"])
    assert suffixes([A, B]) == ["output_0", "output_1"]
    assert suffixes(deque([A])) == ["output_0"]
    assert suffixes(OrderedDict(logits=A)) == ["output_logits"]
    assert suffixes(point(A, B)) == ["output_x", "output_y"]
    assert suffixes(Fields(A, (B, C))) == ["output_logits", "output_hidden_0", "output_hidden_1"]


def test_model_output_leaves_out_none() -> None:
    from transformers.modeling_outputs import CausalLMOutputWithPast

    tree = outputs(CausalLMOutputWithPast(logits=A, hidden_states=(B, C), loss=None))
    assert [suffix for suffix, _ in tree.tensors] == [
        "output_logits",
        "output_hidden_states_0",
        "output_hidden_states_1",
    ]
    assert tree.opaque == []


def test_none_and_plain_values_are_skipped_silently_and_keep_positions() -> None:
    import torch

    plain = (None, True, 1, 2.5, 1j, "text", b"x", slice(1), len, int, torch.float32)
    tree = outputs((*plain, torch.device("cpu"), A))
    assert [suffix for suffix, _ in tree.tensors] == ["output_12"]
    assert tree.opaque == []


def test_object_that_cannot_be_looked_into_is_named() -> None:
    tree = outputs((A, Cache()))
    assert [suffix for suffix, _ in tree.tensors] == ["output_0"]
    assert tree.opaque == [("output_1", "Cache is neither a tensor nor a container of tensors")]


def test_iterator_is_not_consumed() -> None:
    iterator = iter([A])
    assert [suffix for suffix, _ in outputs(iterator).opaque] == ["output"]
    assert next(iterator) is A


def test_cycle_ends() -> None:
    loop: list[Any] = [A]
    loop.append(loop)
    owner = Fields(B)
    owner.hidden = {"self": owner, "loop": loop}
    assert suffixes(loop) == ["output_0"]
    assert suffixes(owner) == ["output_logits", "output_hidden_loop_0"]


def test_one_container_twice_is_no_cycle() -> None:
    pair = (A, B)
    assert suffixes((pair, pair)) == ["output_0_0", "output_0_1", "output_1_0", "output_1_1"]


def test_suffixes_are_unique() -> None:
    assert suffixes({"0": A, 0: B}) == ["output_0", "output_0~2"]
    assert suffixes({"0": (A, B), "0_1": C}) == ["output_0_0", "output_0_1", "output_0_1~2"]


def test_inputs_go_by_position_and_keyword() -> None:
    tree = input_tensors(
        (A, None, (B, C)), {"mask": A, "cache": Cache(), "rope": (B, C)}, is_tensor=is_array
    )
    assert [suffix for suffix, _ in tree.tensors] == [
        "input_0",
        "input_2_0",
        "input_2_1",
        "input_mask",
        "input_rope_0",
        "input_rope_1",
    ]
    assert [suffix for suffix, _ in tree.opaque] == ["input_cache"]


def test_dataclass_with_an_unset_field() -> None:
    half = Fields(A, B)
    del half.logits
    assert suffixes(half) == ["output_hidden"]
    assert outputs(Fields).tensors == []  # the class itself


@pytest.mark.parametrize("depth", [65, 2000, 20_000])
def test_what_lies_too_deep_is_named(depth: int) -> None:
    value: Any = [A]
    for _ in range(depth):
        value = [value]
    tree = outputs((value, B))
    assert [suffix for suffix, _ in tree.tensors] == ["output_1"]
    assert tree.opaque == [("output" + "_0" * 64, "list lies more than 64 containers deep")]


def test_what_lies_less_deep_is_found() -> None:
    value: Any = A
    for _ in range(64):
        value = [value]
    assert suffixes(value) == ["output" + "_0" * 64]


class Broken(dict[str, Any]):
    def items(self) -> Any:
        yield "first", A
        raise ValueError("broken")


class BrokenKey:
    def __str__(self) -> str:
        raise ValueError("broken")

    __hash__ = object.__hash__


@pytest.mark.parametrize(
    ("value", "found", "kind"),
    [(Broken(), ["output_0_first"], "Broken"), ({BrokenKey(): A}, [], "dict")],
)
def test_container_that_raises_is_named_and_the_rest_found(
    value: Any, found: list[str], kind: str
) -> None:
    tree = outputs((value, B))
    assert [suffix for suffix, _ in tree.tensors] == [*found, "output_1"]
    assert tree.opaque == [("output_0", f"{kind} cannot be looked into: ValueError")]
