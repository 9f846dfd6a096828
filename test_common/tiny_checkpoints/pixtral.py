"""The tiny Pixtral: pictures of any size, rotary embedding in two dimensions, a Mistral decoder."""

from test_common.tiny_checkpoints.recipe import DECODER_TOKENS, Recipe
from test_common.tiny_checkpoints.shared_sizes import WITH_HEAD_DIM
from test_common.tiny_checkpoints.vision_recipe import VisionRecipe

_PIXELS = 64  # of the longer side at most
_PATCH = 8

RECIPE = Recipe(
    config_class="LlavaConfig",
    model_class="LlavaForConditionalGeneration",
    config={
        **WITH_HEAD_DIM,
        "model_type": "mistral",
        "intermediate_size": 624,
        "sliding_window": None,
    },
    special_tokens=(*DECODER_TOKENS, "[IMG]", "[IMG_BREAK]", "[IMG_END]"),
    vision=VisionRecipe(
        config={
            "model_type": "pixtral",
            "hidden_size": 96,
            "intermediate_size": 208,
            "num_hidden_layers": 3,
            "num_attention_heads": 4,
            "image_size": _PIXELS,
            "patch_size": _PATCH,
            # MAX 26.7 computes with silu, whatever the configuration says.
            "hidden_act": "silu",
            "rope_parameters": {"rope_type": "default", "rope_theta": 5000.0},
        },
        top_config={
            "vision_feature_layer": -1,
            "vision_feature_select_strategy": "full",
            "projector_hidden_act": "gelu",
            "image_seq_length": 1,
        },
        token_ids={"image_token_index": "[IMG]"},
        tokenizer_tokens={
            "image_token": "[IMG]",
            "image_break_token": "[IMG_BREAK]",
            "image_end_token": "[IMG_END]",
        },
        placeholder="[IMG]",
        image_processor={
            "image_processor_type": "PixtralImageProcessor",
            "size": {"longest_edge": _PIXELS},
            "patch_size": {"height": _PATCH, "width": _PATCH},
            "image_mean": [0.45, 0.47, 0.41],
            "image_std": [0.25, 0.27, 0.29],
        },
        processor={"processor_class": "PixtralProcessor", "patch_size": _PATCH},
    ),
)
