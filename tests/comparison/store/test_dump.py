"""What is found in a dump, by which name and in which order."""

import os
import shutil
import time
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from comparison.numerics.weight_record import WeightRecord
from comparison.numerics.weight_sketch import sketch_weight
from comparison.schema.errors import (
    BadInputError,
    CorruptFileError,
    MissingPathError,
    UnsupportedFormatError,
)
from comparison.schema.manifest import CaptureCertificate, RawTensor
from comparison.store import step_folder
from comparison.store.dump import Dump, open_dump
from comparison.store.manifest_file import write_manifest
from comparison.store.max_file import write_max_file
from comparison.store.safetensors_file import write_safetensors
from comparison.store.weights_file import WEIGHTS_NAME, write_weights
from tests.comparison.dumps import make_manifest, numbers, write_dump, write_step

ONE = np.ones(3, np.float32)


def found(dump: Dump) -> list[tuple[int, int, str]]:
    return [(entry.step, entry.order, entry.name) for entry in dump.entries]


def test_steps_in_order_of_execution(tmp_path: Path) -> None:
    write_dump(tmp_path, [{"b": ONE, "a": ONE}] + [{"b": ONE}] * 10)
    dump = open_dump(tmp_path)
    assert found(dump)[:3] == [(0, 0, "b"), (0, 1, "a"), (1, 0, "b")]
    assert [entry.step for entry in dump.entries] == [0, *range(11)]
    assert (dump.complete, dump.order_known, dump.engine, dump.notes) == (True, True, "max", ())
    np.testing.assert_array_equal(dump.read(dump.entries[1]), ONE)


def test_a_folder_made_by_hand_is_step_0_by_name(tmp_path: Path) -> None:
    for name in ("layers.10", "layers.2"):
        torch.save(torch.ones(2), tmp_path / f"{name}.pt")
    np.save(tmp_path / "extra.npy", ONE)
    (tmp_path / "run.log").write_text("lines")
    dump = open_dump(tmp_path)
    assert found(dump) == [(0, 0, "extra"), (0, 1, "layers.2"), (0, 2, "layers.10")]
    assert (dump.order_known, dump.manifest, dump.engine) == (False, None, None)


def test_the_engines_own_layout_of_files_above_the_order(tmp_path: Path) -> None:
    write_step(tmp_path, {"z": ONE, "a": ONE}, order=False)
    (tmp_path / "0").mkdir()
    (tmp_path / "0" / "tensor_names.txt").write_text("z\na\nnever printed\n")
    dump = open_dump(tmp_path)
    assert found(dump) == [(0, 0, "z"), (0, 1, "a")]
    assert (dump.complete, dump.order_known) == (True, True)


@pytest.mark.parametrize(
    ("stem", "label", "name"),
    [
        ("a_b_c", "a/b c", "a/b c"),
        ("renamed", "a/b", "renamed"),
        ("a%2Fb", "a%2Fb", "a/b"),
        ("%E6%A8%A1", "%E6%A8%A1", "模"),
    ],
)
def test_the_label_is_the_name_unless_the_file_was_renamed(
    tmp_path: Path, stem: str, label: str, name: str
) -> None:
    write_max_file(tmp_path / f"{stem}.max", ONE, key=label)
    assert open_dump(tmp_path).entries[0].name == name
    assert open_dump(tmp_path / f"{stem}.max").entries[0].name == name


def test_the_manifest_knows_shortened_names(tmp_path: Path) -> None:
    write_step(tmp_path / "0", {"long~0123": ONE, "unknown~9": ONE})
    manifest = make_manifest("max", file_names={"long~0123": "model.very.long"})
    write_manifest(tmp_path / "manifest.json", manifest)
    (tmp_path / "0" / "tensor_names.txt").write_text("model.very.long\nunknown~9\n")
    dump = open_dump(tmp_path)
    assert found(dump) == [(0, 0, "model.very.long"), (0, 1, "unknown~9")]
    assert dump.complete


