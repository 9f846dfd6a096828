"""Below the module: planted faults, and the operation that is named for each."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from comparison.report.diagnosis_json import diagnosis_to_dict
from comparison.report.diagnosis_text import diagnosis_lines
from comparison.schema.diagnosis import Diagnosis, Judgement, Operation
from comparison.schema.errors import CorruptFileError
from comparison.store.dump import open_dump
from diagnosis.diff_models import DiffOptions, diff_models
from diagnosis.drill.dump import module_globs
from diagnosis.drill.sides import DrillPlan, drilled
from diagnosis.finding import Finding
from diagnosis.module_dump import ModuleInputs, dump_module
from tests.test_common.tiny_models import tiny_llama

_ROWS = [list(range(3, 16)), [7, 9, 2, 30, 31, 5, 8, 4, 11]]
_ATTENTION = "model.model.layers.1.self_attn"
_MLP = "model.model.layers.1.mlp"
Plant = Callable[[Any], None]


def _layer(model: Any) -> Any:
    return model.model.layers[1]


def _scale(model: Any) -> None:
    _layer(model).self_attn.scaling *= 2**0.5


def _product_in_bfloat16(model: Any) -> None:
    mlp = _layer(model).mlp

    def forward(x: torch.Tensor) -> torch.Tensor:
        product = mlp.act_fn(mlp.gate_proj(x)) * mlp.up_proj(x)
        return mlp.down_proj(product.to(torch.bfloat16).to(x.dtype))

    mlp.forward = forward


def _sum_for_product(model: Any) -> None:
    mlp = _layer(model).mlp
    mlp.forward = lambda x: mlp.down_proj(mlp.act_fn(mlp.gate_proj(x)) + mlp.up_proj(x))


def _silu_in_steps(model: Any) -> None:
    """Compute the activation in other steps, and then add where it has to multiply."""
    mlp = _layer(model).mlp

    def forward(x: torch.Tensor) -> torch.Tensor:
        gate = mlp.gate_proj(x)
        return mlp.down_proj(gate * torch.sigmoid(gate) + mlp.up_proj(x))

    mlp.forward = forward


def _gelu(model: Any) -> None:
    _layer(model).mlp.act_fn.forward = lambda x: F.gelu(x, approximate="tanh")


def _epsilon(model: Any) -> None:
    _layer(model).input_layernorm.variance_epsilon = 0.01


def _eager(change: Callable[..., torch.Tensor]) -> Plant:
    """Compute attention by hand, where `change(scores, mask)` gives the weights."""

    def plant(model: Any) -> None:
        attention = _layer(model).self_attn

        def forward(
            hidden_states: torch.Tensor,
            position_embeddings: Any,
            attention_mask: torch.Tensor,
            past_key_values: Any = None,
            **kwargs: Any,
        ) -> Any:
            from transformers.models.llama.modeling_llama import apply_rotary_pos_emb, repeat_kv

            shape = (*hidden_states.shape[:-1], -1, attention.head_dim)
            q, k, v = (
                project(hidden_states).view(shape).transpose(1, 2)
                for project in (attention.q_proj, attention.k_proj, attention.v_proj)
            )
            q, k = apply_rotary_pos_emb(q, k, *position_embeddings)
            if past_key_values is not None:
                k, v = past_key_values.update(k, v, attention.layer_idx)
            k, v = (repeat_kv(x, attention.num_key_value_groups) for x in (k, v))
            scores = torch.matmul(q, k.transpose(2, 3)) * attention.scaling
            weights = change(scores, attention_mask)
            mixed = torch.matmul(weights, v).transpose(1, 2).contiguous()
            return attention.o_proj(mixed.flatten(2)), weights

        attention.forward = forward

    return plant


def _found(plant: Plant, options: DiffOptions | None = None) -> Diagnosis:
    reference = tiny_llama()
    candidate = copy.deepcopy(reference)
    plant(candidate)
    return diff_models(reference, candidate, _ROWS, options=options)


def _operation(plant: Plant) -> Operation:
    found = _found(plant)
    assert found.operation is not None, found.notes
    return found.operation


@pytest.mark.parametrize(
    ("plant", "name", "op", "reference_op"),
    [
        pytest.param(_gelu, f"{_MLP}.act_fn@001.gelu", "gelu", "silu", id="activation"),
        pytest.param(_sum_for_product, f"{_MLP}@001.add", "add", "mul", id="sum_for_product"),
        pytest.param(
            _epsilon, "model.model.layers.1.input_layernorm@003.add", "add", "add", id="epsilon"
        ),
        pytest.param(
            _eager(lambda scores, mask: (scores + mask).softmax(dim=-2)),
            f"{_ATTENTION}@0*._softmax",
            "_softmax",
            "_softmax",
            id="softmax_axis",
            marks=pytest.mark.full,
        ),
        pytest.param(
            _eager(lambda scores, mask: scores.softmax(dim=-1)),
            f"{_ATTENTION}@0*._softmax",
            "_softmax",
            "add",
            id="mask_left_out",
            marks=pytest.mark.full,
        ),
        pytest.param(_scale, f"{_ATTENTION}@0*.mul", "mul", "mul", id="attention_scale"),
    ],
)
def test_the_operation_that_is_wrong_is_named(
    plant: Plant, name: str, op: str, reference_op: str
) -> None:
    from fnmatch import fnmatchcase

    operation = _operation(plant)

    assert fnmatchcase(operation.name, name)
    assert operation.op.startswith(f"aten.{op}.")
    assert operation.reference_op.startswith(f"aten.{reference_op}.")
    assert not operation.is_missing


def test_its_arguments_inputs_source_and_error_are_told() -> None:
    operation = _operation(_scale)

    assert "other=0.353553" in operation.op
    assert "other=0.25" in operation.reference_op
    assert operation.source.startswith("transformers/models/llama/modeling_llama.py:")
    assert operation.reference_source == operation.source
    assert operation.local_error == pytest.approx(2**0.5 - 1, rel=1e-4)
    assert operation.bound is not None
    assert operation.bound < 1e-6
    (given,) = operation.inputs
    assert given.endswith("bmm")
    assert operation.is_proven
    assert operation.paired < operation.operations


def test_a_cast_that_the_reference_does_not_have() -> None:
    operation = _operation(_product_in_bfloat16)

    assert operation.name == f"{_MLP}@002._to_copy"
    assert operation.op == "aten._to_copy.default(dtype=bfloat16)"
    assert operation.inputs == (f"{_MLP}@001.mul",)
    assert operation.reference == ""
    assert not operation.is_proven
    assert operation.local_error is not None
    assert 1e-4 < operation.local_error < 1e-2


def test_a_copy_that_only_a_batch_needs_is_not_called_wrong() -> None:
    """A batch with pads repeats the keys of grouped heads, a row by itself does not."""
    reference = tiny_llama()
    reference.set_attn_implementation("sdpa")
    candidate = copy.deepcopy(reference)
    _layer(candidate).self_attn.scaling *= 1.5

    operation = diff_models(reference, candidate, _ROWS).operation

    assert operation is not None
    assert "clone" in operation.name
    assert not operation.is_proven


@pytest.mark.full
def test_a_buffer_is_not_called_right() -> None:
    def plant(model: Any) -> None:
        model.model.rotary_emb.inv_freq *= 1.25

    operation = _operation(plant)

    assert operation.unproven == ("weight:model.model.rotary_emb.inv_freq",)
    assert not operation.is_proven


@pytest.mark.filterwarnings("ignore::test_common.print_hook.CaptureWarning")  # act_fn is not called
def test_an_activation_in_other_steps_is_not_blamed() -> None:
    operation = _operation(_silu_in_steps)

    assert operation.op.startswith("aten.add.")
    assert operation.reference_op.startswith("aten.mul.")


def test_what_is_left_out_is_named() -> None:
    def without_weight(model: Any) -> None:
        norm = _layer(model).input_layernorm
        norm.forward = lambda x: x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 3e-5)

    found = _found(without_weight)
    operation = found.operation

    assert operation is not None
    assert operation.is_missing
    assert operation.name.startswith("model.model.layers.1.input_layernorm@")
    assert operation.reference_op.startswith("aten.mul.")
    assert "weight:model.model.layers.1.input_layernorm.weight" in operation.reference_inputs
    assert "that leaves something out" in "\n".join(diagnosis_lines(found))


@pytest.mark.full
def test_a_fault_in_decode_steps_is_looked_for_there() -> None:
    def plant(model: Any) -> None:
        attention = _layer(model).self_attn
        usual = attention.forward

        def forward(hidden_states: torch.Tensor, **kwargs: Any) -> Any:
            if hidden_states.shape[1] > 1:
                return usual(hidden_states=hidden_states, **kwargs)
            scaling, attention.scaling = attention.scaling, attention.scaling * 2
            try:
                return usual(hidden_states=hidden_states, **kwargs)
            finally:
                attention.scaling = scaling

        attention.forward = forward

    operation = _operation(plant)

    assert operation.step == 1
    assert operation.op == "aten.mul.Tensor(other=0.5)"
    assert operation.reference_op == "aten.mul.Tensor(other=0.25)"


def test_agreement_has_no_operation_and_runs_nothing_again(tmp_path: Path) -> None:
    found = _found(lambda model: None, DiffOptions(output=tmp_path))

    assert found.verdict is Judgement.AGREE
    assert found.operation is None
    assert not (tmp_path / "candidate-drill").exists()


def test_a_module_that_was_asked_for_is_told_of_though_nothing_is_wrong(tmp_path: Path) -> None:
    agreed = Finding(diagnosis=_found(lambda model: None), guilty={})
    plan = DrillPlan(dump=open_dump(_dump_with_operations(tmp_path / "d", _gelu, [_MLP])[1]))
    assert drilled(agreed, plan).diagnosis.notes == agreed.diagnosis.notes
    *_, note = drilled(agreed, replace(plan, asked=_MLP)).diagnosis.notes
    assert note.startswith(f"below {_MLP}: its operations were captured, and not judged")


@pytest.mark.full
def test_off_runs_nothing_again(tmp_path: Path) -> None:
    found = _found(_scale, DiffOptions(output=tmp_path, drill="off"))

    assert found.culprit is not None
    assert found.operation is None
    assert not (tmp_path / "candidate-drill").exists()


def test_only_the_culprit_is_captured_again(tmp_path: Path) -> None:
    _found(_gelu, DiffOptions(output=tmp_path))
    names = (tmp_path / "candidate-drill" / "0" / "tensor_names.txt").read_text().split()
    assert {name.partition("-")[0].partition("@")[0] for name in names} == {f"{_MLP}.act_fn"}


def _dump_with_operations(folder: Path, plant: Plant, ops: list[str]) -> tuple[Any, Path]:
    reference = tiny_llama()
    candidate = copy.deepcopy(reference)
    plant(candidate)
    given = ModuleInputs.of(_ROWS, num_steps=3, encoder=False)
    dump_module(candidate, given, folder, ops=ops)
    return reference, folder


def test_a_dump_with_operations_is_looked_into(tmp_path: Path) -> None:
    reference, folder = _dump_with_operations(tmp_path / "d", _sum_for_product, [_MLP])

    found = diff_models(reference, folder, _ROWS)

    assert found.culprit is not None
    assert found.culprit.module == _MLP
    assert found.operation is not None
    assert found.operation.name == f"{_MLP}@001.add"


def test_operations_are_no_tensors_of_modules(tmp_path: Path) -> None:
    reference, folder = _dump_with_operations(tmp_path / "d", lambda model: None, ["*"])
    plain = _dump_with_operations(tmp_path / "p", lambda model: None, [])[1]

    with_them, without = diff_models(reference, folder, _ROWS), diff_models(reference, plain, _ROWS)

    assert with_them.verdict is Judgement.AGREE
    assert with_them.coverage == without.coverage


def test_a_broken_list_of_operations_is_an_error(tmp_path: Path) -> None:
    reference, folder = _dump_with_operations(tmp_path / "d", _sum_for_product, [_MLP])
    (folder / "0" / "ops.json").write_text("{")
    with pytest.raises(CorruptFileError, match=r"ops\.json: expected JSON"):
        diff_models(reference, folder, _ROWS)


def test_text_and_json_tell_of_it() -> None:
    found = _found(_sum_for_product)
    text = "\n".join(diagnosis_lines(found))

    assert "The operation below that is wrong by itself, in step 0:" in text
    assert f"{_MLP}@001.add" in text
    assert "the candidate computes aten.add.Tensor" in text
    assert "the reference computes aten.mul.Tensor" in text
    assert diagnosis_to_dict(found)["operation"]["name"] == f"{_MLP}@001.add"


def test_globs_reach_a_module_whatever_an_engine_puts_before_its_name() -> None:
    from fnmatch import fnmatchcase

    globs = module_globs("model.model.layers.1.self_attn")
    for name in (
        "model.model.layers.1.self_attn",
        "model.layers.layers.1.self_attn",
        "model.language_model.layers.layers.1.self_attn_shards.0",
        "model.layers.1.self_attn",
    ):
        assert any(fnmatchcase(name, glob) for glob in globs)
    assert not any(fnmatchcase("model.model.layers.11.self_attn", glob) for glob in globs)
