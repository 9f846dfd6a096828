"""Traces of a tiny llama, with a fault or without."""

from pathlib import Path

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from test_common.model_debugging_utils import TraceOptions, model_addition_debugger_context

_IDS = [[1, 5, 7, 9, 11, 2, 3, 8, 4]]


def trace_llama(
    folder: Path, *, fault: bool = False, prunes: bool = False, use_repr: bool = True
) -> Path:
    """Trace four layers of odd sizes.

    Args:
        folder: where the trace goes.
        fault: whether a row of layer 2's up_proj is a twentieth too large.
        prunes: whether layers 1 and 2 are left out.
        use_repr: whether tensors are texts, else files.
    """
    torch.manual_seed(1)
    config = LlamaConfig(
        vocab_size=37,
        hidden_size=24,
        intermediate_size=41,
        num_hidden_layers=4,
        num_attention_heads=6,
        num_key_value_heads=3,
        head_dim=6,
        max_position_embeddings=64,
    )
    model = LlamaForCausalLM(config).eval()
    if fault:
        with torch.no_grad():
            model.model.layers[2].mlp.up_proj.weight[3] *= 1.05
    with model_addition_debugger_context(
        model,
        debug_path=folder,
        do_prune_layers=prunes,
        use_repr=use_repr,
        options=TraceOptions(names_pruned=True),
    ):
        model(torch.tensor(_IDS))
    return folder
