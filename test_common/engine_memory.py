"""What an engine's process holds beside a model's weights and tensors."""

from __future__ import annotations

import os

from test_common.write_budget import held_memory

# Measured on Linux with tiny models of one layer: MAX 26.7 with a graph from its cache, and vLLM
# 0.32 when it is imported.
_MAX_BYTES = 700_000_000
_VLLM_BYTES = 420_000_000
_CACHE_SPACE = "VLLM_CPU_KVCACHE_SPACE"  # in GiB; vllm_runner.py sets it too
_DEFAULT_CACHE_GIB = 1


def engine_bytes(framework: str, *, caches: bool, ranks: int = 1) -> int:
    """Return the main memory that an engine takes for itself.

    Args:
        framework: the engine.
        caches: whether it keeps keys and values in main memory.
        ranks: number of processes that the model is split over.
    """
    if framework == "max":
        return _MAX_BYTES
    if framework == "torch":
        return held_memory()
    space = os.environ.get(_CACHE_SPACE, "")
    cache = (int(space) if space.isdecimal() else _DEFAULT_CACHE_GIB) << 30
    return ranks * (_VLLM_BYTES + (cache if caches else 0))
