"""Signs of kernels that are right in some rows or until a size only."""

import numpy as np
import pytest
import torch

from diagnosis.causes import decode_cache, kernel_rows, lost_rows, overflow
from diagnosis.causes.naming import named
from diagnosis.causes.search import Explanation
from diagnosis.causes.trial import Sign
from tests.diagnosis.causes.made_region import (
    LENGTHS,
    MadeRegion,
    check_of,
    explained,
    linear_region,
    numbers,
)

N = sum(LENGTHS)


def region(wrong: list[int], module: torch.nn.Module | None = None, **more: object) -> MadeRegion:
    """Make a region that is wrong at some places."""
    exact = numbers(N, 7)
    target = exact.copy()
    target[wrong] += 1
    first = check_of("model.layers.0.mlp.act-output", exact, target)
    inputs = more.pop("inputs", numbers(N, 7, seed=1))
    return MadeRegion(
        torch.nn.Identity() if module is None else module, first, inputs=inputs, **more
    )  # type: ignore[arg-type]  # of its own


# Places of the prefills are 0-4 and 6-9; 5 and 10 are decode steps.
@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ([3, 4], "is wrong from row 3 of a call on, and exact before"),
        ([3, 4, 9], "is wrong from row 3 of a call on, and exact before"),
        ([3, 4, 8, 9], "is wrong at 36% of the tokens and exact at the others"),
        ([1, 3], "is wrong at 18% of the tokens and exact at the others"),
    ],
)
def test_rows_that_are_wrong(wrong: list[int], says: str) -> None:
    (sign,) = kernel_rows.signs(region(wrong))
    assert sign.cause == "kernel_rows"
    assert sign.says.startswith(says)


def test_all_or_no_rows_are_no_sign() -> None:
    assert list(kernel_rows.signs(region([]))) == []
    assert list(kernel_rows.signs(region(list(range(N))))) == []


def router() -> torch.nn.Module:
    module = torch.nn.Identity()
    module.top_k = 2  # type: ignore[assignment]  # a plain number
    return module


def test_modules_that_mix_tokens_or_choose_are_left_to_others() -> None:
    assert list(kernel_rows.signs(region([3], torch.nn.Sequential(torch.nn.ReLU())))) == []
    assert list(kernel_rows.signs(region([3], has_attention=True))) == []
    assert list(kernel_rows.signs(region([3], ids=np.arange(N)))) == []
    assert list(kernel_rows.signs(region([3], inputs=None))) == []
    assert list(kernel_rows.signs(region([3], router()))) == []
    exact = np.arange(N)
    whole = MadeRegion(torch.nn.Identity(), check_of("a-output", exact, exact, is_exact=True))
    assert list(kernel_rows.signs(whole)) == []


def test_attentions_that_are_wrong_in_decode_steps_only() -> None:
    (sign,) = decode_cache.signs(region([5, 10], has_attention=True))
    assert (sign.cause, sign.weight) == ("decode_cache", 0.85)
    assert sign.says.startswith("is right in the prefill and wrong in decode steps only")
    for other in (region([4, 5, 10], has_attention=True), region([5, 10]), region([])):
        assert list(decode_cache.signs(other)) == []
        assert list(decode_cache.trials(other)) == []
    tried = [trial.says for trial in decode_cache.trials(region([5], has_attention=True))]
    assert len(tried) == len(set(tried)) > 10
    exact = np.arange(N)
    whole = check_of("a-output", exact, exact, is_exact=True)
    assert list(decode_cache.signs(MadeRegion(torch.nn.Identity(), whole))) == []


def sign_of_overflow(value: float, exact: float, dtype: str = "float16") -> Sign | None:
    right = numbers(N, 7)
    right[4, 2] = exact
    wrong = right.copy()
    wrong[4, 2] = value
    first = check_of("model.mlp-output", right, wrong, dtype=dtype)
    return next(overflow.signs(MadeRegion(torch.nn.Identity(), first)), None)


