"""Weights of two sides held against each other: what differs, and what is only kept otherwise."""

import time
from collections.abc import Mapping

import ml_dtypes
import numpy as np
import pytest

from comparison.numerics.dtypes import Array
from comparison.numerics.weight_record import WeightRecord, WeightSketch
from comparison.numerics.weight_sketch import sketch_weight
from diagnosis.weights.compare import compare_weights, weight_findings
from diagnosis.weights.finding import WeightComparison, WeightFinding, WeightKind
from diagnosis.weights.strips import strips_of

HIDDEN, HEADS, KV_HEADS, HEAD, MLP, VOCAB = 32, 4, 2, 8, 48, 70
ATTENTION = "model.model.layers.{n}.self_attn."


def _random(*shape: int, seed: int) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def _model(layers: int = 2) -> dict[str, Array]:
    """Return a decoder's weights; q_proj and o_proj are square."""
    weights = {"model.model.embed_tokens.weight": _random(VOCAB, HIDDEN, seed=1)}
    for n in range(layers):
        attention, mlp = ATTENTION.format(n=n), f"model.model.layers.{n}.mlp."
        seed = 10 * (n + 1)
        weights |= {
            f"{attention}q_proj.weight": _random(HEADS * HEAD, HIDDEN, seed=seed),
            f"{attention}k_proj.weight": _random(KV_HEADS * HEAD, HIDDEN, seed=seed + 1),
            f"{attention}v_proj.weight": _random(KV_HEADS * HEAD, HIDDEN, seed=seed + 2),
            f"{attention}o_proj.weight": _random(HIDDEN, HEADS * HEAD, seed=seed + 3),
            f"{mlp}gate_proj.weight": _random(MLP, HIDDEN, seed=seed + 4),
            f"{mlp}up_proj.weight": _random(MLP, HIDDEN, seed=seed + 5),
            f"{mlp}down_proj.weight": _random(HIDDEN, MLP, seed=seed + 6),
            f"model.model.layers.{n}.input_layernorm.weight": _random(HIDDEN, seed=seed + 7),
        }
    weights["model.lm_head.weight"] = _random(VOCAB, HIDDEN, seed=2)
    return weights


def _record(weights: Mapping[str, Array], **told: bool) -> WeightRecord:
    return WeightRecord(
        weights=tuple(
            sketch_weight(name, values, supplied=told.get(name.replace(".", "_")))
            for name, values in weights.items()
        )
    )


def _compared(reference: Mapping[str, Array], candidate: Mapping[str, Array]) -> WeightComparison:
    return compare_weights(_record(reference), _record(candidate))


def _only(reference: Mapping[str, Array], candidate: Mapping[str, Array]) -> WeightFinding:
    (finding,) = weight_findings(_record(reference), _record(candidate))
    return finding


def _fused(weights: Mapping[str, Array]) -> dict[str, Array]:
    """Rename as MAX does, and fuse q, k, v and gate, up in blocks."""
    fused = {}
    for name, values in weights.items():
        short = name.replace("model.model.", "model.language_model.")
        module = short.rpartition(".")[0]
        if module.endswith(("k_proj", "v_proj", "up_proj")):
            continue
        if module.endswith("q_proj"):
            parts = [weights[name.replace("q_proj", p)] for p in ("q_proj", "k_proj", "v_proj")]
            short, values = short.replace("q_proj", "qkv_proj"), np.concatenate(parts)
        if module.endswith("gate_proj"):
            parts = [values, weights[name.replace("gate", "up")]]
            short, values = short.replace("gate_proj", "gate_up_proj"), np.concatenate(parts)
        fused[short] = values
    return fused


def _is_clean(found: WeightComparison, count: int) -> bool:
    return (found.findings, found.absent, found.equal) == ((), (), count)


def test_a_copy_is_equal() -> None:
    model = _model()
    assert _is_clean(_compared(model, dict(model)), len(model))


def test_fused_and_renamed_weights_are_equal() -> None:
    model = _model()
    assert _is_clean(_compared(model, _fused(model)), len(model))
    assert _compared(model, _fused(model)).conventions == ()


def test_fused_weights_of_the_reference_are_equal_to_separate_ones() -> None:
    model = _model()
    assert _is_clean(_compared(_fused(model), model), len(_fused(model)))


def test_foreign_names_are_paired_by_value() -> None:
    model = _model()
    renamed = {f"model.w{number}.kernel": values for number, values in enumerate(model.values())}
    assert _is_clean(_compared(model, renamed), len(model))