def test_names_that_look_like_paths(tmp_path: Path) -> None:
    names = ["/a/b", "a:b", "..", "ä/模", "a", "a/", "a_b", "a b\nc"]
    write_step(tmp_path / "dump" / "0", dict.fromkeys(names, ONE), order=False)
    assert sorted(entry.name for entry in open_dump(tmp_path / "dump").entries) == sorted(names)
    assert [path.name for path in tmp_path.iterdir()] == ["dump"]


def test_a_dictionary_gives_its_keys(tmp_path: Path) -> None:
    torch.save({"q": torch.ones(1), "k": torch.zeros(1)}, tmp_path / "x.pt")
    assert found(open_dump(tmp_path / "x.pt")) == [(0, 0, "q"), (0, 1, "k")]
    torch.save({"q": torch.ones(1), "v": torch.zeros(1)}, tmp_path / "y.pt")
    names = sorted(entry.name for entry in open_dump(tmp_path).entries)
    assert names == ["k", "v", "x.q", "y.q"]


def test_a_lone_file_takes_the_manifest_of_its_dump(tmp_path: Path) -> None:
    write_dump(tmp_path, [{"a": ONE}, {"a": ONE}], engine="vllm")
    dump = open_dump(tmp_path / "1" / "a.max")
    assert found(dump) == [(1, 0, "a")]
    assert (dump.engine, dump.is_file) == ("vllm", True)
    assert found(open_dump(tmp_path / "1")) == [(1, 0, "a")]
    assert open_dump(tmp_path / "1").engine == "vllm"


def test_ranks(tmp_path: Path) -> None:
    for rank in (0, 1, 10):
        write_step(tmp_path / f"rank{rank}" / "0", {"a": ONE * rank})
    dump = open_dump(tmp_path)
    assert [(entry.rank, entry.order) for entry in dump.entries] == [(0, 0), (1, 0), (10, 0)]
    assert dump.read(dump.entries[2])[0] == 10


def test_bare_bytes(tmp_path: Path) -> None:
    (tmp_path / "0").mkdir()
    data = numbers(2, 3)
    (tmp_path / "0" / "model.mlp-output").write_bytes(data.tobytes())
    manifest = make_manifest("max")
    manifest.raw_tensors["0/model.mlp-output"] = RawTensor(dtype="float32", shape=(2, 3))
    write_manifest(tmp_path / "manifest.json", manifest)
    dump = open_dump(tmp_path)
    assert found(dump) == [(0, 0, "model.mlp-output")]
    np.testing.assert_array_equal(dump.read(dump.entries[0]), data)
    (tmp_path / "0" / "model.mlp-output").write_bytes(data.tobytes()[:-1])
    with pytest.raises(CorruptFileError, match="expected 24 bytes of data at byte 0"):
        dump.read(dump.entries[0])


def _incomplete(path: Path) -> None:
    write_step(path / "0", {"a": ONE})
    write_manifest(path / "manifest.json", make_manifest("max", complete=False))


def _half_a_step(path: Path) -> None:
    write_step(path / "0", {"a": ONE})
    write_step(path / "1.partial", {"a": ONE})


def _missing_file(path: Path) -> None:
    write_step(path / "0", {"a": ONE, "b": ONE})
    (path / "0" / "b.max").unlink()


@pytest.mark.parametrize("lay_out", [_incomplete, _half_a_step, _missing_file])
def test_partial_dumps_are_read_and_marked(tmp_path: Path, lay_out: Callable[[Path], None]) -> None:
    lay_out(tmp_path)
    dump = open_dump(tmp_path)
    assert not dump.complete
    assert {entry.name for entry in dump.entries} >= {"a"}


def test_a_listed_tensor_without_file_is_a_problem(tmp_path: Path) -> None:
    _missing_file(tmp_path)
    dump = open_dump(tmp_path)
    assert found(dump) == [(0, 0, "a"), (0, 1, "b")]
    (problem,) = dump.problems.values()
    assert problem == f"tensor_names.txt lists b, but {tmp_path / '0'} has no file for it"


