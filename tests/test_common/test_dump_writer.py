import json
import os
import resource
import signal
from pathlib import Path
from typing import Any

import pytest
import torch

from comparison.schema.errors import UnwritableOutputError
from comparison.schema.manifest import CaptureCertificate, Manifest, Padding, Row
from comparison.schema.tensor_names import name_of_stem
from test_common.dump_writer import DumpWriter
from test_common.folder_lock import FolderLock

CERTIFICATE = CaptureCertificate(registered=2, fired=2, saved=2)


def make_manifest(**changes: Any) -> Manifest:
    values: dict[str, Any] = {
        "engine": "torch",
        "versions": {"torch": "2"},
        "model": "tiny",
        "pipeline": "tiny",
        "encoding": "float32",
        "device": "cpu",
        "padding": Padding.NONE,
        "rows": (Row(prompt=None, token_ids=(1, 2)),),
        "steps": 1,
    }
    return Manifest(**(values | changes))


def read(path: Path) -> torch.Tensor:
    tensor = torch.load(path, weights_only=True)
    assert isinstance(tensor, torch.Tensor)
    return tensor


def names(folder: Path) -> list[str]:
    return (folder / "tensor_names.txt").read_text(encoding="utf-8").splitlines()


def read_json(out: Path) -> dict[str, Any]:
    value = json.loads((out / "manifest.json").read_text())
    assert isinstance(value, dict)
    return value


def content(folder: Path) -> list[str]:
    paths = (path for path in folder.rglob("*") if path.name != ".lock")
    return sorted(str(path.relative_to(folder)) for path in paths)


def test_nothing_is_created_before_the_first_write(tmp_path: Path) -> None:
    writer = DumpWriter(tmp_path / "a" / "out")
    writer.step()
    assert content(tmp_path) == []


def test_tensors_names_and_steps(tmp_path: Path) -> None:
    writer = DumpWriter(tmp_path / "a" / "out")
    writer.save("model.b-output", torch.ones(2))
    path = writer.save("model.a-output", torch.zeros(3))
    writer.step()
    writer.step()  # nothing in step 1
    writer.save("model.a-output", torch.ones(1))
    writer.step()
    assert path == tmp_path / "a" / "out" / "0" / "model.a-output.pt"
    assert content(writer.out) == [
        "0",
        "0/model.a-output.pt",
        "0/model.b-output.pt",
        "0/tensor_names.txt",
        "2",
        "2/model.a-output.pt",
        "2/tensor_names.txt",
    ]
    assert names(writer.out / "0") == ["model.b-output", "model.a-output"]
    assert torch.equal(read(path), torch.zeros(3))


@pytest.mark.parametrize(
    "tensor",
    [
        torch.randn(2, 3).bfloat16(),
        torch.randn(2, 3).to(torch.float8_e4m3fn),
        torch.tensor(True),
        torch.zeros(0, 4),
        torch.randn(3, 4).T[::2],
        torch.tensor([1 + 2j]).conj(),
        torch.nn.Parameter(torch.randn(2)),
        torch.tensor([torch.nan, -torch.inf]),
    ],
    ids=["bf16", "fp8", "bool 0-d", "empty", "strided", "conjugate", "parameter", "nan"],
)
def test_every_kind_of_tensor_comes_back_as_it_was(tmp_path: Path, tensor: torch.Tensor) -> None:
    back = read(DumpWriter(tmp_path / "out").save("x", tensor))
    assert type(back) is torch.Tensor
    torch.testing.assert_close(back, tensor.detach(), rtol=0, atol=0, equal_nan=True)


def test_view_of_a_large_storage_gives_a_small_file(tmp_path: Path) -> None:
    path = DumpWriter(tmp_path / "out").save("x", torch.zeros(1_000_000)[:4])
    assert path.stat().st_size < 5000


def test_alias_of_unchanged_memory_is_written_once(tmp_path: Path) -> None:
    writer, tensor = DumpWriter(tmp_path / "out"), torch.ones(4)
    first = writer.save("a-output", tensor)
    second = writer.save("b-input_0", tensor)
    third = writer.save("c-input_0", tensor.view(2, 2))
    assert first.samefile(second)
    assert not first.samefile(third)
    assert read(third).shape == (2, 2)
    assert names(writer.out / "0") == ["a-output", "b-input_0", "c-input_0"]


@pytest.mark.parametrize("inference", [False, True])
def test_alias_of_changed_memory_is_written_again(tmp_path: Path, inference: bool) -> None:
    writer = DumpWriter(tmp_path / "out")
    with torch.inference_mode(inference):
        tensor = torch.ones(4)
        first = writer.save("a", tensor)
        tensor.data.add_(1)  # this change does not count up the tensor's version
        second = writer.save("b", tensor)
        third = writer.save("c", tensor)
    assert read(first).tolist() == [1.0] * 4
    assert read(second).tolist() == [2.0] * 4
    assert second.samefile(third)


def test_no_alias_across_steps(tmp_path: Path) -> None:
    writer, tensor = DumpWriter(tmp_path / "out"), torch.ones(4)
    first = writer.save("a", tensor)
    writer.step()
    assert not first.samefile(writer.save("a", tensor))


