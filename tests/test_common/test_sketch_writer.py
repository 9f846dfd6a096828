"""Dumps of sketches: what is in them, what is made once, and what becomes of an engine's files."""

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from comparison.numerics.tensor_sketch import sketch_tensor
from comparison.pipeline import compare
from comparison.schema.comparison import Verdict
from comparison.schema.errors import BadInputError, BudgetError
from comparison.schema.manifest import CaptureCertificate
from comparison.store.max_file import write_max_file
from comparison.store.sketch_dump import holds_sketches, open_sketches
from test_common.capture_mode import CaptureMode
from test_common.debug_options import DebugOptions
from test_common.print_style import PrintStyle
from test_common.sketch_writer import SketchWriter
from test_common.tensor_sketcher import TensorSketcher, quick_statistics
from test_common.torch_print_hook import TorchPrintHook
from test_common.write_budget import WriteBudget
from tests.test_common.tiny_manifest import MANIFEST
from tests.test_common.tiny_models import ROWS, tiny_llama

CERTIFICATE = CaptureCertificate(registered=1, fired=1, saved=4)


def capture(model: Any, out: Path, mode: CaptureMode) -> Path:
    writer = SketchWriter(out, mode=mode)
    writer.start(MANIFEST)
    with TorchPrintHook(sink=writer) as hook, torch.no_grad():
        hook.name_layers(model)
        for _ in range(2):
            model(torch.tensor([ROWS[0]]))
            hook.step()
    writer.finish(MANIFEST, hook.certificate())
    return out


def fill(writer: SketchWriter) -> None:
    writer.start(MANIFEST)
    for step in range(2):
        writer.save("a-output", torch.arange(12.0).reshape(3, 4) + step)
        writer.save("a-output", torch.ones(2, 3, dtype=torch.bfloat16))
        writer.step()


@pytest.mark.parametrize("mode", [CaptureMode.STATS, CaptureMode.SKETCH])
def test_two_runs_of_one_model_are_identical(tmp_path: Path, mode: CaptureMode) -> None:
    model = tiny_llama()
    left = capture(model, tmp_path / "left", mode)
    right = capture(copy.deepcopy(model), tmp_path / "right", mode)
    result = compare(left, right)
    assert result.verdict is Verdict.MEASURED
    assert all(pair.outcome.identical for pair in result.pairs)  # type: ignore[union-attr]
    assert {pair.reference.step for pair in result.pairs} == {0, 1}


def test_a_dump_has_sketches_names_and_manifest_and_no_tensors(tmp_path: Path) -> None:
    writer = SketchWriter(tmp_path / "out")
    fill(writer)
    writer.finish(MANIFEST, CERTIFICATE)
    files = sorted(path.relative_to(writer.out).as_posix() for path in writer.out.rglob("*.*"))
    own = [
        f"{step}/{name}" for step in (0, 1) for name in ("sketch.safetensors", "tensor_names.txt")
    ]
    assert files == [*own, "manifest.json"]
    names = (writer.out / "1" / "tensor_names.txt").read_text(encoding="utf-8").splitlines()
    assert names == ["a-output", "a(2)-output"]
    found = open_sketches(writer.out)
    assert found.dump.complete
    assert [entry.name for entry in found.sketches] == names * 2
    assert writer.bytes_written == sum(
        path.stat().st_size for path in writer.out.rglob("sketch.safetensors")
    )


def test_a_run_that_is_cut_off_leaves_its_steps(tmp_path: Path) -> None:
    writer = SketchWriter(tmp_path / "out")
    fill(writer)
    writer.save("b-output", torch.ones(3))
    writer.close()
    found = open_sketches(writer.out)
    assert not found.dump.complete
    assert [entry.step for entry in found.sketches] == [0, 0, 1, 1, 2]


def test_what_is_saved_after_a_step_was_written_joins_it(tmp_path: Path) -> None:
    writer = SketchWriter(tmp_path / "out")
    writer.save("a-output", torch.ones(3))
    writer.close()
    writer.save("b-output", torch.ones(3))
    writer.close()
    names = (writer.out / "0" / "tensor_names.txt").read_text(encoding="utf-8").splitlines()
    assert names == ["a-output", "b-output"]
    assert len(open_sketches(writer.out).sketches) == 2


def test_an_earlier_dump_is_replaced_when_asked_for(tmp_path: Path) -> None:
    for overwrite in (False, True):
        writer = SketchWriter(tmp_path / "out", overwrite)
        fill(writer)
        writer.finish(MANIFEST, CERTIFICATE)
    assert holds_sketches(tmp_path / "out")
    with pytest.raises(BadInputError, match="not empty"):
        SketchWriter(tmp_path / "out")


def test_files_that_an_engine_wrote_become_sketches(tmp_path: Path) -> None:
    writer = SketchWriter(tmp_path / "out")
    writer.start(MANIFEST)
    folder = writer.engine_step_folder(0)
    arrays = {
        name: np.random.default_rng(at).standard_normal((3, 50)).astype(np.float32)
        for at, name in enumerate(("b-output", "a" * 250 + "-output"))
    }
    for name, array in arrays.items():
        stem = writer.stem(name)
        write_max_file(folder / f"{stem}.max", array, key=stem)
    assert writer.adopt_engine_step(0, [*arrays, "gone-output"]) == ("gone-output",)
    found = open_sketches(writer.out).sketches
    assert [entry.name for entry in found] == list(arrays)
    for sketch, array in zip(found.values(), arrays.values(), strict=True):
        assert sketch.fingerprint == sketch_tensor(array).fingerprint
        assert sketch.rows is not None
    assert [path.name for path in writer.out.rglob("*.max")] == []
    assert writer.bytes_written == (writer.out / "0" / "sketch.safetensors").stat().st_size


