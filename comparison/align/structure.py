"""Pairs tensors whose names say nothing, by their place in the model and by their values.

Both engines run the same layers in much the same order. So the tensors of one layer, in order of
execution, are aligned like two texts (Needleman and Wunsch): a pair must be inputs or outputs
both, hold as many values a token and lie in the layer of the same number; values that are alike
and names that speak of one role are for it, unlike ones against it.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from comparison.align.fingerprint import Fingerprint, Likeness, likeness
from comparison.align.roles import role_score, roles_of
from comparison.numerics.dtypes import Array
from comparison.schema.tensor_names import parse_tensor_name, path_number

_SAME = 1e-2  # relative distance of tensors that are taken for the same
_PROVEN = 3.0  # the score of equal values
_LEAST_SCORE = 0.25
_SIZE_ALONE = 0.5  # what the place and the size are worth without anything else

Indices = tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """A tensor and what is known of its place.

    Attributes:
        name: full tensor name.
        order: position in the order of execution.
        sizes: fingerprint by number of values a token; a tensor may be read in several ways.
        is_integer: whether it holds integers or booleans, of which only equal ones are a pair.
    """

    name: str
    order: int
    sizes: dict[int, Fingerprint] = field(repr=False)
    is_integer: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    """Two tensors that lie at the same place.

    Attributes:
        reference: name of the reference's.
        candidate: name of the candidate's.
        reason: why they are a pair.
        proven: whether their values are the same; else it is a guess.
        parts: where the candidate's is a fused one, the reference's names of all its parts in
            block order, this one among them; empty for whole tensors.
    """

    reference: str
    candidate: str
    reason: str
    proven: bool
    parts: tuple[str, ...] = ()


def match_by_structure(reference: Sequence[Placed], candidate: Sequence[Placed]) -> list[Match]:
    """Pair what lies at the same place of both models.

    A pair needs more than its place and size: equal values here, equal values in another layer of
    the same kind, alike values, or names of one role.

    Args:
        reference: in order of execution.
        candidate: in order of execution.
    """
    left, right = _by_layer(reference), _by_layer(candidate)
    votes: Counter[tuple[str, str]] = Counter()
    for layer in left:
        for match in _aligned(left[layer], right.get(layer, []), {}):
            for whole in (_template, _module_template):
                votes[whole(match.reference), whole(match.candidate)] += match.proven
    chosen = _one_each(votes)
    found: list[Match] = []
    for layer in left:
        matches = list(_aligned(left[layer], right.get(layer, []), chosen))
        found += matches
        found += _fused(left[layer], right.get(layer, []), matches)
    return found


def _fused(
    reference: Sequence[Placed], candidate: Sequence[Placed], matches: Sequence[Match]
) -> Iterator[Match]:
    """Pair outputs that the candidate computes as one, [q | k | v] or [gate | up]."""
    used = {match.reference for match in matches} | {match.candidate for match in matches}
    loose = [tensor for tensor in reference if tensor.name not in used and _is_output(tensor)]
    for whole in candidate:
        if whole.name in used or not _is_output(whole):
            continue
        parts = next((group for group in _groups_of_parts(loose) if _fits(group, whole)), [])
        names = tuple(part.name for part in parts)
        loose = [tensor for tensor in loose if tensor.name not in names]
        for name in names:
            yield Match(
                reference=name,
                candidate=whole.name,
                reason=f"same place in the model, a block of the fused {whole.name}; a guess",
                proven=False,
                parts=names,
            )


def _groups_of_parts(loose: Sequence[Placed]) -> Iterator[Sequence[Placed]]:
    """Give parts of one module whose names say that engines fuse them."""
    by_parent: defaultdict[str, dict[str, Placed]] = defaultdict(dict)
    for tensor in loose:
        module = tensor.name.rpartition("-")[0]
        for role in roles_of(module):
            by_parent[module.rpartition(".")[0]].setdefault(role, tensor)
    for found in by_parent.values():
        for roles in (("query", "key", "value"), ("gate", "up")):
            if all(role in found for role in roles):
                yield [found[role] for role in roles]


def _is_output(tensor: Placed) -> bool:
    parsed = parse_tensor_name(tensor.name)
    return parsed is not None and parsed.side == "output"


def _fits(parts: Sequence[Placed], whole: Placed) -> bool:
    sizes = [next(iter(part.sizes), 0) for part in parts]
    parents = {part.name.rpartition("-")[0].rpartition(".")[0] for part in parts}
    return len(parents) == 1 and sum(sizes) in whole.sizes


def indices_of(name: str) -> Indices:
    """Return the numbers in a module's path, `layers.3.experts.7` as (3, 7)."""
    parsed = parse_tensor_name(name)
    module = name if parsed is None else parsed.module
    numbers = map(path_number, module.split("."))
    return tuple(number for number in numbers if number is not None)


