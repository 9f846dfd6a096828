"""Weights that were lost, never loaded, or loaded into the wrong place."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np

from comparison.numerics.dtypes import Array
from diagnosis.causes.changes import with_parameter
from diagnosis.causes.leaf import bias_of, matrix_of
from diagnosis.causes.linear import linear_of
from diagnosis.causes.trial import OutputTrial, RunTrial, Sign, Trial

if TYPE_CHECKING:
    from diagnosis.causes.region import Region

_FEW = 0.25  # share of channels; an edit of these is no other matrix
_LEAST_TOKENS = 3  # for a fitted number to prove something
_MOST_OTHERS = 64
_MOST_EXPERTS = 16
_UNRELATED = 0.3  # correlation with the right output


def trials(region: Region) -> Iterator[Trial]:
    """Take other weights of the model, zero, and what some channels or tokens show."""
    yield from _of_others(region)
    yield from _experts(region)
    yield from _channels(region)
    yield from _one_input(region)
    yield from _tokens(region)


def signs(region: Region) -> Iterator[Sign]:
    """Tell a linear layer that is wrong throughout, at any input."""
    matrix = matrix_of(region)
    if matrix is None or region.first.excess is None or linear_of(region) is None:
        return
    bad = region.first.excess.by_position > 5.0
    if not bad.all():
        return
    tied = _is_tied(region)
    alike = _correlation(region.exact.ravel(), region.target.ravel())
    if abs(alike) < _UNRELATED:
        yield Sign(
            cause="tied_weights" if tied else "weights",
            says=f"multiplies by a weight that is unlike the reference's (correlation {alike:.2f} "
            "of the outputs at the same inputs), as one that was never loaded"
            + (", though it is the input embedding's" if tied else ""),
            weight=0.85,
        )
    else:
        yield Sign(
            cause="tied_weights" if tied else "weights",
            says=f"multiplies by another weight (correlation {alike:.3f} of the outputs at the "
            "same inputs)" + (", and not by the input embedding's" if tied else ""),
            weight=0.6,
        )


def _correlation(left: Array, right: Array) -> float:
    """Return Pearson's correlation, 0 where one side does not vary."""
    if not np.std(left) or not np.std(right):
        return 0.0
    return float(np.corrcoef(left, right)[0, 1])


def _of_others(region: Region) -> Iterator[Trial]:
    """Put each other parameter of the same shape in, those of the same name first."""
    import torch

    module = region.module
    own = {name: p for name, p in module.named_parameters(recurse=False)}
    for name, value in own.items():
        yield RunTrial(
            cause="weights",
            says=f"has zeros for {name}, as where it was missing",
            change=partial(with_parameter, module, name, torch.zeros_like(value)),
        )
        if value.ndim == 1 and name == "weight":
            yield RunTrial(
                cause="weights",
                says="has ones for weight, as where it was never loaded",
                change=partial(with_parameter, module, name, torch.ones_like(value)),
            )
        for other, weight in _alike(region, name, value)[:_MOST_OTHERS]:
            yield RunTrial(
                cause="tied_weights" if _is_tie(region, other) else "weights",
                says=f"computes with the {name} of {other}",
                change=partial(with_parameter, module, name, weight.detach()),
                needs_other_weight=False,  # code may take another module's
            )
    if len(own) > 1:
        yield from _of_other_modules(region, own)


def _of_other_modules(region: Region, own: Mapping[str, Any]) -> Iterator[Trial]:
    """Take all parameters of another module at once, as where layers are exchanged."""
    listed = [dict(_alike(region, name, value)[:_MOST_OTHERS]) for name, value in own.items()]
    for path in listed[0]:
        if all(path in others for others in listed):
            values = [others[path].detach() for others in listed]
            yield RunTrial(
                cause="weights",
                says=f"computes with the {' and '.join(own)} of {path}",
                change=partial(
                    _with_parameters, region.module, dict(zip(own, values, strict=True))
                ),
                needs_other_weight=False,
            )


@contextmanager
def _with_parameters(module: Any, values: Mapping[str, Any]) -> Iterator[None]:
    with ExitStack() as stack:
        for name, value in values.items():
            stack.enter_context(with_parameter(module, name, value))
        yield


def _alike(region: Region, name: str, value: Any) -> list[tuple[str, Any]]:
    """List parameters of the same shape, those whose module has the same name or parent first."""
    parts = region.name.split(".")
    found = []
    for path, module in region.model.named_modules():
        other = module._parameters.get(name)
        full = f"model.{path}" if path else "model"
        if other is None or other.shape != value.shape or full == region.name:
            continue
        theirs = full.split(".")
        near = (theirs[-1] != parts[-1]) + (theirs[:-1] != parts[:-1])
        found.append((near, full, other))
    return [(full, other) for near, full, other in sorted(found, key=lambda item: item[0])]


def _is_tied(region: Region) -> bool:
    """Tell whether the reference's head has the weight of its input embedding."""
    get = getattr(region.model, "get_input_embeddings", None)
    embedding = get() if get is not None else None
    if embedding is None or embedding is region.module:
        return False
    return getattr(region.module, "weight", None) is embedding.weight


