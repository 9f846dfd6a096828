"""Shows on real MAX graphs whether a multiply-add is rounded once or twice here."""

from __future__ import annotations

import click

from tools.entry_point import run_command


@click.command(
    context_settings={"help_option_names": ["-h", "--help"], "show_default": True},
    epilog="\b\nexplain_fma\nexplain_fma --elements 65536 --seed 1\n\n"
    "See docs/accuracy-debugging.md.",
)
@click.option("--elements", type=click.IntRange(min=1), default=4096, help="Elements to compute.")
@click.option("--seed", type=int, default=0, help="Seed of the random operands.")
def explain_fma(*, elements: int, seed: int) -> int:
    """Run x * y + z on MAX in one graph and in two, and hold both against Torch and float64."""
    from test_common.fma_contraction import explain, format_measurement, measure_contraction

    measured = measure_contraction(elements=elements, seed=seed)
    print("\n\n".join(f"{format_measurement(found)}\n{explain(found)}" for found in measured))
    return 0


if __name__ == "__main__":
    run_command(explain_fma)
