"""Faults of one module by itself, each with the cause that the whole search names."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from comparison.numerics.dtypes import Array
from comparison.schema.diagnosis import Cause
from diagnosis.causes import (
    bias,
    cast,
    clip,
    gqa_order,
    linear,
    norm,
    norm_offset,
    padding,
    position_lookups,
    quantization,
    reduction,
    routed,
    scale,
    transpose,
    weights,
)
from diagnosis.causes.changes import rounded_array
from diagnosis.causes.fitting import fitted
from diagnosis.causes.naming import named
from diagnosis.causes.search import explain
from diagnosis.causes.table import SIGNS, TRIALS
from diagnosis.expert_choices import Judged
from tests.diagnosis.causes.made_region import (
    LENGTHS,
    MadeRegion,
    check_of,
    explained,
    linear_region,
    numbers,
)

N = sum(LENGTHS)
Change = Callable[[Array], Array]


def layer(features: int = 20, inputs: int = 18, *, bias: bool = True) -> torch.nn.Linear:
    torch.manual_seed(features + inputs)
    return torch.nn.Linear(inputs, features, bias=bias)


def cause_of(region: MadeRegion) -> Cause:
    return named(explain(region, TRIALS, SIGNS))


def single(values: Array) -> Array:
    """Round as a candidate in float32 does."""
    return values.astype(np.float32).astype(np.float64)


@pytest.mark.parametrize(
    ("change", "cause", "says"),
    [
        (lambda y, m: y - m["bias"], "bias", "leaves the bias out"),
        (lambda y, m: y + m["bias"], "bias", "adds the bias twice"),
        (lambda y, m: y * 1.75, "scale", "multiplies the output by 1.75"),
        (lambda y, m: np.clip(y, -0.5, 0.75), "clip", "cuts the values off at -0.5 and 0.75"),
        (lambda y, m: np.tanh(y / 2) * 2, "soft_cap", "caps the logits softly at 2"),
        (
            lambda y, m: m["x"] @ rounded_array(m["w"], "bfloat16").T + m["bias"],
            "cast",
            "multiplies by the weight rounded to bfloat16",
        ),
        (
            lambda y, m: m["x"] @ m["w"][:, ::-1].T + m["bias"],
            "permutation",
            "has the input channels in reversed order",
        ),
        (lambda y, m: y * 0 + m["bias"], "weights", "has zeros for weight"),
    ],
)
def test_faults_of_a_linear_layer(change: Any, cause: str, says: str) -> None:
    module = layer().double()
    inputs = numbers(N, 18, seed=3)
    known = {
        "x": inputs,
        "w": module.weight.detach().numpy(),
        "bias": module.bias.detach().numpy(),
    }
    region = linear_region(
        module, lambda y: single(change(y, known)), inputs=inputs, name="model.lm_head"
    )
    found = cause_of(region)
    assert (found.id, found.evidence[: len(says)]) == (cause, says), found


def made(target: Change, **more: Any) -> MadeRegion:
    return linear_region(layer(), target, **more)


def test_what_a_bias_is_not_told_of() -> None:
    exact = np.arange(float(N))
    region = MadeRegion(torch.nn.ReLU(), check_of("model.pooled-output", exact, exact + 1))
    assert list(bias.trials(region)) == []  # one value a token has no channels
    few = check_of("model-output", numbers(2, 5), numbers(2, 5, seed=1), lengths=(1, 1))
    assert list(bias.trials(MadeRegion(torch.nn.ReLU(), few))) == []


@pytest.mark.parametrize("name", ["model.layers.0.mlp.down_proj", "model.layers.0.mlp.up_proj"])
def test_a_bias_that_ranks_add_each(name: str) -> None:
    module = layer()
    region = linear_region(module, lambda y: y + module.bias.detach().numpy(), name=name)
    found = dict(explained(region, list(bias.trials(region))[:3]))
    assert list(found) == ["shard" if name.endswith("down_proj") else "bias"]


def test_a_cut_needs_numbers() -> None:
    assert list(clip.trials(made(lambda y: np.where(y > 0, np.inf, y)))) == []
    exact = numbers(N, 5)
    region = MadeRegion(torch.nn.ReLU(), check_of("a-output", exact, np.minimum(exact, 0.5)))
    assert [t.says for t in clip.trials(region)] == ["cuts the values off at -inf and 0.5"]


def wrong_rows(*rows: int, attention: bool = True) -> MadeRegion:
    exact = numbers(N, 6)
    target = np.where(np.isin(np.repeat([0, 1], LENGTHS), rows)[:, None], exact + 1, exact)
    first = check_of("model.layers.0.self_attn-output_0", exact, target)
    return MadeRegion(torch.nn.Module(), first, has_attention=attention)


def test_rows_that_a_batch_pads() -> None:
    (sign,) = padding.signs(wrong_rows(1))
    assert sign.says.startswith("is wrong in row 1 only, which is shorter than the longest")
    for other in (wrong_rows(0), wrong_rows(0, 1), wrong_rows(), wrong_rows(1, attention=False)):
        assert list(padding.signs(other)) == []


@pytest.mark.parametrize(
    ("rows", "columns", "says"),
    [
        (6, 6, "multiplies by the transposed weight"),
        (12, 6, "multiplies by the weight with each of its 2 squares transposed"),
        (6, 12, None),
    ],
)
def test_transposed_weights(rows: int, columns: int, says: str | None) -> None:
    region = linear_region(layer(rows, columns), lambda y: y * 2)
    assert [trial.says for trial in transpose.trials(region)] == ([says] if says else [])
    assert list(transpose.trials(embedding(lambda y: y))) == []


def embedding(target: Change, ids: Array | None = None) -> MadeRegion:
    torch.manual_seed(3)
    looked_up = np.array([1, 9, 15, 4, 7, 12, 0, 8, 3, 14, 10]) if ids is None else ids
    module = torch.nn.Embedding(16, 8).double()
    exact = module(torch.from_numpy(looked_up)).detach().numpy()
    return MadeRegion(module, check_of("model.embed-output", exact, target(exact)), ids=looked_up)


@pytest.mark.parametrize(
    ("target", "cause", "says"),
    [
        (lambda y: y * 8**0.5, "scale", "multiplies the output by 2.82843"),
        (lambda y: rounded_array(y, "bfloat16"), "cast", ""),
        (lambda y: y[:, ::-1], "permutation", "has all channels in reversed order"),
    ],
)
def test_faults_of_an_embedding(target: Change, cause: str, says: str) -> None:
    found = cause_of(embedding(lambda y: single(target(y))))
    assert (found.id, says in found.evidence) == (cause, True), found


@pytest.mark.parametrize(
    "region",
    [
        made(lambda y: np.where(y > 0, np.nan, y)),
        made(lambda y: y, inputs=np.zeros((N, 18))),  # what goes in tells nothing
    ],
    ids=["NaN", "zeros"],
)
def test_what_is_no_product(region: MadeRegion) -> None:
    assert linear.linear_of(region) is None
    assert list(cast._products(region, "bfloat16")) == []


def test_products_of_another_size() -> None:
    region = made(lambda y: y)
    region.__dict__["linear_inputs"] = numbers(N, 17)
    assert linear.linear_of(region) is None
    assert list(cast._of_blocks(region)) == []
    region.__dict__["linear_inputs"] = numbers(N - 1, 18)
    assert linear.linear_of(region) is None
    region.__dict__["linear_inputs"] = None
    assert linear.linear_of(region) is None
    exact = np.arange(N)
    whole = check_of("a-output", exact, exact, is_exact=True)
    assert linear.linear_of(MadeRegion(layer(), whole, inputs=numbers(N, 18))) is None


def test_rows_of_a_large_weight_are_looked_at_here_and_there() -> None:
    region = linear_region(layer(200, 6), lambda y: y)
    found = linear.linear_of(region)
    assert found is not None
    assert len(found.rows) == 64
    assert (found.rows[0], found.rows[-1]) == (0, 199)
    assert linear.error_of(np.ones(3), np.zeros(3)) == float("inf")


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
@pytest.mark.parametrize("size", [1.0, 40.0])
def test_half_precision_off_by_little_throughout(dtype: str, size: float) -> None:
    exact = numbers(N, 6)
    unit = {"bfloat16": 2.0**-8, "float16": 2.0**-10, "float32": 2.0**-24}[dtype]
    first = check_of("model.mlp-output", exact, exact * (1 + size * unit), dtype=dtype)
    region = MadeRegion(torch.nn.ReLU(), first)
    signs = [sign.says for sign in cast.signs(region)]
    assert len(signs) == (dtype != "float32" and size == 1.0)
    assert all(f"times as far off as {dtype}'s rounding" in says for says in signs)
    assert bool(list(cast.trials(region))) == (dtype == "float32")  # else all is rounded there


def grid_of(weight: Array) -> tuple[Array, Array]:
    step = np.abs(weight).max(axis=1, keepdims=True) / 127
    return np.round(weight / step), step


@pytest.mark.parametrize(
    ("order", "says"),
    [
        (lambda s: np.roll(s, 1, axis=0), "each row with the scale of the row before"),
        (lambda s: s[::-1], "each row with the scale of the row at the other end"),
        (lambda s: np.repeat(s[:1], len(s), axis=0), "each row with the scale of the first row"),
        (
            lambda s: s[np.random.default_rng(5).permutation(len(s))],
            "the scales being those of other rows",
        ),
    ],
)
def test_scales_of_other_rows(order: Change, says: str) -> None:
    module = layer(20, 18, bias=False).double()
    codes, steps = grid_of(module.weight.detach().numpy())
    inputs = numbers(N, 18, seed=3)
    region = linear_region(module, lambda _: inputs @ (codes * order(steps)).T, inputs=inputs)
    found = explained(region, list(quantization.trials(region)))
    assert any(cause == "quantization" and says in text for cause, text in found), found


def test_scales_of_groups() -> None:
    module = layer(20, 32, bias=False).double()
    inputs = numbers(N, 32, seed=3)
    weight = module.weight.detach().numpy().copy()
    weight[4, 16:] *= 1.5
    region = linear_region(module, lambda _: inputs @ weight.T, inputs=inputs)
    made = list(quantization.trials(region))
    assert [trial.needs_other_weight for trial in made if "wrong scales for" in trial.says] == [
        True
    ]
    found = explained(region, made)
    says = (
        "has the wrong scales for 1 groups of 16 inputs: output channel 4 takes 1.5 times that of "
        "group 1"
    )
    assert ("quantization", says) in found, found
    right = linear_region(layer(20, 32), lambda y: y, inputs=inputs)
    assert not any("wrong scales" in trial.says for trial in quantization.trials(right))


def test_codes_of_an_embedding_are_not_packed() -> None:
    said = [trial.says for trial in quantization.trials(embedding(lambda y: y * 2))]
    assert said
    assert not any("reversed order" in text for text in said)


def test_a_factor_a_token_and_head() -> None:
    exact = numbers(N, 12)
    module = torch.nn.Module()
    module.head_dim = 4  # type: ignore[assignment]  # a plain number
    factors = np.abs(numbers(N, 3, seed=1)) + 0.5
    first = check_of("model.self_attn-output", exact, exact * np.repeat(factors, 4, axis=1))
    region = MadeRegion(module, first, has_attention=True)
    found = explained(region, list(reduction._factor_a_head(region)))
    assert len(found) == 1
    assert found[0][1].startswith("divides the attention weights by another sum")
    zeros = check_of("model.self_attn-output", exact * 0, exact)
    assert list(reduction._factor_a_head(MadeRegion(module, zeros))) == []
    module.head_dim = 5
    assert list(reduction._factor_a_head(region)) == []


def test_a_mean_that_is_a_sum() -> None:
    exact = numbers(2, 7)
    target = exact * np.array([[5.0], [4.0]])
    first = check_of("model.pooler-output", exact, target, lengths=(1, 1))
    region = MadeRegion(torch.nn.Identity(), first)
    said = "sums over the tokens of a row and does not take their mean"
    assert explained(region, list(reduction._of_pooling(region))) == [("reduction", said)]
    many = check_of("model.mlp-output", numbers(N, 7), numbers(N, 7))
    assert list(reduction._of_pooling(MadeRegion(torch.nn.Identity(), many))) == []


class Attention(torch.nn.Module):
    """Projections that get the same input."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(9)
        self.q_proj = torch.nn.Linear(18, 12, bias=False).double()
        self.k_proj = torch.nn.Linear(18, 6, bias=False).double()
        self.v_proj = torch.nn.Linear(18, 6, bias=False).double()
        self.num_heads, self.head_dim = 3, 4


