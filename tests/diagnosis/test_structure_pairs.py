"""Pairs by place and value: guesses where names are unknown, and none against what names say."""

from pathlib import Path

import numpy as np

from comparison.align.fingerprint import fingerprint
from comparison.align.pairing import Listing, Pairing, pair_tensors
from comparison.align.structure import Placed
from comparison.numerics.dtypes import Array
from comparison.schema.manifest import Padding
from comparison.schema.tensor_entry import TensorEntry
from comparison.store.dump import open_dump
from diagnosis.structure_pairs import with_structure
from tests.comparison.dumps import write_dump

LENGTHS = (5, 3)
HIDDEN = np.random.default_rng(3).normal(size=(sum(LENGTHS), 8)).astype(np.float32)
MLP, ROTARY, LAYER = (
    "model.model.layers.0.mlp-output",
    "model.model.rotary_emb-input_0",
    "model.model.layers.0-input_0",
)
REFERENCE = {ROTARY: HIDDEN, LAYER: HIDDEN, MLP: 2 * HIDDEN}


def paired(tmp_path: Path, candidate: dict[str, Array]) -> Pairing:
    """Pair a dump of MAX with three tensors of Torch."""
    dump = open_dump(write_dump(tmp_path, [candidate], padding=Padding.RAGGED, lengths=LENGTHS))
    entries = tuple(
        TensorEntry(name=name, step=0, order=order, path=Path())
        for order, name in enumerate(REFERENCE)
    )
    named = pair_tensors(
        Listing(entries=entries, engine="torch"),
        Listing(entries=dump.entries, engine=dump.engine),
    )
    return with_structure(named, dump, placed, reference_engine="torch")


def placed() -> list[Placed]:
    first = LENGTHS[0]
    return [
        Placed(name=name, order=order, sizes={8: fingerprint(np.arange(first), values[:first])})
        for order, (name, values) in enumerate(REFERENCE.items())
    ]


def test_nothing_is_guessed_for_what_known_names_have_no_counterpart_for(tmp_path: Path) -> None:
    found = paired(
        tmp_path,
        {
            "model.embed_tokens.allreduce-input_0_0": HIDDEN / 16,
            "model.layers.layers.0.mlp-output": 2 * HIDDEN,
        },
    )
    assert [pair.reference.name for pair in found.pairs] == [MLP]


def test_equal_values_prove_what_known_names_do_not_say(tmp_path: Path) -> None:
    found = paired(
        tmp_path,
        {
            "model.layers.layers.0-input_1_0": HIDDEN,
            "model.layers.layers.0.mlp-output": 2 * HIDDEN,
        },
    )
    reasons = {pair.reference.name: pair.reason for pair in found.pairs}
    assert reasons.keys() == {LAYER, MLP}
    assert reasons[LAYER] == "same place in the model, equal values"


def test_unknown_names_are_paired_by_a_guess(tmp_path: Path) -> None:
    found = paired(tmp_path, {"net.blocks.0.feed_forward-output": 2.5 * HIDDEN})
    assert [(pair.reference.name, pair.reason) for pair in found.pairs] == [
        (MLP, "same place in the model, a guess by order and size")
    ]
