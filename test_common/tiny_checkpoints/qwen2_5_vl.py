"""The tiny Qwen2.5-VL: pictures of any size, windows in the tower, three-fold positions."""

from test_common.tiny_checkpoints.recipe import DECODER_TOKENS, Recipe
from test_common.tiny_checkpoints.shared_sizes import DECODER
from test_common.tiny_checkpoints.vision_recipe import VisionRecipe

_VISION_TOKENS = ("<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>")

RECIPE = Recipe(
    config_class="Qwen2_5_VLConfig",
    model_class="Qwen2_5_VLForConditionalGeneration",
    config={
        **DECODER,
        "intermediate_size": 928,
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": 50000.0,
            "mrope_section": [8, 14, 10],  # unequal, so that swapped axes show; head_dim / 2 in all
        },
    },
    special_tokens=(*DECODER_TOKENS, *_VISION_TOKENS),
    vision=VisionRecipe(
        config={
            "depth": 3,
            "hidden_size": 192,
            "intermediate_size": 344,
            "num_heads": 3,
            "out_hidden_size": DECODER["hidden_size"],
            "window_size": 56,  # of 2 x 2 tokens
            "fullatt_block_indexes": [1],
            "patch_size": 14,
            "spatial_merge_size": 2,
            "temporal_patch_size": 2,
            "tokens_per_second": 3,
        },
        token_ids={
            "vision_start_token_id": "<|vision_start|>",
            "vision_end_token_id": "<|vision_end|>",
            "image_token_id": "<|image_pad|>",
            "video_token_id": "<|video_pad|>",
        },
        tokenizer_tokens={"image_token": "<|image_pad|>", "video_token": "<|video_pad|>"},
        placeholder="<|vision_start|><|image_pad|><|vision_end|>",
        image_processor={
            "image_processor_type": "Qwen2VLImageProcessor",
            "patch_size": 14,
            "merge_size": 2,
            "temporal_patch_size": 2,
            "size": {"shortest_edge": 4 * 28 * 28, "longest_edge": 24 * 28 * 28},
            "image_mean": [0.48, 0.46, 0.41],
            "image_std": [0.27, 0.26, 0.28],
        },
        processor={"processor_class": "Qwen2_5_VLProcessor"},
    ),
)
