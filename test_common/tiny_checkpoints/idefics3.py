"""The tiny Idefics3: tiles and the whole picture, pixel shuffle, a Llama decoder."""

from test_common.tiny_checkpoints.recipe import DECODER_TOKENS, Recipe
from test_common.tiny_checkpoints.shared_sizes import DECODER
from test_common.tiny_checkpoints.vision_recipe import VisionRecipe

_PIXELS = 64  # of a tile's side
_PATCH = 8
_SHUFFLED = 2  # patches along the side of a square that becomes one token
_TILES = 2  # in a row or column at most
_PLACES = tuple(
    f"<row_{row}_col_{column}>" for row in range(1, _TILES + 1) for column in range(1, _TILES + 1)
)

RECIPE = Recipe(
    config_class="Idefics3Config",
    model_class="Idefics3ForConditionalGeneration",
    config={
        **DECODER,
        "model_type": "llama",
        "intermediate_size": 640,
        "max_position_embeddings": 656,
    },
    special_tokens=(
        *DECODER_TOKENS,
        "<image>",
        "<fake_token_around_image>",
        "<end_of_utterance>",
        "<global-img>",
        *_PLACES,
    ),
    vision=VisionRecipe(
        config={
            "hidden_size": 192,
            "intermediate_size": 352,
            "num_hidden_layers": 3,
            "num_attention_heads": 3,
            "image_size": _PIXELS,
            "patch_size": _PATCH,
            "layer_norm_eps": 3e-6,
        },
        top_config={"scale_factor": _SHUFFLED, "pad_token_id": DECODER_TOKENS.index("<pad>")},
        token_ids={"image_token_id": "<image>"},
        placeholder="<image>",
        image_processor={
            "image_processor_type": "Idefics3ImageProcessor",
            "size": {"longest_edge": _TILES * _PIXELS},
            "max_image_size": {"longest_edge": _PIXELS},
            "image_mean": [0.45, 0.5, 0.55],
            "image_std": [0.5, 0.45, 0.4],
        },
        processor={
            "processor_class": "Idefics3Processor",
            "image_seq_len": (_PIXELS // _PATCH // _SHUFFLED) ** 2,
        },
    ),
)
