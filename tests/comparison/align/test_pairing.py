"""Which tensor goes with which, and what is said of the others."""

from pathlib import Path

import pytest

from comparison.align.fused import FusedPart, slice_of_part
from comparison.align.pairing import Listing, Pairing, pair_lone_files, pair_tensors
from comparison.schema.tensor_entry import TensorEntry


def listing(
    *names: str,
    engine: str | None = None,
    step: int = 0,
    rank: int | None = None,
    known: bool = True,
) -> Listing:
    entries = tuple(
        TensorEntry(name=name, step=step, order=order, path=Path(f"{order}.max"), rank=rank)
        for order, name in enumerate(names)
    )
    return Listing(entries=entries, engine=engine, order_known=known)


def joined(*listings: Listing) -> Listing:
    entries = tuple(entry for part in listings for entry in part.entries)
    return Listing(entries=entries, engine=listings[0].engine)


def pairs(pairing: Pairing) -> list[tuple[str, str]]:
    return [(pair.reference.name, pair.candidate.name) for pair in pairing.pairs]


def reasons(pairing: Pairing) -> dict[tuple[str, str], str]:
    return {(item.side, item.entry.name): item.reason for item in pairing.unpaired}


def test_same_names_in_the_references_order() -> None:
    pairing = pair_tensors(listing("c", "a", "b"), listing("a", "b", "c"))
    assert pairs(pairing) == [("c", "c"), ("a", "a"), ("b", "b")]
    assert {pair.reason for pair in pairing.pairs} == {"same name"}
    assert pairing.unpaired == ()


def test_the_candidates_order_where_only_that_is_known() -> None:
    pairing = pair_tensors(listing("a", "b", "c", known=False), listing("c", "a", "b"))
    assert pairs(pairing) == [("c", "c"), ("a", "a"), ("b", "b")]


def test_torch_against_max() -> None:
    torch = listing(
        "model.model.embed_tokens-output",
        *(f"model.model.layers.{layer}.mlp-output" for layer in (1, 10, 11)),
        "model.model.rotary_emb-output_0",
        "model.lm_head-output",
        "model-output_logits",
        engine="torch",
    )
    candidate = listing(
        "model.embed_tokens-output",
        *(f"model.layers.layers.{layer}.mlp-output" for layer in (10, 11, 1)),
        "model.layers.layers.1-input_0",
        "model.lm_head-output",
        "model-output_0",
        "TopKSampler-output_0",
        engine="max",
    )
    pairing = pair_tensors(torch, candidate)
    assert pairs(pairing) == [
        ("model.model.embed_tokens-output", "model.embed_tokens-output"),
        ("model.model.layers.1.mlp-output", "model.layers.layers.1.mlp-output"),
        ("model.model.layers.10.mlp-output", "model.layers.layers.10.mlp-output"),
        ("model.model.layers.11.mlp-output", "model.layers.layers.11.mlp-output"),
        ("model.lm_head-output", "model.lm_head-output"),
        ("model-output_logits", "model-output_0"),
    ]
    assert pairing.pairs[1].reason == "both are layers.1.mlp output 0"
    assert pairing.pairs[4].reason == "same name"
    assert reasons(pairing) == {
        ("reference", "model.model.rotary_emb-output_0"): (
            "the rope, which engines have as modules of different kinds"
        ),
        ("candidate", "model.layers.layers.1-input_0"): (
            "the engines pass this differently, so that it has no counterpart"
        ),
        ("candidate", "TopKSampler-output_0"): "sampling, which only MAX has as a module",
    }


def test_two_sides_of_one_engine_have_modules_of_one_kind() -> None:
    names = ("model.layers.0.mlp.act_fn-output", "model.layers.0.mlp-output")
    pairing = pair_tensors(*(listing(*names[n:], engine="torch") for n in range(2)))
    assert reasons(pairing) == {("reference", names[0]): "the candidate has no such tensor"}


def test_a_module_called_once_is_held_against_the_last_call() -> None:
    torch = listing("model.model.embed_tokens-output", engine="torch")
    candidate = listing(
        "model.language_model.embed_tokens-output",
        "model.language_model.embed_tokens(2)-output",
        engine="max",
    )
    pairing = pair_tensors(torch, candidate)
    (pair,) = pairing.pairs
    assert pair.candidate.name == "model.language_model.embed_tokens(2)-output"
    assert pair.reason == (
        "both are embed_tokens output 0; the last of 2 calls in the candidate, "
        "called once in the reference"
    )
    (unpaired,) = pairing.unpaired
    assert unpaired.entry.name == "model.language_model.embed_tokens-output"
    assert unpaired.reason == (
        "the module was called 1 times in the reference and 2 times in the candidate; "
        "this call has no counterpart"
    )


