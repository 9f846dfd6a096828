"""Which tokens each step computed, read off what the model was given, and prompts put together."""

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from comparison.chunks import JoinedDump, joined_chunks, skipped_tokens, with_stretches
from comparison.numerics.dtypes import Array
from comparison.observed_stretches import _only_place
from comparison.pipeline import CompareOptions, compare
from comparison.schema.comparison import Verdict
from comparison.schema.manifest import Padding, Row, Stretch
from comparison.schema.tolerance import Tolerance
from comparison.store.dump import Dump, open_dump
from comparison.store.manifest_file import read_manifest, write_manifest
from tests.comparison.dumps import make_manifest, numbers, write_step

IDS = [5, 9, 2, 33, 41, 7, 60, 22]
HIDDEN = numbers(9, 4)  # of the prompt and of one generated token
NAME = "model.layers.0-output"
EXACT = Tolerance(rtol=0.0, atol=0.0)
Given = tuple[Sequence[Sequence[int]] | None, Sequence[Sequence[int]] | None]


def step(ids: object, positions: object, hidden: Array) -> dict[str, Array]:
    """Give what a step dumps: token ids and positions as far as they are known, and an output."""
    given = {"input_ids": ids, "position_ids": positions}
    return {
        **{f"model-input_{name}": np.array(v) for name, v in given.items() if v is not None},
        NAME: hidden,
    }


def dump(
    path: Path,
    steps: Sequence[dict[str, Array]],
    *,
    rows: Sequence[Sequence[int]] = (IDS,),
    padding: Padding = Padding.NONE,
    generated: Sequence[int] = (13,),
    stretches: tuple[tuple[Stretch, ...], ...] = (),
) -> Dump:
    for number, tensors in enumerate(steps):
        write_step(path / str(number), tensors)
    manifest = make_manifest("torch", padding=padding, rows=rows, steps=len(steps))
    told = tuple(Row(prompt=None, token_ids=tuple(row), generated=tuple(generated)) for row in rows)
    write_manifest(path / "manifest.json", replace(manifest, rows=told, stretches=stretches))
    return open_dump(path)


def part(first: int, stop: int, *, ids: bool = True, positions: bool = True) -> dict[str, Array]:
    tokens = [*IDS, 13]
    return step(
        [tokens[first:stop]] if ids else None,
        [list(range(first, stop))] if positions else None,
        HIDDEN[first:stop][None],
    )


def spans(found: Dump) -> list[tuple[int, int]]:
    assert found.manifest is not None
    return [(s.first, s.count) for stretches in found.manifest.stretches for s in stretches]


@pytest.mark.parametrize(("ids", "positions"), [(True, True), (True, False), (False, True)])
def test_chunks_are_placed_by_ids_or_positions(tmp_path: Path, ids: bool, positions: bool) -> None:
    cuts = ((0, 3), (3, 6), (6, 8), (8, 9))
    found = dump(tmp_path, [part(*cut, ids=ids, positions=positions) for cut in cuts])
    apart = with_stretches(found)
    assert spans(apart) == [(0, 3), (3, 3), (6, 2), (8, 1)]
    assert apart.notes == ("3 chunks (3, 3, 2 tokens) were joined",)


def test_calls_within_a_step_are_steps_of_their_own(tmp_path: Path) -> None:
    once = {**part(0, 5), "model.rope-output": np.ones(3), "by hand": np.ones(2)}
    again = {name.replace("-", "(2)-"): array for name, array in part(5, 8).items()}
    found = joined_chunks(dump(tmp_path, [once | again, part(8, 9)]))
    assert isinstance(found, JoinedDump)
    names = {entry.name: entry for entry in found.entries if entry.step == 0}
    assert set(names) == {
        NAME, "model-input_input_ids", "model-input_position_ids", "model.rope-output", "by hand",
    }  # fmt: skip
    np.testing.assert_array_equal(found.read(names[NAME]), HIDDEN[:8])
    np.testing.assert_array_equal(found.read(names["by hand"]), np.ones(2))  # as it is
    (later,) = [e for e in found.entries if e.step == 1 and e.name == NAME]
    np.testing.assert_array_equal(found.read(later), HIDDEN[None, 8:])


def test_a_cached_prefix_is_said(tmp_path: Path) -> None:
    found = joined_chunks(dump(tmp_path, [part(3, 8), part(8, 9)]))
    assert found.notes == ("rows 0-2 not computed (cached)",)
    assert skipped_tokens(found) == (3,)


def test_single_rows_that_are_missing_are_spelled_apart(tmp_path: Path) -> None:
    steps = [part(0, 2), part(3, 5), part(7, 8)]
    found = with_stretches(dump(tmp_path, steps, generated=()))
    assert found.notes[0] == "rows 2, 5-6 not computed (cached)"
    assert joined_chunks(found) is found  # with holes there is nothing to join