def test_alias_is_copied_where_links_do_not_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    writer, tensor = DumpWriter(tmp_path / "out"), torch.ones(4)
    first, second = writer.save("a", tensor), writer.save("b", tensor)
    assert not first.samefile(second)
    assert torch.equal(read(first), read(second))


def test_name_that_the_step_has_already_counts_up(tmp_path: Path) -> None:
    writer = DumpWriter(tmp_path / "out")
    for number in range(3):
        writer.save("model.a-output", torch.tensor(number))
        writer.save("hand", torch.tensor(number))
    folder = writer.out / "0"
    expected = ["model.a-output", "hand", "model.a(2)-output", "hand(2)"]
    assert names(folder) == [*expected, "model.a(3)-output", "hand(3)"]
    assert read(folder / "model.a(3)-output.pt").item() == 2


def test_hostile_names_stay_inside_and_come_back(tmp_path: Path) -> None:
    hostile = ["/a/b", "a:b", "..", "../x", "ä/模", "a", "a/", "a_b", "a/b", ".", "x\0y", "a\nb"]
    writer = DumpWriter(tmp_path / "out")
    paths = [writer.save(name, torch.tensor(i)) for i, name in enumerate(hostile)]
    assert len(set(paths)) == len(hostile)
    assert {path.parent for path in paths} == {writer.out / "0"}
    assert [name_of_stem(path.stem) for path in paths] == hostile
    assert [read(path).item() for path in paths] == list(range(len(hostile)))
    assert names(writer.out / "0") == [*hostile[:10], "x%00y", "a%0Ab"]
    assert content(tmp_path)[0] == "out"
    assert len(list(tmp_path.iterdir())) == 1


def test_shortened_and_case_only_names_are_in_the_manifest_at_once(tmp_path: Path) -> None:
    writer = DumpWriter(tmp_path / "out")
    writer.start(make_manifest())
    long = "model." + "layer." * 60 + "-output"
    path = writer.save(long, torch.zeros(1))
    assert len(path.name.encode()) < 255
    assert read_json(writer.out)["file_names"] == {path.stem: long}
    assert read_json(writer.out)["complete"] is False
    writer.save("model.A-output", torch.zeros(1))
    lower = writer.save("model.a-output", torch.zeros(1))
    assert lower.name == "model.a-output~2.pt"
    writer.step()
    again = writer.save("model.a-output", torch.ones(1))  # alone in its step
    assert again.name == lower.name
    writer.finish(make_manifest(), CERTIFICATE)
    expected = {path.stem: long, "model.a-output~2": "model.a-output"}
    assert read_json(writer.out)["file_names"] == expected == writer.file_names


def test_manifest_is_incomplete_until_the_end(tmp_path: Path) -> None:
    writer = DumpWriter(tmp_path / "out")
    writer.start(make_manifest(complete=True))
    before = read_json(writer.out)
    assert (before["complete"], before["certificate"]) == (False, None)
    writer.finish(make_manifest(steps=3), CERTIFICATE)
    after = read_json(writer.out)
    assert (after["complete"], after["steps"]) == (True, 3)
    assert after["certificate"]["saved"] == 2
    writer.finish(make_manifest(), CERTIFICATE, complete=False)
    assert read_json(writer.out)["complete"] is False


def test_folder_in_use_is_refused_early_and_on_the_first_write(tmp_path: Path) -> None:
    out = tmp_path / "out"
    late = DumpWriter(out)
    early = DumpWriter(out)
    early.save("x", torch.ones(1))
    early.close()
    with pytest.raises(UnwritableOutputError, match="not empty"):
        DumpWriter(out)
    with pytest.raises(UnwritableOutputError, match="not empty"):
        late.save("x", torch.zeros(1))
    assert read(out / "0" / "x.pt").item() == 1


def test_overwriting_waits_for_the_first_write(tmp_path: Path) -> None:
    out = tmp_path / "out"
    old = DumpWriter(out)
    old.save("old", torch.ones(1))
    old.step()
    old.save("old", torch.ones(1))
    old.close()
    new = DumpWriter(out, overwrite=True)
    assert (out / "0" / "old.pt").exists()
    new.save("new", torch.ones(1))
    assert content(out) == ["0", "0/new.pt", "0/tensor_names.txt"]


def test_folder_is_locked_from_the_first_write_to_the_end(tmp_path: Path) -> None:
    out = tmp_path / "out"
    late = DumpWriter(out, overwrite=True)
    first = DumpWriter(out, overwrite=True)
    first.start(make_manifest())
    for attempt in (lambda: DumpWriter(out, overwrite=True), lambda: late.start(make_manifest())):
        with pytest.raises(UnwritableOutputError, match="another run is writing into it"):
            attempt()
    first.save("x", torch.ones(1))
    first.finish(make_manifest(), CERTIFICATE)
    assert [path.name for path in sorted(out.iterdir())] == ["0", "manifest.json"]
    late.save("y", torch.ones(1))
    assert content(out) == ["0", "0/tensor_names.txt", "0/y.pt"]


