"""What a coarse and a fine pass capture, by names of several engines."""

from fnmatch import fnmatchcase

import pytest

from diagnosis.capture_plan import CapturePlan, Layer, suspects_of

LAYERS = "model.model.layers"
SIZES = {
    "model-input_input_ids": 8,
    "model.model.embed_tokens-output": 100,
    f"{LAYERS}.0-input_0": 100,
    f"{LAYERS}.0.mlp.experts.3-output": 50,
    f"{LAYERS}.0-output": 100,
    f"{LAYERS}.1.mlp-output": 150,
    f"{LAYERS}.1-output": 100,
    f"{LAYERS}.11.mlp-output": 150,
    f"{LAYERS}.11-output": 100,
    "model.model.norm-input_0": 100,
    "model.model.norm-output": 100,
    "model.lm_head-output": 1000,
    "model-output_logits": 1000,
}


def passes(globs: tuple[str, ...], module: str, tensor: str) -> bool:
    return any(fnmatchcase(name, glob) for glob in globs for name in (module, tensor))


def test_layers_are_the_outermost_lists() -> None:
    plan = CapturePlan(SIZES)
    assert plan.layers == tuple(Layer(stack=LAYERS, index=index) for index in (0, 1, 11))
    assert plan.coarse_modules == 3 + 4  # model, embed_tokens, norm, lm_head
    assert plan.total_bytes == sum(SIZES.values())
    assert plan.coarse_bytes == 100 + 3 * 100 + 100 + 1000 + 1000


@pytest.mark.parametrize(
    ("module", "slot", "kept"),
    [
        (f"{LAYERS}.1", "output", True),
        (f"{LAYERS}.1", "input_0", False),
        (f"{LAYERS}.1.mlp", "output", False),
        (f"{LAYERS}.11", "output_0", True),
        ("model.layers.layers.1", "output", True),  # MAX
        ("model.language_model.layers.1", "output", True),
        ("model.layers.layers.1.mlp_shards.0", "output", False),
        ("model.embed_tokens", "output", True),
        ("model.norm_shards.0", "output", True),
        ("model.lm_head.distributed_linear_layers.0", "output", True),
        ("model.logits_processor", "output", True),  # vLLM
        ("model.model.layers.1", "output_residual_sum", True),
        ("model", "output_0", True),
        ("model", "input_0", False),
    ],
)
def test_the_coarse_pass_holds_outputs_by_the_names_of_every_engine(
    module: str, slot: str, kept: bool
) -> None:
    assert passes(CapturePlan(SIZES).coarse(), module, f"{module}-{slot}") is kept


@pytest.mark.parametrize("layers", ["model.model.layers", "model.layers.layers"])
def test_the_fine_pass_holds_suspects_whole_and_the_coarse_pass(layers: str) -> None:
    fine = CapturePlan(SIZES).fine([f"{LAYERS}.1.mlp", f"{LAYERS}.1"], max_bytes=5000)
    assert (fine.layers, fine.left, fine.outside) == ((Layer(stack=LAYERS, index=1),), (), False)
    for module, slot in [("", "input_0"), ("", "output"), (".mlp", "output"), (".mlp.up", "w")]:
        assert passes(fine.globs, f"{layers}.1{module}", f"{layers}.1{module}-{slot}")
        assert not passes(fine.globs, f"{layers}.11{module}", f"{layers}.11{module}-input_0")
    assert passes(fine.globs, f"{layers}.11", f"{layers}.11-output")
    assert not passes(fine.globs, "model.norm", "model.norm-input_0")


def test_a_suspect_outside_of_layers_is_held_with_its_inputs() -> None:
    fine = CapturePlan(SIZES).fine(["model.model.norm"], max_bytes=5000)
    assert (fine.layers, fine.outside) == ((), True)
    assert passes(fine.globs, "model.norm", "model.norm-input_0")
    assert not passes(fine.globs, "model.model.layers.1.norm2", "model.model.layers.1.norm2-output")


def test_layers_that_do_not_fit_are_left_but_for_the_first() -> None:
    plan = CapturePlan(SIZES)
    suspects = [f"{LAYERS}.0", f"{LAYERS}.1", f"{LAYERS}.11"]
    fine = plan.fine(suspects, max_bytes=plan.coarse_bytes + 500)
    assert [layer.index for layer in fine.layers] == [0, 1]
    assert [layer.index for layer in fine.left] == [11]
    assert [layer.index for layer in plan.fine(suspects, max_bytes=1).layers] == [0]


def test_suspects_are_the_guilty_first_and_then_what_is_not_clear() -> None:
    errors = [("a.b-output", 1.0), ("a.c-output_0", 4.0), ("a.d-output", float("nan"))]
    assert suspects_of(["a.z"], errors, limit=3.0) == ("a.z", "a.c", "a.d")


def test_a_model_without_lists_has_no_layers() -> None:
    plan = CapturePlan({"model.up-output": 4, "model-output": 4})
    assert plan.layers == ()
    assert passes(plan.coarse(), "model.up", "model.up-output")
