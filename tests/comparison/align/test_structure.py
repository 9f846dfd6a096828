"""Pairs by place and value, where names say nothing."""

import numpy as np

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