def test_oblong_matrices_stored_transposed_are_equal() -> None:
    model = {"model.up.weight": _random(MLP, HIDDEN, seed=1)}
    assert _is_clean(_compared(model, {"model.up.kernel": model["model.up.weight"].T}), 1)


def test_rows_interleaved_by_group_are_a_convention() -> None:
    model = _model(layers=1)
    fused = _fused(model)
    name = "model.language_model.layers.0.self_attn.qkv_proj.weight"
    q, k, v = (
        model[f"{ATTENTION.format(n=0)}{part}.weight"].reshape(KV_HEADS, -1, HIDDEN)
        for part in ("q_proj", "k_proj", "v_proj")
    )
    fused[name] = np.concatenate([q, k, v], axis=1).reshape(-1, HIDDEN)
    found = _compared(model, fused)
    assert _is_clean(found, len(model))
    assert {item.kind for item in found.conventions} == {WeightKind.PERMUTED_ROWS}
    assert all("with others between them" in item.evidence for item in found.conventions)


def test_shards_of_ranks_are_equal_to_the_whole() -> None:
    model = _model(layers=1)
    ranks = {}
    for name, values in model.items():
        by_column = name.endswith(("o_proj.weight", "down_proj.weight"))
        shared = values.ndim == 1
        parts = [values] * 2 if shared else np.split(values, 2, axis=1 if by_column else 0)
        ranks |= {f"rank{n}/{name}": np.ascontiguousarray(p) for n, p in enumerate(parts)}
    assert _is_clean(_compared(model, ranks), len(model))


def test_experts_in_one_stack_are_equal_to_separate_ones() -> None:
    stack = {
        "model.mlp.experts.gate_up_proj": _random(3, 2 * MLP, HIDDEN, seed=1),
        "model.mlp.experts.down_proj": _random(3, HIDDEN, MLP, seed=2),
    }
    apart = {}
    for n in range(3):
        gate, up = np.split(stack["model.mlp.experts.gate_up_proj"][n], 2)
        apart[f"model.mlp.experts.{n}.gate_proj.weight"] = gate
        apart[f"model.mlp.experts.{n}.up_proj.weight"] = up
        apart[f"model.mlp.experts.{n}.down_proj.weight"] = stack["model.mlp.experts.down_proj"][n]
    assert _is_clean(_compared(stack, apart), 2)
    apart["model.mlp.experts.1.up_proj.weight"] = _random(MLP, HIDDEN, seed=9)
    finding = _only(stack, apart)
    assert finding.kind is WeightKind.DIFFERENT
    assert finding.evidence == (
        "1 of 3 matrices differ; 48 of 96 rows are nowhere in the candidate"
    )


def test_one_more_on_a_norm_is_a_convention_and_on_another_weight_is_not() -> None:
    model = _model(layers=1)
    norm = "model.model.layers.0.input_layernorm.weight"
    found = _compared(model, {**model, norm: model[norm] + 1})
    assert found.findings == ()
    (convention,) = found.conventions
    assert (convention.kind, convention.module) == (WeightKind.OFFSET, norm.rpartition(".")[0])
    name = f"{ATTENTION.format(n=0)}k_proj.weight"
    assert _only(model, {**model, name: model[name] + 1}).kind is WeightKind.OFFSET


def test_rounded_weights_are_equal() -> None:
    model = _model(layers=1)
    rounded = {name: values.astype(ml_dtypes.bfloat16) for name, values in model.items()}
    assert _is_clean(_compared(model, rounded), len(model))
    name = f"{ATTENTION.format(n=0)}k_proj.weight"
    rounded[name] = rounded[name].copy()
    rounded[name][3] *= 2
    assert _only(model, rounded).evidence == "1 of 16 rows differ, the first is 3"


def test_one_changed_row_in_bfloat16_is_seen() -> None:
    model = {"model.up.weight": _random(MLP, HIDDEN, seed=1).astype(ml_dtypes.bfloat16)}
    changed = model["model.up.weight"].astype(np.float32)
    changed[5] *= 1.004  # less than rounding in the whole
    finding = _only(model, {"model.up.weight": changed.astype(ml_dtypes.bfloat16)})
    assert finding.evidence == "1 of 48 rows differ, the first is 5"