@pytest.mark.parametrize(
    "steps",
    [
        [part(0, 8), part(8, 9)],
        [part(0, 8), part(0, 9)],  # all of it anew, of which the newest counts
        [step(None, None, HIDDEN[None, :8]), step(None, None, HIDDEN[None, 8:])],
        [step([[1, 2, 3]], None, HIDDEN[None, :3])],  # such ids are nowhere
        [step([[5, 9]], [[0, 1, 2]], HIDDEN[None, :3])],  # they do not belong together
        [step([[5, 2]], [[0, 2]], HIDDEN[None, :2])],  # with holes
        [step([[9, 9]], [[0, 1]], HIDDEN[None, :2])],  # other tokens there
        [step([[5.0, 9.0]], None, HIDDEN[None, :2])],  # no ids
        [step(np.zeros((2, 1), int), None, HIDDEN[None, :2])],  # of two rows
        [step(np.zeros((0, 3), int), None, HIDDEN[None, :2])],
    ],
)
def test_what_is_usual_or_not_known_is_left_as_it_is(
    tmp_path: Path, steps: list[dict[str, Array]]
) -> None:
    found = dump(tmp_path, steps)
    assert with_stretches(found) is found
    assert joined_chunks(found) is found
    assert skipped_tokens(found) == ()


def test_ids_that_are_at_two_places_go_on_where_the_step_before_ended(tmp_path: Path) -> None:
    rows = [[4, 4, 4, 4, 8, 6]]
    tokens = [step([[4, 4]], None, HIDDEN[None, :2]), step([[8, 6]], None, HIDDEN[None, 4:6])]
    assert spans(with_stretches(dump(tmp_path / "a", tokens, rows=rows))) == [(0, 2), (4, 2)]
    lost = [step([[4, 4, 8]], None, HIDDEN[None, :3]), step([[4]], None, HIDDEN[None, :1])]
    # The second one may be any of four, so it is taken for the next token.
    assert spans(with_stretches(dump(tmp_path / "b", lost, rows=rows))) == [(2, 3), (5, 1)]


def test_a_dump_without_manifest_or_rows(tmp_path: Path) -> None:
    write_step(tmp_path / "a" / "0", part(0, 3))
    bare = open_dump(tmp_path / "a")
    assert with_stretches(bare) is bare
    no_rows = dump(tmp_path / "b", [part(0, 3)], rows=())
    assert with_stretches(no_rows) is no_rows


ROWS = (IDS, [3, 1, 4])


@pytest.mark.parametrize("ids", [True, False])
def test_ragged_rows_are_cut_where_positions_do_not_go_on(tmp_path: Path, ids: bool) -> None:
    flat = [[*IDS[2:5], *ROWS[1]]] if ids else None
    given = step(flat, [[2, 3, 4, 0, 1, 2]], numbers(6, 4))
    rest = step([IDS[5:]] if ids else None, [[5, 6, 7]], numbers(3, 4))
    found = dump(tmp_path, [given, rest], rows=ROWS, padding=Padding.RAGGED, generated=())
    apart = with_stretches(found)
    assert spans(apart) == [(2, 3), (0, 3), (5, 3)]
    assert apart.notes == (
        "rows 0-1 of sequence 0 not computed (cached)",
        "2 chunks of sequence 0 (3, 3 tokens) were joined",
    )
    joined = joined_chunks(found)
    assert skipped_tokens(joined) == (2, 0)
    (whole,) = [entry for entry in joined.entries if entry.name == NAME]
    np.testing.assert_array_equal(
        joined.read(whole), np.concatenate([numbers(6, 4)[:3], numbers(3, 4), numbers(6, 4)[3:]])
    )


@pytest.mark.parametrize(
    ("ids", "positions", "padding"),
    [
        ([[*IDS, *ROWS[1]]], None, Padding.RAGGED),  # where one ends is not told
        (None, [[0, 0, 0, 0]], Padding.RAGGED),  # more rows than there are
        ([IDS, [0] * 5 + ROWS[1]], [list(range(8))] * 2, Padding.LEFT),  # padded: as ever
    ],
)
def test_of_several_rows_nothing_is_guessed(
    tmp_path: Path, ids: object, positions: object, padding: Padding
) -> None:
    found = dump(
        tmp_path, [step(ids, positions, numbers(11, 4))], rows=ROWS, padding=padding, generated=()
    )
    assert with_stretches(found) is found


def test_rows_of_one_length_are_placed_one_by_one(tmp_path: Path) -> None:
    rows = ([5, 9, 2, 33], [3, 1, 4, 8])
    steps = [
        step([row[a:b] for row in rows], [list(range(a, b))] * 2, numbers(2, 2, 4, seed=a))
        for a, b in ((0, 2), (2, 4))
    ]
    found = joined_chunks(dump(tmp_path, steps, rows=rows, generated=()))
    (whole,) = [entry for entry in found.entries if entry.name == NAME]
    parts = [numbers(2, 2, 4, seed=a) for a in (0, 2)]
    np.testing.assert_array_equal(
        found.read(whole), np.concatenate([p[row] for row in range(2) for p in parts])
    )


