"""The tiny InternVL: tiles of a picture and a thumbnail, pixel shuffle, a Qwen2 decoder."""

from test_common.tiny_checkpoints.recipe import DECODER_TOKENS, Recipe
from test_common.tiny_checkpoints.shared_sizes import DECODER
from test_common.tiny_checkpoints.vision_recipe import VisionRecipe

_PIXELS = 56
_TOKENS_PER_TILE = 4  # 4 x 4 patches, of which 2 x 2 become one token

RECIPE = Recipe(
    config_class="InternVLConfig",
    model_class="InternVLForConditionalGeneration",
    config={**DECODER, "intermediate_size": 912, "model_type": "qwen2"},
    special_tokens=(*DECODER_TOKENS, "<img>", "</img>", "<IMG_CONTEXT>", "<video>"),
    vision=VisionRecipe(
        config={
            "hidden_size": 192,
            "intermediate_size": 336,
            "num_hidden_layers": 3,
            "num_attention_heads": 3,
            "attention_bias": True,
            "image_size": [_PIXELS, _PIXELS],
            "patch_size": [14, 14],
            "layer_norm_eps": 3e-6,
        },
        top_config={"image_seq_length": _TOKENS_PER_TILE, "downsample_ratio": 0.5},
        token_ids={"image_token_id": "<IMG_CONTEXT>"},
        tokenizer_tokens={
            "start_image_token": "<img>",
            "end_image_token": "</img>",
            "context_image_token": "<IMG_CONTEXT>",
            "video_token": "<video>",
        },
        placeholder="<IMG_CONTEXT>",
        image_processor={
            "image_processor_type": "GotOcr2ImageProcessor",
            "crop_to_patches": True,
            "min_patches": 1,
            "max_patches": 6,
            "size": {"height": _PIXELS, "width": _PIXELS},
            "image_mean": [0.485, 0.456, 0.406],
            "image_std": [0.229, 0.224, 0.225],
        },
        processor={"processor_class": "InternVLProcessor", "image_seq_length": _TOKENS_PER_TILE},
    ),
)
