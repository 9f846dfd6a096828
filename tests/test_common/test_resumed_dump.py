import json
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from comparison.schema.errors import BadInputError, UnwritableOutputError
from comparison.schema.manifest import CaptureCertificate, Manifest, Padding, Row
from comparison.store.dump import open_dump
from test_common.capture_mode import CaptureMode
from test_common.dump_writer import DumpWriter
from test_common.print_style import PrintStyle
from test_common.sketch_writer import SketchWriter

CERTIFICATE = CaptureCertificate(registered=2, fired=2, saved=8)
STYLES = [
    PrintStyle.NATIVE,
    PrintStyle.SAFETENSORS,
    PrintStyle.BINARY,
    PrintStyle.BINARY_MAX_CHECKPOINT,
]
ROWS = torch.arange(15.0).reshape(3, 5)
# Long, of a dtype that safetensors lacks, with bytes to escape, and without elements.
TENSORS = {
    "model.a-output": ROWS,
    "model.b-output": torch.arange(7, dtype=torch.bfloat16),
    f"model.{'long' * 70}-output": torch.tensor(3),
    "model.odd/name\n-output": torch.zeros(0, 4),
}
WIDE = {**TENSORS, "model.wide-output": torch.arange(3.0).to(torch.complex128)}
MANIFEST = Manifest(
    engine="torch",
    versions={"torch": "2"},
    model="tiny",
    pipeline="tiny",
    encoding="float32",
    device="cpu",
    padding=Padding.NONE,
    rows=(Row(prompt="a", token_ids=(1, 2)),),
    steps=2,
    options={"filter": [], "notes": ["of a run"]},
)


def tensors_of(style: PrintStyle) -> dict[str, torch.Tensor]:
    return WIDE if style in (PrintStyle.NATIVE, PrintStyle.SAFETENSORS) else TENSORS


def write(
    out: Path,
    tensors: dict[str, torch.Tensor],
    *,
    steps: int = 2,
    manifest: Manifest = MANIFEST,
    **given: Any,
) -> Manifest:
    writer = DumpWriter(out, queue_bytes=1 << 20, **given)
    try:
        writer.start(manifest)
        for _ in range(steps):
            for name, tensor in tensors.items():
                writer.save(name, tensor)
            writer.step()
        return writer.finish(manifest, CERTIFICATE)
    finally:
        writer.close()


def cut_off(out: Path, style: PrintStyle, *, manifest: Manifest = MANIFEST) -> None:
    """Leave what a run leaves that is killed behind the second tensor of its step 1."""
    writer = DumpWriter(out, style=style)
    writer.start(manifest)
    for name, tensor in tensors_of(style).items():
        writer.save(name, tensor)
    writer.step()
    for name in list(TENSORS)[:2]:
        writer.save(name, TENSORS[name])
    writer._folder.release()
    with (out / "1" / "tensor_names.txt").open("a") as names:
        names.write("model.lo")
    (out / "1" / f".{'0f' * 16}.tmp").write_bytes(b"x")


def contents(out: Path) -> dict[tuple[int, str], bytes]:
    dump = open_dump(out)
    assert dump.complete
    assert not dump.problems
    return {(entry.step, entry.name): dump.read(entry).tobytes() for entry in dump.entries}


def states(out: Path) -> dict[str, int]:
    return {
        str(path.relative_to(out)): path.stat().st_mtime_ns
        for path in out.glob("[01]/[!.]*")
        if path.name != "tensor_names.txt" and "partial" not in path.name
    }