def test_the_last_call_also_where_the_first_has_the_same_name() -> None:
    pairing = pair_tensors(
        listing("model.act(2)-output", "model.act-output", engine="max"),
        listing("model.act-output", engine="torch"),
    )
    assert pairs(pairing) == [("model.act(2)-output", "model.act-output")]


def test_equal_numbers_of_calls_go_one_by_one() -> None:
    names = ("model.act-output", "model.act(2)-output")
    assert pairs(pair_tensors(listing(*names), listing(*names))) == [(n, n) for n in names]


def test_several_calls_on_both_sides_go_by_number() -> None:
    pairing = pair_tensors(
        listing("m-output", "m(2)-output"), listing("m-output", "m(2)-output", "m(3)-output")
    )
    assert pairs(pairing) == [("m-output", "m-output"), ("m(2)-output", "m(2)-output")]
    assert list(reasons(pairing)) == [("candidate", "m(3)-output")]


def test_a_second_tensor_of_one_meaning_is_listed() -> None:
    pairing = pair_tensors(listing("m-output", "m-output_0"), listing("m-output_0"))
    assert pairs(pairing) == [("m-output_0", "m-output_0")]
    expected = "a second tensor of this meaning; m-output_0 was compared"
    assert reasons(pairing) == {("reference", "m-output"): expected}


NORMS = [
    "model.norm-output",
    "model.model.norm-output",
    "model.language_model.norm-output",
    "model.norm-output_0",
    "model.norm(2)-output",
    "model.model.norm(2)-output",
]
ODD = ["-output", "model-output", "model.-output", "model.model.-output", "model.model-output_0"]


@pytest.mark.parametrize("engine", ["torch", "max", "vllm", None])
def test_a_dump_against_itself_pairs_every_name_with_itself(engine: str | None) -> None:
    names = [*NORMS, *ODD, f"model.a({'9' * 5000})-output", "a", "a"]
    dump = listing(*names, engine=engine)
    pairing = pair_tensors(dump, dump)
    assert [(p.reference, p.candidate) for p in pairing.pairs] == [(e, e) for e in dump.entries]
    assert {pair.reason for pair in pairing.pairs} == {"same name"}
    assert pairing.unpaired == ()


def test_equal_names_go_before_equal_meanings() -> None:
    reference = listing("model.model.norm-output", "model.norm-output", engine="torch")
    candidate = listing("model.norm-output", "model.language_model.norm-output", engine="max")
    pairing = pair_tensors(reference, candidate)
    assert [(p.reference.name, p.candidate.name, p.reason) for p in pairing.pairs] == [
        (
            "model.model.norm-output",
            "model.language_model.norm-output",
            "both are norm output 0",
        ),
        ("model.norm-output", "model.norm-output", "same name"),
    ]
    assert pairing.unpaired == ()


def test_what_is_too_much_of_one_meaning_is_listed() -> None:
    pairing = pair_tensors(
        listing(*NORMS[:3], engine="torch"), listing("model.model.norm-output", engine="max")
    )
    assert pairs(pairing) == [("model.model.norm-output", "model.model.norm-output")]
    expected = "a second tensor of this meaning; model.model.norm-output was compared"
    assert reasons(pairing) == {
        ("reference", NORMS[0]): expected,
        ("reference", NORMS[2]): expected,
    }


def test_a_module_without_a_name_is_not_the_whole_model() -> None:
    pairing = pair_tensors(listing("-output"), listing("model-output", "model.-output"))
    assert pairing.pairs == ()


@pytest.mark.parametrize(("engine", "other"), [("max", "max"), ("max", None), (None, None)])
def test_one_engine_or_none_known_pairs_equal_names_whatever_the_calls(
    engine: str | None, other: str | None
) -> None:
    pairing = pair_tensors(
        listing("model.act-output", engine=engine),
        listing("model.act-output", "model.act(2)-output", engine=other),
    )
    assert pairs(pairing) == [("model.act-output", "model.act-output")]
    assert reasons(pairing) == {
        ("candidate", "model.act(2)-output"): (
            "the module was called 1 times in the reference and 2 times in the candidate; "
            "this call has no counterpart"
        )
    }