@pytest.mark.parametrize(
    ("rows", "cause", "says"),
    [
        (("v_proj", range(6)), "weights", "has rows of v_proj where those of k_proj belong"),
        (("q_proj", [0, 1, 2, 6, 7, 8]), "weights", "has rows of q_proj where those of k_proj"),
    ],
)
def test_rows_of_another_projection(rows: Any, cause: str, says: str) -> None:
    parent = Attention()
    inputs = numbers(N, 18, seed=3)
    weight = getattr(parent, rows[0]).weight.detach().numpy()[list(rows[1])]
    region = linear_region(
        parent.k_proj, lambda _: inputs @ weight.T, inputs=inputs, parent=parent,
        name="model.self_attn.k_proj",
    )  # fmt: skip
    found = explained(region, list(gqa_order.trials(region)))
    assert [(c, s[: len(says)]) for c, s in found] == [(cause, says)]


def test_its_own_rows_in_another_order_are_no_other_projections() -> None:
    parent = Attention()
    region = linear_region(
        parent.k_proj, lambda y: y[:, ::-1], parent=parent, name="model.self_attn.k_proj"
    )
    assert explained(region, list(gqa_order.trials(region))) == []


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (
            lambda y: y.reshape(N, 8, 3, 3).swapaxes(1, 2).reshape(N, 72),
            "has q, k and v fused by head, read in blocks",
        ),
        (
            lambda y: y.reshape(N, 3, 8, 3).swapaxes(1, 2).reshape(N, 72),
            "has q, k and v fused in blocks, read by head",
        ),
    ],
)
def test_a_fused_projection_read_in_another_order(change: Change, says: str) -> None:
    parent = torch.nn.Module()
    parent.num_heads = 8  # type: ignore[assignment]  # a plain number
    region = linear_region(layer(72), change, parent=parent, name="model.attn.qkv_proj")
    assert ("gqa_order", says) in explained(region, list(gqa_order.trials(region)))


