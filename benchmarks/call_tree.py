"""Measures what a call-tree trace adds to a plain forward, ours and that of transformers.

Run by hand: `python -m benchmarks.call_tree [--layers 12] [--tokens 256] [--rounds 7]`. The model
is a Llama with random weights. All ways take turns in one process, so that what else runs on the
machine meets them alike. The numbers are in benchmarks/README.md.
"""

import argparse
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from typing import Any

_HEADING = "| values | layers | forward, s | theirs adds, s | ours adds, s | share |"


@dataclass(frozen=True, slots=True, kw_only=True)
class Added:
    """What tracing adds to a plain forward, in one mode.

    Attributes:
        use_repr: whether tensors are written as text, or to files.
        prunes: whether only the first and last layers are written.
        forward: seconds of a plain forward, each a round.
        theirs: seconds with the context manager of transformers.
        ours: seconds with ours.
    """

    use_repr: bool
    prunes: bool
    forward: list[float]
    theirs: list[float]
    ours: list[float]

    @property
    def share(self) -> float:
        """What ours adds, as a part of what theirs adds; the median of all rounds."""
        rounds = zip(self.forward, self.theirs, self.ours, strict=True)
        return median((ours - plain) / (theirs - plain) for plain, theirs, ours in rounds)


def main() -> None:
    """Print one row a mode."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--hidden", type=int, default=768, help="Multiple of 64.")
    parser.add_argument("--tokens", type=int, default=256, help="Length of the prompt.")
    parser.add_argument("--rounds", type=int, default=7)
    given = parser.parse_args()
    model, inputs = make_model(layers=given.layers, hidden=given.hidden, tokens=given.tokens)
    print(
        "| mode | layers | forward, s | theirs adds, s | ours adds, s | share |\n"
        + "|---" * 6
        + "|"
    )
    for use_repr in (True, False):
        for prunes in (True, False):
            print(
                _row(measure(model, inputs, use_repr=use_repr, prunes=prunes, rounds=given.rounds))
            )


def measure(model: Any, inputs: Any, *, use_repr: bool, prunes: bool, rounds: int) -> Added:
    """Run a plain forward, theirs and ours in turn.

    Args:
        model: the model.
        inputs: keyword arguments of its forward.
        use_repr: as the context managers take it.
        prunes: their do_prune_layers.
        rounds: how often each runs, after once that does not count.
    """
    from transformers.model_debugging_utils import model_addition_debugger_context as theirs

    from test_common.model_debugging_utils import model_addition_debugger_context as ours

    added = Added(use_repr=use_repr, prunes=prunes, forward=[], theirs=[], ours=[])
    for number in range(rounds + 1):
        seconds = [_plain(model, inputs)]
        for context in (theirs, ours):
            options = {"do_prune_layers": prunes, "use_repr": use_repr}
            seconds.append(_traced(model, inputs, context, options))
        if number > 0:
            for taken, column in zip(
                seconds, (added.forward, added.theirs, added.ours), strict=True
            ):
                column.append(taken)
    return added


def make_model(*, layers: int, hidden: int, tokens: int) -> tuple[Any, dict[str, Any]]:
    """Make a Llama and a prompt.

    Args:
        layers: number of decoder layers.
        hidden: size of the residual stream, a multiple of 64.
        tokens: length of the prompt.
    """
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        hidden_size=hidden,
        intermediate_size=hidden * 8 // 3,
        num_hidden_layers=layers,
        num_attention_heads=hidden // 64,
        num_key_value_heads=max(hidden // 192, 1),
        vocab_size=8000,
        pad_token_id=0,
        eos_token_id=None,
    )
    model = LlamaForCausalLM._from_config(config, attn_implementation="eager").eval()
    return model, {"input_ids": torch.randint(1, 8000, (1, tokens))}


def _plain(model: Any, inputs: Any) -> float:
    import torch

    start = time.perf_counter()
    with torch.no_grad():
        model.forward(**inputs)
    return time.perf_counter() - start


def _traced(
    model: Any, inputs: Any, context: Callable[..., Any], options: dict[str, bool]
) -> float:
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        with context(model, debug_path=folder, **options):
            model.forward(**inputs)
        return time.perf_counter() - start


def _row(added: Added) -> str:
    forward = median(added.forward)
    return (
        f"| {'text' if added.use_repr else 'files'} | {'pruned' if added.prunes else 'all'} "
        f"| {forward:.2f} | {median(added.theirs) - forward:.2f} "
        f"| {median(added.ours) - forward:.2f} | {added.share:.0%} |"
    )


if __name__ == "__main__":
    main()