def _by_layer(tensors: Sequence[Placed]) -> dict[Indices, list[Placed]]:
    """Group by the numbers in the path, without those that never change."""
    found = {tensor.name: indices_of(tensor.name) for tensor in tensors}
    groups: defaultdict[Indices, list[Placed]] = defaultdict(list)
    for tensor in tensors:
        groups[found[tensor.name]].append(tensor)
    return dict(groups)


_NUMBER = re.compile(r"(?<=\.)[0-9]+(?=[.\-(])")


def _template(name: str) -> str:
    """Return a name without its layer's number."""
    return _NUMBER.sub("#", name)


def _module_template(name: str) -> str:
    """Return the template of the module that a tensor goes into or comes out of."""
    return _template(name).rpartition("-")[0]


def _one_each(votes: Counter[tuple[str, str]]) -> dict[str, str]:
    """Let each template of the reference have one of the candidate's, the most voted first."""
    chosen: dict[str, str] = {}
    taken: set[str] = set()
    for (mine, theirs), count in votes.most_common():
        if count > 0 and mine not in chosen and theirs not in taken:
            chosen[mine] = theirs
            taken.add(theirs)
    return chosen


def _aligned(
    reference: Sequence[Placed], candidate: Sequence[Placed], chosen: dict[str, str]
) -> Iterator[Match]:
    """Align two sequences so that the sum of their pairs' scores is greatest."""
    scores = np.array(
        [[_score(mine, theirs, chosen) for theirs in candidate] for mine in reference]
    ).reshape(len(reference), len(candidate))
    best = np.zeros((len(reference) + 1, len(candidate) + 1))
    for i in range(len(reference)):
        for j in range(len(candidate)):
            paired = best[i, j] + scores[i, j] if scores[i, j] > _LEAST_SCORE else -np.inf
            best[i + 1, j + 1] = max(paired, best[i, j + 1], best[i + 1, j])
    yield from reversed(list(_backwards(best, scores, reference, candidate)))


def _backwards(
    best: Array, scores: Array, reference: Sequence[Placed], candidate: Sequence[Placed]
) -> Iterator[Match]:
    i, j = len(reference), len(candidate)
    while i and j:
        if best[i, j] == best[i - 1, j]:
            i -= 1
        elif best[i, j] == best[i, j - 1]:
            j -= 1
        else:
            i, j = i - 1, j - 1
            yield _match(reference[i], candidate[j])


def _match(mine: Placed, theirs: Placed) -> Match:
    alike = _likeness(mine, theirs)
    proven = alike is not None and alike.distance < _SAME
    how = "equal values" if proven else "a guess by order and size"
    return Match(
        reference=mine.name,
        candidate=theirs.name,
        reason=f"same place in the model, {how}",
        proven=proven,
    )


def _score(mine: Placed, theirs: Placed, chosen: dict[str, str]) -> float:
    left, right = parse_tensor_name(mine.name), parse_tensor_name(theirs.name)
    if left is None or right is None or left.side != right.side:
        return 0.0
    if not mine.sizes.keys() & theirs.sizes.keys():
        return 0.0
    if mine.is_integer != theirs.is_integer:
        return 0.0
    role, values = role_score(left.module, right.module), _value_score(mine, theirs)
    elsewhere = 0.0
    for whole in (_template, _module_template):  # the tensor, or else its module
        wanted = chosen.get(whole(mine.name))
        if wanted is not None:
            elsewhere = 1.5 if wanted == whole(theirs.name) else -1.0
            break
    if max(role, values, elsewhere) <= 0.0:
        return 0.0  # the place and the size alone
    if mine.is_integer and values < _PROVEN and not (elsewhere > 0 or _are_choices(mine, theirs)):
        return 0.0
    return _SIZE_ALONE + role + values + elsewhere


def _are_choices(mine: Placed, theirs: Placed) -> bool:
    """Tell whether integers of one name hold several a token, as the chosen experts do."""
    last = [name.rpartition(".")[2] for name in (mine.name, theirs.name)]
    return last[0] == last[1] and max(mine.sizes.keys() & theirs.sizes.keys()) > 1


def _value_score(mine: Placed, theirs: Placed) -> float:
    alike = _likeness(mine, theirs)
    if alike is None:
        return 0.0
    if alike.distance < _SAME:
        return _PROVEN
    if alike.cosine > 0.95:
        return 2.0
    if alike.cosine > 0.7:
        return 1.0
    return 0.0 if alike.cosine > 0.3 else -0.5


def _likeness(mine: Placed, theirs: Placed) -> Likeness | None:
    """Compare values; those that are the same at every token say nothing."""
    for size in mine.sizes.keys() & theirs.sizes.keys():
        if mine.sizes[size].is_constant or theirs.sizes[size].is_constant:
            return None
        return likeness(mine.sizes[size], theirs.sizes[size])
    return None