def test_a_scaled_embedding_that_fires_twice_is_held_against_its_last_call() -> None:
    """Gemma 3, also where MAX's module lies where torch's does."""
    twice = ("model.model.embed_tokens-output", "model.model.embed_tokens(2)-output")
    pairing = pair_tensors(listing(twice[0], engine="torch"), listing(*twice, engine="max"))
    assert pairs(pairing) == [twice]
    assert list(reasons(pairing)) == [("candidate", twice[0])]


@pytest.mark.parametrize(
    "name",
    [
        "mlp-input_mask",
        "mlp-input_x",
        "mlp-input_2",
        "self_attn-input_0",
        "act_fn-output",
        "model.model.layers.0.linear_attn-input_hidden_states",
    ],
)
@pytest.mark.parametrize("engine", ["max", "vllm"])
def test_equal_names_given_by_hand_and_keywords_are_a_pair_between_engines(
    name: str, engine: str
) -> None:
    pairing = pair_tensors(listing(name, engine="torch"), listing(name, engine=engine))
    assert [(*pair, pairing.pairs[0].reason) for pair in pairs(pairing)] == [
        (name, name, "same name")
    ]


@pytest.mark.parametrize(
    "name",
    [
        "model.model.layers.3-output_0",  # vLLM's without the residual
        "model.model.layers.3-input_1",
        "model.model.layers.3.mlp.act_fn-output",
        "model.model.layers.3.self_attn.rotary_emb-input_0",
    ],
)
def test_equal_names_that_mean_other_things_are_no_pair(name: str) -> None:
    pairing = pair_tensors(listing(name, engine="torch"), listing(name, engine="vllm"))
    assert pairing.pairs == ()
    assert len(pairing.unpaired) == 2


def test_two_files_of_one_name_are_told_apart() -> None:
    pairing = pair_tensors(listing("a", "a"), listing("a"))
    (pair,) = pairing.pairs
    (unpaired,) = pairing.unpaired
    assert (pair.reference.order, unpaired.entry.order) == (0, 1)


def test_fused_projections_give_derived_pairs() -> None:
    torch = listing(
        *(f"model.model.layers.0.self_attn.{part}_proj-output" for part in "qkv"),
        "model.model.layers.0.mlp.gate_proj-output",
        "model.model.layers.0.mlp.up_proj-output",
        engine="torch",
    )
    candidate = listing(
        "model.layers.layers.0.self_attn.qkv_proj-output",
        "model.layers.layers.0.mlp.gate_up_proj-output",
        engine="max",
    )
    pairing = pair_tensors(torch, candidate)
    assert [pair.fused and pair.fused.position for pair in pairing.pairs] == [0, 1, 2, 0, 1]
    assert pairing.pairs[1].reason == (
        "derived: second of 3 blocks of the fused model.layers.layers.0.self_attn.qkv_proj-output"
    )
    assert pairing.unpaired == ()
    turned = pair_tensors(candidate, torch)
    assert len(turned.pairs) == 5
    assert turned.unpaired == ()
    assert isinstance(turned.pairs[0].fused, FusedPart)
    assert not turned.pairs[0].fused.fused_is_candidate


def test_an_encoders_projections_are_fused_too() -> None:
    prefix = "encoder.layer.0.attention.self"
    torch = listing(
        *(f"model.{prefix}.{part}-output" for part in ("query", "key", "value")), engine="torch"
    )
    candidate = listing(f"model.model.{prefix}.qkv_proj-output_0", engine="vllm")
    pairing = pair_tensors(torch, candidate)
    assert [pair.fused and pair.fused.position for pair in pairing.pairs] == [0, 1, 2]
    assert pairing.unpaired == ()


def test_fused_on_both_sides_is_an_ordinary_pair() -> None:
    names = ["model.layers.0.self_attn.qkv_proj-output", "model.layers.0.self_attn.q_proj-output"]
    pairing = pair_tensors(listing(*names), listing(*names))
    assert pairs(pairing) == [(name, name) for name in names]


@pytest.mark.parametrize(
    ("sizes", "position", "total", "expected"),
    [
        ([64, 32, 32], 0, 128, slice(0, 64)),
        ([64, 32, 32], 1, 128, slice(64, 96)),
        ([64, 32, 32], 2, 128, slice(96, 128)),
        ([64, None, None], 0, 128, slice(0, 64)),
        ([None, None, 32], 2, 128, slice(96, 128)),
        ([None, 32, 32], 1, 128, slice(64, 96)),
        (
            [None, 32, None],
            1,
            128,
            "the parts before and behind it were not dumped, so its place is not known",
        ),
        ([64, 32, 33], 1, 128, "the parts have 64 + 32 + 33 = 129 columns, the fused tensor 128"),
        ([200, None, None], 0, 128, "a part of 200 columns does not fit in 128"),
    ],
)
def test_where_a_part_lies(
    sizes: list[int | None], position: int, total: int, expected: slice | str
) -> None:
    assert slice_of_part(sizes, position, total) == expected