def test_of_a_flood_of_listed_tensors_without_file_the_first_are_problems(tmp_path: Path) -> None:
    write_step(tmp_path / "0", {"a": ONE, "b": ONE})
    names = ["b", *(f"none.{number}" for number in range(30_000)), "none.7", "a"]
    (tmp_path / "0" / "tensor_names.txt").write_text("\n".join(names))
    tracemalloc.start()
    begin = time.process_time()
    dump = open_dump(tmp_path)
    taken, peak = time.process_time() - begin, tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert [entry.name for entry in dump.entries] == ["b", *names[1:1001], "a"]
    assert len(dump.problems) == 1000
    folder = tmp_path / "0"
    notes = (f"tensor_names.txt lists 29000 further names that have no file in {folder}",)
    assert (dump.complete, dump.notes) == (False, notes)
    assert taken < 3
    assert peak < 8_000_000


def test_a_list_of_too_many_names_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(step_folder, "_MOST_ORDER_LINES", 3)
    write_step(tmp_path / "0", {"a": ONE})
    (tmp_path / "0" / "tensor_names.txt").write_text("a\n\n\n\n")
    with pytest.raises(BadInputError, match=r"tensor_names\.txt: expected at most 3 lines, found"):
        open_dump(tmp_path)


@pytest.mark.parametrize("suffix", [".max", ".safetensors", ".npy", ".pt"])
def test_unreadable_files_do_not_stop_the_others(tmp_path: Path, suffix: str) -> None:
    write_step(tmp_path, {"good": ONE}, order=False)
    (tmp_path / f"bad{suffix}").write_bytes(b"no such format")
    dump = open_dump(tmp_path)
    assert [entry.name for entry in dump.entries] == ["bad", "good"]
    assert str(tmp_path / f"bad{suffix}") in dump.problems[dump.entries[0]]
    with pytest.raises(BadInputError, match=f"bad{suffix}"):
        open_dump(tmp_path / f"bad{suffix}")


def test_files_of_unknown_suffix_are_told(tmp_path: Path) -> None:
    write_step(tmp_path, {"good": ONE}, order=False)
    (tmp_path / "x.bin").write_bytes(b"1")
    (tmp_path / ".hidden.tmp").write_bytes(b"1")
    (tmp_path / "sketch.safetensors").write_bytes(b"1")
    dump = open_dump(tmp_path)
    assert [entry.name for entry in dump.entries] == ["good"]
    assert dump.notes == (
        f"1 hidden or temporary file(s) in {tmp_path} left out: .hidden.tmp",
        f"1 file(s) of unknown suffix in {tmp_path} left out: x.bin",
    )


def test_tensors_that_are_not_read_are_told(tmp_path: Path) -> None:
    write_step(tmp_path / "0", {"good": ONE})
    for folder in ("0/sub", "other/deep", "other.max.d", "plots", "rank0/0/more"):
        (tmp_path / folder).mkdir(parents=True)
    for file in ("0/.b.npy", "0/sub/b.npy", "other/deep/b.pt", "rank0/0/more/b.max", "plots/b.png"):
        (tmp_path / file).write_bytes(b"1")
    write_step(tmp_path / "rank0" / "0", {"good": ONE})
    dump = open_dump(tmp_path)
    assert [entry.name for entry in dump.entries] == ["good", "good"]
    assert dump.notes == (
        f"1 folder(s) with tensor files in {tmp_path} left out: other",
        f"1 hidden or temporary file(s) in {tmp_path}/0 left out: .b.npy",
        f"1 folder(s) with tensor files in {tmp_path}/0 left out: sub",
        f"1 folder(s) with tensor files in {tmp_path}/rank0/0 left out: more",
    )


