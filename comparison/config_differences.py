"""Where the configurations of two runs differ in what changes a number."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

# Fields of a configuration that change names, defaults or storage, and no number.
IDLE_FIELDS = frozenset(
    {
        "architectures", "auto_map", "chunk_size_feed_forward", "dtype", "finetuning_task",
        "id2label", "is_decoder", "is_encoder_decoder", "label2id", "max_length", "name_or_path",
        "output_attentions", "output_hidden_states", "output_scores", "problem_type",
        "return_dict", "tokenizer_class", "torch_dtype", "transformers_version", "use_cache",
        "use_return_dict", "initializer_range", "attention_dropout", "hidden_dropout",
        "model_type", "bos_token_id", "eos_token_id", "pad_token_id", "sep_token_id",
        "decoder_start_token_id", "cross_attention_hidden_size", "add_cross_attention",
        "tie_encoder_decoder", "max_position_embeddings", "pretraining_tp",
    }
)  # fmt: skip
_SHOWN = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigDifference:
    """One field.

    Attributes:
        field: its name, `rope_parameters.rope_theta` of one inside of another.
        reference: its value there, in words.
        candidate: its value there, in words.
        in_both: False where one side lacks it, and may have it as a default.
    """

    field: str
    reference: str
    candidate: str
    in_both: bool


def config_differences(
    reference: Mapping[str, Any], candidate: Mapping[str, Any], prefix: str = ""
) -> Iterator[ConfigDifference]:
    """Yield the fields that differ, by name.

    Args:
        reference: a resolved configuration.
        candidate: the other one.
        prefix: of the names.
    """
    for field in sorted({*reference, *candidate} - IDLE_FIELDS):
        if field.startswith("_"):
            continue
        left, right = reference.get(field), candidate.get(field)
        if isinstance(left, Mapping) and isinstance(right, Mapping):
            yield from config_differences(left, right, f"{prefix}{field}.")
        elif left != right:
            yield ConfigDifference(
                field=f"{prefix}{field}",
                reference=_shown(left),
                candidate=_shown(right),
                in_both=field in reference and field in candidate,
            )


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}..."