def _is_tie(region: Region, other: str) -> bool:
    """Tell whether input embedding and head are meant."""
    get = getattr(region.model, "get_input_embeddings", None)
    embedding = get() if get is not None else None
    names = {
        f"model.{path}" for path, module in region.model.named_modules() if module is embedding
    }
    return bool(names & {other, region.name})


def _experts(region: Region) -> Iterator[Trial]:
    """Swap experts, and the halves of a fused gate and up, in stacks of matrices [E, out, in]."""
    for path, module in region.free_modules():
        for name, value in list(module.named_parameters(recurse=False)):
            if value.ndim != 3:
                continue
            where = f"{path}.{name}" if path else name
            half = value.shape[1] // 2
            halves = value[:, [*range(half, 2 * half), *range(half)]].detach()
            if value.shape[1] == 2 * half:
                yield RunTrial(
                    cause="weights",
                    says=f"takes the halves of {where} for each other, gate for up",
                    change=partial(with_parameter, module, name, halves),
                )
            count = min(len(value), _MOST_EXPERTS)
            for first, second in combinations(range(count), 2):
                order = list(range(len(value)))
                order[first], order[second] = second, first
                yield RunTrial(
                    cause="weights",
                    says=f"has experts {first} and {second} of {where} swapped",
                    change=partial(with_parameter, module, name, value[order].detach()),
                )


def _channels(region: Region) -> Iterator[Trial]:
    """Look at output channels that are a multiple of the right ones, the others being exact."""
    excess, exact, target = region.first.excess, region.exact, region.target
    if excess is None or exact.ndim < 2 or matrix_of(region) is None:
        return
    flat, other = exact.reshape(len(exact), -1), target.reshape(len(target), -1)
    matrix = matrix_of(region)
    is_by_token = matrix is not None and flat.shape[1] in (
        len(matrix.values),
        matrix.values.shape[1],
    )
    if not is_by_token or len(flat) < _LEAST_TOKENS:
        return
    bad = np.flatnonzero(excess.by_channel > 15.0)
    if not 0 < bad.size <= _FEW * flat.shape[1]:
        return
    bias = bias_of(region)
    shift = np.zeros(flat.shape[1]) if bias is None or bias.size != flat.shape[1] else bias
    y, z = flat[:, bad] - shift[bad], other[:, bad] - shift[bad]
    square = np.sum(y * y, axis=0)
    factors = np.sum(y * z, axis=0) / np.where(square > 0, square, 1.0)

    def predict(values: Any) -> Any:
        new = values.reshape(len(values), -1).copy()
        new[:, bad] = y * factors + shift[bad]
        return new.reshape(values.shape)

    shown = ", ".join(
        f"{channel}: {factor:.4g}" for channel, factor in zip(bad, factors, strict=True)
    )
    yield OutputTrial(
        cause="weights",
        says=f"has rows of the weight times a factor, output channel {shown}",
        predict=predict,
        numbers=int(bad.size),
    )


def _one_input(region: Region) -> Iterator[Trial]:
    """Look for one input channel whose column of the weight is another one."""
    inputs = region.linear_inputs
    excess = region.first.excess
    if inputs is None or excess is None or len(inputs) < 3 or region.exact.ndim != 2:
        return
    error = region.target - region.exact  # [n, out]
    if not np.isfinite(error).all() or len(error) != len(inputs):
        return
    squares = np.sum(inputs**2, axis=0)
    usable = np.where(squares > 0, squares, 1.0)
    slopes = inputs.T @ error / usable[:, None]  # [in, out]
    left = np.sum(error**2) - np.sum(slopes**2 * squares[:, None], axis=1)
    column = int(np.argmin(left))
    delta = slopes[column]
    rows = np.flatnonzero(np.abs(delta) > 1e-3 * np.abs(delta).max(initial=0.0))
    yield OutputTrial(
        cause="weights",
        says=f"has another weight at input channel {column}, in {rows.size} of {delta.size} output "
        f"channels: {delta[rows[0]] if rows.size else 0.0:+.4g} at output channel "
        f"{rows[0] if rows.size else 0}",
        predict=lambda y: y + inputs[:, [column]] * delta,
        numbers=int(rows.size),
    )


def _tokens(region: Region) -> Iterator[Trial]:
    """Look up which tokens of an embedding are wrong: a few of them are edits of the table."""
    matrix = matrix_of(region)
    if matrix is None or not matrix.is_embedding or region.first.excess is None:
        return
    ids = region.token_ids
    if ids is None or len(ids) != len(region.target):
        return
    bad = region.first.excess.by_position > 5.0
    wrong = set(ids[bad].tolist())
    if not wrong or wrong & set(ids[~bad].tolist()) or len(wrong) > _FEW * len(set(ids.tolist())):
        return
    table = {token: region.target[ids == token][0] for token in wrong}
    shown = ", ".join(map(str, sorted(wrong)))

    def predict(values: Any) -> Any:
        new = values.copy()
        for token, row in table.items():
            new[ids == token] = row
        return new

    yield OutputTrial(
        cause="weights",
        says=f"has another row of the table for {shown}",
        predict=predict,
        numbers=len(wrong),
    )
