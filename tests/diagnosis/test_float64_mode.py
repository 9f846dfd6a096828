"""float64 throughout, casts by hand included."""

import torch

from diagnosis.replay.float64_mode import LongestSum, float64_copy, float64_throughout
from tests.test_common.tiny_models import ROWS, tiny_gemma3, tiny_llama


def test_no_value_of_a_model_is_narrowed() -> None:
    for make in (tiny_llama, tiny_gemma3):
        model = float64_copy(make())
        seen: set[torch.dtype] = set()

        def note(
            module: object, args: object, output: object, seen: set[torch.dtype] = seen
        ) -> None:
            tensors = output if isinstance(output, tuple) else (output,)
            seen |= {t.dtype for t in tensors if isinstance(t, torch.Tensor)}

        for module in model.modules():
            module.register_forward_hook(note)
        with float64_throughout(LongestSum()), torch.no_grad():
            logits = model(torch.tensor([ROWS[0]])).logits
        assert logits.dtype is torch.float64
        assert not seen & {torch.float32, torch.float16, torch.bfloat16}


def test_the_casts_inside_are_what_makes_the_difference() -> None:
    model = tiny_llama()
    half_way = tiny_llama().double()
    ids = torch.tensor([ROWS[0]])
    with torch.no_grad():
        by_hand = half_way(ids).logits
        with float64_throughout(LongestSum()):
            exact = float64_copy(model)(ids).logits
    assert 0 < (by_hand - exact).abs().max() < 1e-4


def test_rope_frequencies_are_computed_anew_but_for_changed_ones() -> None:
    model = tiny_llama()
    exact = float64_copy(model).model.rotary_emb.inv_freq
    assert exact.dtype is torch.float64
    assert (exact != model.model.rotary_emb.inv_freq.double()).any()
    model.model.rotary_emb.inv_freq *= 0.9
    changed = float64_copy(model).model.rotary_emb.inv_freq
    assert torch.equal(changed, model.model.rotary_emb.inv_freq.double())


def test_the_default_dtype_comes_back_after_an_error() -> None:
    before = torch.get_default_dtype()
    try:
        with float64_throughout(LongestSum()):
            raise KeyError
    except KeyError:
        pass
    assert torch.get_default_dtype() is before


def test_the_longest_sum_is_that_of_the_products() -> None:
    longest = LongestSum()
    with float64_throughout(longest):
        torch.ones(3, 7) @ torch.ones(7, 5)
        torch.ones(2, 3, 11) @ torch.ones(2, 11, 4)
    assert longest.take() == 11
    assert longest.take() == 0