@pytest.mark.parametrize(("factor", "equal"), [(1.02, False), (0.98, False), (1.0, True)])
def test_a_factor_on_all_values_in_bfloat16_is_seen(factor: float, equal: bool) -> None:
    wide = _random(400, 300, seed=1)
    narrow = wide.astype(ml_dtypes.bfloat16)
    scaled = (narrow.astype(np.float32) * factor).astype(ml_dtypes.bfloat16)
    found = _compared({"model.up.weight": narrow}, {"model.up.weight": scaled})
    assert (found.equal == 1) is equal
    assert [finding.kind for finding in found.findings] == ([] if equal else [WeightKind.SCALED])
    truncated = (wide.view(np.uint32) & 0xFFFF0000).view(np.float32).astype(ml_dtypes.bfloat16)
    assert _is_clean(_compared({"model.up.weight": narrow}, {"model.up.weight": truncated}), 1)


def test_weights_without_values_are_never_called_equal() -> None:
    model = _model(layers=1)
    name = f"{ATTENTION.format(n=0)}k_proj.weight"
    packed = {**model, name: np.ones((16, 20), np.uint8)}
    found = _compared(model, packed)
    assert found.findings == ()
    assert found.equal == len(model) - 1
    assert found.not_compared == (f"{name} of the candidate: values of uint8 are codes for others",)


def test_parts_of_a_fused_weight_without_values_are_not_called_absent() -> None:
    model = _model(layers=1)
    fused = _fused(model)
    fused["model.language_model.layers.0.mlp.gate_up_proj.weight"] = np.empty((0,), np.float32)
    found = _compared(model, fused)
    assert (found.findings, found.absent, found.equal) == ((), (), len(model) - 2)
    assert "gate_up_proj.weight of the candidate: it has no values" in found.not_compared[0]


def _change(name: str, values: Array) -> tuple[dict[str, Array], dict[str, Array]]:
    model = _model()
    assert model[name].shape == values.shape
    return model, {**model, name: np.ascontiguousarray(values)}


_Q = f"{ATTENTION.format(n=1)}q_proj.weight"
_UP = "model.model.layers.1.mlp.up_proj.weight"
_DOWN = "model.model.layers.1.mlp.down_proj.weight"
_NORM = "model.model.layers.1.input_layernorm.weight"
_EMBED = "model.model.embed_tokens.weight"
_HEAD_NAME = "model.lm_head.weight"


def _swapped(values: Array, one: int, other: int) -> Array:
    swapped = values.copy()
    swapped[[one, other]] = values[[other, one]]
    return swapped


@pytest.mark.parametrize(
    ("name", "change", "kind", "says"),
    [
        (_UP, lambda w: w * 0, WeightKind.MISSING, "all of its values are 0"),
        (_Q, lambda w: w.T, WeightKind.TRANSPOSED, "its rows are the columns of"),
        (_UP, lambda w: w[::-1], WeightKind.PERMUTED_ROWS, "48 of 48 rows are elsewhere"),
        (_UP, lambda w: w[:, ::-1], WeightKind.PERMUTED_COLUMNS, "column 0 is the candidate's"),
        (_EMBED, lambda w: _swapped(w, 5, 9), WeightKind.PERMUTED_ROWS, "2 of 70 rows are else"),
        (
            _UP,
            lambda w: np.tile(w[:24], (2, 1)),
            WeightKind.DUPLICATED_SHARD,
            "its rows are one of 2 parts of the reference's, 2 times",
        ),
        (
            _DOWN,
            lambda w: np.tile(w[:, 12:24], (1, 4)),
            WeightKind.DUPLICATED_SHARD,
            "its columns are one of 4 parts of the reference's, 4 times",
        ),
        (_NORM, lambda w: w[::-1], WeightKind.PERMUTED_ROWS, "32 of 32 values are elsewhere"),
        (_Q, lambda w: w * 0.5, WeightKind.SCALED, "all values are 0.5 times as great"),
        (_UP, lambda w: w + 0.25, WeightKind.OFFSET, "0.25 is added to all values"),
        (_NORM, lambda w: w * 0 + 1, WeightKind.UNTOUCHED, "all of its values are 1, as a model"),
        (
            _UP,
            lambda w: _random(*w.shape, seed=99),
            WeightKind.UNTOUCHED,
            "its values have nothing to do with the reference's",
        ),
        (
            _UP,
            lambda w: w + 0.1 * _random(*w.shape, seed=99),
            WeightKind.DIFFERENT,
            "of it",
        ),
    ],
)
def test_a_weight_that_differs_is_named_with_its_kind(
    name: str, change: object, kind: WeightKind, says: str
) -> None:
    assert callable(change)
    finding = _only(*_change(name, change(_model()[name])))
    assert (finding.reference, finding.candidate, finding.kind) == ((name,), name, kind)
    assert finding.module == name.removesuffix(".weight")
    assert says in finding.evidence


