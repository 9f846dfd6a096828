"""Complex tensors: both parts of a number count."""

import copy
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from comparison.align.fingerprint import fingerprint, likeness
from comparison.numerics.dtypes import Array
from comparison.schema.diagnosis import Judgement
from comparison.store.dump import open_dump
from diagnosis.diff_models import DiffOptions, diff_models
from diagnosis.module_dump import ModuleInputs, dump_module
from diagnosis.rounding import excess_error, rounding_floor
from diagnosis.two_dumps import diagnose_dumps


class _Turns(torch.nn.Module):
    """Gives a rotation for each token and pair of channels, as complex numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.imaginary = 1.0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        count, pairs = x.shape[-2], x.shape[-1] // 2
        angles = torch.outer(torch.arange(count) * 0.3, 0.7 ** torch.arange(pairs))
        turns = torch.polar(torch.ones_like(angles), angles)
        return torch.complex(turns.real, turns.imag * self.imaginary)


class _Rotating(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.project = torch.nn.Linear(6, 10)
        self.rope = _Turns()
        self.out = torch.nn.Linear(10, 3)

    def forward(self, x: torch.Tensor) -> Any:
        hidden = self.project(x)
        pairs = torch.view_as_complex(hidden.reshape(*hidden.shape[:-1], -1, 2).contiguous())
        return self.out(torch.view_as_real(pairs * self.rope(hidden)).flatten(-2))


@pytest.fixture
def model() -> _Rotating:
    torch.manual_seed(0)
    return _Rotating()


def test_a_wrong_imaginary_part_is_blamed_and_a_right_one_is_not(
    model: _Rotating, tmp_path: Path
) -> None:
    given = (torch.randn(7, 6),)
    wrong = copy.deepcopy(model)
    wrong.rope.imaginary = 1.001
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # numpy and torch warn where they drop a part
        same = diff_models(model, copy.deepcopy(model), given)
        found = diff_models(model, wrong, given, options=DiffOptions(repro=tmp_path / "repro"))
    assert same.verdict is Judgement.AGREE
    assert found.verdict is Judgement.DIVERGE
    assert [guilty.module for guilty in found.guilty] == ["model.rope"]
    assert 1e-4 < found.guilty[0].local_error < 1e-3
    assert found.cause is not None
    assert (found.cause.id, "complex" in found.cause.evidence) == ("unknown", True)
    assert not (tmp_path / "repro").exists()


def test_two_dumps_of_which_one_has_another_imaginary_part(
    model: _Rotating, tmp_path: Path
) -> None:
    inputs = ModuleInputs.of((torch.randn(7, 6),), num_steps=1, encoder=False)
    wrong = copy.deepcopy(model)
    wrong.rope.imaginary = -1.0
    for name, one in (("reference", model), ("candidate", wrong)):
        dump_module(one, inputs, tmp_path / name)
    found = diagnose_dumps(open_dump(tmp_path / "reference"), open_dump(tmp_path / "candidate"))
    assert found.culprit is not None
    assert found.culprit.module == "model.rope"


@pytest.mark.parametrize("part", [1e-3, 1e-3j, complex(0, np.nan), complex(0, np.inf)])
def test_an_error_in_either_part_of_one_value_shows(part: complex) -> None:
    generator = np.random.default_rng(0)
    exact = generator.standard_normal((13, 20)) + 1j * generator.standard_normal((13, 20))
    native = exact.astype(np.complex64)
    floor = rounding_floor(native=native, exact=exact, dtype="complex64", longest_sum=0)
    assert excess_error(native, exact, floor).whole < 3
    wrong = native.copy()
    wrong[5, 7] += part
    excess = excess_error(wrong, exact, floor)
    assert not excess.whole < 100
    assert not excess.by_position[5] < 100
    assert not excess.by_channel[7] < 100


def test_rounding_is_that_of_the_parts() -> None:
    exact = np.random.default_rng(0).standard_normal((13, 20)) * (1 + 2j)
    floors = [
        rounding_floor(native=exact, exact=exact, dtype=dtype, longest_sum=9).whole
        for dtype in ("complex128", "complex64")
    ]
    assert floors[1] > 1e8 * floors[0] > 0


def test_values_are_alike_only_if_both_parts_are() -> None:
    def print_of(values: Array) -> Any:
        return fingerprint(np.arange(len(values)), values)

    generator = np.random.default_rng(0)
    values = generator.standard_normal((9, 5)) + 1j * generator.standard_normal((9, 5))
    same = likeness(print_of(values), print_of(values.copy()))
    other = likeness(print_of(values), print_of(values.conj()))
    assert same is not None
    assert other is not None
    assert (same.distance, other.distance > 0.1) == (0, True)
