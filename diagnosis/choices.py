"""Tokens that the sides choose differently, and whether rounding alone decides them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from comparison.schema.diagnosis import TokenChoice
from diagnosis.check import Check
from diagnosis.location import spot_of
from diagnosis.replay.reference_calls import ReferenceCall

_NOISE = 8.0  # times the reference's own rounding error, on either token's logit


def token_choices(
    unbroken: Sequence[Check], calls: Sequence[ReferenceCall]
) -> Iterator[TokenChoice]:
    """Yield each step and row in which the greatest logit is another token's.

    Args:
        unbroken: checks of the reference's own run, nothing of the candidate's put in.
        calls: one a row.
    """
    logits = next((check for check in unbroken if check.name == "model-output_logits"), None)
    if logits is None or logits.excess is None:
        return
    noise = _NOISE * float(np.sqrt(np.mean(np.square(logits.native - logits.exact))))
    for index, place in enumerate(logits.places):
        call = calls[place.row]
        if call.tokens is None or place.position < call.prompt_tokens - 1:
            continue  # no token is chosen there
        theirs, mine = logits.exact[index], np.asarray(logits.candidate[index]).astype(np.float64)
        chosen = int(np.argmax(theirs))
        if not np.isfinite(mine).all():
            other = int(np.argmax(np.nan_to_num(mine, nan=-np.inf)))
        else:
            other = int(np.argmax(mine))
        if other != chosen:
            yield TokenChoice(
                spot=spot_of(place, calls),
                reference=chosen,
                candidate=other,
                margin=float(theirs[chosen] - theirs[other]),
                noise=noise,
            )
