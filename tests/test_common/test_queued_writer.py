"""What a writer with a queue leaves behind: the same dump, also after errors and kills."""

import json
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import safetensors.torch
import torch

from comparison.schema.errors import BudgetError, UnwritableOutputError
from comparison.schema.manifest import CaptureCertificate
from comparison.store.dump import Dump, open_dump
from test_common.dump_writer import DumpWriter
from test_common.print_style import PrintStyle
from test_common.torch_tensors import same_bytes
from test_common.write_budget import WriteBudget, held_memory
from tests.test_common.tiny_manifest import MANIFEST

CERTIFICATE = CaptureCertificate(registered=1, fired=1, saved=1)
torch.manual_seed(7)  # the same in a process of its own
STYLES = [PrintStyle.NATIVE, PrintStyle.SAFETENSORS]
TENSORS = {
    "a-output": torch.randn(3, 5),
    "b/c:d-output": torch.randn(2, 7).bfloat16(),
    "mask": torch.tensor([[True], [False], [True]]),  # the next begins at no multiple of 8
    "scalar": torch.tensor(3.5, dtype=torch.float64),
    "empty": torch.zeros(0, 3),
    "strided": torch.randn(6, 4).T[::2],
    "fp8": torch.randn(5).to(torch.float8_e4m3fn),
    "line\nbreak-output": torch.tensor([2**62, -1]),
    "half": torch.randn(3).half(),
    "last": torch.randn(1001),
}


def fill(writer: DumpWriter, *, steps: int = 2) -> None:
    writer.start(MANIFEST)
    for step in range(steps):
        for name, tensor in TENSORS.items():
            copy = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype)
            copy.copy_(tensor)
            writer.save(name, copy)
            copy.zero_()
        writer.save(f"only in {step}", torch.full((4,), step))
        writer.step()


def check(dump: Dump, *, step: int) -> None:
    entries = [entry for entry in dump.entries if entry.step == step]
    names = [*TENSORS, f"only in {step}"]
    assert [entry.name.replace("%0A", "\n") for entry in entries] == names
    for entry, tensor in zip(entries, TENSORS.values(), strict=False):
        array = dump.read(entry)
        assert array.dtype.name == str(tensor.dtype).removeprefix("torch.")
        assert array.shape == tuple(tensor.shape)
        assert (
            array.tobytes() == tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
        )


def save_many(writer: DumpWriter) -> None:
    for _ in range(1000):
        writer.save("after", torch.ones(5))


@contextmanager
def no_larger_file(size_bytes: int) -> Iterator[None]:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("queue_bytes", [0, 200, 1 << 20])
def test_a_dump_holds_what_tensors_were_when_they_were_given(
    tmp_path: Path, style: PrintStyle, queue_bytes: int
) -> None:
    writer = DumpWriter(tmp_path / "out", style=style, queue_bytes=queue_bytes)
    fill(writer)
    writer.finish(MANIFEST, CERTIFICATE)
    dump = open_dump(tmp_path / "out")
    assert (dump.complete, dump.problems, dump.notes) == (True, {}, ())
    check(dump, step=0)
    check(dump, step=1)
    files = {p for p in (tmp_path / "out").glob("*/*") if p.suffix in (".pt", ".safetensors")}
    assert writer.bytes_written == sum(path.stat().st_size for path in files)
    assert len(files) == (2 if style is PrintStyle.SAFETENSORS else 2 * len(TENSORS) + 2)


def test_the_file_of_a_step_is_read_by_the_library_of_its_format(tmp_path: Path) -> None:
    writer = DumpWriter(tmp_path / "out", style=PrintStyle.SAFETENSORS, queue_bytes=1 << 20)
    fill(writer)
    writer.finish(MANIFEST, CERTIFICATE)
    for step in ("0", "1"):
        loaded = safetensors.torch.load_file(tmp_path / "out" / step / "tensors.safetensors")
        assert [key for key in loaded if key.startswith("__padding__.")]
        for name, tensor in TENSORS.items():
            stored = loaded[name.replace("\n", "%0A")]
            assert stored.dtype == tensor.dtype
            assert same_bytes(stored, tensor.contiguous())
    # Steps behind the first make room for as large a table as the step before had.
    sizes = [(tmp_path / "out" / s / "tensors.safetensors").stat().st_size for s in "01"]
    assert sizes[1] < sizes[0] / 20


