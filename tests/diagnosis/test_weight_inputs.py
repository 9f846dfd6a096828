"""Faults in the weights of Torch models, from the call to the cause."""

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from comparison.schema.diagnosis import Cause, Culprit, Diagnosis, Judgement, Spot
from comparison.schema.errors import CorruptFileError
from comparison.schema.outcome import Side
from comparison.store.dump import open_dump
from comparison.store.safetensors_file import write_safetensors
from comparison.store.weights_file import WEIGHTS_NAME, read_weights, write_weights
from diagnosis.diff_models import DiffOptions, diff_models
from diagnosis.module_dump import ModuleInputs, dump_module
from diagnosis.two_dumps import diagnose_dumps
from diagnosis.weights.finding import WeightComparison, WeightFinding, WeightKind
from diagnosis.weights.inputs import weight_cause, weights_against, weights_first
from tests.test_common.tiny_models import (
    ROWS,
    SIZES,
    tiny_bert,
    tiny_gemma3,
    tiny_llama,
    tiny_qwen3,
    tiny_qwen3_moe,
)

Plant = Callable[[Any], None]


@pytest.mark.parametrize(
    ("make", "encoder"),
    [
        (tiny_llama, False),
        (tiny_gemma3, False),
        (tiny_qwen3, False),
        (tiny_qwen3_moe, False),
        (tiny_bert, True),
    ],
)
def test_the_weights_of_a_copy_are_equal(
    make: Callable[[], Any], encoder: bool, tmp_path: Path
) -> None:
    model = make()
    inputs = ModuleInputs.of(ROWS, num_steps=1, encoder=encoder)
    dump = dump_module(copy.deepcopy(model), inputs, tmp_path)
    weights = weights_against(model, dump)
    assert weights is not None
    assert (weights.findings, weights.conventions, weights.absent) == ((), (), ())
    assert weights.equal == len(dict(model.named_parameters(remove_duplicate=False)))


def _square_llama() -> Any:
    """Make a model whose q_proj and o_proj are square, so that a shape tells nothing."""
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(3)
    return LlamaForCausalLM(LlamaConfig(**{**SIZES, "head_dim": 8})).eval()


def _layer(model: Any) -> Any:
    return model.model.layers[1]


def _transpose(model: Any) -> None:
    weight = _layer(model).self_attn.q_proj.weight
    weight.data = weight.data.T.contiguous()


def _permute(model: Any) -> None:
    weight = _layer(model).mlp.down_proj.weight
    weight.data = weight.data[torch.arange(len(weight)).flip(0)].contiguous()


def _repeat_shard(model: Any) -> None:
    weight = _layer(model).mlp.gate_proj.weight
    weight.data[24:] = weight.data[:24]


def _tie(model: Any) -> None:
    model.lm_head.weight = model.model.embed_tokens.weight


def _zero(model: Any) -> None:
    _layer(model).self_attn.o_proj.weight.data.zero_()


def _leave_random(model: Any) -> None:
    torch.manual_seed(99)
    torch.nn.init.normal_(_layer(model).mlp.up_proj.weight, std=0.02)


def _swap_rows(model: Any) -> None:
    weight = model.model.embed_tokens.weight
    weight.data[[9, 33]] = weight.data[[33, 9]]


def _copy_up(model: Any) -> None:
    _layer(model).mlp.up_proj.weight.data.copy_(_layer(model).mlp.gate_proj.weight.data)


@pytest.mark.parametrize(
    ("plant", "module", "cause", "says"),
    [
        (_transpose, "layers.1.self_attn.q_proj", "transpose", "its rows are the columns of"),
        (_permute, "layers.1.mlp.down_proj", "permutation", "32 of 32 rows are elsewhere"),
        (_repeat_shard, "layers.1.mlp.gate_proj", "shard", "one of 2 parts of the reference's"),
        (_zero, "layers.1.self_attn.o_proj", "weights", "all of its values are 0"),
        (_leave_random, "layers.1.mlp.up_proj", "weights", "is untouched: its values have nothing"),
        (_swap_rows, "embed_tokens", "permutation", "row 9 is the candidate's row 33"),
        (_copy_up, "layers.1.mlp.up_proj", "tied_weights", "holds the values of"),
    ],
)
def test_a_fault_in_a_weight_is_the_cause(
    plant: Plant, module: str, cause: str, says: str, tmp_path: Path
) -> None:
    found = _planted(plant, tmp_path)
    recorded = _recorded(found, tmp_path)
    assert found.culprit is not None
    assert found.culprit.module == f"model.model.{module}"
    assert recorded.id == cause
    assert says in recorded.evidence
    assert f"{module}.weight" in recorded.evidence
    (difference,) = [item for item in found.inputs if item.kind == "weights"]
    assert not difference.decisive
    assert difference.reference == f"model.model.{module}.weight"


def test_a_head_tied_to_the_embedding_is_the_cause(tmp_path: Path) -> None:
    found = _planted(_tie, tmp_path)
    recorded = _recorded(found, tmp_path)
    assert found.culprit is not None
    assert found.culprit.module == "model.lm_head"
    assert recorded.id == "tied_weights"
    assert "holds the values of model.model.embed_tokens.weight" in recorded.evidence


def test_random_weights_are_the_verdicts_cause(tmp_path: Path) -> None:
    found = _planted(_leave_random, tmp_path)
    assert found.cause is not None
    assert found.cause.id == "weights"
    assert "is untouched" in found.cause.evidence