def test_what_is_no_file_is_a_problem_by_its_name(tmp_path: Path) -> None:
    write_step(tmp_path, {"good": ONE}, order=False)
    (tmp_path / "dangling.npy").symlink_to("nowhere")
    (tmp_path / "loop.pt").symlink_to("loop.pt")
    (tmp_path / "folder.max").mkdir()
    (tmp_path / "latest").symlink_to("nowhere")
    os.mkfifo(tmp_path / "pipe.safetensors")
    (tmp_path / "device.npy").symlink_to("/dev/zero")
    dump = open_dump(tmp_path)
    problems = {entry.name: dump.problems.get(entry) for entry in dump.entries}
    assert problems == {
        "dangling": f"expected a file, found nothing at {tmp_path}/dangling.npy",
        "device": f"{tmp_path}/device.npy: expected a file, found a device",
        "folder": f"{tmp_path}/folder.max: expected a file, found a folder",
        "good": None,
        "loop": f"cannot read {tmp_path}/loop.pt: Too many levels of symbolic links",
        "pipe": f"{tmp_path}/pipe.safetensors: expected a file, found a pipe",
    }
    assert dump.notes == (f"1 file(s) of unknown suffix in {tmp_path} left out: latest",)
    with pytest.raises(CorruptFileError, match=r"device\.npy: expected a file, found a device"):
        dump.read(dump.entries[1])


def test_nothing_there(tmp_path: Path) -> None:
    with pytest.raises(MissingPathError, match=r"found nothing at .*nowhere"):
        open_dump(tmp_path / "nowhere")
    with pytest.raises(BadInputError, match=r"expected tensor files \(\.pt, .*found none"):
        open_dump(tmp_path)
    (tmp_path / "x.onnx").write_bytes(b"1")
    with pytest.raises(
        UnsupportedFormatError, match=r"expected a file of \.pt, .*, found .*x\.onnx"
    ):
        open_dump(tmp_path / "x.onnx")


def test_what_is_no_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.max")
    with pytest.raises(BadInputError, match=r"found a pipe: .*pipe\.max"):
        open_dump(tmp_path / "pipe.max")


def test_an_order_that_is_no_file(tmp_path: Path) -> None:
    write_step(tmp_path, {"good": ONE}, order=False)
    (tmp_path / "tensor_names.txt").mkdir()
    with pytest.raises(BadInputError, match=r"tensor_names\.txt: expected a file, found a folder"):
        open_dump(tmp_path)
    (tmp_path / "tensor_names.txt").rmdir()
    os.mkfifo(tmp_path / "tensor_names.txt")
    with pytest.raises(BadInputError, match=r"tensor_names\.txt: expected a file, found a pipe"):
        open_dump(tmp_path)


def _as_folder(path: Path) -> None:
    path.mkdir()


def _as_circle(path: Path) -> None:
    path.symlink_to(path.name)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (_as_folder, "expected a file, found a folder"),
        (os.mkfifo, "expected a file, found a pipe"),
        (_as_circle, "expected a manifest, found Too many levels of symbolic links"),
    ],
)
def test_a_manifest_that_is_no_file(
    tmp_path: Path, make: Callable[[Path], None], message: str
) -> None:
    write_step(tmp_path / "0", {"good": ONE})
    make(tmp_path / "manifest.json")
    for path in (tmp_path, tmp_path / "0"):
        with pytest.raises(CorruptFileError, match=rf"manifest\.json: {message}"):
            open_dump(path)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("a" * 300, "cannot read .*a: File name too long"),
        ("a/" * 3000, "cannot read .*a: File name too long"),
        ("a\0b", "cannot read .*a.x00b': embedded null byte"),
        ("\ud800", "cannot read .*surrogates not allowed"),
        ("file/below", "expected a file or folder, found nothing at .*below"),
        ("circle", "cannot read .*circle: Too many levels of symbolic links"),
        ("device", "expected a file or folder, found a device: .*device"),
    ],
)
def test_paths_that_the_system_refuses(tmp_path: Path, name: str, message: str) -> None:
    (tmp_path / "file").write_bytes(b"")
    (tmp_path / "circle").symlink_to("circle")
    (tmp_path / "device").symlink_to("/dev/null")
    with pytest.raises(BadInputError, match=message):
        open_dump(tmp_path / name)


def _gone(step: int) -> Callable[[Path], None]:
    return lambda path: shutil.rmtree(path / str(step))


def _empty(path: Path) -> None:
    (path / "1" / "a.max").unlink()