@pytest.mark.parametrize("queue_bytes", [0, 1 << 20])
def test_aliases_in_a_step_of_one_file_take_no_room(tmp_path: Path, queue_bytes: int) -> None:
    out = tmp_path / "out"
    writer = DumpWriter(out, style=PrintStyle.SAFETENSORS, queue_bytes=queue_bytes)
    tensor = torch.randn(100)
    writer.save("a-output", tensor)
    writer.flush()
    size = writer.bytes_written
    writer.save("b-input_0", tensor)
    tensor.data.add_(1)
    writer.save("c-input_0", tensor)
    writer.save("d-input_0", tensor.view(10, 10))
    writer.save("e-input_0", tensor)
    writer.finish(MANIFEST, CERTIFICATE)
    assert writer.bytes_written == size + 800
    dump = open_dump(out)
    assert [entry.name[0] for entry in dump.entries] == ["a", "b", "c", "d", "e"]
    arrays = [dump.read(entry) for entry in dump.entries]
    assert (arrays[0] == arrays[1]).all()
    assert (arrays[2] == tensor.numpy()).all()
    assert (arrays[4] == arrays[2]).all()
    assert arrays[3].shape == (10, 10)


def test_a_step_whose_table_is_too_large_goes_on_in_another_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("test_common.safetensors_step._HEADER_BYTES", 4088)
    writer = DumpWriter(tmp_path / "out", style=PrintStyle.SAFETENSORS)
    names = [f"model.layers.{n}-output" for n in range(40)]
    for number, name in enumerate(names):
        writer.save(name, torch.full((3,), number))
    writer.finish(MANIFEST, CERTIFICATE)
    assert len(list((tmp_path / "out" / "0").glob("tensors*.safetensors"))) > 3
    dump = open_dump(tmp_path / "out")
    assert [entry.name for entry in dump.entries] == names
    assert [int(dump.read(entry)[0]) for entry in dump.entries] == list(range(40))


def test_dtypes_that_the_format_does_not_have_get_a_file_each(tmp_path: Path) -> None:
    writer = DumpWriter(tmp_path / "out", style=PrintStyle.SAFETENSORS, queue_bytes=1 << 20)
    writer.save("a", torch.ones(2))
    writer.save("b", torch.ones(2, dtype=torch.complex128))
    writer.save("c", torch.ones(2))
    writer.finish(MANIFEST, CERTIFICATE)
    dump = open_dump(tmp_path / "out")
    assert [entry.name for entry in dump.entries] == ["a", "b", "c"]
    assert dump.read(dump.entries[1]).dtype.name == "complex128"


@pytest.mark.parametrize("style", STYLES)
def test_a_killed_run_shows_what_was_written_before(tmp_path: Path, style: PrintStyle) -> None:
    code = f"""
import os, signal, sys, torch
from pathlib import Path
from test_common.dump_writer import DumpWriter
from test_common.print_style import PrintStyle
from tests.test_common.test_queued_writer import MANIFEST, fill
writer = DumpWriter(Path(sys.argv[1]), style=PrintStyle({str(style)!r}), queue_bytes=1 << 20)
fill(writer)
for number in range(3):
    writer.save(f"x{{number}}-output", torch.full((5,), number))
writer.flush()
os.kill(os.getpid(), signal.SIGKILL)
"""
    out = tmp_path / "out"
    path = os.pathsep.join(sys.path)
    done = subprocess.run([sys.executable, "-c", code, str(out)], env={"PYTHONPATH": path})
    assert done.returncode == -signal.SIGKILL
    dump = open_dump(out)
    assert not dump.complete
    check(dump, step=0)
    check(dump, step=1)
    last = [entry for entry in dump.entries if entry.step == 2]
    assert [entry.name for entry in last] == ["x0-output", "x1-output", "x2-output"]
    assert [int(dump.read(entry)[4]) for entry in last] == [0, 1, 2]
    DumpWriter(out, overwrite=True).save("new", torch.ones(1))
    assert sorted(p.name for p in (out / "0").iterdir()) == ["new.pt", "tensor_names.txt"]


