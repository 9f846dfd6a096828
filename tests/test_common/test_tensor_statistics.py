"""test_common.tensor_statistics against what torch computes and prints."""

from collections.abc import Callable

import pytest
import torch

from test_common import tensor_statistics
from test_common.tensor_statistics import evidence, quick_std, usual_statistics
from test_common.tensor_text import tensor_text

_SIZE = (1 << 14) + 37
_KINDS: dict[str, Callable[[torch.Generator], torch.Tensor]] = {
    "normal": lambda g: torch.randn(_SIZE, generator=g),
    "shifted": lambda g: torch.randn(_SIZE, generator=g) + 30,
    "far away": lambda g: torch.randn(_SIZE, generator=g) * 1e-3 + 1000,
    "tiny": lambda g: torch.randn(_SIZE, generator=g) * 1e-18,
    "huge": lambda g: torch.randn(_SIZE, generator=g) * 1e17,
    "outliers": lambda g: torch.randn(_SIZE, generator=g) ** 9,
    "two values": lambda g: (torch.rand(_SIZE, generator=g) < 0.3) * 0.1,
    "sparse": lambda g: torch.randn(_SIZE, generator=g) * (torch.rand(_SIZE, generator=g) < 1e-3),
    "sorted": lambda g: torch.rand(_SIZE, generator=g).sort().values,
    "rows": lambda g: torch.randn(1, 143, 64 * 3, generator=g).transpose(1, 2),
    "masks": lambda g: torch.where(torch.rand(_SIZE, generator=g) < 0.5, 0, -3.4028e38),
    "infinite": lambda g: torch.cat(
        [torch.tensor([float("inf")]), torch.randn(_SIZE, generator=g)]
    ),
    "nan": lambda g: torch.cat([torch.randn(_SIZE, generator=g), torch.tensor([float("nan")])]),
    "constant": lambda g: torch.full((_SIZE,), 0.1),
}


@pytest.mark.parametrize("kind", _KINDS)
def test_texts_are_those_of_torch(kind: str) -> None:
    quick = 0
    for seed in range(60):
        tensor = _KINDS[kind](torch.Generator().manual_seed(seed))
        mean = evidence(tensor)[0]
        quick += quick_std(tensor, mean) is not None
        assert usual_statistics(tensor, mean) == {
            "mean": tensor_text(tensor.mean()),
            "std": tensor_text(tensor.std()),
            "min": tensor_text(tensor.min()),
            "max": tensor_text(tensor.max()),
        }
    expected = {"normal", "shifted", "outliers", "two values", "sparse", "sorted", "rows"}
    assert (quick > 30) == (kind in expected)


@pytest.mark.parametrize("kind", ["normal", "shifted", "outliers", "two values", "sparse", "rows"])
def test_quick_deviation_is_far_more_exact_than_it_has_to_be(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    worst = 0.0
    for seed in range(40):
        tensor = _KINDS[kind](torch.Generator().manual_seed(seed))
        monkeypatch.setattr(tensor_statistics, "number_texts", lambda values, like: ["", ""])
        found = quick_std(tensor, tensor.mean().item())
        assert found is not None
        worst = max(worst, abs(found / tensor.double().std().item() - 1))
    assert worst < tensor_statistics._STD_ERROR / 4


def test_other_precision_of_the_user_counts() -> None:
    tensor = torch.randn(_SIZE, generator=torch.Generator().manual_seed(1))
    before = vars(torch._tensor_str.PRINT_OPTS).copy()
    try:
        torch.set_printoptions(precision=8)
        assert usual_statistics(tensor, tensor.mean().item())["std"] == tensor_text(tensor.std())
    finally:
        vars(torch._tensor_str.PRINT_OPTS).update(before)
