"""Engines that keep the residual apart: what their two outputs mean to the reference."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from comparison.align.pairing import Listing, Pairing, pair_tensors
from comparison.numerics.dtypes import Array
from comparison.store.dump import open_dump
from diagnosis.residual_sums import with_residual_sums
from tests.comparison.dumps import numbers, write_dump, write_step

WIDE = numbers(5, 8)
LAYER, NORM = "model.model.layers.0", "model.model.layers.0.post_attention_layernorm"
MLP = f"{LAYER}.mlp-output"
REFERENCE = {
    f"{LAYER}-input_0": WIDE,
    f"{NORM}-input_0": WIDE,
    f"{NORM}-output": WIDE,
    MLP: WIDE,
    f"{LAYER}-output": WIDE,
    "model.model.norm-input_0": WIDE,
    "model.model.norm-output": WIDE,
}


def apart(module: str) -> dict[str, Array]:
    """Give a module that takes and returns hidden states and residual."""
    return {f"{module}-{side}_{n}": WIDE for side in ("input", "output") for n in range(2)}


CANDIDATE = {**apart(LAYER), **apart(NORM), MLP: WIDE, **apart("model.model.norm")}


def paired(folder: Path, candidate: Mapping[str, Array], *, reference: object = None) -> Pairing:
    write_dump(folder / "one", [REFERENCE if reference is None else reference], engine="torch")  # type: ignore[list-item]  # tensors
    write_dump(folder / "other", [candidate], engine="vllm")
    left, right = open_dump(folder / "one"), open_dump(folder / "other")
    found = pair_tensors(
        Listing(entries=left.entries, engine="torch"), Listing(entries=right.entries, engine="vllm")
    )
    return with_residual_sums(found, right, left.entries)


def meanings(pairing: Pairing) -> dict[str, tuple[str, str | None]]:
    return {
        pair.reference.name: (
            pair.candidate.name,
            None if pair.addend is None else pair.addend.name,
        )
        for pair in pairing.pairs
        if pair.reason.startswith("the candidate passes the residual apart")
    }


def test_layers_are_sums_and_norms_get_the_residual(tmp_path: Path) -> None:
    found = paired(tmp_path, CANDIDATE)
    assert meanings(found) == {
        f"{LAYER}-output": (f"{LAYER}-output_0", f"{LAYER}-output_1"),
        f"{LAYER}-input_0": (f"{LAYER}-input_0", f"{LAYER}-input_1"),
        f"{NORM}-output": (f"{NORM}-output_0", None),
        f"{NORM}-input_0": (f"{NORM}-output_1", None),
        "model.model.norm-output": ("model.model.norm-output_0", None),
        "model.model.norm-input_0": ("model.model.norm-output_1", None),
    }
    sums = {pair.reference.name: pair.reason for pair in found.pairs}
    assert sums[f"{LAYER}-output"].endswith(f"summed with {LAYER}-output_1")
    assert sums[f"{NORM}-input_0"].endswith("this is the sum")
    assert sums[MLP] == "same name"
    left = {item.entry.name for item in found.unpaired}
    assert not left & {f"{LAYER}-output_1", f"{LAYER}-input_1"}


def test_modules_of_other_outputs_are_left_as_they_are(tmp_path: Path) -> None:
    narrow = {**CANDIDATE, f"{NORM}-output_1": WIDE[:, :3], f"{LAYER}-output_1": WIDE[:, :2]}
    found = meanings(paired(tmp_path / "a", narrow))
    assert set(found) == {"model.model.norm-output", "model.model.norm-input_0"}
    alone = {name: array for name, array in CANDIDATE.items() if "norm-input" not in name}
    found = meanings(paired(tmp_path / "b", alone))
    assert set(found) == {f"{LAYER}-output", f"{LAYER}-input_0"}
    assert meanings(paired(tmp_path / "c", REFERENCE)) == {}


def test_a_layer_that_is_given_its_residual_alone(tmp_path: Path) -> None:
    first = {name: array for name, array in CANDIDATE.items() if f"{LAYER}-input" not in name}
    found = meanings(paired(tmp_path, first))
    assert f"{LAYER}-output" in found
    assert f"{LAYER}-input_0" not in found


def test_what_the_reference_lacks_or_has_otherwise_has_no_meaning(tmp_path: Path) -> None:
    several = {name.replace("-output", "-output_0"): a for name, a in REFERENCE.items()}
    several |= {name.replace("-output", "-output_1"): a for name, a in REFERENCE.items()}
    assert meanings(paired(tmp_path / "a", CANDIDATE, reference=several)) == {}
    other = {"model.model.embed_tokens-output": WIDE}
    assert meanings(paired(tmp_path / "b", CANDIDATE, reference=other)) == {}


def test_files_that_cannot_be_read_tell_nothing(tmp_path: Path) -> None:
    write_step(tmp_path / "dump", CANDIDATE)
    (tmp_path / "dump" / f"{NORM}-output_1.max").write_bytes(b"no such format")
    dump = open_dump(tmp_path / "dump")
    empty = Pairing(pairs=(), unpaired=())
    assert with_residual_sums(empty, dump, dump.entries).pairs == ()
    np.testing.assert_array_equal(dump.read(dump.entries[0]), WIDE)