def _one_file(path: Path) -> None:
    (path / "0" / "b.max").unlink()
    (path / "0" / "tensor_names.txt").write_text("a\n")


PROMISES = [
    (_gone(1), {}, ["no tensors of step 1 are here (manifest: steps)"]),
    (_empty, {}, ["no tensors of step 1 are here (manifest: steps)"]),
    (_gone(1), {"steps": [0, 2]}, []),
    (_gone(2), {"steps": [0, 2]}, ["no tensors of step 2 are here (manifest: steps)"]),
    (_gone(1), {"steps": None}, ["no tensors of step 1 are here (manifest: steps)"]),
    (_one_file, {}, []),  # nothing tells of it
]


@pytest.mark.parametrize(("damage", "options", "notes"), PROMISES)
def test_steps_that_the_manifest_promises(
    tmp_path: Path, damage: Callable[[Path], None], options: dict[str, Any], notes: list[str]
) -> None:
    write_dump(tmp_path, [{"a": ONE, "b": ONE}, {"a": ONE}, {"a": ONE}])
    manifest = replace(make_manifest("max"), steps=3, options=options)
    write_manifest(tmp_path / "manifest.json", manifest)
    assert open_dump(tmp_path).complete
    damage(tmp_path)
    dump = open_dump(tmp_path)
    assert (dump.complete, dump.notes) == (not notes, tuple(notes))


def test_tensors_that_the_certificate_counts(tmp_path: Path) -> None:
    write_dump(tmp_path, [{"a": ONE, "b": ONE}, {"a": ONE}])
    certificate = CaptureCertificate(registered=2, fired=2, saved=3)
    # Of 9 steps a filter let only two have tensors: the count tells that this is all.
    manifest = replace(make_manifest("max"), steps=9, certificate=certificate)
    write_manifest(tmp_path / "manifest.json", manifest)
    assert open_dump(tmp_path).complete
    _one_file(tmp_path)
    dump = open_dump(tmp_path)
    assert not dump.complete
    assert dump.notes == (
        "the run saved 3 tensors, 2 are here (manifest: saved)",
        "no tensors of step 2, 3, 4, 5, 6, ... are here (manifest: steps)",
    )
    assert open_dump(tmp_path / "0").complete  # one step of it, as asked for


def test_a_step_without_any_tensor_is_partial(tmp_path: Path) -> None:
    write_step(tmp_path / "0", {"a": ONE})
    (tmp_path / "1").mkdir()
    dump = open_dump(tmp_path)
    assert (dump.complete, dump.notes) == (False, (f"no tensors in {tmp_path}/1",))
    (tmp_path / "1" / "tensor_names.txt").write_text("a\n")
    dump = open_dump(tmp_path)
    assert (dump.complete, found(dump)) == (False, [(0, 0, "a"), (1, 0, "a")])
    assert list(dump.problems.values()) == [
        f"tensor_names.txt lists a, but {tmp_path}/1 has no file for it"
    ]


def test_names_of_endless_digits(tmp_path: Path) -> None:
    digits = "9" * 5000
    torch.save({f"layers.{digits}": torch.ones(2), "layers.2": torch.ones(2)}, tmp_path / "x.pt")
    (tmp_path / "tensor_names.txt").write_text(f"{digits}\nlayers.2\n")
    names = [entry.name for entry in open_dump(tmp_path).entries]
    assert names == [digits, "layers.2", f"layers.{digits}"]


def test_numbered_folders_that_are_no_steps(tmp_path: Path) -> None:
    write_step(tmp_path / "0", {"a": ONE})
    write_step(tmp_path / "20261201123000", {"a": ONE})
    dump = open_dump(tmp_path)
    assert found(dump) == [(0, 0, "a")]
    assert dump.notes == (f"1 folder(s) with tensor files in {tmp_path} left out: 20261201123000",)


def test_a_manifest_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    write_dump(tmp_path, [{"a": ONE}])
    (tmp_path / "manifest.json").write_text("{")
    with pytest.raises(CorruptFileError, match=r"manifest\.json: expected JSON"):
        open_dump(tmp_path)


