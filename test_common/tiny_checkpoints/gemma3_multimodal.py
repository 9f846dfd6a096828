"""The tiny Gemma 3 that looks at pictures: SigLIP tower, average pooling, soft tokens."""

from test_common.tiny_checkpoints.recipe import DECODER_TOKENS, Recipe
from test_common.tiny_checkpoints.shared_sizes import WITH_HEAD_DIM, without
from test_common.tiny_checkpoints.vision_recipe import VisionRecipe

_PIXELS = 56
_TOKENS_PER_IMAGE = 4  # 4 x 4 patches, averaged 2 x 2

RECIPE = Recipe(
    config_class="Gemma3Config",
    model_class="Gemma3ForConditionalGeneration",
    config={
        **without(WITH_HEAD_DIM, "rope_parameters"),
        "intermediate_size": 864,
        "num_hidden_layers": 5,
        "sliding_window": 128,
        "sliding_window_pattern": 3,
        "query_pre_attn_scalar": 64,
        "rope_parameters": {
            "sliding_attention": {"rope_type": "default", "rope_theta": 5000.0},
            "full_attention": {"rope_type": "default", "rope_theta": 50000.0},
        },
        "tie_word_embeddings": True,
    },
    special_tokens=(*DECODER_TOKENS, "<start_of_image>", "<end_of_image>", "<image_soft_token>"),
    norm_centre=0.0,
    embedding_std=0.008,  # the model multiplies them by sqrt(hidden_size)
    vision=VisionRecipe(
        config={
            "hidden_size": 192,
            "intermediate_size": 328,
            "num_hidden_layers": 3,
            "num_attention_heads": 3,
            "image_size": _PIXELS,
            "patch_size": 14,
            "layer_norm_eps": 3e-6,
        },
        top_config={"mm_tokens_per_image": _TOKENS_PER_IMAGE},
        token_ids={
            "boi_token_index": "<start_of_image>",
            "eoi_token_index": "<end_of_image>",
            "image_token_index": "<image_soft_token>",
        },
        tokenizer_tokens={
            "boi_token": "<start_of_image>",
            "eoi_token": "<end_of_image>",
            "image_token": "<image_soft_token>",
        },
        placeholder="<start_of_image>",
        image_processor={
            "image_processor_type": "Gemma3ImageProcessor",
            "size": {"height": _PIXELS, "width": _PIXELS},
            "image_mean": [0.45, 0.5, 0.55],
            "image_std": [0.5, 0.45, 0.4],
        },
        processor={"processor_class": "Gemma3Processor", "image_seq_length": _TOKENS_PER_IMAGE},
    ),
)
