"""Small parts of a replay: what it spells, orders, refuses and runs again."""

from collections import namedtuple
from dataclasses import replace
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
from torch import nn

from comparison.align.fingerprint import fingerprint
from comparison.align.pairing import Listing, pair_tensors
from comparison.align.structure import Placed
from comparison.numerics.tensor_sketch import sketch_tensor
from comparison.schema.errors import BadInputError
from comparison.schema.manifest import Padding
from comparison.schema.tensor_entry import TensorEntry
from comparison.store.dump import open_dump
from comparison.store.manifest_file import write_manifest
from comparison.store.sketch_file import write_sketches
from diagnosis.capture_plan import CapturePlan
from diagnosis.reference_key import _described
from diagnosis.replay.float64_mode import float64_copy
from diagnosis.replay.module_watch import _replace, module_of, number_of
from diagnosis.replay.pinned_replay import _as_mask, _as_tensor, _index, allowed
from diagnosis.replay.reference_calls import calls_of_manifest
from diagnosis.replay.reference_trace import TracedTensor, as_array, tokens_first
from diagnosis.replay.reruns import orders_of, side_again
from diagnosis.side_runs import RunOptions, SideDump, called, debug_options, oracle_of
from diagnosis.sides import DumpSide, EngineSide
from diagnosis.sketch_pass import suspects_in_sketches
from diagnosis.structure_pairs import with_structure
from tests.comparison.dumps import make_manifest, numbers, write_dump

Pair = namedtuple("Pair", "left right")


def test_tensors_within_what_modules_return_are_replaced() -> None:
    old, new, other = torch.zeros(1), torch.ones(1), torch.ones(2)
    replaced = {id(old): new}
    assert _replace(old, replaced) is new
    assert _replace(other, replaced) is other
    assert _replace([old, (other, 3)], replaced) == [new, (other, 3)]
    pair = _replace(Pair(left=old, right=other), replaced)
    assert isinstance(pair, Pair)
    assert (pair.left, pair.right) == (new, other)
    output = {"hidden": old, "rest": [other], "none": None}
    assert _replace(output, replaced) is output  # of a class of its own, as models have it
    assert output["hidden"] is new


@pytest.mark.parametrize(
    ("call", "module", "number"),
    [("model.act(2)", "model.act", 2), ("model.act", "model.act", 1), ("a(x)", "a(x)", 1)],
)
def test_names_of_calls(call: str, module: str, number: int) -> None:
    assert (module_of(call), number_of(call)) == (module, number)


def test_values_are_spelled_as_the_reference_has_them() -> None:
    like = torch.zeros(2, 3)
    small = np.array([[1, 2, 3], [4, 5, 6]], ml_dtypes.float8_e4m3fn)
    assert _as_tensor(small, like).tolist() == [[1, 2, 3], [4, 5, 6]]
    ids = np.arange(6, dtype=np.uint32)
    assert _as_tensor(ids, torch.zeros(2, 3, dtype=torch.int64)).tolist() == [[0, 1, 2], [3, 4, 5]]
    assert _index(np.array([3, 4, 5])) == slice(3, 6)
    assert _index(np.array([3, 5])) == [3, 5]


def test_masks_are_spelled_in_the_references_numbers() -> None:
    seen = np.array([[0.0, -np.inf], [0.0, 0.0]])
    assert allowed(seen).tolist() == [[True, False], [True, True]]
    assert allowed(seen > -1).tolist() == [[True, False], [True, True]]
    as_floats = _as_mask(seen, torch.zeros(2, 2, dtype=torch.float16))
    assert as_floats.tolist() == [[0.0, -65504.0], [0.0, 0.0]]
    assert _as_mask(seen, torch.zeros(2, 2, dtype=torch.bool)).tolist() == [[1, 0], [1, 1]]


def test_shapes_of_traced_tensors() -> None:
    def traced(*shapes: tuple[int, ...], axis: int | None = None, name: str = "a") -> TracedTensor:
        return TracedTensor(
            name=name, owner="m", dtype="float32", shapes=dict(enumerate(shapes)), token_axis=axis
        )

    assert traced((4,), (4,)).is_regular
    assert not traced((4,), (5,)).is_regular
    assert traced((1, 5, 8), (1, 3, 8), axis=1).is_regular
    assert not traced((1, 2, 5, 5), (1, 2, 3, 3), axis=2).is_regular
    assert traced((1, 1, 5, 5), name="mask").is_mask
    assert not traced((1, 1, 1, 5), name="mask").is_mask
    values = torch.arange(12.0).reshape(2, 6)
    assert tokens_first(values[:1], traced((1, 6))).shape == (1, 6)
    assert tokens_first(values, traced((2, 6))).shape == (1, 2, 6)
    assert tokens_first(values[None], traced((1, 2, 6), axis=1)).shape == (2, 6)
    assert as_array(values.bfloat16()).dtype == np.float32