def test_weights_beside_the_tensors_of_a_run_are_none_of_them_without_a_manifest(
    tmp_path: Path,
) -> None:
    write_step(tmp_path / "0", {"a": numbers(3, 5)})
    weights = sketch_weight("w", numbers(3, 5))
    write_weights(tmp_path / WEIGHTS_NAME, WeightRecord(weights=(weights,)))
    dump = open_dump(tmp_path)
    assert [entry.name for entry in dump.entries] == ["a"]
    assert dump.complete
    assert dump.notes == (
        f"1 file(s) of weights, no tensors of the run, in {tmp_path} left out: {WEIGHTS_NAME}",
    )
    write_safetensors(tmp_path / WEIGHTS_NAME, {"w": numbers(3, 5).astype(float)}, metadata={})
    assert [entry.name for entry in open_dump(tmp_path).entries] == ["a"]  # a checkpoint's


def test_tensors_of_a_folder_made_by_hand_may_lie_in_a_file_of_that_name(tmp_path: Path) -> None:
    write_safetensors(tmp_path / WEIGHTS_NAME, {"w": numbers(3, 5).astype(float)}, metadata={})
    for path in (tmp_path, tmp_path / WEIGHTS_NAME):
        assert [entry.name for entry in open_dump(path).entries] == ["w"]
    write_weights(tmp_path / WEIGHTS_NAME, WeightRecord(weights=()))
    with pytest.raises(BadInputError, match="no tensors of the run"):
        open_dump(tmp_path)
    words = "expected a file of tensors, found projections of a run's weights: .*; name its folder"
    with pytest.raises(BadInputError, match=words):
        open_dump(tmp_path / WEIGHTS_NAME)


def test_a_list_of_names_that_links_to_nothing_is_told(tmp_path: Path) -> None:
    write_step(tmp_path / "0", {"a": ONE}, order=False)
    (tmp_path / "0" / "tensor_names.txt").symlink_to("nowhere")
    with pytest.raises(MissingPathError, match=r"found nothing at .*/0/tensor_names\.txt"):
        open_dump(tmp_path)


def test_a_record_of_weights_beside_the_tensors_of_a_run(tmp_path: Path) -> None:
    write_dump(tmp_path, [{"a": ONE}])
    write_weights(tmp_path / "0" / WEIGHTS_NAME, WeightRecord(weights=(), unread=()))
    assert (open_dump(tmp_path).notes, len(open_dump(tmp_path).entries)) == ((), 1)


def test_two_folders_of_one_rank(tmp_path: Path) -> None:
    for folder in ("rank1", "rank01"):
        write_step(tmp_path / folder / "0", {"a": ONE})
    dump = open_dump(tmp_path)
    assert not dump.complete
    assert dump.notes[-1] == "expected one folder a rank, found 2 folders of 1 ranks"


def test_ranks_of_another_run_are_told(tmp_path: Path) -> None:
    rows = {0: [[1, 2]], 1: [[1, 3]]}
    for rank, ids in rows.items():
        write_step(tmp_path / f"rank{rank}" / "0", {"a": ONE})
        manifest = make_manifest("torch", rows=ids, steps=rank + 1)
        write_manifest(tmp_path / f"rank{rank}" / "manifest.json", manifest)
    dump = open_dump(tmp_path)
    assert not dump.complete
    assert "rank1: its manifest is of another run than the dump's: steps, rows differ" in dump.notes


def test_a_step_folder_without_a_manifest_above_it(tmp_path: Path) -> None:
    write_step(tmp_path / "rank1" / "3", {"a": ONE})
    assert (open_dump(tmp_path / "rank1" / "3").manifest, found(open_dump(tmp_path))) == (
        None,
        [(3, 0, "a")],
    )
    write_manifest(tmp_path / "manifest.json", make_manifest("vllm"))  # that of all ranks
    dump = open_dump(tmp_path / "rank1" / "3")
    assert (dump.engine, found(dump)) == ("vllm", [(3, 0, "a")])