def test_positions_of_three_axes_are_those_of_the_first(tmp_path: Path) -> None:
    steps = []
    for a, b in ((0, 5), (5, 8)):
        positions = np.broadcast_to(np.arange(a, b), (3, 1, b - a))  # as for pictures
        steps.append(step([IDS[a:b]], positions, HIDDEN[None, a:b]))
    assert spans(with_stretches(dump(tmp_path, steps, generated=()))) == [(0, 5), (5, 3)]


def test_ids_that_cannot_be_read_are_not_looked_at(tmp_path: Path) -> None:
    found = dump(tmp_path, [part(0, 3), part(3, 8)], generated=())
    for number in range(2):
        (tmp_path / str(number) / "model-input_input_ids.max").write_bytes(b"no such format")
    found = open_dump(tmp_path)
    assert spans(with_stretches(found)) == [(0, 3), (3, 5)]  # by the positions


def test_masks_that_grow_from_chunk_to_chunk_are_those_of_the_last(tmp_path: Path) -> None:
    steps = [part(0, 5), part(5, 8)]
    for number, (rows, keys) in enumerate(((5, 5), (3, 8))):
        steps[number]["model.mask-output"] = numbers(1, 1, rows, keys)
        steps[number]["model.kept-output"] = numbers(1, rows, keys)
    found = joined_chunks(dump(tmp_path, steps, generated=()))
    read = {entry.name: found.read(entry).shape for entry in found.entries}
    assert read["model.mask-output"] == (1, 1, 3, 8)
    assert read["model.kept-output"] == (1, 3, 8)


def test_what_the_manifest_says_needs_no_tensor(tmp_path: Path) -> None:
    known = ((Stretch(row=0, first=2, count=6),), (Stretch(row=0, first=8, count=1),))
    steps = [part(a, b, ids=False, positions=False) for a, b in ((2, 8), (8, 9))]
    found = joined_chunks(dump(tmp_path, steps, stretches=known))
    assert skipped_tokens(found) == (2,)
    write_manifest(
        tmp_path / "manifest.json",
        replace(read_manifest(tmp_path / "manifest.json"), stretches=known[1:]),
    )
    other = open_dump(tmp_path)
    assert joined_chunks(other) is other  # no step of the prompt


def test_a_whole_prompt_is_compared_with_one_in_chunks(tmp_path: Path) -> None:
    dump(tmp_path / "whole", [part(0, 8), part(8, 9)])
    dump(tmp_path / "parts", [part(0, 3), part(3, 8), part(8, 9)])
    options = CompareOptions(tolerance=Tolerance(rtol=0.0, atol=0.0))
    found = compare(tmp_path / "whole", tmp_path / "parts", options)
    assert found.verdict is Verdict.AGREE
    assert {(p.reference.step, p.candidate.step) for p in found.pairs} == {(0, 0), (1, 1)}
    wrong = [part(0, 3), part(3, 8), part(8, 9)]
    wrong[1][NAME] = wrong[1][NAME] + np.float32(1)
    dump(tmp_path / "wrong", wrong)
    assert compare(tmp_path / "whole", tmp_path / "wrong", options).verdict is Verdict.DIFFER


def test_a_step_that_computed_nothing_is_no_part_of_the_prompt(tmp_path: Path) -> None:
    told = ((Stretch(row=0, first=0, count=3),), (), (Stretch(row=0, first=3, count=5),))
    parts = [step(None, None, part) for part in (HIDDEN[:3], HIDDEN[:0], HIDDEN[3:8])]
    odd = dump(tmp_path / "a", parts)
    manifest = read_manifest(odd.path / "manifest.json")
    write_manifest(odd.path / "manifest.json", replace(manifest, stretches=told))
    whole = dump(tmp_path / "b", [step(None, None, HIDDEN[:8])])
    for sides in ((odd.path, odd.path), (odd.path, whole.path), (whole.path, odd.path)):
        assert compare(*sides, CompareOptions(tolerance=EXACT)).verdict is Verdict.AGREE


def test_long_prompts_of_one_token_are_placed_at_once(tmp_path: Path) -> None:
    """Not in a time that grows with the product of a prompt's and a chunk's length."""
    prompt = [7] * 60_000
    begin = time.process_time()
    assert _only_place(prompt, [7] * 30_000) is None
    assert _only_place([*prompt, 8], [*[7] * 30_000, 8]) == 30_000
    assert _only_place(prompt, [9]) is None
    assert time.process_time() - begin < 1