@pytest.mark.parametrize("style", STYLES)
def test_what_is_there_is_kept_and_the_rest_added(tmp_path: Path, style: PrintStyle) -> None:
    out, whole = tmp_path / "dump", tmp_path / "whole"
    write(whole, tensors_of(style), style=style)
    cut_off(out, style)
    before = states(out)
    manifest = write(out, tensors_of(style), style=style, resume=True)
    assert states(out).items() >= before.items()
    assert contents(out) == contents(whole)
    kept = len(tensors_of(style)) + 2
    note = f"resumed: {kept} tensors were there from an earlier run, with the same bytes"
    assert manifest.options["notes"] == ["of a run", note]
    assert json.loads((out / "manifest.json").read_text())["options"]["notes"][1] == note
    for step in ("0", "1"):
        ours, theirs = (folder / step / "tensor_names.txt" for folder in (out, whole))
        assert ours.read_text() == theirs.read_text()
    assert list(out.rglob(".*")) == []


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("name", ["model.a-output", "model.b-output"])
def test_other_bytes_are_refused(tmp_path: Path, style: PrintStyle, name: str) -> None:
    cut_off(tmp_path / "dump", style)
    other = tensors_of(style) | {name: TENSORS[name] + 1}
    before = {path: path.read_bytes() for path in (tmp_path / "dump" / "0").iterdir()}
    with pytest.raises(
        UnwritableOutputError,
        match=rf"dump/0 would mix two runs: {name} has other bytes than in this run; "
        r"give --overwrite to replace the dump, or another folder",
    ):
        write(tmp_path / "dump", other, style=style, resume=True)
    assert {path: path.read_bytes() for path in before} == before
    assert not json.loads((tmp_path / "dump" / "manifest.json").read_text())["complete"]


@pytest.mark.parametrize("style", [PrintStyle.NATIVE, PrintStyle.SAFETENSORS])
def test_another_dtype_or_shape_of_the_same_bytes_is_refused(
    tmp_path: Path, style: PrintStyle
) -> None:
    for number, same in enumerate((ROWS.reshape(5, 3), ROWS.view(torch.int32))):
        out = tmp_path / str(number)
        cut_off(out, style)
        with pytest.raises(UnwritableOutputError, match=r"model.a-output has other bytes"):
            write(out, WIDE | {"model.a-output": same}, style=style, resume=True)


@pytest.mark.parametrize("style", [PrintStyle.NATIVE, PrintStyle.SAFETENSORS])
def test_other_tensors_and_steps_are_refused(tmp_path: Path, style: PrintStyle) -> None:
    def refused(tensors: dict[str, torch.Tensor], message: str, steps: int = 2) -> None:
        out = tmp_path / "dump"
        shutil.rmtree(out, ignore_errors=True)
        cut_off(out, style)
        with pytest.raises(UnwritableOutputError, match=message):
            write(out, tensors, steps=steps, style=style, resume=True)
        assert not json.loads((out / "manifest.json").read_text())["complete"]

    turned = dict(reversed(WIDE.items()))
    refused(turned, r"0 would mix .*: model.a-output comes where this run has model.wide-output")
    fewer = {name: WIDE[name] for name in list(WIDE)[:-1]}
    refused(fewer, r"0 would mix .*: model.wide-output is none of this run's tensors")
    refused(WIDE, r"would mix .*: this one has no tensors in step 1", steps=1)


def test_another_run_is_refused_with_all_that_differs(tmp_path: Path) -> None:
    cut_off(tmp_path, PrintStyle.NATIVE)
    other = replace(
        MANIFEST,
        encoding="bfloat16",
        seed=3,
        versions={"torch": "3"},
        rows=(Row(prompt="a", token_ids=(1, 3)),),
        options={"filter": ["*"], "notes": ["of another"]},
    )
    with pytest.raises(UnwritableOutputError) as raised:
        write(tmp_path, WIDE, manifest=other, resume=True)
    for part in (
        "versions is {'torch': '3'} here and {'torch': '2'} there",
        "encoding is 'bfloat16' here and 'float32' there",
        "seed is 3 here and None there",
        "token ids of row 0 is [1, 3] here and [1, 2] there",
        "option filter is ['*'] here and [] there",
    ):
        assert part in str(raised.value)
    assert "notes" not in str(raised.value)


def test_a_whole_dump_is_told_unless_a_file_is_gone(tmp_path: Path) -> None:
    write(tmp_path, WIDE)
    manifest = DumpWriter(tmp_path, resume=True).whole_dump(MANIFEST)
    assert manifest is not None
    assert manifest.certificate == CERTIFICATE
    expected = contents(tmp_path)
    (tmp_path / "1" / "model.a-output.pt").unlink()
    assert DumpWriter(tmp_path, resume=True).whole_dump(MANIFEST) is None
    write(tmp_path, WIDE, resume=True)
    assert contents(tmp_path) == expected


