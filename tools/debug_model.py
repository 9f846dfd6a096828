"""Runs a pipeline on an engine with hooks on every layer and dumps all intermediate tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from comparison.schema.errors import BadInputError
from tools.entry_point import run_command
from tools.option_values import parse_layers, parse_overrides
from tools.path_type import PathType

if TYPE_CHECKING:
    from pathlib import Path

    from oracles.oracle import PipelineOracle
    from test_common.batch_file import Prompt
    from test_common.debug_run import DebugRun

_STYLES = ("compact", "full", "binary", "binary-max-checkpoint")


@click.command(
    context_settings={"help_option_names": ["-h", "--help"], "show_default": True},
    epilog="See docs/debug_model.md.",
)
@click.option(
    "--framework", type=click.Choice(["max", "torch", "vllm"]), default="max", help="Engine to run."
)
@click.option("--pipeline", help="Oracle key, Hugging Face id or local folder.")
@click.option("--oracle", "oracle_file", help="FILE.py or FILE.py:NAME with your own oracle.")
@click.option("--device", default="default", help="cpu, gpu, gpu:0,1, or default: what there is.")
@click.option(
    "-o",
    "--output",
    type=PathType(),
    help="Folder for full tensors; without it an abbreviated form goes to the console.",
)
@click.option("--overwrite", is_flag=True, help="Replace an earlier dump in the output folder.")
@click.option("--num-hidden-layers", default="1", metavar="N|all", help="Hidden layers to keep.")
@click.option("--num-steps", type=int, default=1, help="Steps to run; the first is the prefill.")
@click.option("--prompt", "texts", multiple=True, help="Prompt; repeat it for more rows.")
@click.option("--prompt-ids", multiple=True, help="Prompt as token ids, 1,5,7; repeat it too.")
@click.option("--batch", type=PathType(), help="File of prompts, one a line.")
@click.option("--image", "images", multiple=True, metavar="URL|FILE", help="Picture; repeat it.")
@click.option("--lora", metavar="DIR", help="LoRA adapter to merge into the model.")
@click.option("--filter", multiple=True, metavar="GLOB", help="Modules or tensors to capture.")
@click.option("--ops", multiple=True, metavar="GLOB", help="Modules whose operations to capture.")
@click.option("--steps", metavar="RANGE", help="Steps to capture: 0, 1-3, 2-.  [default: all]")
@click.option("--encoding", help="float32, bfloat16, ...  [default: the pipeline's first]")
@click.option("--max-batch-size", type=int, help="Rows in a batch.")
@click.option("--hf-config-overrides", metavar="JSON", help="Fields of the model's configuration.")
@click.option("--prefer-module-v3", is_flag=True, help="Choose MAX's ModuleV3 architecture.")
@click.option(
    "--tensor-parallel-size", type=int, metavar="N", help="vLLM: split tensors over N processes."
)
@click.option("--style", type=click.Choice(_STYLES), help="How tensors are printed or written.")
@click.option("--precision", type=int, default=6, help="Digits behind the point in style full.")
@click.option("--weights", is_flag=True, help="Write down the weights that the model runs with.")
@click.option(
    "--verify-capture",
    is_flag=True,
    help="Run again without hooks, and tell whether these change what the model gives.",
)
@click.option("--log-hf-downloads", is_flag=True, help="Log what is fetched from the Hub.")
def debug_model(**given: Any) -> int:
    """Run a pipeline on one engine and capture every layer's inputs and outputs.

    \b
    debug_model --framework torch --pipeline tiny-random/llama -o torch_tensors/
    debug_model --framework max --pipeline google/gemma-3-1b-it --num-hidden-layers all
    """  # noqa: D301  # the backspace is click's mark for lines to be kept
    from oracles.oracle_check import checked_oracle
    from oracles.registry import nearest_names_offered
    from test_common.debug_options import DebugOptions
    from test_common.debug_run import run_debug_model
    from test_common.hub_log import log_downloads
    from test_common.local_transformers import offer_local_transformers
    from test_common.print_style import PrintStyle
    from test_common.step_range import parse_steps

    offer_local_transformers()
    if given.pop("log_hf_downloads"):
        log_downloads()
    oracle, name = _oracle(given.pop("pipeline"), given.pop("oracle_file"))
    oracle = _with_lora(oracle, given.pop("lora"))
    prompts = _prompts(given.pop("texts"), given.pop("prompt_ids"), given.pop("batch"))
    steps, style = given.pop("steps"), given.pop("style")
    options = DebugOptions(
        pipeline=name,
        prompts=prompts,
        steps=None if steps is None else parse_steps(steps, num_steps=given["num_steps"]),
        style=PrintStyle.NATIVE if style is None else PrintStyle(style),
        **given
        | {
            "num_hidden_layers": parse_layers(given["num_hidden_layers"]),
            "hf_config_overrides": parse_overrides(given["hf_config_overrides"]),
        },
    )
    checked_oracle(oracle)
    with nearest_names_offered(name):
        run = run_debug_model(oracle, options)
    _print_summary(run)
    return 0


def _print_summary(run: DebugRun) -> None:
    certificate = run.manifest.certificate
    if certificate is not None:
        fired = f"{certificate.fired} of {certificate.registered} modules fired"
        if run.output is None:
            print(f"Printed {certificate.saved} tensors; {fired}")
        else:
            size = f"{run.size_bytes / 1e6:.1f} MB in {run.seconds:.1f} s"
            print(f"Saved {certificate.saved} tensors, {size}, to {run.output}; {fired}")
    for note in run.manifest.options["notes"]:
        print(f"note: {note}")


def _oracle(pipeline: str | None, oracle_file: str | None) -> tuple[PipelineOracle, str]:
    """Return the oracle that the user named, and that name."""
    if oracle_file is not None and pipeline is None:
        from oracles.oracle_file import load_oracle_file

        return load_oracle_file(oracle_file), oracle_file
    if pipeline is not None and oracle_file is None:
        from oracles.registry import find_oracle

        return find_oracle(pipeline), pipeline
    raise BadInputError("give --pipeline NAME, or --oracle FILE.py[:NAME], and not both")


def _with_lora(oracle: PipelineOracle, lora: str | None) -> PipelineOracle:
    """Return the oracle whose model has the adapter merged in."""
    from oracles.generic_oracle import GenericOracle

    if lora is None:
        return oracle
    if not isinstance(oracle, GenericOracle):
        raise BadInputError(
            f"--lora needs an oracle that loads a model's path, and {oracle.label} builds its own: "
            "give the merged model as the pipeline"
        )
    return oracle.with_lora(lora)


def _prompts(
    texts: tuple[str, ...], ids: tuple[str, ...], batch: Path | None
) -> tuple[Prompt, ...]:
    """Return the prompts of whichever option gives them."""
    from test_common.batch_file import parse_token_ids, read_batch

    given = [bool(texts), bool(ids), batch is not None]
    if sum(given) > 1:
        raise BadInputError("give prompts by one of --prompt, --prompt-ids and --batch")
    if batch is not None:
        return read_batch(batch)
    return texts or tuple(parse_token_ids(text) for text in ids)


if __name__ == "__main__":
    run_command(debug_model)