def test_positions_that_are_looked_up_elsewhere() -> None:
    counted = np.concatenate([np.arange(n) + 2 for n in LENGTHS])  # the first rows are kept free
    weight = embedding(lambda y: y, counted).module.weight.detach().numpy()
    tokens = counted - 2

    def further(_: Array) -> Array:
        return single(weight[np.where(tokens < np.repeat([5, 4], LENGTHS), tokens, 0) + 2])

    found = cause_of(embedding(further, counted))
    assert found.id == "position_ids", found
    assert "takes position 0 in each decode step" in found.evidence


def test_tables_of_tokens_have_no_positions() -> None:
    region = embedding(lambda y: y + 1)
    ways: Any = {"counts from one": lambda p, prompt, pad: p + 1}
    assert list(position_lookups.of_lookups(region, ways)) == []
    assert not position_lookups._counts(None)
    assert not position_lookups._counts(torch.tensor([1.0, 2.0]))
    assert not position_lookups._counts(torch.tensor([4]))
    assert position_lookups._counts(torch.tensor([[4, 5, 6]]))


def test_choices_of_a_hypothesis_are_brought_into_the_judged_order() -> None:
    right, theirs = np.array([[1, 3], [0, 2], [4, 5]]), np.array([[3, 1], [2, 0], [4, 5]])
    nothing = np.zeros(0, dtype=int)
    judged = Judged(other=nothing, tied=nothing, reordered=2, margin=0.0, noise=0.0)
    ids = check_of("model.gate-output_0", right, theirs, lengths=(3,), is_exact=True)
    ids = replace(ids, choice=judged)
    own = numbers(3, 2)
    beside = check_of("model.gate-output_1", own, own, lengths=(3,))
    other = check_of("model.up-output", own, own, lengths=(3,))
    tried = {
        ids.name: np.array([[1, 3], [2, 1], [5, 4]]),
        beside.name: np.array([[0.6, 0.4], [0.7, 0.3], [0.1, 0.9]]),
        other.name: own * 2,
    }
    found = routed.as_judged(tried, [ids, beside, other], [0])
    assert found[ids.name].tolist() == [[3, 1], [2, 1], [4, 5]]
    # By the reference's experts; of one that was not chosen, the reference's own weight.
    assert found[beside.name].tolist() == [[0.6, 0.4], [own[1, 0], 0.7], [0.9, 0.1]]
    assert found[other.name] is tried[other.name]
    short = {ids.name: tried[ids.name][:2]}
    assert routed.as_judged(short, [ids, beside], [0]) == short
    assert routed.as_judged({}, [ids, beside], [0]) == {}
    alone = routed.as_judged({ids.name: tried[ids.name]}, [ids, beside], [0])
    assert set(alone) == {ids.name}