def test_a_part_of_a_fused_matrix_is_named_by_itself() -> None:
    model = _model()
    fused = _fused(model)
    name = "model.language_model.layers.1.mlp.gate_up_proj.weight"
    gate, _ = np.split(fused[name], 2)
    finding = _only(model, {**fused, name: np.concatenate([gate, gate])})
    assert (finding.reference, finding.candidate) == ((_UP,), name)
    assert finding.kind is WeightKind.DUPLICATED_SHARD
    assert "are those of model.model.layers.1.mlp.gate_proj.weight once more" in finding.evidence


def test_exchanged_weights_name_each_other() -> None:
    gate = _UP.replace("up", "gate")
    model = _model()
    found = weight_findings(_record(model), _record({**model, _UP: model[gate], gate: model[_UP]}))
    assert {item.kind for item in found} == {WeightKind.EXCHANGED}
    assert found[0].evidence == f"it holds the values of {_UP}"


def test_a_head_that_is_tied_to_the_embedding_is_told() -> None:
    finding = _only(*_change(_HEAD_NAME, _model()[_EMBED]))
    assert finding.kind is WeightKind.TIED
    assert finding.evidence.startswith(f"it holds the values of {_EMBED}")


def test_a_head_that_is_not_tied_to_the_embedding_is_told() -> None:
    model = _model()
    model[_HEAD_NAME] = model[_EMBED]
    reference = WeightRecord(
        weights=tuple(
            sketch_weight(name, values, storage=0 if name in (_EMBED, _HEAD_NAME) else None)
            for name, values in model.items()
        )
    )
    loose = {**model, _HEAD_NAME: _random(VOCAB, HIDDEN, seed=77)}
    (finding,) = weight_findings(reference, _record(loose))
    assert finding.evidence.endswith(f"; the reference's is one with {_EMBED}")
    without = {name: values for name, values in model.items() if name != _HEAD_NAME}
    assert compare_weights(reference, _record(without)).findings == ()


def test_a_weight_that_no_checkpoint_gave_is_untouched() -> None:
    model = _model()
    changed = {**model, _NORM: model[_NORM] * 3}
    told = {_NORM.replace(".", "_"): False}
    (finding,) = weight_findings(_record(model), _record(changed, **told))
    assert finding.kind is WeightKind.UNTOUCHED
    assert "made with" in finding.evidence


def test_a_weight_that_the_candidate_lacks_is_absent() -> None:
    model = _model()
    without = {name: values for name, values in model.items() if name != _DOWN}
    found = _compared(model, without)
    assert (found.findings, found.absent) == ((), (_DOWN,))


def test_values_that_occur_in_other_weights_by_chance_are_not_a_vector_found() -> None:
    # In bfloat16 there are few numbers near 1, so that all of a norm's values occur elsewhere.
    norms = (1 + 0.01 * _random(3, 200, seed=5)).astype(ml_dtypes.bfloat16)
    model = {f"model.layers.{n}.norm.weight": values for n, values in enumerate(norms)}
    renamed = {f"model.w{n}.g": values for n, values in enumerate(norms)}
    assert _is_clean(_compared(model, renamed), 3)
    del renamed["model.w1.g"]
    assert _compared(model, renamed).absent == ("model.layers.1.norm.weight",)


def test_fused_biases_are_equal_to_separate_ones() -> None:
    attention = ATTENTION.format(n=0)
    parts = {part: _random(16, seed=n) for n, part in enumerate("qkv")}
    model = {f"{attention}{part}_proj.bias": values for part, values in parts.items()}
    fused = {f"{attention}qkv_proj.bias": np.concatenate(list(parts.values()))}
    assert _is_clean(_compared(model, fused), 3)


def test_values_that_are_no_numbers_differ() -> None:
    values = _model()[_UP].copy()
    values[4, 4] = np.nan
    finding = _only(*_change(_UP, values))
    assert finding.kind is WeightKind.DIFFERENT


