"""How the rows of the candidate's dump lie in its tensors."""

from __future__ import annotations

from comparison.align.rows import Layout
from comparison.schema.manifest import Padding
from comparison.store.dump import Dump


def layout_of(dump: Dump, step: int) -> Layout:
    """Return the layout of one step.

    A model that chooses no tokens keeps none of them alone: what an encoder has one of a row is
    made of all its tokens.

    Args:
        dump: the candidate's; without a manifest nothing is known of its rows.
        step: 0 for the prefill.
    """
    manifest = dump.manifest
    if manifest is None:
        return Layout(padding=Padding.NONE, lengths=(), step=step)
    stretches = None
    if manifest.stretches:
        stretches = manifest.stretches[step] if step < len(manifest.stretches) else ()
    chose = any(row.generated for row in manifest.rows)
    return Layout(
        padding=manifest.padding,
        lengths=tuple(len(row.token_ids) for row in manifest.rows),
        step=step,
        stretches=stretches,
        last_tokens=chose or not dump.complete,  # a run that was cut off wrote down no tokens
    )