class Embedding(nn.Module):
    """A model of two tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(7, 3)

    def get_input_embeddings(self) -> nn.Module:
        return self.embed

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.embed(input_ids)
        return found


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        ([], "a row of the candidate's manifest has no token"),
        ([3, 7], "token 7 of the candidate's manifest is none of the reference's: it has 0 to 6"),
        ([-1], "token -1 of the candidate's manifest is none of the reference's: it has 0 to 6"),
    ],
)
def test_rows_that_the_reference_cannot_be_given(ids: list[int], message: str) -> None:
    manifest = make_manifest("max", rows=[[1, 2], ids])
    with pytest.raises(BadInputError, match=message):
        calls_of_manifest(manifest, Embedding(), encoder=False)


class Rope(nn.Module):
    """Makes its frequencies by its configuration alone, perhaps not of the same size."""

    def __init__(self, config: Any) -> None:
        super().__init__()
        if config.fails:
            raise ValueError("made in another way")
        self.config = config
        frequencies = 1e4 ** -(torch.arange(config.size) / config.size)
        self.register_buffer("inv_freq", frequencies.float())


class Config:
    fails, size = False, 4


@pytest.mark.parametrize("change", ["nothing", "fails", "another size", "on purpose"])
def test_frequencies_are_exact_in_float64_unless_they_are_others(change: str) -> None:
    config = Config()
    rope = Rope(config)
    before = rope.inv_freq.clone()
    config.fails, config.size = change == "fails", 5 if change == "another size" else 4
    if change == "on purpose":
        rope.inv_freq *= 1.01
        before *= 1.01
    found = float64_copy(rope).inv_freq
    exact = 1e4 ** -(torch.arange(4).double() / 4)
    if change == "nothing":
        torch.testing.assert_close(found, exact, rtol=1e-12, atol=0)
    else:
        torch.testing.assert_close(found, before.double(), rtol=0, atol=0)


def test_values_that_json_has_not_are_described_alike_in_every_process() -> None:
    assert _described(Pair) == f"{__name__}.Pair"
    assert _described({"b", "a"}) == "['a', 'b']"
    assert _described(Padding.LEFT) == "Padding left"
    assert _described(len) == "builtins.len"


def test_orders_of_further_runs() -> None:
    assert orders_of(1) == {"once more": (0,)}
    assert orders_of(3) == {
        "once more": (0, 1, 2),
        "in another order": (2, 1, 0),
        "with row 0 alone": (0,),
        "with row 1 alone": (1,),
    }


def test_a_side_is_run_again_on_the_rows_that_it_had(tmp_path: Path) -> None:
    spec = EngineSide(engine="torch")
    run = RunOptions(pipeline="tiny-random/llama", num_hidden_layers=1)
    oracle, name = oracle_of(spec, run)
    rows = [[5, 9, 2]]
    dump = open_dump(write_dump(tmp_path / "dump", [{"model-output": numbers(2, 3)}]))
    dump = replace(dump, manifest=make_manifest("torch", rows=rows))
    side = SideDump(
        spec=spec, dump=dump, oracle=oracle, options=debug_options(spec, name, tmp_path, run)
    )
    (again,) = side_again(side, tmp_path / "again")
    assert again.what == "once more"
    assert again.dump.manifest is not None
    assert [list(row.token_ids) for row in again.dump.manifest.rows] == rows
    given = replace(side, oracle=None)
    assert list(side_again(given, tmp_path / "none")) == []


@pytest.mark.parametrize(
    ("spec", "folder", "name"),
    [
        (EngineSide(engine="torch"), "reference", "the reference (torch)"),
        (EngineSide(engine="max"), "candidate2-fine", "candidate 2 (max)"),
        (DumpSide(path=Path("d")), "candidate", "the candidate (d)"),
    ],
)
def test_sides_are_called_by_their_role(spec: Any, folder: str, name: str) -> None:
    assert called(spec, Path(folder), RunOptions()) == name
    as_dumped = called(spec, Path(folder), RunOptions(recorded_in=Path("dumps/d")))
    assert as_dumped == f"{name.removesuffix(')')}, run as dumps/d was)"


Q, K, V = (numbers(5, 8, seed=seed) for seed in range(3))


def test_parts_of_a_fused_tensor_without_a_known_name_are_guessed(tmp_path: Path) -> None:
    names = [f"model.layers.0.attn.{part}_proj-output" for part in "qkv"]
    entries = tuple(
        TensorEntry(name=name, step=0, order=order, path=Path()) for order, name in enumerate(names)
    )
    fused = {"net.h.0.mix.w_all-output": np.concatenate([Q, K, V], axis=1)[None]}
    fused["net.broken-output"] = Q[None]
    write_dump(tmp_path, [fused, fused], lengths=(5,))
    (tmp_path / "0" / "net.broken-output.max").write_bytes(b"cut")
    dump = open_dump(tmp_path)
    pairing = pair_tensors(
        Listing(entries=entries, engine=None), Listing(entries=dump.entries, engine=None)
    )

    def placed() -> list[Placed]:
        return [
            Placed(name=name, order=order, sizes={8: fingerprint(np.arange(5), values)})
            for order, (name, values) in enumerate(zip(names, (Q, K, V), strict=True))
        ]

    found = with_structure(pairing, dump, placed)
    parts = {pair.reference.name: pair.fused for pair in found.pairs}
    assert list(parts) == names
    for position, name in enumerate(names):
        fused_part = parts[name]
        assert fused_part is not None
        assert (fused_part.position, fused_part.parts) == (position, entries)
    # The reference was traced in one step only, so that the other one's is left over.
    assert {item.entry.step for item in found.unpaired if "w_all" in item.entry.name} == {1}


def test_sketches_of_other_shapes_or_kinds_are_suspect_at_once(tmp_path: Path) -> None:
    wide = numbers(5, 8)
    left = {f"model.layers.{n}-output": wide for n in range(4)}
    right = {
        **left,
        "model.layers.1-output": wide[:, :5],
        "model.layers.2-output": np.arange(40).reshape(5, 8),
    }
    for name, tensors in (("a", left), ("b", right)):
        (tmp_path / name / "0").mkdir(parents=True)
        write_manifest(tmp_path / name / "manifest.json", make_manifest("torch"))
        sketches = {tensor: sketch_tensor(array) for tensor, array in tensors.items()}
        write_sketches(tmp_path / name / "0" / "sketch.safetensors", sketches)
    plan = CapturePlan({name: array.nbytes for name, array in left.items()})
    found = suspects_in_sketches(tmp_path / "a", tmp_path / "b", plan)
    assert found.modules == ("model.layers.1", "model.layers.2")
