"""The third part: many unlike pairs, each of which is what it says."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from tests.faults.bench import check_validity
from tests.faults.catalogue import all_pairs, held_out_pairs, third_part_pairs
from tests.faults.dump_pair import _forced_tokens, _logits, candidate_of
from tests.faults.models import reference
from tests.faults.pair import Pair

pytestmark = pytest.mark.full  # every run checks the pairs that it judges
CAUSES = {
    "scale", "bias", "residual", "transpose", "permutation", "rope_layout", "rope_frequency",
    "rope_partial", "rope_precision", "position_ids", "eps", "norm_offset", "norm_order",
    "activation", "soft_cap", "clip", "mask", "sliding_window", "padding", "gqa_order", "cast",
    "overflow", "quantization", "moe_routing", "tied_weights", "weights", "shard", "reduction",
    "kernel_rows", "config", "tokens", "decode_cache",
}  # fmt: skip
Called = dict[tuple[str, int], tuple[list[torch.Tensor], list[torch.Tensor]]]


def _faults() -> list[Pair]:
    return [pair for pair in third_part_pairs() if pair.is_fault]


def test_every_cause_has_four_faults_or_more() -> None:
    counts = Counter(pair.cause for pair in _faults())
    assert set(counts) == CAUSES
    assert min(counts.values()) >= 4


def test_pairs_are_many_and_unlike() -> None:
    pairs = third_part_pairs()
    assert len(_faults()) >= 110
    assert len(pairs) - len(_faults()) >= 30
    assert len({pair.arch for pair in pairs}) >= 40
    assert min(Counter(pair.disguise.name for pair in pairs).values()) >= 5


def test_no_architecture_is_of_another_part() -> None:
    other = {pair.arch for pair in (*all_pairs(), *held_out_pairs())}
    assert not other & {pair.arch for pair in third_part_pairs()}


@pytest.mark.parametrize("kind", sorted({pair.kind for pair in third_part_pairs()}))
def test_pairs_are_what_they_say(kind: str) -> None:
    for pair in third_part_pairs():
        if pair.kind == kind:
            check_validity(pair)


@pytest.mark.parametrize("cause", sorted(CAUSES - {"config", "tokens"}))
def test_first_difference_lies_in_the_blamed_module(cause: str) -> None:
    for pair in _faults():
        if pair.cause == cause:
            module, same_inputs = _first_difference(pair)
            within = any(module.startswith(f"{name}.") for name in pair.modules)
            assert module in pair.modules if same_inputs else within, (pair.name, module)


def _first_difference(pair: Pair) -> tuple[str, bool]:
    """Return the first module, by when it ends, whose output differs, and if its input is right."""
    right = reference(pair.arch)
    tokens = _forced_tokens(right, pair)
    expected, found = (_called(model, pair, tokens) for model in (right, candidate_of(pair)))
    for call, (inputs, outputs) in expected.items():
        if call in found and not _equal(outputs, found[call][1]):
            return f"model.{call[0]}" if call[0] else "model", _equal(inputs, found[call][0])
    raise AssertionError(f"{pair.name}: no module's output differs")


def _called(model: Any, pair: Pair, tokens: Any) -> Called:
    """Run a model; inputs and outputs of each call, in order of their ends."""
    found: Called = {}
    counts: dict[str, int] = defaultdict(int)

    def keep(name: str) -> Any:
        def hook(module: Any, args: Any, kwargs: Any, output: Any) -> None:
            given = {key: value for key, value in kwargs.items() if "past" not in key}
            found[name, counts[name]] = (
                [tensor.clone() for tensor in _tensors((args, given))],
                [tensor.clone() for tensor in _tensors(output)],
            )
            counts[name] += 1

        return hook

    handles = [
        module.register_forward_hook(keep(name), with_kwargs=True)
        for name, module in model.named_modules()
    ]
    try:
        _logits(model, pair.rows, tokens, pair.arch)
    finally:
        for handle in handles:
            handle.remove()
    return found


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, dict | list | tuple):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _tensors(part)


def _equal(some: list[torch.Tensor], others: list[torch.Tensor]) -> bool:
    return len(some) == len(others) and all(
        one.shape == other.shape and torch.allclose(one.double(), other.double(), 1e-5, 1e-6)
        for one, other in zip(some, others, strict=True)
    )