def _planted(plant: Plant, folder: Path) -> Diagnosis:
    candidate = _square_llama()
    plant(candidate)
    found = diff_models(_square_llama(), candidate, ROWS, options=DiffOptions(output=folder))
    assert found.verdict is Judgement.DIVERGE
    return found


def _recorded(found: Diagnosis, folder: Path) -> Cause:
    """Return what the recorded weights say; the verdict's own cause may be one that is computed."""
    weights = weights_against(_square_llama(), open_dump(folder / "candidate"))
    cause = weight_cause(weights, found.culprit, set())
    assert cause is not None
    return cause


def _permute_q_and_k(model: Any) -> None:
    """Permute the features of each head alike, which changes no score."""
    for projection, heads in (("q_proj", 4), ("k_proj", 2)):
        for layer in model.model.layers:
            weight = getattr(layer.self_attn, projection).weight
            order = torch.tensor([3, 1, 2, 0, 7, 5, 6, 4])  # keeps the pairs of the rotation apart
            by_head = weight.data.reshape(heads, 8, -1)[:, order]
            weight.data = by_head.reshape(weight.shape).contiguous()


def test_unlike_weights_alone_make_no_verdict(tmp_path: Path) -> None:
    model = _square_llama()
    candidate = copy.deepcopy(model)
    inputs = ModuleInputs.of(ROWS, num_steps=2, encoder=False)
    dump_module(candidate, inputs, tmp_path / "candidate")
    _permute_q_and_k(candidate)
    dump_module(candidate, inputs, tmp_path / "permuted")
    path = tmp_path / "candidate" / WEIGHTS_NAME
    record = read_weights(tmp_path / "permuted")
    assert record is not None
    write_weights(path, record)  # the run of one, the weights of the other
    found = diff_models(model, str(tmp_path / "candidate"))
    assert found.verdict is Judgement.AGREE
    (difference,) = found.inputs
    assert (difference.kind, difference.what) == ("weights", "permuted rows")
    assert difference.reference.endswith("self_attn.q_proj.weight and 5 more")


def test_two_dumps_compare_their_weights(tmp_path: Path) -> None:
    model = _square_llama()
    inputs = ModuleInputs.of(ROWS, num_steps=1, encoder=False)
    reference = dump_module(model, inputs, tmp_path / "reference")
    _transpose(model)
    candidate = dump_module(model, inputs, tmp_path / "candidate")
    found = diagnose_dumps(reference, candidate)
    assert found.verdict is Judgement.DIVERGE
    assert [item.what for item in found.inputs] == ["transposed"]
    assert found.cause is not None
    assert found.culprit is not None
    assert found.cause.id == "transpose"
    assert f"{found.culprit.module}.weight is transposed" in found.cause.evidence


def test_a_damaged_record_of_weights_is_an_error(tmp_path: Path) -> None:
    model = _square_llama()
    dump_module(model, ModuleInputs.of(ROWS, num_steps=1, encoder=False), tmp_path)
    (tmp_path / WEIGHTS_NAME).write_bytes(b"\0" * 20)
    with pytest.raises(CorruptFileError, match=WEIGHTS_NAME):
        diff_models(model, str(tmp_path), options=DiffOptions())


def test_tensors_that_only_go_by_the_name_of_a_record_are_none(tmp_path: Path) -> None:
    values = np.random.default_rng(0).standard_normal((5, 3))
    for side in ("reference", "candidate"):
        (tmp_path / side).mkdir()
        write_safetensors(tmp_path / side / WEIGHTS_NAME, {"model.a-output": values}, metadata={})
    dumps = (open_dump(tmp_path / side) for side in ("reference", "candidate"))
    found = diagnose_dumps(*dumps)
    assert (found.verdict, found.coverage.paired) == (Judgement.AGREE, 1)


def _culprit(module: str) -> Culprit:
    return Culprit(
        side=Side.CANDIDATE,
        engine="max",
        module=module,
        candidate_module=None,
        tensor=f"{module}-output",
        between=None,
        spot=Spot(step=0, row=0, position=0),
    )


def test_a_module_that_was_judged_right_has_right_weights() -> None:
    finding = WeightFinding(
        reference=("model.mlp.up.weight",),
        candidate="model.mlp.up.weight",
        kind=WeightKind.SCALED,
        evidence="twice as great",
        module="model.mlp.up",
    )
    weights = WeightComparison(findings=(finding,), absent=("model.norm.weight",))
    mlp, norm = _culprit("model.mlp"), _culprit("model.norm")
    assert weight_cause(weights, mlp, {"model.mlp", "model.mlp.up"}) is None
    seen = weight_cause(weights, mlp, {"model.mlp"})
    assert seen is not None
    assert seen.id == "weights"
    missing = weight_cause(weights, norm, set())
    assert missing is not None
    assert "lacks model.norm.weight" in missing.evidence
    assert weight_cause(weights, None, set()) is None
    assert weight_cause(None, mlp, set()) is None


def test_weights_that_are_not_known_are_advised_on_first() -> None:
    layer, other = torch.nn.Linear(2, 2), torch.nn.ReLU()
    scale = Cause(id="scale", advice="where the factor comes from")
    first = "the module's own weights, which the candidate's dump does not tell"
    assert weights_first(scale, layer).advice == f"{first}; then where the factor comes from"
    assert weights_first(Cause(id="bias"), layer).advice == first
    assert weights_first(scale, other) is scale
    assert weights_first(scale, None) is scale
    rope = Cause(id="rope_frequency", advice="rope_theta")
    assert weights_first(rope, layer) is rope