def test_steps_are_never_mixed() -> None:
    reference = joined(listing("a"), listing("a", "b", step=1))
    pairing = pair_tensors(reference, joined(listing("a", "b"), listing("a", step=2)))
    assert [(p.reference.step, p.candidate.step) for p in pairing.pairs] == [(0, 0)]
    assert [item.reason for item in pairing.unpaired] == [
        "the candidate has no step 1",
        "the candidate has no step 1",
        "the reference has no such tensor",
        "the reference has no step 2",
    ]


def test_two_single_steps_are_held_against_each_other() -> None:
    pairing = pair_tensors(listing("a", step=3), listing("a", step=0))
    assert pairs(pairing) == [("a", "a")]


def test_ranks() -> None:
    ranks = joined(listing("a", rank=0), listing("a", rank=1))
    assert len(pair_tensors(ranks, ranks).pairs) == 2
    assert pairs(pair_tensors(listing("a", rank=0), listing("a"))) == [("a", "a")]
    pairing = pair_tensors(listing("a"), ranks)
    assert [(pair.reference.rank, pair.candidate.rank) for pair in pairing.pairs] == [(None, 0)]
    assert [(item.entry.rank, item.reason) for item in pairing.unpaired] == [
        (1, "a further rank's copy or part; see what is said of the first rank's")
    ]


def test_one_rank_is_held_against_the_same_of_several() -> None:
    ranks = joined(listing("a", rank=0), listing("a", rank=1))
    pairing = pair_tensors(listing("a", rank=1), ranks)
    assert [(pair.reference.rank, pair.candidate.rank) for pair in pairing.pairs] == [(1, 1)]


def test_other_numbers_of_ranks() -> None:
    two = joined(listing("a", rank=0), listing("a", rank=1))
    three = joined(two, listing("a", rank=2))
    pairing = pair_tensors(two, three)
    assert len(pairing.pairs) == 2
    assert [item.reason for item in pairing.unpaired] == ["the reference has no rank 2"]


def test_two_files_alone_are_a_pair_whatever_their_names() -> None:
    pairing = pair_lone_files(listing("x").entries[0], listing("y").entries[0])
    assert pairs(pairing) == [("x", "y")]
    assert pairing.pairs[0].reason == "two files given alone"


def test_unlike_numbers_of_calls_on_two_engines_go_by_number() -> None:
    calls = ("", "(2)", "(3)")
    pairing = pair_tensors(
        listing(*(f"model.act{call}-output" for call in calls[:2]), engine="torch"),
        listing(*(f"model.act{call}-output" for call in calls), engine="max"),
    )
    assert pairs(pairing) == [(f"model.act{call}-output",) * 2 for call in calls[:2]]
    assert [pair.reason for pair in pairing.pairs] == [
        "same name; call 1 of 2 and of 3",
        "same name; call 2 of 2 and of 3",
    ]
    (unpaired,) = pairing.unpaired
    assert unpaired.entry.name == "model.act(3)-output"
    assert unpaired.reason.startswith("the module was called 2 times in the reference and 3 times")


def test_calls_beside_those_that_are_paired_go_by_number() -> None:
    pairing = pair_tensors(
        listing("model.act-output", "model.model.act(2)-output", "model.model.act(3)-output"),
        listing("model.act-output", "model.act(3)-output"),
    )
    assert pairs(pairing) == [
        ("model.act-output", "model.act-output"),
        ("model.model.act(3)-output", "model.act(3)-output"),
    ]
    assert [pair.reason for pair in pairing.pairs] == ["same name", "both are act output 0"]


def test_operations_of_two_engines_are_never_a_pair() -> None:
    name = "model.mlp@001.mul"
    pairing = pair_tensors(listing(name, engine="torch"), listing(name, engine="max"))
    assert pairing.pairs == ()
    assert set(reasons(pairing).values()) == {
        "the engines pass this differently, so that it has no counterpart"
    }
    assert pairs(pair_tensors(listing(name), listing(name))) == [(name, name)]