@pytest.mark.parametrize("style", STYLES)
def test_a_full_disk_is_told_and_nothing_is_listed_that_was_not_written(
    tmp_path: Path, style: PrintStyle
) -> None:
    writer = DumpWriter(tmp_path / "out", style=style, queue_bytes=1 << 23)
    writer.start(MANIFEST)
    writer.save("small", torch.ones(3))
    writer.flush()
    with no_larger_file(2_000_000):
        writer.save("big", torch.ones(1_000_000))
        with pytest.raises(UnwritableOutputError, match=r"cannot write .*0/big\.\w+: File too"):
            save_many(writer)
        with pytest.raises(UnwritableOutputError, match=r"big"):
            writer.save("late", torch.ones(5))
        with pytest.raises(UnwritableOutputError, match=r"big"):
            writer.finish(MANIFEST, CERTIFICATE)
        writer.close()
    dump = open_dump(tmp_path / "out")
    assert not dump.complete
    assert [entry.name for entry in dump.entries] == ["small"]
    assert dump.read(dump.entries[0]).tolist() == [1.0] * 3


def test_an_error_of_the_last_tensor_is_raised_at_the_latest_by_finish(tmp_path: Path) -> None:
    writer = DumpWriter(tmp_path / "out", queue_bytes=1 << 23)
    with no_larger_file(100_000):
        writer.save("big", torch.ones(1_000_000))
        with pytest.raises(UnwritableOutputError, match="File too large"):
            writer.finish(MANIFEST, CERTIFICATE)
        writer.finish(MANIFEST, CERTIFICATE, complete=False)
    assert json.loads((tmp_path / "out" / "manifest.json").read_text())["complete"] is False


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("queue_bytes", [0, 1 << 20])
def test_a_dump_is_cut_before_it_takes_more_than_it_may(
    tmp_path: Path, style: PrintStyle, queue_bytes: int
) -> None:
    limit = 1_070_000 if style is PrintStyle.SAFETENSORS else 21_500
    budget = WriteBudget(max_bytes=limit)
    writer = DumpWriter(tmp_path / "out", style=style, queue_bytes=queue_bytes, budget=budget)
    writer.start(MANIFEST)
    tensor = torch.randn(1000)
    writer.save("a", tensor)

    def save_more() -> None:
        for number in range(9):
            writer.save(f"b{number}", tensor)  # aliases take no room
            writer.save(f"c{number}", torch.randn(1000))
            writer.flush()

    with pytest.raises(BudgetError, match=r"the dump was cut at c\d: it may take .* \(--max-bytes"):
        save_more()
    writer.mark_cut("it was cut")
    writer.close()
    dump = open_dump(tmp_path / "out")
    assert not dump.complete
    assert [entry.name for entry in dump.entries][:5] == ["a", "b0", "c0", "b1", "c1"]
    assert limit - 9000 < writer.bytes_written <= limit
    assert dump.read(dump.entries[1]).tolist() == tensor.tolist()
    files = (tmp_path / "out" / "0").iterdir()
    assert not [path.name for path in files if "partial" in path.name]
    assert dump.manifest is not None
    assert dump.manifest.options["notes"] == ["it was cut"]


def test_a_process_that_holds_too_much_is_ended(tmp_path: Path) -> None:
    budget = WriteBudget(max_memory_bytes=held_memory() + (64 << 20))
    writer = DumpWriter(tmp_path / "out", queue_bytes=1 << 20, budget=budget)
    writer.save("a", torch.ones(3))
    held = torch.ones(32 << 20)
    with pytest.raises(BudgetError, match=r"the run was ended at b: it may hold .*--max-memory"):
        writer.save("b", held[:3])
    del held
    writer.save("c", torch.ones(4))
    writer.close()
    assert (tmp_path / "out" / "0" / "tensor_names.txt").read_text() == "a\nc\n"