@pytest.mark.parametrize(
    ("module", "size"),
    [
        (torch.nn.Linear(7, 7), 0.3),
        (torch.nn.LayerNorm(7), 0.3),
        (torch.nn.Linear(7, 7), 300.0),
        (torch.nn.SiLU(), 30.0),
    ],
)
def test_no_number_among_small_values_is_no_overflow(module: torch.nn.Module, size: float) -> None:
    given = numbers(N, 7, seed=4) * size
    right = module.double()(torch.from_numpy(given)).detach().numpy()
    wrong = right.copy()
    wrong[4, 2] = np.nan
    first = check_of("model.mlp-output", right, wrong)
    (sign,) = overflow.signs(MadeRegion(module, first, inputs=given))
    is_small = size < 1
    assert sign.weight == 0.9  # else an uneven row would be named
    assert sign.cause == ("unknown" if is_small else "overflow")
    assert ("that is no overflow, since nothing on the way" in sign.says) == is_small
    if is_small:
        seen = Explanation(reproducing=(), signs=(sign,), tried=1, nearest=None, unexplained=2.0)
        found = named(seen)
        assert (found.id, found.confidence, found.evidence) == ("unknown", None, sign.says)


def test_infinities_that_the_reference_does_not_have() -> None:
    beyond = sign_of_overflow(np.inf, 70000.0)
    assert beyond is not None
    assert beyond.says == (
        "has inf at row 0, token 4, channel 2, where the reference has 70000, which is beyond "
        "float16's greatest number, 65504"
    )
    within = sign_of_overflow(np.nan, 7.0)
    assert within is not None
    assert within.says == "has nan at row 0, token 4, channel 2, where the reference has 7"
    assert within.weight < beyond.weight
    unknown = sign_of_overflow(-np.inf, 70000.0, dtype="float8_e4m3fn")
    assert unknown is not None
    assert "beyond" not in unknown.says
    assert sign_of_overflow(3.0, 7.0) is None
    assert sign_of_overflow(np.inf, np.inf) is None


def lost(start: int, stop: int, *, bias: bool, keeps_bias: bool, **more: object) -> list[str]:
    torch.manual_seed(4)
    layer = torch.nn.Linear(9, 32, bias=bias)

    def cut(y: np.ndarray) -> np.ndarray:
        found = y.copy()
        found[:, start:stop] = layer.bias.detach().numpy()[start:stop] if keeps_bias else 0.0
        return found

    made = linear_region(layer, cut, **more)
    return [f"{cause}: {says}" for cause, says in explained(made, list(lost_rows.trials(made)))]


def attention(size: int) -> torch.nn.Module:
    module = torch.nn.Module()
    module.head_dim = size  # type: ignore[assignment]  # a plain number
    return module


@pytest.mark.parametrize(
    ("place", "options", "said"),
    [
        (
            (8, 16),
            {"bias": True, "keeps_bias": False},
            ["kernel_rows: never writes output channels 8 to 15: not even the bias is there"],
        ),
        (
            (27, 32),
            {"bias": True, "keeps_bias": True},
            [
                "shard: has nothing in the last 5 of 32 output channels, 27 to 31, as where a split"
                " drops its end"
            ],
        ),
        (
            (8, 16),
            {"bias": False, "keeps_bias": False},
            [
                "shard: has nothing in the 8 of 32 output channels, 8 to 15: the part of one of 4 "
                "ranks"
            ],
        ),
        (
            (8, 16),
            {"bias": False, "keeps_bias": False, "parent": attention(16)},
            ["kernel_rows: has nothing in 8 of 32 output channels, 8 to 15, one tile of a kernel"],
        ),
        ((3, 8), {"bias": False, "keeps_bias": False}, []),  # neither a part nor a tile
        ((0, 32), {"bias": False, "keeps_bias": False}, []),
    ],
)
def test_output_channels_without_anything(
    place: tuple[int, int], options: dict[str, object], said: list[str]
) -> None:
    assert lost(*place, **options) == said  # type: ignore[arg-type]  # of the function above
