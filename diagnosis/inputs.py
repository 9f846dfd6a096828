"""What the two runs were given: a difference here explains everything behind it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from comparison.config_differences import config_differences
from comparison.schema.diagnosis import InputDifference
from comparison.schema.errors import BadInputError
from comparison.schema.manifest import Manifest
from diagnosis.decoded_text import Decode, text_around

# Relative to the greatest value; less may be another kernel's rounding.
_LEAST_EFFECT, _LEAST_NARROW_EFFECT = 1e-3, 0.05
_LAYERS = "num_hidden_layers"
_WIDE = ("float32", "float64")


def require_one_model(reference: Manifest | None, candidate: Manifest | None) -> None:
    """Refuse two runs of different models.

    Args:
        reference: of the reference's run.
        candidate: of the candidate's run.

    Raises:
        BadInputError: their configurations are of different kinds.
    """
    kinds = [_kind(manifest) for manifest in (reference, candidate)]
    if None in kinds or kinds[0] == kinds[1]:
        return
    names = [manifest.model for manifest in (reference, candidate) if manifest is not None]
    raise BadInputError(
        f"expected two runs of one model, found {kinds[0]} ({names[0]}) as the reference and "
        f"{kinds[1]} ({names[1]}) as the candidate; --keep-going compares them all the same"
    )


def _kind(manifest: Manifest | None) -> str | None:
    """Return the kind of a model, a text model's as that of the model around it."""
    kind = None if manifest is None else manifest.config.get("model_type")
    return kind.removesuffix("_text") if isinstance(kind, str) else None


def input_differences(
    reference: Manifest, candidate: Manifest, decode: Decode | None = None
) -> Iterator[InputDifference]:
    """Yield how token ids differ, row by row, and the resolved configurations, field by field.

    Args:
        reference: of the reference's run.
        candidate: of the candidate's run.
        decode: gives the text of token ids; None where there is no tokenizer.
    """
    yield from _rows(reference, candidate, decode)
    if reference.config and candidate.config:
        for found in config_differences(reference.config, candidate.config):
            yield InputDifference(
                kind="config",
                what=found.field,
                reference=found.reference,
                candidate=found.candidate,
                # A field that only one side knows may be a default that the other one spells.
                decisive=found.in_both,
            )


def other_layer_counts(inputs: Sequence[InputDifference]) -> Iterator[str]:
    """Yield a note for a verdict on runs of unlike numbers of layers.

    Args:
        inputs: what the runs were given in other ways.
    """
    for item in inputs:
        if (item.kind, item.what) == ("config", _LAYERS):
            yield (
                f"the reference ran {item.reference} layer(s) and the candidate {item.candidate}: "
                "what is blamed may only be that; run both with the same --num-hidden-layers"
            )


def observed_differences(candidate: Manifest) -> Iterator[InputDifference]:
    """Yield that a run gives something else when it is captured: its dump says nothing of it.

    Args:
        candidate: of the candidate's run.
    """
    effect = candidate.observer_effect
    least = _LEAST_EFFECT if candidate.encoding in _WIDE else _LEAST_NARROW_EFFECT
    if effect is not None and effect > least:
        yield InputDifference(
            kind="observer",
            what="what the candidate gives in its first step, with capture and without",
            reference="equal",
            candidate=f"off by {effect:.3g} of the greatest value",
            decisive=True,
        )


def _rows(
    reference: Manifest, candidate: Manifest, decode: Decode | None
) -> Iterator[InputDifference]:
    if not (reference.rows and candidate.rows):
        return  # one of them does not tell
    if len(reference.rows) != len(candidate.rows):
        yield InputDifference(
            kind="rows",
            what="number of sequences",
            reference=str(len(reference.rows)),
            candidate=str(len(candidate.rows)),
            decisive=True,
        )
        return
    for number, (left, right) in enumerate(zip(reference.rows, candidate.rows, strict=True)):
        if left.token_ids != right.token_ids:
            yield _tokens(number, left.token_ids, right.token_ids, decode)


def _tokens(
    row: int, reference: tuple[int, ...], candidate: tuple[int, ...], decode: Decode | None
) -> InputDifference:
    shared = zip(reference, candidate, strict=False)
    first = next((i for i, (a, b) in enumerate(shared) if a != b), None)
    if first is None:
        first = min(len(reference), len(candidate))
    return InputDifference(
        kind="tokens",
        what=f"token ids of row {row}, from token {first} on",
        reference=_there(reference, first, decode),
        candidate=_there(candidate, first, decode),
        decisive=True,
    )


def _there(ids: tuple[int, ...], first: int, decode: Decode | None) -> str:
    text = text_around(ids, first, decode)
    return f"{len(ids)} tokens, there {list(ids[first : first + 4])}{text}"
