"""What `debug_model --plan` prints."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from test_common.capture_plan import StepPlan
    from test_common.debug_plan import DebugPlan

_OF_ENGINE = {
    "max": (
        "MAX fuses modules, which then have no tensors, and writes no aliases as links: its dump "
        "holds what of these modules fires, each tensor in full"
    ),
    "vllm": (
        "vLLM joins projections and lays rows one after the other, without padding: its dump has "
        "other tensors, of about this size"
    ),
}
_NOT_IN_TIME = {
    "torch": "loading the weights",
    "max": "loading the weights and building the graph, which takes minutes when it is not cached",
    "vllm": "loading the weights and starting the engine",
}
_FOR_A_WHILE = {"max": ", or building a graph that is not cached (1 to 2 GB),"}


def plan_lines(plan: DebugPlan, *, pipeline: str) -> Iterator[str]:
    """Yield the lines of a plan.

    Args:
        plan: what was found out.
        pipeline: the name that the user gave.
    """
    from test_common.debug_plan import shown_size

    capture = plan.capture
    yield f"Plan for {pipeline} on {plan.framework} in {plan.encoding}; nothing was run or written"
    yield "  counted, by a forward of the Hugging Face model without values (torch's meta device):"
    for numbers, step in _steps(capture.steps):
        yield (
            f"    {numbers}: {step.tensors} tensors, {step.files} of them written and the others "
            f"aliases, {shown_size(step.size_bytes)}"
        )
    yield f"    in all: {capture.tensors} tensors, {shown_size(capture.size_bytes)}"
    if plan.framework in _OF_ENGINE:
        yield f"    {_OF_ENGINE[plan.framework]}"
    yield f"  memory, estimated: {shown_size(plan.memory_bytes)}"
    held = " (one at a time, from their files)" if plan.streamed else ""
    if plan.mapped_bytes and not plan.streamed:
        held = f" (and {shown_size(plan.mapped_bytes)} that stay in their files, mapped)"
    where = " (on the GPU, not in the sum)" if plan.on_gpu else ""
    process = "this process" if plan.framework == "torch" else "the engine's process, as measured,"
    yield (
        f"    weights {shown_size(plan.weight_bytes)}{held} + other tensors of the model at a time "
        f"{shown_size(capture.live_bytes)}{where} + copies that wait to be written "
        f"{shown_size(plan.queue_bytes)} + {process} {shown_size(plan.held_bytes)}; "
        f"what loading{_FOR_A_WHILE.get(plan.framework, '')} takes for a while is not in it"
    )
    speed = plan.speed
    if speed is not None:
        without = _NOT_IN_TIME[plan.framework]
        yield f"  time, estimated: {plan.seconds:.1f} s, without {without}"
        yield (
            f"    forwards {plan.forward_seconds:.1f} s: {sum(capture.forwards) / 1e9:.1f} GFLOP "
            f"at {speed.flops / 1e9:.0f} GFLOP/s, or reading the weights at "
            f"{speed.memory_bytes / 1e9:.1f} GB/s, both measured now on one product and one copy"
        )
        yield (
            f"    hooks {plan.hook_seconds:.1f} s: {speed.tensor_seconds * 1e3:.2f} ms a tensor, "
            "measured now on small layers, and one copy of what is written"
        )
        yield (
            f"    writing {plan.write_seconds:.1f} s beside both: at "
            f"{speed.write_bytes / 1e6:.0f} MB/s, measured now in the output folder"
        )


def _steps(steps: Mapping[int, StepPlan]) -> Iterator[tuple[str, StepPlan]]:
    """Give the prefill, and of all decode steps the last, which is the largest."""
    decoding = [number for number in steps if number > 0]
    if 0 in steps:
        yield "step 0, the prefill", steps[0]
    if decoding:
        yield f"each of {len(decoding)} decode steps, at most", steps[decoding[-1]]