@pytest.mark.parametrize("damage", [lambda data: data[:100], lambda data: b"PK" + data[2:200]])
def test_a_whole_dump_with_a_damaged_file_is_not_taken_for_whole(
    tmp_path: Path, damage: Callable[[bytes], bytes]
) -> None:
    write(tmp_path, WIDE)
    path = tmp_path / "1" / "model.a-output.pt"
    path.write_bytes(damage(path.read_bytes()))
    assert DumpWriter(tmp_path, resume=True).whole_dump(MANIFEST) is None


def test_nothing_to_go_on_with_is_a_run_as_any(tmp_path: Path) -> None:
    for out in (tmp_path / "none", tmp_path / "empty"):
        (tmp_path / "empty").mkdir(exist_ok=True)
        manifest = write(out, WIDE, resume=True)
        assert manifest.options["notes"] == ["of a run"]
        assert len(contents(out)) == 2 * len(WIDE)


def test_steps_without_a_manifest_are_refused(tmp_path: Path) -> None:
    cut_off(tmp_path, PrintStyle.NATIVE)
    (tmp_path / "manifest.json").unlink()
    with pytest.raises(UnwritableOutputError, match=r"has no manifest.json, .* give --overwrite"):
        DumpWriter(tmp_path, resume=True)


@pytest.mark.parametrize("name", ["manifest.json", "1", "1/tensor_names.txt", "1/tensors.partial"])
def test_no_link_is_followed(tmp_path: Path, name: str) -> None:
    out, outside = tmp_path / "dump", tmp_path / "outside"
    cut_off(out, PrintStyle.SAFETENSORS)
    (out / name).rename(outside)
    (out / name).symlink_to(outside)
    before = [(path, path.stat().st_mtime_ns) for path in (outside, *outside.glob("*"))]
    with pytest.raises(BadInputError, match=r"link|not part of a dump"):
        write(out, WIDE, style=PrintStyle.SAFETENSORS, resume=True)
    assert [(path, path.stat().st_mtime_ns) for path, _ in before] == before


def test_a_copy_of_hard_links_stays_as_it_was(tmp_path: Path) -> None:
    out, copy = tmp_path / "dump", tmp_path / "copy"
    cut_off(out, PrintStyle.SAFETENSORS)
    shutil.copytree(out, copy, copy_function=os.link)
    before = {path: path.read_bytes() for path in copy.rglob("*") if path.is_file()}
    write(out, WIDE, style=PrintStyle.SAFETENSORS, resume=True)
    assert {path: path.read_bytes() for path in before} == before
    assert len(contents(out)) == 2 * len(WIDE)


@pytest.mark.parametrize("damage", [b"", b"{}\n", b"[]\n", b'{"name": "x", "dtype": "F32"}\n'])
def test_a_damaged_list_is_told(tmp_path: Path, damage: bytes) -> None:
    cut_off(tmp_path, PrintStyle.SAFETENSORS)
    (tmp_path / "1" / "tensors.partial.json").write_bytes(damage)
    if not damage:  # nothing was whole
        write(tmp_path, WIDE, style=PrintStyle.SAFETENSORS, resume=True)
        assert len(contents(tmp_path)) == 2 * len(WIDE)
        return
    with pytest.raises(UnwritableOutputError, match=r"1 is damaged .*; give --overwrite"):
        write(tmp_path, WIDE, style=PrintStyle.SAFETENSORS, resume=True)


def test_a_file_that_lost_its_end_is_told(tmp_path: Path) -> None:
    cut_off(tmp_path, PrintStyle.SAFETENSORS)
    os.truncate(tmp_path / "1" / "tensors.partial", 100)
    with pytest.raises(UnwritableOutputError, match=r"expected \d+ bytes or more, as its list"):
        write(tmp_path, WIDE, style=PrintStyle.SAFETENSORS, resume=True)