def test_writer_that_goes_on_after_the_end_locks_again(tmp_path: Path) -> None:
    out = tmp_path / "out"
    writer = DumpWriter(out)
    writer.save("x", torch.ones(1))
    writer.finish(make_manifest(), CERTIFICATE)
    writer.step()
    writer.save("x", torch.ones(1))
    with pytest.raises(UnwritableOutputError, match="another run is writing into it"):
        DumpWriter(out, overwrite=True)
    writer.close()
    DumpWriter(out, overwrite=True)
    assert content(out)[0] == "0"


def test_dump_that_another_run_finished_meanwhile_is_not_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"

    def lock_late(folder: Path) -> FolderLock:
        (folder / "precious").touch()
        return FolderLock(folder)

    monkeypatch.setattr("test_common.dump_folder.FolderLock", lock_late)
    with pytest.raises(UnwritableOutputError, match=r"is not empty \(precious\)"):
        DumpWriter(out).save("x", torch.ones(1))
    assert [path.name for path in out.iterdir()] == ["precious"]


def test_name_with_a_lone_surrogate_comes_back(tmp_path: Path) -> None:
    name = "model.\ud800-output"
    path = DumpWriter(tmp_path / "out").save(name, torch.ones(1))
    assert name_of_stem(path.stem) == name
    assert names(tmp_path / "out" / "0") == ["model.%ED%A0%80-output"]


def test_step_folder_that_appears_meanwhile_is_not_written_into(tmp_path: Path) -> None:
    outside, out = tmp_path / "outside", tmp_path / "out"
    outside.mkdir()
    writer = DumpWriter(out)
    writer.save("x", torch.ones(1))
    writer.step()
    (out / "1").symlink_to(outside)
    with pytest.raises(UnwritableOutputError, match=r"out/1: File exists"):
        writer.save("x", torch.ones(1))
    assert content(outside) == []


def test_full_disk_is_told_with_path_and_reason(tmp_path: Path) -> None:
    writer = DumpWriter(tmp_path / "out")
    writer.save("small", torch.ones(1))
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limits[1]))
    try:
        with pytest.raises(
            UnwritableOutputError, match=r"cannot write .*0/big\.pt: File too large"
        ):
            writer.save("big", torch.ones(1_000_000))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    assert content(writer.out) == ["0", "0/small.pt", "0/tensor_names.txt"]
    assert names(writer.out / "0") == ["small"]


def test_removed_folder_is_told(tmp_path: Path) -> None:
    writer = DumpWriter(tmp_path / "out")
    for path in (writer.save("x", torch.ones(1)), tmp_path / "out" / "0" / "tensor_names.txt"):
        path.unlink()
    (tmp_path / "out" / "0").rmdir()
    with pytest.raises(UnwritableOutputError, match=r"0/y\.pt: No such file or directory"):
        writer.save("y", torch.ones(2))


def test_engine_writes_a_step_by_itself(tmp_path: Path) -> None:
    writer = DumpWriter(tmp_path / "out")
    written = ["model.b-output", "model/a"]
    for step in (0, 1):
        folder = writer.engine_step_folder(step)
        assert folder == writer.out / f"{step}.partial"
        for name in written:
            (folder / f"{writer.stem(name)}.max").write_bytes(b"x")
        assert writer.adopt_engine_step(step, [*written, "lost"]) == ("lost",)
    assert content(writer.out)[:4] == [
        "0",
        "0/model%2Fa.max",
        "0/model.b-output.max",
        "0/tensor_names.txt",
    ]
    assert names(writer.out / "1") == written


def test_engine_step_is_never_overwritten(tmp_path: Path) -> None:
    writer = DumpWriter(tmp_path / "out")
    writer.engine_step_folder(0)
    with pytest.raises(UnwritableOutputError, match=r"0\.partial: File exists"):
        writer.engine_step_folder(0)
    writer.adopt_engine_step(0, [])
    with pytest.raises(UnwritableOutputError, match=r"step 0 is in .* already"):
        writer.engine_step_folder(0)
    writer.engine_step_folder(1)
    (writer.out / "1").mkdir()
    with pytest.raises(UnwritableOutputError, match=r"step 1 is in .* already"):
        writer.adopt_engine_step(1, [])


def test_files_that_the_engine_printed_by_hand_are_listed_last(tmp_path: Path) -> None:
    writer = DumpWriter(tmp_path / "out")
    folder = writer.engine_step_folder(0)
    for number, stem in enumerate(["mlp_gate", writer.stem("model/a"), "by%20hand", "early"]):
        (folder / f"{stem}.max").write_bytes(b"x")
        os.utime(folder / f"{stem}.max", ns=(0, 0 if stem == "early" else 10 + number))
    (folder / "engine.log").write_bytes(b"no tensor")
    assert writer.adopt_engine_step(0, ["model/a", "lost"]) == ("lost",)
    assert names(writer.out / "0") == ["model/a", "early", "mlp_gate", "by hand"]
