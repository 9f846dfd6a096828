"""What to look at first, by cause."""

from __future__ import annotations

from collections.abc import Mapping

ADVICE: Mapping[str, str] = {
    "scale": "where the factor comes from: head_dim against hidden_size / num_heads, "
    "query_pre_attn_scalar, multipliers of the configuration, sums over ranks",
    "bias": "whether the layer is made with a bias, and whether each rank adds it",
    "residual": "the layer's additions, in order",
    "transpose": "the weight adapter: does it transpose by layer or by a guess from the shape",
    "permutation": "the weight adapter: which order of rows, heads or experts the engine expects",
    "rope_layout": "whether the engine rotates halves or pairs, and whether rows of q and k were "
    "permuted for that",
    "rope_frequency": "rope_theta, rope_scaling and its factors, as the engine read them",
    "rope_partial": "partial_rotary_factor, rotary_dim, head_dim",
    "rope_precision": "the dtype of positions and inverse frequencies",
    "position_ids": "how positions are made from the mask, the padding and the cache's length",
    "eps": "rms_norm_eps or layer_norm_eps, and the default of the layer's class",
    "norm_offset": "whether the norm multiplies by the weight or by one plus the weight",
    "norm_order": "which norm comes before and which behind a residual",
    "activation": "hidden_act: gelu means other things in other libraries",
    "soft_cap": "attn_logit_softcapping and final_logit_softcapping",
    "clip": "clamps, and saturating casts",
    "mask": "how the mask is built, and which keys a query may see",
    "sliding_window": "sliding_window and layer_types; whether the window counts the token itself",
    "padding": "the mask of padded rows",
    "gqa_order": "how heads of a fused projection are laid out, and which key head a query gets",
    "cast": "the dtype of each step, and flags such as TF32",
    "overflow": "the dtype's greatest number; run the module in a wider dtype",
    "fma_rounding": "nothing: a fused multiply-add rounds once, two operations round twice",
    "quantization": "scales, zero points and group size of the quantized weight",
    "moe_routing": "softmax or sigmoid, the correction bias, norms of the weights, top-k",
    "tied_weights": "tie_word_embeddings",
    "weights": "names in the weight adapter, and warnings about missing or unexpected keys",
    "shard": "how the weight is split, and whether the output is summed over ranks once",
    "reduction": "the axis and the number of terms of sums and means",
    "kernel_rows": "the kernel at that size: tiles, tails, thresholds between implementations",
    "preprocessing": "do_rescale, do_normalize, image_mean, image_std, the order of channels and "
    "the filter that resizes, in both processors",
    "observer": "what the model does otherwise when it has hooks or is asked for attentions: "
    "fallbacks from fused code, flags, tensors changed in place",
    "reference_not_causal": "the reference's mask: is_causal, the attention implementation, flags",
    "decode_cache": "what is written to the cache, and which entries a decode step reads",
}
