"""Pairs that a user gives."""

import difflib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from comparison.align.pairing import Listing, pair_tensors
from comparison.schema.errors import BadInputError, CorruptFileError
from comparison.schema.tensor_entry import TensorEntry
from diagnosis import name_map
from diagnosis.name_map import Counterpart, map_of, read_map, with_map


def entries(path: str, *names: str, steps: int = 2) -> tuple[TensorEntry, ...]:
    return tuple(
        TensorEntry(name=name, step=step, order=order, path=Path(path) / name)
        for step in range(steps)
        for order, name in enumerate(names)
    )


REFERENCE = entries("r", "model.a-output", "model.b-output", "model.c-output")
CANDIDATE = entries("c", "model.a-output", "net.x-output", "net.yz-output")
PAIRING = pair_tensors(
    Listing(entries=REFERENCE, engine="torch"), Listing(entries=CANDIDATE, engine="torch")
)


def test_a_map_adds_pairs_in_every_step_and_takes_them_off_the_list() -> None:
    names = {"model.b-output": Counterpart(candidate="net.x-output")}
    found = with_map(PAIRING, names, REFERENCE, CANDIDATE)
    added = [pair for pair in found.pairs if pair.reason == "given by the map"]
    assert [(pair.reference.name, pair.candidate.name, pair.reference.step) for pair in added] == [
        ("model.b-output", "net.x-output", 0),
        ("model.b-output", "net.x-output", 1),
    ]
    assert {item.entry.name for item in found.unpaired} == {"model.c-output", "net.yz-output"}


def test_a_map_wins_over_equal_names() -> None:
    names = {"model.c-output": Counterpart(candidate="model.a-output")}
    found = with_map(PAIRING, names, REFERENCE, CANDIDATE)
    assert {pair.reference.name for pair in found.pairs} == {"model.c-output"}


def test_parts_of_a_fused_tensor_go_through_a_file_and_back(tmp_path: Path) -> None:
    parts = ("model.b-output", "model.c-output")
    names = {part: Counterpart(candidate="net.yz-output", parts=parts) for part in parts}
    found = with_map(PAIRING, names, REFERENCE, CANDIDATE)
    assert [pair.fused.position for pair in found.pairs if pair.fused] == [0, 0, 1, 1]
    path = tmp_path / "map.json"
    path.write_text(json.dumps(map_of(found)))
    again = read_map(path)
    assert {name: again[name] for name in parts} == names
    assert again["model.a-output"] == Counterpart(candidate="model.a-output")


def test_names_that_do_not_exist_are_all_named_with_the_nearest() -> None:
    names = {
        "model.bb-output": Counterpart(candidate="net.x-output"),
        "model.b-output": Counterpart(candidate="net.w-output"),
    }
    with pytest.raises(BadInputError) as error:
        with_map(PAIRING, names, REFERENCE, CANDIDATE)
    assert "the reference has no model.bb-output (nearest: model.b-output)" in str(error.value)
    assert "the candidate has no net.w-output (nearest: net.x-output)" in str(error.value)


def test_of_many_names_that_do_not_exist_a_few_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    nearest = difflib.get_close_matches

    def counted(name: str, *known: Any, **options: Any) -> list[str]:
        asked.append(name)
        return nearest(name, *known, **options)

    monkeypatch.setattr(difflib, "get_close_matches", counted)
    names = {
        f"{'x' * 100_000}{n}": Counterpart(candidate=f"z{n}", parts=(f"y{n}",)) for n in range(40)
    }
    with pytest.raises(BadInputError, match="and 115 more") as error:
        with_map(PAIRING, names, REFERENCE, CANDIDATE)
    assert len(asked) == 5
    assert len(str(error.value)) < 2000


def test_a_map_in_python_names_no_tensor_twice_either() -> None:
    names = {
        name: Counterpart(candidate="net.x-output") for name in ("model.b-output", "model.c-output")
    }
    with pytest.raises(BadInputError, match=r"named for model\.b-output and for model\.c-output"):
        with_map(PAIRING, names, REFERENCE, CANDIDATE)


def test_what_a_map_cannot_say_is_not_printed_and_stays() -> None:
    summed, whole = (pair for pair in PAIRING.pairs)
    pairing = replace(PAIRING, pairs=(replace(summed, addend=CANDIDATE[1]), whole))
    assert map_of(pairing) == {"model.a-output": "model.a-output"}
    assert map_of(replace(pairing, pairs=pairing.pairs[:1])) == {}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "is not JSON"),
        ("[]", "expected an object of the reference's tensors"),
        ('{"a": 3}', "'a': expected a candidate's tensor"),
        ('{"a": {"fused": "x", "parts": ["b"]}}', "with this tensor among the parts"),
        ("[" * 100_000, "is not JSON"),
        ('{"a": "x", "b": "y", "a": "z"}', "expected each tensor once: 'a' is given twice"),
        ('{"a": {"fused": "x", "fused": "y", "parts": ["a"]}}', "'fused' is given twice"),
        ('{"a": "x", "b": "y", "c": "x"}', "'x' is named for a and for c: a tensor of the"),
        (
            '{"a": "x", "b": {"fused": "x", "parts": ["b", "c"]}}',
            "'x' is named for a and for b",
        ),
        (
            '{"a": {"fused": "x", "parts": ["a", "b"]}, "b": {"fused": "x", "parts": ["b", "a"]}}',
            "'x' is named for a and for b",
        ),
        ('{"a": {"fused": "x", "parts": ["a", "a"]}}', "and each part once"),
    ],
)
def test_files_that_are_no_map_are_refused(content: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "map.json"
    path.write_text(content)
    with pytest.raises(BadInputError, match=r"map\.json") as error:
        read_map(path)
    assert message in str(error.value)


def test_a_missing_map_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="a JSON file, found nothing at"):
        read_map(tmp_path / "map.json")


def test_a_device_is_no_map() -> None:
    with pytest.raises(BadInputError, match="found no regular file at /dev/zero"):
        read_map(Path("/dev/zero"))


def test_a_path_that_the_system_refuses(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match=r"^cannot read .*: File name too long$"):
        read_map(tmp_path / ("x" * 300))


def test_a_file_larger_than_any_map_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(name_map, "_LARGEST_FILE", 4)
    path = tmp_path / "map.json"
    path.write_text("{   }")
    with pytest.raises(CorruptFileError, match=r"map\.json: expected at most 4 bytes, found more$"):
        read_map(path)


def test_steps_that_only_one_side_has_get_no_pair() -> None:
    names = {"model.b-output": Counterpart(candidate="net.x-output")}
    reference = entries("r", "model.a-output", "model.b-output", steps=1)
    found = with_map(PAIRING, names, reference, CANDIDATE)
    added = [pair for pair in found.pairs if pair.reason == "given by the map"]
    assert [pair.candidate.step for pair in added] == [0]