@pytest.mark.parametrize("projects", [True, False])
def test_a_tensor_that_is_passed_on_is_sketched_once(projects: bool) -> None:
    sketcher, tensor = TensorSketcher(projects=projects), torch.randn(4, 30)
    first = sketcher.sketch(tensor)
    assert sketcher.sketch(tensor.detach()) is first
    assert sketcher.sketch(tensor.clone()) is not first
    assert sketcher.sketch(tensor[:, 1:]) is not first
    sketcher.forget()
    assert sketcher.sketch(tensor) is not first


@pytest.mark.parametrize("counted", [True, False])
def test_a_change_in_place_is_seen(counted: bool) -> None:
    sketcher, tensor = TensorSketcher(projects=False), torch.randn(4, 30)
    before = sketcher.sketch(tensor)
    (tensor if counted else tensor.data).mul_(2)
    after = sketcher.sketch(tensor)
    assert after.fingerprint != before.fingerprint
    assert after.statistics.maximum == 2 * before.statistics.maximum


@pytest.mark.parametrize(
    "tensor",
    [
        torch.randn(3, 5, 70),
        torch.randn(3, 5, 70) * 1e-4 + 1000,  # far from its mean only by rounding
        torch.randn(8, 90).to(torch.bfloat16),
        torch.randn(8, 90).to(torch.float16),
        torch.randn(8, 90).T,
        torch.randn(8, 90)[:, ::3],
        torch.randn(7, 8, dtype=torch.float64),
        torch.tensor([[1.0, float("nan"), float("inf")]]),
        torch.full((3, 4), 2.5),
        torch.zeros(9),
        torch.tensor(3.0),
        torch.randint(0, 9, (3, 4)),
        torch.tensor([True, False]),
        torch.zeros(0, 3),
        torch.randn(3, 4, dtype=torch.complex64),
        torch.randn(6, 7).to(torch.float8_e4m3fn),
    ],
)
def test_statistics_in_torch_are_those_of_numpy(tensor: torch.Tensor) -> None:
    quick = TensorSketcher(projects=False).sketch(tensor)
    whole = TensorSketcher(projects=True).sketch(tensor)
    assert quick.rows is None
    assert (quick.fingerprint, quick.shape, quick.dtype) == (
        whole.fingerprint,
        whole.shape,
        whole.dtype,
    )
    known, right = quick.statistics, whole.statistics
    assert (known.minimum, known.maximum) == (right.minimum, right.maximum)
    assert (known.nan, known.infinite) == (right.nan, right.infinite)
    assert known.mean == pytest.approx(right.mean, rel=1e-5, abs=1e-6)
    assert known.std == pytest.approx(right.std, rel=1e-5, abs=1e-12)


def test_compiled_code_gives_what_passes_give(tmp_path: Path) -> None:
    torch.manual_seed(2)
    tensors = [torch.randn(520, 515) * 2 - 1, torch.randn(300, 1001), torch.randn(600, 500)]
    tensors[2][4, 7] = float("nan")
    for tensor in tensors:  # of whole words, of an odd size, with what is no number
        compiled = TensorSketcher(projects=False, kernels=tmp_path).sketch(tensor)
        plain = TensorSketcher(projects=False).sketch(tensor)
        assert compiled.fingerprint == plain.fingerprint
        assert (compiled.dtype, compiled.shape) == (plain.dtype, plain.shape)
        found, expected = compiled.statistics, plain.statistics
        assert (found.minimum, found.maximum) == (expected.minimum, expected.maximum)
        assert (found.nan, found.infinite) == (expected.nan, expected.infinite)
        assert found.mean == pytest.approx(expected.mean, rel=1e-4, abs=1e-5)
        assert found.std == pytest.approx(expected.std, rel=1e-5)
    assert [path.name.partition("-")[0] for path in tmp_path.iterdir()] == ["chunk_statistics"]


def test_quick_statistics_are_refused_where_they_lose_digits() -> None:
    assert quick_statistics(torch.randn(5, 9)) is not None
    assert quick_statistics(torch.randn(5, 9) * 1e-3 + 100) is None
    assert quick_statistics(torch.tensor([1.0, float("nan")])) is None
    assert quick_statistics(torch.full((4,), 1e30)) is None


def test_a_mode_takes_a_folder_and_no_style(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="mode sketch writes files: name an output folder"):
        DebugOptions(pipeline="tiny", mode=CaptureMode.SKETCH)
    with pytest.raises(BadInputError, match="mode stats has files of its own: leave the style out"):
        DebugOptions(
            pipeline="tiny",
            mode=CaptureMode.STATS,
            output=tmp_path,
            style=PrintStyle.BINARY,
        )


def test_a_limit_ends_the_run_after_the_step_that_passed_it(tmp_path: Path) -> None:
    writer = SketchWriter(tmp_path / "out", budget=WriteBudget(max_bytes=3000))
    writer.start(MANIFEST)
    writer.save("model.a-output", torch.ones(3, 5))
    writer.step()
    writer.save("model.a-output", torch.ones(700, 5))
    with pytest.raises(BudgetError, match="cut at the end of step 1: it may take 3000 bytes"):
        writer.step()
    writer.close()


def test_a_limit_is_passed_in_the_last_step_too(tmp_path: Path) -> None:
    writer = SketchWriter(tmp_path / "out", budget=WriteBudget(max_bytes=300))
    writer.start(MANIFEST)
    writer.save("model.a-output", torch.ones(3, 5))
    with pytest.raises(BudgetError, match="the end of step 0"):
        writer.finish(MANIFEST, CERTIFICATE)
    writer.close()
