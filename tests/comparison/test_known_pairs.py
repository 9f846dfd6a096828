"""Names of one tensor are read and measured once, and of nothing else."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from comparison import dump_run
from comparison.pipeline import CompareOptions, compare
from comparison.schema.comparison import Comparison, Verdict
from comparison.schema.outcome import Compared
from comparison.schema.tolerance import Tolerance
from tests.comparison.dumps import numbers, write_dump

STRICT = CompareOptions(tolerance=Tolerance(rtol=0.0, atol=0.0))
NAMES = ("model.layers.0-output", "model.layers.1-input_0", "model.layers.1.mlp-input_0")


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The shapes that were measured."""
    shapes: list[Any] = []
    measure = dump_run.measure_blocks

    def counted(blocks: Any, *, shape: Any, **how: Any) -> Any:
        shapes.append(shape)
        return measure(blocks, shape=shape, **how)

    monkeypatch.setattr(dump_run, "measure_blocks", counted)
    return shapes


def linked(folder: Path, values: Any) -> Path:
    """Write a dump of one tensor with three names."""
    write_dump(folder, [dict.fromkeys(NAMES, values)])
    first, *others = (folder / "0" / f"{name}.max" for name in NAMES)
    for path in others:
        path.unlink()
        os.link(first, path)
    return folder


def with_keys(folder: Path, values: Any) -> Path:
    """Write the same as one file, in which two names stand for the first."""
    (folder / "0").mkdir(parents=True)
    same = ", ".join(f'"{name}": "{NAMES[0]}"' for name in NAMES[1:])
    path = folder / "0" / "tensors.safetensors"
    save_file({NAMES[0]: values}, path, metadata={"same_as": f"{{{same}}}"})
    return folder


def outcomes(comparison: Comparison) -> dict[str, float]:
    found = {}
    for pair in comparison.pairs:
        assert pair.reference.name == pair.candidate.name
        assert isinstance(pair.outcome, Compared)
        found[pair.reference.name] = pair.outcome.metrics.greatest_absolute.value
    return found


@pytest.mark.parametrize("write", [linked, with_keys])
def test_names_of_one_tensor_are_measured_once(
    write: Callable[[Path, Any], Path], tmp_path: Path, measured: list[Any]
) -> None:
    values = numbers(5, 7)
    changed = values.copy()
    changed[3, 2] += 0.5
    result = compare(write(tmp_path / "a", values), write(tmp_path / "b", changed), STRICT)
    assert result.exit_code == 1
    assert outcomes(result) == dict.fromkeys(NAMES, pytest.approx(0.5, rel=1e-6))
    assert measured == [(5, 7)]


def test_one_name_that_is_not_the_same_is_measured_by_itself(
    tmp_path: Path, measured: list[Any]
) -> None:
    values = numbers(5, 7)
    reference, candidate = linked(tmp_path / "a", values), linked(tmp_path / "b", values)
    other = write_dump(tmp_path / "c", [{NAMES[2]: values + np.float32(0.25)}])
    os.replace(other / "0" / f"{NAMES[2]}.max", candidate / "0" / f"{NAMES[2]}.max")
    found = outcomes(compare(reference, candidate, STRICT))
    assert list(found.values()) == [0.0, 0.0, pytest.approx(0.25, rel=1e-5)]
    assert len(measured) == 2


def test_a_file_that_changes_in_between_is_read_again(
    tmp_path: Path, measured: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    values = numbers(5, 7)
    reference, candidate = linked(tmp_path / "a", values), linked(tmp_path / "b", values)
    path = candidate / "0" / f"{NAMES[0]}.max"

    def change(done: int, pairs: int, size_bytes: int) -> None:
        if done == 1:
            content = bytearray(path.read_bytes())
            content[-4:] = np.float32(99).tobytes()
            path.write_bytes(content)
            os.utime(path, ns=(1, 1))

    found = outcomes(compare(reference, candidate, STRICT, progress=change))
    assert found[NAMES[0]] == 0.0
    assert min(found[name] for name in NAMES[1:]) > 50
    assert len(measured) == 2


def test_what_steps_have_in_common_is_measured_in_each(tmp_path: Path, measured: list[Any]) -> None:
    folder = write_dump(tmp_path, [{"y-output": numbers(2, 3)}, {"y-output": numbers(2, 3)}])
    second = folder / "1" / "y-output.max"
    second.unlink()
    os.link(folder / "0" / "y-output.max", second)
    assert compare(folder, folder, STRICT).verdict is Verdict.AGREE
    assert len(measured) == 2  # rows may lie otherwise in another step
