"""The benchmark of the diagnosis: right modules of planted faults, and no false alarms."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest
import torch

from diagnosis.causes.advice import ADVICE
from tests.faults.bench import Result, calibration, check_validity, failures, judge, table
from tests.faults.catalogue import all_pairs, fast_pairs
from tests.faults.changes import scaled
from tests.faults.disguise import ALL, PLAIN, disguise_step
from tests.faults.models import SHORT_ROWS, reference
from tests.faults.pair import Pair

LEAST_RIGHT, MOST_FALSE, MOST_OPEN = 0.95, 0.02, 0.05
LEAST_CAUSES, SURE = 0.85, 0.9
# What the project owes, and may not shrink below.
KINDS = {
    "activation", "bias", "cast", "clip", "config", "decode_cache", "eps", "gqa_order", "inputs",
    "kernel_rows", "mask", "moe_routing", "norm_offset", "norm_order", "observer", "overflow",
    "padding", "permutation", "position_ids", "quantization", "reduction", "reference_not_causal",
    "residual", "rope_frequency",
    "rope_layout", "rope_partial", "rope_precision", "scale", "shard", "sliding_window", "soft_cap",
    "stacked", "tied_weights", "transpose", "weights",
}  # fmt: skip


def run(pairs: Sequence[Pair]) -> list[Result]:
    """Check and judge pairs."""
    for pair in pairs:
        check_validity(pair)
    return [judge(pair) for pair in pairs]


def assert_good(results: Sequence[Result]) -> None:
    """Fail below the shares that the README promises, and show what was wrong."""
    faults = [result for result in results if result.is_fault]
    others = [result for result in results if not result.is_fault]
    shown = f"\n{table(results)}\n\n{calibration(results)}\n\n{failures(results)}"
    assert sum(result.right for result in faults) >= LEAST_RIGHT * len(faults), shown
    assert sum(result.is_false_alarm for result in others) <= MOST_FALSE * len(others), shown
    assert sum(result.is_open for result in others) <= MOST_OPEN * len(others), shown
    causes = [result for result in faults if result.cause_right is not None]
    assert sum(bool(result.cause_right) for result in causes) >= LEAST_CAUSES * len(causes), shown
    sure = [result for result in causes if (result.confidence or 0.0) >= SURE]
    assert sum(bool(result.cause_right) for result in sure) >= SURE * len(sure), shown


def test_choice_of_pairs_is_large_and_spread_over_all_kinds() -> None:
    pairs = fast_pairs()
    assert sum(pair.is_fault for pair in pairs) >= 36
    assert sum(not pair.is_fault for pair in pairs) >= 16
    assert {pair.kind for pair in pairs if pair.is_fault} == KINDS
    assert len({pair.arch for pair in pairs}) > 10
    assert [pair.name for pair in pairs] == [pair.name for pair in fast_pairs()]


def test_benchmark_is_large() -> None:
    pairs = all_pairs()
    faults = [pair for pair in pairs if pair.is_fault]
    assert len(faults) >= 100
    assert len(pairs) - len(faults) >= 100
    disguised = [pair for pair in faults if pair.disguise is not PLAIN]
    assert 0.4 <= len(disguised) / len(faults) <= 0.6


def test_every_cause_has_three_faults() -> None:
    counts = Counter(pair.cause for pair in all_pairs() if pair.is_fault)
    elsewhere = {"fma_rounding", "preprocessing"}  # no fault; and tests/diagnosis has these
    named = {*ADVICE, "tokens", "config"} - elsewhere
    assert {cause: counts[cause] for cause in named if counts[cause] < 3} == {}


def test_fault_that_changes_nothing_is_refused() -> None:
    pair = next(pair for pair in all_pairs() if pair.is_fault and pair.modules)
    void = Pair(
        name="void", kind="scale", arch="llama", change=lambda root: None,
        modules=pair.modules, rows=SHORT_ROWS,
    )  # fmt: skip
    with pytest.raises(ValueError, match="void is void"):
        check_validity(void)


def test_harmless_change_that_harms_is_refused() -> None:
    harm = Pair(
        name="harm", kind="copy", arch="llama", verdict="agree", rows=SHORT_ROWS,
        change=lambda root: scaled(1.001)(root.lm_head),
    )  # fmt: skip
    with pytest.raises(ValueError, match="harm does harm"):
        check_validity(harm)


def test_models_of_the_same_name_are_one_model_that_nobody_changes() -> None:
    model = reference("llama")
    before = {name: value.clone() for name, value in model.state_dict().items()}
    for pair in [pair for pair in all_pairs() if pair.arch == "llama"][:5]:
        check_validity(pair)
    assert reference("llama") is model
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_disguises_keep_every_value_of_a_projection() -> None:
    from comparison.schema.manifest import Padding

    q = torch.arange(2 * 3 * 4.0).view(2, 3, 4)
    k, v = q[..., :2] + 100, q[..., :2] + 200
    module = "model.model.layers.0.self_attn"
    tensors = [
        (f"{module}.{name}_proj-output", value)
        for name, value in zip("qkv", (q, k, v), strict=True)
    ]
    for disguise in ALL:
        found = disguise_step(tensors, disguise, lengths=[3, 2], padded=Padding.LEFT)
        values = torch.cat([value.flatten() for _, value in found])
        assert set(values.tolist()) >= {*q[0].flatten().tolist(), *q[1, 1:].flatten().tolist()}
        assert not disguise.ragged or set(q[1, 0].tolist()).isdisjoint(values.tolist())
        assert not {name for name, _ in found} & {name for name, _ in tensors}


def test_fast_choice_is_diagnosed() -> None:
    assert_good(run(fast_pairs()))


@pytest.mark.full
def test_all_pairs_are_diagnosed() -> None:
    assert_good(run(all_pairs()))
