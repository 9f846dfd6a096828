"""What a tiny checkpoint is made from."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from test_common.tiny_checkpoints.vision_recipe import VisionRecipe

DECODER_TOKENS = ("<pad>", "<bos>", "<eos>")


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """One architecture's tiny checkpoint, as data.

    Attributes:
        config_class: name of the configuration class in transformers.
        model_class: name of the model class in transformers whose weights are saved.
        config: arguments of the configuration class, with pictures those of its `text_config`.
            `vocab_size` and the ids of the special tokens are filled in from the fields below.
        architectures: what config.json names, if not `model_class` itself.
        vocab_size: number of tokens of model and tokenizer alike.
        special_tokens: the tokens with the first ids, in order.
        adds_eos: whether the tokenizer closes each text with `<eos>`, as encoders want.
        norm_centre: the value that norm weights scatter around: 1, or 0 where the model adds 1.
        embedding_std: spread of the token embeddings; None for 0.25, or for 0.05 where they are
            tied to the output, so that a token does not predict itself.
        extra_config: fields that engines read from config.json and the class does not write.
        vision: the vision side, None for a model of text alone.
    """

    config_class: str
    model_class: str
    config: Mapping[str, Any]
    architectures: tuple[str, ...] = ()
    vocab_size: int = 480
    special_tokens: tuple[str, ...] = DECODER_TOKENS
    adds_eos: bool = False
    norm_centre: float = 1.0
    embedding_std: float | None = None
    extra_config: Mapping[str, Any] = field(default_factory=dict)
    vision: VisionRecipe | None = None

    @property
    def resolved_embedding_std(self) -> float:
        """Return the spread of the token embeddings."""
        if self.embedding_std is not None:
            return self.embedding_std
        return 0.05 if self.config.get("tie_word_embeddings") else 0.25

    @property
    def config_architectures(self) -> tuple[str, ...]:
        """Return what config.json names as its architectures."""
        return self.architectures or (self.model_class,)

    @property
    def config_arguments(self) -> dict[str, Any]:
        """Return the arguments of the configuration class, special tokens included."""
        ids = {token: index for index, token in enumerate(self.special_tokens)}
        names = {"architectures": list(self.config_architectures)}
        text = {
            **self.config,
            "vocab_size": self.vocab_size,
            "pad_token_id": ids["<pad>"],
            "bos_token_id": ids["<bos>"],
            "eos_token_id": ids["<eos>"],
        }
        if self.vision is None:
            return {**text, **names}
        return {
            "text_config": text,
            "vision_config": dict(self.vision.config),
            "tie_word_embeddings": self.config["tie_word_embeddings"],
            **self.vision.top_config,
            **{field: ids[token] for field, token in self.vision.token_ids.items()},
            **names,
        }
