"""Who made a dump: the records behind `manifest.json`."""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

SCHEMA_VERSION = 1


class Padding(StrEnum):
    """How rows of different lengths share one batch."""

    NONE = "none"  # one row, or rows of one length
    LEFT = "left"
    RIGHT = "right"
    RAGGED = "ragged"  # rows one after the other, without a batch dimension


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One sequence of the batch.

    Attributes:
        prompt: the text, or None where token ids were given.
        token_ids: the prompt's token ids, without padding.
        generated: the tokens that the run chose, one a step.
    """

    prompt: str | None
    token_ids: tuple[int, ...]
    generated: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """Tokens of one row that one step computed.

    Attributes:
        row: number of the row.
        first: position of the first token, counted from the row's start.
        count: number of tokens.
    """

    row: int
    first: int
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Skip:
    """A module or tensor that was registered but not saved, and why."""

    name: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureCertificate:
    """What a capture saw of what it should have seen.

    Attributes:
        registered: number of modules hooked.
        fired: number of modules of these whose hook ran at least once.
        saved: number of tensors saved, all steps together.
        skipped: modules and tensors not saved, each with its reason.
    """

    registered: int
    fired: int
    saved: int
    skipped: tuple[Skip, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RawTensor:
    """Dtype and shape of a file of bare bytes (`--style binary`)."""

    dtype: str
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """The content of `manifest.json`.

    Attributes:
        engine: `torch`, `max` or `vllm`.
        versions: package name to version, of what made the dump.
        model: model path or id as given to the engine.
        pipeline: the oracle's key as the user gave it.
        revision: Hub revision, or None.
        config: the resolved model configuration, JSON values only.
        encoding: `float32`, `bfloat16`, ...
        device: `cpu`, `gpu:0`, ...
        padding: how the rows share a batch.
        rows: one record a sequence.
        steps: number of steps that were run.
        seed: the seed set before the run, or None.
        options: options of the run that change its numbers or names, JSON values only.
        patches: names of the patches that were applied to the engine.
        certificate: None while the run has not finished.
        complete: False in a dump of a run that was cut off.
        file_names: file stem to full tensor name, for stems that do not spell their name.
        raw_tensors: relative path to dtype and shape, for files of bare bytes.
        config_reads: fields of the configuration that the engine's code read, each with modules
            that read it; None where that was not watched.
        stretches: what each step computed, in the order in which it lies in its tensors; empty
            where step 0 is all of each prompt and every other step one token a row.
        observer_effect: by how much capture changed what the model gives in step 0, relative to
            its greatest value; 0.0 for bitwise equal, None where that was not measured.
        schema_version: version of this record's layout.
    """

    engine: str
    versions: dict[str, str]
    model: str
    pipeline: str
    encoding: str
    device: str
    padding: Padding
    rows: tuple[Row, ...]
    steps: int
    config: dict[str, Any] = field(default_factory=dict)
    revision: str | None = None
    seed: int | None = None
    options: dict[str, Any] = field(default_factory=dict)
    patches: tuple[str, ...] = ()
    certificate: CaptureCertificate | None = None
    complete: bool = False
    file_names: dict[str, str] = field(default_factory=dict)
    raw_tensors: dict[str, RawTensor] = field(default_factory=dict)
    config_reads: dict[str, list[str]] | None = None
    stretches: tuple[tuple[Stretch, ...], ...] = ()
    observer_effect: float | None = None
    schema_version: int = SCHEMA_VERSION

    @property
    def layers_left_out(self) -> str | None:
        """Say that the run kept a part of the model's layers; None where not, or nobody knows."""
        kept, there = self.options.get("num_hidden_layers"), self.options.get("model_layers")
        if type(kept) is not int or type(there) is not int or kept >= there:
            return None
        return f"{kept} of the model's {there} layers were run; --num-hidden-layers all runs them"
