"""Pairs by place and value, where names say nothing."""

import numpy as np
import pytest

from comparison.align.fingerprint import fingerprint
from comparison.align.structure import Placed, match_by_structure

_SIZES = {"q": 64, "k": 32, "v": 32, "o": 32, "up": 48, "down": 32}
_THEIRS = {"q": "wq", "k": "wk", "v": "wv", "o": "wo", "up": "w3", "down": "w2"}
_OTHERS = {"q": "a", "k": "b", "v": "c", "o": "d", "up": "e", "down": "f"}


def _model(
    prefix: str, names: dict[str, str], *, layers: int = 12, noise: float = 0.0
) -> list[Placed]:
    placed = []
    for layer in range(layers):
        for number, (part, size) in enumerate(_SIZES.items()):
            generator = np.random.default_rng(100 * layer + number)
            values = generator.standard_normal((9, size))
            values = values + noise * np.random.default_rng(7).standard_normal(values.shape)
            placed.append(
                Placed(
                    name=f"{prefix}.{layer}.{names[part]}-output",
                    order=len(placed),
                    sizes={size: fingerprint(np.arange(9), values)},
                )
            )
    return placed


def _pairs(reference: list[Placed], candidate: list[Placed]) -> dict[str, str]:
    return {match.reference: match.candidate for match in match_by_structure(reference, candidate)}


def _wanted(names: dict[str, str], theirs: dict[str, str]) -> dict[str, str]:
    return {
        f"model.layers.{layer}.{names[part]}-output": f"net.h.{layer}.{theirs[part]}-output"
        for layer in range(12)
        for part in _SIZES
    }


def test_equal_values_prove_a_pair() -> None:
    own = {part: f"{part}_proj" for part in _SIZES}
    matches = match_by_structure(_model("model.layers", own), _model("net.h", _OTHERS))
    assert {match.reference: match.candidate for match in matches} == _wanted(own, _OTHERS)
    assert all(match.proven for match in matches)


def test_names_of_one_role_do_where_values_differ() -> None:
    own = {part: f"{part}_proj" for part in _SIZES}
    candidate = _model("net.h", _THEIRS, noise=5.0)
    matches = match_by_structure(_model("model.layers", own), candidate)
    assert {match.reference: match.candidate for match in matches} == _wanted(own, _THEIRS)
    assert not any(match.proven for match in matches)
    assert all("a guess" in match.reason for match in matches)


def test_layers_one_and_ten_are_never_a_pair() -> None:
    own = {part: f"{part}_proj" for part in _SIZES}
    candidate = [placed for placed in _model("net.h", _THEIRS) if ".1." not in placed.name]
    found = _pairs(_model("model.layers", own), candidate)
    assert not [name for name in found if name.startswith("model.layers.1.")]
    assert found["model.layers.10.q_proj-output"] == "net.h.10.wq-output"


def test_a_fused_projection_is_taken_apart_by_size() -> None:
    own = {part: f"{part}_proj" for part in _SIZES}
    reference = _model("model.layers", own, layers=1)
    separate = _model("net.h", _THEIRS, layers=1)
    joined = np.concatenate(
        [
            np.random.default_rng(number).standard_normal((9, size))
            for number, size in ((0, 64), (1, 32), (2, 32))
        ],
        axis=1,
    )
    fused = Placed(
        name="net.h.0.wqkv-output", order=2, sizes={128: fingerprint(np.arange(9), joined)}
    )
    matches = match_by_structure(reference, [fused, *separate[3:]])
    parts = [match for match in matches if match.candidate == fused.name]
    assert [match.reference.rpartition(".")[2] for match in parts] == [
        "q_proj-output",
        "k_proj-output",
        "v_proj-output",
    ]
    assert all(match.parts == tuple(part.reference for part in parts) for match in parts)


def test_permuted_values_are_not_taken_for_equal() -> None:
    own = {part: f"{part}_proj" for part in _SIZES}
    reference = _model("model.layers", own, layers=1)[:1]
    values = np.random.default_rng(0).standard_normal((9, 64))
    permuted = fingerprint(np.arange(9), values[:, ::-1])
    candidate = [Placed(name="net.h.0.wq-output", order=0, sizes={64: permuted})]
    (match,) = match_by_structure(reference, candidate)
    assert not match.proven


