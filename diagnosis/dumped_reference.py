"""Whether a dump that is taken to be right is what its own pipeline computes here.

A reference's dump stands for its pipeline, which is replayed on what the candidate computed. That
says something of the dump only where the dump is what such a replay gives.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from comparison.schema.diagnosis import Diagnosis, Judgement
from comparison.store.dump import Dump
from diagnosis.diagnose import DiagnoseOptions, diagnose
from diagnosis.given_inputs import pictures_of, require_pictures
from diagnosis.replay.reference_calls import calls_of_manifest
from diagnosis.sentence import sentence_of

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True, kw_only=True)
class DumpedReference:
    """What a replay of a reference's dump says of it.

    Attributes:
        own: the verdict on the dump itself.
    """

    own: Diagnosis

    @property
    def is_another(self) -> bool:
        """Whether the dump is not what its pipeline computes, so that no replay stands for it."""
        return self.own.verdict is Judgement.DIVERGE

    @property
    def note(self) -> str:
        """Why the two dumps are held against each other instead."""
        first = self.own.guilty[0].module if self.own.guilty else "what it was given"
        return (
            "the reference's dump is not what its own pipeline computes here (first in "
            f"{first}), so its pipeline is not replayed, and the two dumps are held against each "
            "other"
        )

    def applied(self, found: Diagnosis) -> Diagnosis:
        """Let a verdict by a replay say no more of the dump than is known of it.

        Args:
            found: of the candidate, by a replay of the reference's pipeline.
        """
        if self.own.verdict is not Judgement.INCONCLUSIVE:
            return found
        reason = self.own.missing[0] if self.own.missing else "nothing of it could be checked"
        text = f"the reference's dump could not be held against its own pipeline: {reason}"
        if found.verdict is not Judgement.AGREE:
            return found.noting(f"{text}; the candidate was held against the pipeline")
        return sentence_of(
            replace(found, verdict=Judgement.INCONCLUSIVE, missing=(text, *found.missing))
        )


def check_reference(dump: Dump, model: torch.nn.Module, *, encoder: bool) -> DumpedReference:
    """Replay a reference's dump on its own values.

    Args:
        dump: with rows in its manifest.
        model: of its pipeline, in the dump's encoding.
        encoder: whether the model embeds.

    Raises:
        BadInputError: the dump is of pictures that it does not hold, or contradicts itself.
    """
    assert dump.manifest is not None
    pictures = pictures_of(dump)
    require_pictures(dump, pictures)
    calls = calls_of_manifest(dump.manifest, model, encoder=encoder, pictures=pictures)
    return DumpedReference(
        own=diagnose(model, dump, calls, options=DiagnoseOptions(causes=False, dump_called="it"))
    )
