"""What two runs were given, laid out by hand: tokens, positions, masks, pictures, and ranks."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from comparison.align.token_rows import TokenRow, Wanted
from comparison.numerics.dtypes import Array
from comparison.schema.diagnosis import InputDifference
from comparison.schema.errors import BadInputError
from comparison.schema.manifest import Padding, Row, Stretch
from comparison.schema.tensor_entry import TensorEntry
from comparison.store.dump import Dump, open_dump
from comparison.store.manifest_file import write_manifest
from diagnosis.candidate_tensors import Pinned
from diagnosis.capture_notes import capture_notes, steps_left
from diagnosis.diff_options import DiffOptions
from diagnosis.given_inputs import given_differences, require_pictures
from diagnosis.inputs import input_differences, observed_differences, require_one_model
from diagnosis.manifest_fit import require_fit
from diagnosis.module_finding import diff_modules
from diagnosis.picture_changes import picture_change
from diagnosis.rank_blame import phrases_of_ranks
from diagnosis.rank_tensors import RankTensors
from tests.comparison.dumps import make_manifest, numbers, write_step
from tests.diagnosis.causes.made_region import LENGTHS, check_of

RUN = make_manifest("torch", rows=[[5, 9, 2], [8, 4]])


def differences(**changes: Any) -> list[InputDifference]:
    return list(input_differences(RUN, replace(RUN, **changes)))


def rows(*ids: Sequence[int]) -> tuple[Row, ...]:
    return tuple(Row(prompt=None, token_ids=tuple(row)) for row in ids)


def test_tokens_that_differ_and_rows_that_are_longer() -> None:
    (other,) = differences(rows=rows([5, 7, 2], [8, 4]))
    assert (other.kind, other.what) == ("tokens", "token ids of row 0, from token 1 on")
    (longer,) = differences(rows=rows([5, 9, 2], [8, 4, 6]))
    assert longer.what == "token ids of row 1, from token 2 on"
    (fewer,) = differences(rows=rows([5, 9, 2]))
    assert (fewer.kind, fewer.reference, fewer.candidate) == ("rows", "2", "1")
    assert differences() == []


def test_runs_of_two_models_are_refused() -> None:
    one, other = (replace(RUN, config={"model_type": kind}) for kind in ("llama", "gemma3_text"))
    require_one_model(other, replace(RUN, config={"model_type": "gemma3"}))
    require_one_model(None, one)
    require_one_model(RUN, one)
    with pytest.raises(BadInputError, match=r"found llama \(tiny-random/llama\) as the reference"):
        require_one_model(one, other)


@pytest.mark.parametrize(
    ("encoding", "effect", "counts"),
    [
        ("float32", 1e-4, False), ("float32", 0.01, True), ("bfloat16", 0.01, False),
        ("bfloat16", 0.2, True), ("float32", None, False),
    ],
)  # fmt: skip
def test_capture_that_changes_the_run(encoding: str, effect: float | None, counts: bool) -> None:
    found = list(observed_differences(replace(RUN, encoding=encoding, observer_effect=effect)))
    assert [item.kind for item in found] == ["observer"] * counts


def test_notes_of_verified_captures() -> None:
    note = "verified: a run without hooks gives the same in every step"
    verified = replace(RUN, options={"notes": ["other", note]})
    assert list(capture_notes(verified, verified)) == [
        f"the reference, {note}",
        f"the candidate, {note}",
    ]
    assert list(capture_notes(None, RUN)) == []


def dump(path: Path, tensors: Mapping[str, Array], **changes: Any) -> Dump:
    write_step(path / "0", {f"model-input_{name}": array for name, array in tensors.items()})
    told = {"padding": Padding.RIGHT, **changes}
    write_manifest(path / "manifest.json", replace(RUN, **told))
    return open_dump(path)


IDS, MASK = np.array([[5, 9, 2], [8, 4, 0]]), np.array([[1, 1, 1], [1, 1, 0]])
PIXELS = numbers(1, 3, 4, 5)


def given(tmp_path: Path, left: Mapping[str, Array], right: Mapping[str, Array]) -> list[str]:
    sides = dump(tmp_path / "a", left), dump(tmp_path / "b", right)
    return [
        f"{item.kind}: {item.what}: {item.reference}, {item.candidate}"
        for item in given_differences(*sides)
    ]


@pytest.mark.parametrize(
    ("left", "right", "told"),
    [
        ({"attention_mask": MASK}, {"attention_mask": MASK}, []),
        (
            {"attention_mask": MASK},
            {"attention_mask": MASK * [1, 0, 1]},
            [
                "mask: attention_mask of row 0, from token 1 on: [1, 1], [0, 1]",
                "mask: attention_mask of row 1, from token 1 on: [1], [0]",
            ],
        ),
        ({"attention_mask": MASK}, {"attention_mask": np.stack([MASK] * 2, -1)}, []),
        (
            {"pixel_values": PIXELS},
            {"pixel_values": PIXELS[..., :4]},
            [
                "preprocessing: the shape of pixel_values (preprocessing of pictures): "
                "[1, 3, 4, 5], [1, 3, 4, 4]"
            ],
        ),
        ({"pixel_values": PIXELS}, {"other": PIXELS}, []),
    ],
)
def test_what_the_model_was_given(
    tmp_path: Path, left: dict[str, Array], right: dict[str, Array], told: list[str]
) -> None:
    assert given(tmp_path, left, right) == told


def test_pictures_of_another_order_are_told_in_words(tmp_path: Path) -> None:
    (said,) = given(tmp_path, {"pixel_values": PIXELS}, {"pixel_values": PIXELS[:, ::-1]})
    assert said.endswith(": the channels in reverse order, as BGR for RGB")


def test_inputs_that_cannot_be_read_tell_nothing(tmp_path: Path) -> None:
    sides = [dump(tmp_path / name, {"attention_mask": MASK}) for name in ("a", "b")]
    (tmp_path / "b" / "0" / "model-input_attention_mask.max").write_bytes(b"cut")
    assert list(given_differences(*sides)) == []
    require_fit(sides[1], fed=False)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda x: x[:, ::-1], "the channels in reverse order, as BGR for RGB"),
        (lambda x: x[..., ::-1], "mirrored from left to right"),
        (lambda x: x[..., ::-1, :], "upside down"),
        (lambda x: np.sqrt(np.abs(x)), ""),
    ],
)
def test_changes_of_pictures(change: Any, says: str) -> None:
    assert picture_change(PIXELS, change(PIXELS)) == says


def test_what_is_no_picture() -> None:
    assert picture_change(PIXELS[0, 0], PIXELS[0, 0] + 1) == ""
    assert picture_change(numbers(1, 7, 4, 4), numbers(1, 7, 4, 4, seed=1)) == ""
    square = numbers(2, 3, 5, 5)
    assert picture_change(square, square.swapaxes(-1, -2)) == "rows and columns exchanged"


def test_places_for_pictures_without_any(tmp_path: Path) -> None:
    found = dump(tmp_path, {"input_ids": IDS}, config={"image_token_id": 9})
    with pytest.raises(BadInputError, match="the prompt holds places for pictures, and neither"):
        require_pictures(found, {})
    require_pictures(found, {"pixel_values": PIXELS})
    require_pictures(dump(tmp_path / "b", {"input_ids": IDS}, config={"image_token_id": 7}), {})
    require_pictures(replace(found, manifest=None), {})


@pytest.mark.parametrize(
    ("tensors", "changes", "message"),
    [
        ({"input_ids": IDS[:1]}, {}, "2 rows by the manifest, 1 in what the model was given"),
        (
            {"input_ids": IDS[:, :2]},
            {},
            "row 0 has 3 tokens by the manifest, the tensors are of 2",
        ),
        (
            {"input_ids": IDS, "attention_mask": np.ones_like(MASK)},
            {},
            "row 1 has 2 tokens by the manifest, the tensors are of 3",
        ),
        (
            {"input_ids": IDS},
            {"stretches": ((Stretch(row=0, first=0, count=2), Stretch(row=1, first=0, count=2)),)},
            "row 0 has 3 tokens by the manifest, the steps computed 2",
        ),
    ],
)
def test_tensors_of_other_rows_than_the_manifests(
    tmp_path: Path, tensors: dict[str, Array], changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(BadInputError, match=f"do not fit its manifest: {message}.*; dump it again"):
        require_fit(dump(tmp_path, tensors, **changes), fed=False)


def test_tensors_of_the_manifests_rows(tmp_path: Path) -> None:
    found = dump(tmp_path, {"input_ids": IDS, "attention_mask": MASK})
    require_fit(found, fed=True)
    require_fit(replace(found, manifest=None), fed=True)
    other = dump(tmp_path / "b", {"input_ids": IDS, "attention_mask": MASK[:, :2]})
    require_fit(other, fed=True)  # of another shape, it is no mask of these


def test_steps_whose_tokens_are_not_known(tmp_path: Path) -> None:
    dump(tmp_path, {"input_ids": IDS}, steps=2)
    write_step(tmp_path / "1", {"model-output": numbers(2, 1, 4)})
    with pytest.raises(BadInputError, match="steps up to 1 were dumped, and row 0 generated 0 tok"):
        require_fit(open_dump(tmp_path), fed=True)


def test_modules_are_not_audited_and_a_dump_has_to_say_its_tokens(tmp_path: Path) -> None:
    model = torch.nn.Identity()
    how: dict[str, Any] = {"num_steps": 1, "encoder": False}
    with pytest.raises(BadInputError, match="name sides, not modules"):
        diff_modules(model, model, None, options=DiffOptions(audit_config=True), **how)
    with pytest.raises(BadInputError, match="two modules need inputs"):
        diff_modules(model, model, None, options=None, **how)
    write_step(tmp_path, {"model-output": numbers(3)})
    with pytest.raises(BadInputError, match="does not say which token ids it was run on"):
        diff_modules(model, tmp_path, None, options=None, **how)


N = sum(LENGTHS)
EXACT = np.random.default_rng(0).standard_normal((N, 6))


def summed(*values: Array) -> Pinned:
    found = {
        row: TokenRow(positions=np.arange(len(value)), values=value)
        for row, value in enumerate(values)
    }
    return Pinned(rows=found, names=("a",), dtype="float32", summed=found)


def test_summands_that_were_never_summed_up() -> None:
    check = check_of("model.mlp-output", EXACT, EXACT / 2)
    whole = EXACT[: LENGTHS[0]], EXACT[LENGTHS[0] :]
    (said,) = phrases_of_ranks(check, summed(*whole))
    assert said.endswith("never summed up")
    for pin in (
        None,
        summed(whole[0]),  # of one row only
        summed(whole[0], whole[1][:2]),
        summed(whole[0], whole[1] * 2),  # the sum is wrong, too
        replace(summed(*whole), summed={}),
    ):
        assert list(phrases_of_ranks(check, pin)) == []


def of_ranks(tmp_path: Path, names: Sequence[str], *, unlike: bool) -> RankTensors:
    for rank in range(2):
        tensors = {
            name: numbers(4, 6, seed=at + (rank if unlike else 0)) for at, name in enumerate(names)
        }
        write_step(tmp_path / f"rank{rank}" / "0", tensors)
    return RankTensors(open_dump(tmp_path), rank=None)


def joined(
    ranks: RankTensors, tmp_path: Path, arrays: Mapping[int, Array], *, trailing: Any = (12,),
    is_whole: bool = False, from_parts: bool = False,
) -> Any:  # fmt: skip
    def copies(array: Array) -> dict[int, TokenRow]:
        if not is_whole:
            raise BadInputError("no row of that size")
        return {0: TokenRow(positions=np.arange(len(array)), values=array)}

    def cut(array: Array, wanted: Wanted) -> dict[int, TokenRow] | None:
        if array.shape[1:] != wanted.trailing:
            return None
        return {0: TokenRow(positions=np.arange(len(array)), values=array)}

    entry = TensorEntry(name="a-output", step=0, order=0, path=tmp_path)
    return ranks.join(
        "a-output", arrays, entry=entry, wanted=Wanted(trailing=trailing), copies=copies, cut=cut,
        from_parts=lambda: from_parts,
    )  # fmt: skip


def test_parts_lie_side_by_side_or_do_not_join(tmp_path: Path) -> None:
    ranks = of_ranks(tmp_path, ["a-output"], unlike=True)
    parts = {rank: numbers(4, 6, seed=rank) for rank in range(2)}
    found = joined(ranks, tmp_path, parts)
    np.testing.assert_array_equal(found.rows[0].values, np.concatenate([*parts.values()], axis=1))
    assert [(share.rank, share.start, share.stop) for share in found.shares] == [
        (0, 0, 6),
        (1, 6, 12),
    ]
    with pytest.raises(BadInputError, match="rank 1 lacks a-output"):
        joined(ranks, tmp_path, {0: parts[0]})
    for trailing in ((), (13,), (40,)):
        with pytest.raises(BadInputError):
            joined(ranks, tmp_path, parts, trailing=trailing)


@pytest.mark.parametrize(("later", "done"), [("b-output", True), ("", False)])
def test_summands_are_summed_up_later_or_not(tmp_path: Path, later: str, done: bool) -> None:
    ranks = of_ranks(tmp_path, ["a-output", *([later] if later else [])], unlike=False)
    parts = {rank: numbers(4, 6, seed=rank + 5) for rank in range(2)}
    found = joined(ranks, tmp_path, parts, is_whole=True, from_parts=True)
    total = parts[0] + parts[1]
    values = found.rows[0].values if done else found.summed[0].values
    np.testing.assert_allclose(values, total, rtol=1e-6)
    again = joined(ranks, tmp_path, parts, is_whole=True)  # the same summands are known
    np.testing.assert_allclose((again.rows if done else again.summed)[0].values, total, rtol=1e-6)
    assert ranks.unlike == []
    joined(ranks, tmp_path, {0: parts[0], 1: parts[0] + 1}, is_whole=True)
    assert ranks.unlike == ["a-output"]


def test_steps_that_only_the_reference_has_are_told() -> None:
    assert list(steps_left(replace(RUN, steps=3), replace(RUN, steps=2))) == [
        "the candidate has 2 of the reference's 3 steps: of what comes after them nothing was "
        "compared"
    ]
    assert list(steps_left(replace(RUN, steps=2), replace(RUN, steps=3))) == []
    assert list(steps_left(None, RUN)) == list(steps_left(RUN, None)) == []
