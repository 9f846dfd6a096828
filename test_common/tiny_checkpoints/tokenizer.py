"""A small byte-level BPE tokenizer that encodes any text, constructed without training."""

import json
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from test_common.tiny_checkpoints.recipe import Recipe

if TYPE_CHECKING:
    from tokenizers import Tokenizer

CHAT_TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}"
    "{{ '[' + message['role'] + '] ' + message['content'] + '\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '[assistant] ' }}{% endif %}"
)
# PLACEHOLDER is replaced by the recipe's.
VISION_CHAT_TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}{{ '[' + message['role'] + '] ' }}"
    "{% if message['content'] is string %}{{ message['content'] }}{% else %}"
    "{% for part in message['content'] %}"
    "{% if part['type'] == 'image' %}{{ 'PLACEHOLDER' }}{% else %}{{ part['text'] }}{% endif %}"
    "{% endfor %}{% endif %}{{ '\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '[assistant] ' }}{% endif %}"
)
_SPACE = "Ġ"  # how byte-level BPE spells a space
_VOWELS = "aeiou"
_CONSONANTS = "bcdfghjklmnpqrstvwxyz"
_LETTERS = "abcdefghijklmnopqrstuvwxyz"


def save_tokenizer(recipe: Recipe, folder: Path) -> None:
    """Write tokenizer.json and tokenizer_config.json of a recipe.

    `len(tokenizer) == vocab_size` exactly: MAX's sampler masks the ids beyond.
    """
    build_tokenizer(recipe).save(str(folder / "tokenizer.json"))
    config: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "pad_token": "<pad>",
        "bos_token": "<bos>",
        "eos_token": "<eos>",
        "unk_token": "<eos>",  # never produced; Qwen's class would add a token of its own for it
        "model_max_length": recipe.config["max_position_embeddings"],
        "clean_up_tokenization_spaces": False,
        "chat_template": _chat_template(recipe),
    }
    if "<mask>" in recipe.special_tokens:
        config["mask_token"] = "<mask>"
    if recipe.vision is not None and recipe.vision.tokenizer_tokens:
        config["extra_special_tokens"] = dict(recipe.vision.tokenizer_tokens)
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=2) + "\n")


def _chat_template(recipe: Recipe) -> str:
    if recipe.vision is None:
        return CHAT_TEMPLATE
    return VISION_CHAT_TEMPLATE.replace("PLACEHOLDER", recipe.vision.placeholder)


def build_tokenizer(recipe: Recipe) -> "Tokenizer":
    """Construct the tokenizer: special tokens, the 256 bytes, then merged pairs of letters."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    merges = _merges(recipe.vocab_size - len(recipe.special_tokens) - 256)
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokens = [*recipe.special_tokens, *alphabet, *(left + right for left, right in merges)]
    vocabulary = {token: index for index, token in enumerate(tokens)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(list(recipe.special_tokens))
    tokenizer.post_processor = _post_processor(recipe)
    return tokenizer


def _post_processor(recipe: Recipe) -> object:
    from tokenizers.processors import TemplateProcessing

    close = ["<eos>"] if recipe.adds_eos else []
    return TemplateProcessing(
        single=["<bos>", "$A", *close],
        pair=["<bos>", "$A", *close, "$B", *close],
        special_tokens=[
            (token, recipe.special_tokens.index(token)) for token in ("<bos>", "<eos>")
        ],
    )


def _merges(count: int) -> list[tuple[str, str]]:
    pairs = [
        *product(_CONSONANTS, _VOWELS),
        *product(_VOWELS, _CONSONANTS),
        *product(_SPACE, _LETTERS),
        *product(_VOWELS, _VOWELS),
    ]
    if not 0 <= count <= len(pairs):
        raise ValueError(f"vocab_size asks for {count} merges, 0 to {len(pairs)} can be made")
    return pairs[:count]
