"""What the vision side of a tiny multimodal checkpoint is made from."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class VisionRecipe:
    """The part of a recipe that a model of text alone does not have, as data.

    Attributes:
        config: `vision_config` of the configuration class.
        top_config: fields beside `text_config` and `vision_config`.
        token_ids: field of the configuration to the token whose id it holds; the tokens are among
            the recipe's `special_tokens`.
        tokenizer_tokens: attribute of the tokenizer to token, as processors ask for them
            (`extra_special_tokens` of tokenizer_config.json).
        placeholder: what stands for one picture in a prompt before it is expanded.
        image_processor: content of preprocessor_config.json.
        processor: content of processor_config.json.
    """

    config: Mapping[str, Any]
    placeholder: str
    image_processor: Mapping[str, Any]
    processor: Mapping[str, Any]
    top_config: Mapping[str, Any] = field(default_factory=dict)
    token_ids: Mapping[str, str] = field(default_factory=dict)
    tokenizer_tokens: Mapping[str, str] = field(default_factory=dict)