def _placed(name: str, values: np.ndarray, *, is_integer: bool = False) -> Placed:
    print_of = fingerprint(np.arange(len(values)), values)
    return Placed(name=name, order=0, sizes={values.shape[1]: print_of}, is_integer=is_integer)


VALUES = np.random.default_rng(3).standard_normal((9, 32))


def _blend(share: float) -> np.ndarray:
    """Give values whose cosine to VALUES is about a share."""
    other = np.random.default_rng(4).standard_normal(VALUES.shape)
    return share * VALUES + np.sqrt(1 - share**2) * other


@pytest.mark.parametrize("name", ["by hand", "net.h.0.a-input_0"])
def test_an_output_is_no_input_and_no_tensor_without_a_side(name: str) -> None:
    mine = [_placed("model.layers.0.q_proj-output", VALUES)]
    assert match_by_structure(mine, [_placed(name, VALUES)]) == []


def test_sizes_and_kinds_of_numbers_have_to_be_the_same() -> None:
    mine = [_placed("model.layers.0.a-output", VALUES)]
    assert match_by_structure(mine, [_placed("net.h.0.b-output", VALUES[:, :31])]) == []
    whole = _placed("net.h.0.b-output", VALUES, is_integer=True)
    assert match_by_structure(mine, [whole]) == []


def test_the_place_and_the_size_alone_are_no_pair() -> None:
    mine = [_placed("model.layers.0.one-output", VALUES)]
    assert match_by_structure(mine, [_placed("net.h.0.two-output", _blend(0.0))]) == []


@pytest.mark.parametrize(("share", "paired"), [(0.99, True), (0.85, True), (0.5, False)])
def test_alike_values_are_a_guess(share: float, paired: bool) -> None:
    mine = [_placed("model.layers.0.one-output", VALUES)]
    found = match_by_structure(mine, [_placed("net.h.0.two-output", _blend(share))])
    assert [match.proven for match in found] == [False] * paired


def test_the_more_alike_of_two_is_taken() -> None:
    mine = [_placed("model.layers.0.one-output", VALUES)]
    theirs = [
        _placed("net.h.0.far-output", _blend(0.8)),
        _placed("net.h.0.near-output", _blend(0.98)),
    ]
    (found,) = match_by_structure(mine, theirs)
    assert found.candidate == "net.h.0.near-output"


def test_constants_prove_nothing() -> None:
    mine = [_placed("model.layers.0.one-output", np.ones((9, 32)))]
    assert match_by_structure(mine, [_placed("net.h.0.two-output", np.ones((9, 32)))]) == []


def test_integers_are_a_pair_where_they_are_equal_or_are_choices_of_one_name() -> None:
    ids = np.random.default_rng(5).integers(0, 90, (9, 2)).astype(float)
    other = ids[::-1].copy()

    def found(theirs: Placed, *, name: str = "model.layers.0.router-output") -> int:
        return len(match_by_structure([_placed(name, ids, is_integer=True)], [theirs]))

    assert found(_placed("net.h.0.chosen-output", ids, is_integer=True)) == 1
    assert found(_placed("net.h.0.router-output", other, is_integer=True)) == 1
    assert found(_placed("net.h.0.chosen-output", other, is_integer=True)) == 0
    one = _placed("net.h.0.router-output", other[:, :1], is_integer=True)
    mine = _placed("model.layers.0.router-output", ids[:, :1], is_integer=True)
    assert match_by_structure([mine], [one]) == []  # one a token may be anything


def test_gate_and_up_of_one_parent_are_taken_apart_too() -> None:
    parts = [_placed(f"model.layers.0.mlp.{n}_proj-output", _blend(0)) for n in ("gate", "up")]
    both = _placed("net.h.0.ffn.w13-output", np.concatenate([_blend(0.0), _blend(0.1)], axis=1))
    found = match_by_structure(parts, [both])
    assert [match.reference for match in found] == [part.name for part in parts]
    assert {match.candidate for match in found} == {both.name}
    narrow = _placed("net.h.0.ffn.w13-output", np.concatenate([_blend(0.0), VALUES[:, :5]], axis=1))
    assert match_by_structure(parts, [narrow]) == []