class Shifted(torch.nn.Module):
    """No norm of any formula, though it has an epsilon."""

    def __init__(self, *, weight: torch.Tensor | None = None) -> None:
        super().__init__()
        self.eps = 1e-5
        self.weight = None if weight is None else torch.nn.Parameter(weight)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + 3


@pytest.mark.parametrize("weight", [torch.ones(6).double(), torch.ones(2, 6).double(), None])
def test_what_has_an_epsilon_is_not_therefore_a_norm(weight: torch.Tensor | None) -> None:
    exact = numbers(N, 6)
    region = MadeRegion(
        Shifted(weight=weight), check_of("a-output", exact, exact + 1), inputs=exact
    )
    assert list(norm.norms_of(region)) == []


def test_a_norm_without_weight_has_no_offset() -> None:
    exact = numbers(N, 6)
    module = torch.nn.LayerNorm(6, elementwise_affine=False)
    region = MadeRegion(module, check_of("a-output", exact, exact + 1), inputs=exact)
    assert len(list(norm.norms_of(region))) == 1
    assert list(norm_offset.trials(region)) == []


def test_few_tokens_or_zeros_tell_no_weight_of_a_norm() -> None:
    for exact, lengths in ((numbers(2, 6), (1, 1)), (np.zeros((N, 6)), LENGTHS)):
        first = check_of("a-output", exact, exact + 1, lengths=lengths)
        region = MadeRegion(torch.nn.LayerNorm(6).double(), first)
        assert list(norm_offset._other_weight(region)) == []


def test_an_output_of_zeros_is_no_multiple_and_one_that_fits_is_none() -> None:
    zeros = check_of("a-output", np.zeros((N, 6)), numbers(N, 6))
    assert list(scale._output(MadeRegion(torch.nn.ReLU(), zeros))) == []
    exact = numbers(N, 6)
    same = check_of("a-output", exact, exact)
    assert list(scale._output(MadeRegion(torch.nn.ReLU(), same))) == []
    summed = linear_region(layer(), lambda y: 4 * y, name="model.layers.0.mlp.down_proj")
    (trial,) = scale._output(summed)
    assert (trial.cause, trial.says[:24]) == ("shard", "gives 4 times the output")


@pytest.mark.parametrize("ids", [None, np.arange(3)])
def test_a_table_without_its_tokens_has_no_rows(ids: Array | None) -> None:
    region = embedding(lambda y: y + 1)
    region.__dict__["token_ids"] = ids
    assert list(weights._tokens(region)) == []


def test_a_number_that_cannot_be_moved_is_where_it_was() -> None:
    target = np.ones(3)
    found = fitted(lambda v: np.full(3, v) if v == 0.5 else None, target, (0.5,))
    assert found == 0.5