def engine_run(out: Path, *, value: bytes = b"x", steps: int = 2, **given: Any) -> DumpWriter:
    writer = DumpWriter(out, **given)
    writer.start(MANIFEST)
    for step in range(steps):
        folder = writer.engine_step_folder(step)
        for name in ("model.a-output", "model.b-output"):
            (folder / f"{name}.max").write_bytes(value)
        writer.adopt_engine_step(step, ["model.a-output", "model.b-output"])
    return writer


def test_steps_of_an_engine(tmp_path: Path) -> None:
    engine_run(tmp_path, steps=1).close()
    (tmp_path / "1.partial").mkdir()
    (tmp_path / "1.partial" / "model.a-output.max").write_bytes(b"half")
    kept = (tmp_path / "0" / "model.a-output.max").stat()
    writer = engine_run(tmp_path, resume=True)
    manifest = writer.finish(MANIFEST, CERTIFICATE)
    assert manifest.options["notes"][1].startswith("resumed: 2 tensors were there")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0", "1", "manifest.json"]
    assert (tmp_path / "0" / "model.a-output.max").stat() == kept
    assert (tmp_path / "1" / "model.a-output.max").read_bytes() == b"x"


def test_other_steps_of_an_engine_are_refused(tmp_path: Path) -> None:
    engine_run(tmp_path, steps=1).close()
    with pytest.raises(UnwritableOutputError, match=r"model.a-output.max has other bytes"):
        engine_run(tmp_path, value=b"y", resume=True)
    assert (tmp_path / "0" / "model.a-output.max").read_bytes() == b"x"
    (tmp_path / "0" / "model.b-output.max").unlink()
    with pytest.raises(UnwritableOutputError, match=r"model.b-output.max is of one run only"):
        engine_run(tmp_path, resume=True)


def sketches(out: Path, tensors: dict[str, torch.Tensor], **given: Any) -> SketchWriter:
    writer = SketchWriter(out, mode=CaptureMode.SKETCH, **given)
    writer.start(MANIFEST)
    for name, tensor in tensors.items():
        writer.save(name, tensor)
    writer.step()
    return writer


def test_sketches(tmp_path: Path) -> None:
    sketches(tmp_path, TENSORS).close()
    file = tmp_path / "0" / "sketch.safetensors"
    before = file.stat().st_ino
    (tmp_path / "0" / "tensor_names.txt").write_text("model.a-output\nmodel.b-")
    manifest = sketches(tmp_path, TENSORS, resume=True).finish(MANIFEST, CERTIFICATE)
    assert manifest.options["notes"][1].startswith("resumed: 4 tensors")
    assert file.stat().st_ino == before
    names = (tmp_path / "0" / "tensor_names.txt").read_text().splitlines()
    assert names[:2] == ["model.a-output", "model.b-output"]
    assert len(names) == 4


def test_other_sketches_are_refused(tmp_path: Path) -> None:
    sketches(tmp_path, TENSORS).close()
    with pytest.raises(UnwritableOutputError, match=r"model.a-output has another sketch"):
        sketches(tmp_path, TENSORS | {"model.a-output": ROWS + 1}, resume=True)
    fewer = {"model.a-output": ROWS}
    with pytest.raises(UnwritableOutputError, match=r"model.b-output is none of this run's"):
        sketches(tmp_path, fewer, resume=True).finish(MANIFEST, CERTIFICATE)


def test_bare_bytes_of_a_killed_run_can_be_read_and_replaced(tmp_path: Path) -> None:
    binary = replace(MANIFEST, options={"style": str(PrintStyle.BINARY)})
    cut_off(tmp_path, PrintStyle.BINARY, manifest=binary)
    (tmp_path / "1" / "model.unlisted-output").write_bytes(b"x")  # killed before it was listed
    dump = open_dump(tmp_path)
    assert not dump.complete
    first = {e.name: dump.read(e) for e in dump.entries if e.step == 0}
    assert first["model.a-output"].tolist() == ROWS.tolist()
    assert len(first) == len(TENSORS)
    DumpWriter(tmp_path, overwrite=True)
    with pytest.raises(UnwritableOutputError, match="is not empty"):
        DumpWriter(tmp_path)