_DTYPES = (np.float64, np.float32, np.float16, ml_dtypes.bfloat16)


@pytest.mark.parametrize("left", _DTYPES)
@pytest.mark.parametrize("right", _DTYPES)
def test_the_same_weights_in_any_two_dtypes_are_equal(left: type, right: type) -> None:
    model = _model(layers=1)
    model[_EMBED][9] *= 200  # one token's row is far greater than the others
    model[_NORM.replace("1", "0")][4] = 90
    mine = {name: values.astype(left) for name, values in model.items()}
    theirs = {name: values.astype(right) for name, values in model.items()}
    assert _is_clean(_compared(mine, theirs), len(model))
    head = model[_HEAD_NAME]
    assert _only(mine, {**theirs, _HEAD_NAME: (head * 0.5).astype(right)}).kind is WeightKind.SCALED


@pytest.mark.parametrize("right", [np.float16, ml_dtypes.bfloat16])
def test_weights_of_another_name_and_dtype_are_found_by_value(right: type) -> None:
    model = _model(layers=1)
    theirs = {
        f"model.w{number}.kernel": values.astype(right)
        for number, values in enumerate(model.values())
    }
    assert _is_clean(_compared(model, theirs), len(model))
    number = list(model).index(_DOWN.replace("1", "0"))
    theirs[f"model.w{number}.kernel"] = _random(HIDDEN, MLP, seed=9).astype(right)
    assert _compared(model, theirs).absent == (_DOWN.replace("1", "0"),)


def test_norms_that_are_all_near_one_are_not_taken_for_each_other_in_another_dtype() -> None:
    norms = 1 + 0.01 * _random(3, 200, seed=5)
    model = {f"model.layers.{n}.norm.weight": values for n, values in enumerate(norms)}
    renamed = {f"model.w{n}.g": values.astype(ml_dtypes.bfloat16) for n, values in enumerate(norms)}
    assert _is_clean(_compared(model, renamed), 3)
    del renamed["model.w1.g"]
    assert _compared(model, renamed).absent == ("model.layers.1.norm.weight",)


def test_exchanged_weights_in_another_dtype_name_each_other() -> None:
    gate = _UP.replace("up", "gate")
    model = _model()
    theirs = {
        name: values.astype(ml_dtypes.bfloat16)
        for name, values in {**model, _UP: model[gate], gate: model[_UP]}.items()
    }
    found = weight_findings(_record(model), _record(theirs))
    assert {item.kind for item in found} == {WeightKind.EXCHANGED}


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16])
def test_equal_weights_that_hold_what_is_no_number_are_equal(value: float, dtype: type) -> None:
    model = _model(layers=1)
    norm, up = _NORM.replace("1", "0"), _UP.replace("1", "0")
    for name, place in ((norm, 3), (up, (4, 7)), (up, (9, 7))):
        model[name][place] = value
    theirs = {name: values.astype(dtype) for name, values in model.items()}
    assert _is_clean(_compared(model, theirs), len(model))
    renamed = {f"model.w{n}.kernel": values for n, values in enumerate(theirs.values())}
    assert _is_clean(_compared(model, renamed), len(model))


def test_values_beside_one_that_is_no_number_still_count() -> None:
    model = _model(layers=1)
    up = _UP.replace("1", "0")
    model[up][4, 7] = np.nan
    changed = model[up].copy()
    changed[4, 20] += 5
    finding = _only(model, {**model, up: changed})
    assert (finding.reference, finding.kind) == ((up,), WeightKind.DIFFERENT)


def test_what_is_no_number_on_one_side_only_is_counted() -> None:
    model = _model(layers=1)
    up = _UP.replace("1", "0")
    changed = model[up].copy()
    changed[4, 7] = np.nan
    assert _only(model, {**model, up: changed}).evidence == (
        "1 of 48 rows hold what is no number, or infinite, on one side only, the first is 4"
    )


def test_a_stack_of_nothing_has_no_strips() -> None:
    empty = np.zeros((1 << 40, 0))
    weight = WeightSketch(
        name="w", dtype="float32", shape=(1 << 40, 0, 0), rows=empty, columns=empty
    )
    assert list(strips_of(weight)) == []


def test_long_vectors_of_zeros_are_not_looked_for_at_every_place() -> None:
    begin = time.process_time()
    _compared({"a": np.zeros(60_000, "f4")}, {"b": np.zeros(120_000, "f4")})
    assert time.process_time() - begin < 5
