"""test_common.tensor_text against torch's own repr."""

import random
from collections.abc import Iterator

import pytest
import torch

from test_common.tensor_text import number_texts, tensor_text

_DTYPES = (
    torch.float32,
    torch.float16,
    torch.bfloat16,
    torch.float64,
    torch.float8_e4m3fn,
    torch.int64,
    torch.int32,
    torch.uint8,
    torch.bool,
    torch.complex64,
)


@pytest.fixture(autouse=True)
def _own_print_options() -> Iterator[None]:
    before = vars(torch._tensor_str.PRINT_OPTS).copy()
    yield
    vars(torch._tensor_str.PRINT_OPTS).update(before)


def _printed_by_torch(value: object) -> str:
    options = torch._tensor_str.PRINT_OPTS
    before = vars(options).copy()
    torch.set_printoptions(sci_mode=True, linewidth=120)
    try:
        return repr(value)
    finally:
        vars(options).update(before)


def _random_tensor(rng: random.Random, dtype: torch.dtype) -> torch.Tensor:
    dims = rng.randint(0, 4)
    sizes = [0, 1, 2, 5, 6, 7, 13] + ([257, 1001] if dims < 3 else [31])
    shape = [rng.choice(sizes) for _ in range(dims)]
    values = torch.randn(shape) * rng.choice([1e-6, 1.0, 1e4, 1e9, 0.0])
    if rng.random() < 0.3:
        values = values.round()
    special = rng.choice([None, None, float("nan"), float("-inf"), 0.0])
    if special is not None:
        values[torch.rand(shape) < rng.choice([0.1, 2.0])] = special
    if not (dtype.is_floating_point or dtype.is_complex):
        values = values.nan_to_num().clamp(-(2**20), 2**20)
    values = values.to(dtype)
    return values.transpose(0, -1) if dims > 1 and rng.random() < 0.3 else values


@pytest.mark.parametrize("dtype", _DTYPES, ids=str)
def test_any_tensor_prints_as_torch_prints_it(dtype: torch.dtype) -> None:
    rng = random.Random(3)
    torch.manual_seed(3)
    for _ in range(150):
        tensor = _random_tensor(rng, dtype)
        assert tensor_text(tensor) == _printed_by_torch(tensor), (tensor.shape, tensor.dtype)


@pytest.mark.parametrize(
    "options",
    [
        {"precision": 1, "threshold": 5, "edgeitems": 1},
        {"precision": 8, "threshold": 0, "edgeitems": 4},
        {"profile": "full"},
        {"linewidth": 20, "sci_mode": False},
    ],
    ids=str,
)
def test_the_users_options_count_and_stay(options: dict[str, object]) -> None:
    torch.set_printoptions(**options)
    before = vars(torch._tensor_str.PRINT_OPTS).copy()
    torch.manual_seed(1)
    for tensor in (torch.randn(3, 17, 9), torch.randn(2, dtype=torch.complex64), torch.arange(7)):
        assert tensor_text(tensor) == _printed_by_torch(tensor)
        assert vars(torch._tensor_str.PRINT_OPTS) == before


@pytest.mark.parametrize("default", [torch.float32, torch.bfloat16], ids=str)
def test_dtypes_other_than_the_default_are_named(default: torch.dtype) -> None:
    before = torch.get_default_dtype()
    torch.set_default_dtype(default)
    try:
        for dtype in _DTYPES:
            tensor = torch.ones(2, 7).to(dtype)
            assert tensor_text(tensor) == _printed_by_torch(tensor)
    finally:
        torch.set_default_dtype(before)


@pytest.mark.parametrize(
    "tensor",
    [
        torch.ones(3, requires_grad=True),
        torch.ones(3, requires_grad=True) * 2,
        torch.nn.Parameter(torch.ones(2, 3)),
        torch.empty(2, 3, device="meta"),
        torch.eye(3).to_sparse(),
        torch.zeros(2, 0, 3),
        torch.imag(torch.ones(3, dtype=torch.complex64).conj()),
        torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.quint8),
    ],
    ids=lambda tensor: f"{tensor.layout}-{tensor.dtype}-{tensor.requires_grad}",
)
def test_special_tensors_print_as_torch_prints_them(tensor: torch.Tensor) -> None:
    assert tensor_text(tensor) == _printed_by_torch(tensor)


@pytest.mark.parametrize(
    "value", [0.0, -0.0, 1.5, -3e-9, float("inf"), float("-inf"), float("nan")]
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64], ids=str)
def test_a_statistic_prints_as_a_tensor_of_no_dimension(value: float, dtype: torch.dtype) -> None:
    scalar = torch.tensor(value, dtype=dtype)
    assert number_texts([scalar.item()], scalar) == [_printed_by_torch(scalar)]
