"""Runs a batch of token ids through vLLM, in this process, with hooks on every module."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from comparison.schema.errors import EngineError
from test_common.later_layers import without_later_layers
from test_common.patching import Patch
from test_common.vllm_job import VllmJob

if TYPE_CHECKING:
    import numpy as np

# In-process, so that hooks reach the model; a small KV cache, since prompts are short.
_ENVIRONMENT: Mapping[str, str] = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_LOGGING_LEVEL": "WARNING",
}


def build_llm(job: VllmJob) -> Any:
    """Load the model; its warm-up runs are over when this returns.

    Args:
        job: says which model, and with which configuration.

    Returns:
        The `vllm.LLM`, eager, without prefix cache and chunked prefill.
    """
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    from vllm import LLM

    longest = max(len(row) for row in job.rows) + job.num_steps
    return LLM(
        model=job.model_path,
        tokenizer=job.tokenizer_path or job.model_path,
        trust_remote_code=job.trust_remote_code,
        dtype=job.encoding,
        seed=job.seed,
        hf_overrides=_override_function(job.overrides),
        enforce_eager=True,
        enable_prefix_caching=False,
        enable_chunked_prefill=False,
        max_model_len=longest,
        max_num_seqs=len(job.rows),
        # The prefill of all rows fits one step.
        max_num_batched_tokens=max(sum(len(row) for row in job.rows), longest, 2048),
        disable_log_stats=True,
    )


def model_of(llm: Any) -> Any:
    """Return the `torch.nn.Module` that the engine runs."""
    models = llm.apply_model(lambda model: model)
    return models[0]


@dataclass(slots=True)
class RecordedSteps:
    """What each forward of the model was fed and gave.

    Attributes:
        token_ids: the flat batch of token ids a step.
        logits: raw logits a step, float32 [B, V]; they are no output of the model.
    """

    token_ids: list[list[int]] = field(default_factory=list)
    logits: list[np.ndarray[Any, Any]] = field(default_factory=list)


@contextmanager
def recorded_steps(model: Any) -> Iterator[RecordedSteps]:
    """Record the steps that run inside of the block."""
    steps = RecordedSteps()

    def keep_tokens(module: Any, args: Any, kwargs: Any) -> None:
        del module
        ids = kwargs.get("input_ids", args[0] if args else None)
        steps.token_ids.append([] if ids is None else [int(token) for token in ids.tolist()])

    def keep_logits(module: Any, args: Any, logits: Any) -> None:
        del module, args
        if logits is not None:
            steps.logits.append(logits.detach().float().cpu().numpy().copy())

    handles = [
        model.register_forward_pre_hook(keep_tokens, with_kwargs=True),
        model.logits_processor.register_forward_hook(keep_logits),
    ]
    try:
        yield steps
    finally:
        for handle in handles:
            handle.remove()


def generate(
    llm: Any, rows: Sequence[Sequence[int]], *, num_steps: int
) -> tuple[tuple[int, ...], ...]:
    """Generate greedily, all rows in one batch, ignoring the end token.

    Returns:
        The token ids that each row chose, `num_steps` of them.

    Raises:
        EngineError: a row has another number of tokens.
    """
    from vllm import SamplingParams

    outputs = llm.generate(
        prompts=[{"prompt_token_ids": list(row)} for row in rows],
        sampling_params=SamplingParams(temperature=0.0, max_tokens=num_steps, ignore_eos=True),
        use_tqdm=False,
    )
    generated = tuple(tuple(output.outputs[0].token_ids) for output in outputs)
    if any(len(tokens) != num_steps for tokens in generated):
        raise EngineError(f"vLLM gave {generated}, expected {num_steps} token(s) a row")
    return generated


def check_row_order(fed: Sequence[Sequence[int]], rows: Sequence[Sequence[int]]) -> None:
    """Make sure that the flat batch holds the rows one after the other, in their order.

    Args:
        fed: token ids that the model was fed, one flat list a step.
        rows: token ids of each row.

    Raises:
        EngineError: the prefill was split, or its rows were reordered.
    """
    flat = [token for row in rows for token in row]
    if not fed or list(fed[0]) != flat:
        raise EngineError(
            f"vLLM was to prefill {len(rows)} row(s) of {len(flat)} tokens in one step, in their "
            f"order; it ran {[len(step) for step in fed[:3]]} tokens a step"
        )


def fewer_layers(num_hidden_layers: int) -> tuple[Patch, ...]:
    """Make the patch that drops the weights of layers that a shortened model does not have."""
    from vllm.model_executor.model_loader.default_loader import DefaultModelLoader

    def dropping(get_all_weights: Callable[..., Any]) -> Callable[..., Any]:
        def get_kept_weights(self: Any, *args: Any, **kwargs: Any) -> Iterator[tuple[str, Any]]:
            weights = get_all_weights(self, *args, **kwargs)
            return without_later_layers(weights, num_hidden_layers)

        return get_kept_weights

    return (
        Patch(
            target=DefaultModelLoader,
            name="get_all_weights",
            replacement=dropping,
            wraps=True,
            missing_api="loading a checkpoint into a model with fewer layers",
            remove_when="the loader can ignore given layers",
        ),
    )


def _override_function(overrides: Mapping[str, Any]) -> Callable[[Any], Any]:
    from transformers import PretrainedConfig

    from test_common.config_overrides import apply_hf_config_override

    def override(config: Any) -> Any:
        if type(config) is PretrainedConfig:  # an empty one, to see whether the type changes
            return config
        return apply_hf_config_override(config, overrides)

    return override
