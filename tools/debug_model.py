"""Runs a pipeline on an engine with hooks on every layer and dumps all intermediate tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from comparison.schema.errors import BadInputError
from tools.entry_point import run_command
from tools.option_values import parse_layers, parse_limit, parse_overrides
from tools.path_type import PathType

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from oracles.oracle import PipelineOracle
    from test_common.batch_file import Prompt
    from test_common.debug_options import DebugOptions
    from test_common.debug_run import DebugRun
    from test_common.print_style import PrintStyle

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
@click.option("--resume", is_flag=True, help="Go on with a dump of the same run, cut off or whole.")
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
@click.option("--trust-remote-code", is_flag=True, help="Let code of the model's repository run.")
@click.option(
    "--tensor-parallel-size", type=int, metavar="N", help="vLLM: split tensors over N processes."
)
@click.option("--style", type=click.Choice(_STYLES), help="How tensors are printed or written.")
@click.option(
    "--format",
    "file_format",
    type=click.Choice(["pt", "safetensors"]),
    help="Torch, vLLM: a file a tensor, or one a step.",
)
@click.option("--precision", type=int, help="Digits behind the point in style full.  [default: 6]")
@click.option(
    "--mode",
    type=click.Choice(["stats", "sketch", "full"]),
    default="full",
    help="How much of each tensor to keep.",
)
@click.option("--stream", is_flag=True, help="Torch: read weights as they are needed.")
@click.option("--weights", is_flag=True, help="Write down the weights that the model runs with.")
@click.option(
    "--verify-capture",
    is_flag=True,
    help="Run again without hooks, and tell whether these change what the model gives.",
)
@click.option(
    "--plan", is_flag=True, help="Say what a run would write, hold and take; run nothing."
)
@click.option("--max-bytes", metavar="SIZE", help="Greatest size of the dump: 2GB, 500MB.")
@click.option("--max-memory", metavar="SIZE", help="Greatest memory of the model's process.")
@click.option("--log-hf-downloads", is_flag=True, help="Log what is fetched from the Hub.")
def debug_model(**given: Any) -> int:
    """Run a pipeline on one engine and capture every layer's inputs and outputs.

    \b
    debug_model --framework torch --pipeline tiny-random/llama -o torch_tensors/
    debug_model --framework max --pipeline google/gemma-3-1b-it --num-hidden-layers all
    """  # noqa: D301  # the backspace is click's mark for lines to be kept
    from oracles.oracle_check import checked_oracle
    from oracles.registry import nearest_names_offered
    from test_common.capture_mode import CaptureMode
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
    steps, plans = given.pop("steps"), given.pop("plan")
    style = _style(given.pop("style"), given.pop("file_format"), given)
    if given["precision"] is None:
        del given["precision"]
    elif style is not PrintStyle.FULL:
        raise BadInputError("--precision is that of --style full: give that too, or leave it out")
    options = DebugOptions(
        pipeline=name,
        prompts=prompts,
        steps=None if steps is None else parse_steps(steps, num_steps=given["num_steps"]),
        style=style,
        mode=CaptureMode(given.pop("mode")),
        **given
        | {
            "num_hidden_layers": parse_layers(given["num_hidden_layers"]),
            "hf_config_overrides": parse_overrides(given["hf_config_overrides"]),
            "max_bytes": parse_limit("max-bytes", given["max_bytes"]),
            "max_memory": parse_limit("max-memory", given["max_memory"]),
        },
    )
    checked_oracle(oracle)
    with nearest_names_offered(name):
        if plans:
            return _plan(oracle, options)
        if options.max_bytes is not None and options.output is None:
            raise BadInputError("--max-bytes is the size of a dump: name its folder with --output")
        if options.max_memory is not None:
            _check_memory(oracle, options)
        run = run_debug_model(oracle, options)
    _print_summary(run)
    return 0


def _plan(oracle: PipelineOracle, options: DebugOptions) -> int:
    """Print what a run would be, and say whether it keeps to its limits."""
    from comparison.schema.errors import CaptureError
    from test_common.capture_mode import CaptureMode
    from test_common.debug_plan import check_budget, plan_debug_run
    from test_common.output_folder import check_output_folder
    from tools.plan_text import plan_lines

    if options.mode is not CaptureMode.FULL:
        raise BadInputError(
            f"--plan counts whole tensors, and --mode {options.mode} keeps a few KB of each: leave "
            "--mode out, or run it with --max-bytes"
        )
    if options.output is not None:  # what a run would refuse at once
        check_output_folder(options.output, options.overwrite or options.resume)
    plan = plan_debug_run(oracle, options)
    for line in plan_lines(plan, pipeline=options.pipeline):
        print(line)
    if plan.capture.tensors == 0 and options.framework == "torch":  # others have other names
        raise CaptureError("the run will capture nothing: no tensor fits --filter and --steps")
    check_budget(plan, options)
    return 0


def _check_memory(oracle: PipelineOracle, options: DebugOptions) -> None:
    """Refuse a run that will hold too much; a model that cannot be planned is run and watched."""
    from comparison.schema.errors import EngineError
    from test_common.debug_plan import check_memory, plan_debug_run

    try:
        plan = plan_debug_run(oracle, options, measures=False)
    except EngineError as error:
        print(f"note: no plan of the memory beforehand: {error}")
        return
    check_memory(plan, options)


def _style(style: str | None, file_format: str | None, given: Mapping[str, Any]) -> PrintStyle:
    """Return the style that `--style` and `--format` ask for."""
    from test_common.print_style import PrintStyle

    if file_format is None:
        return PrintStyle.NATIVE if style is None else PrintStyle(style)
    if style is not None:
        raise BadInputError("give --style or --format, not both")
    if given["mode"] != "full":
        raise BadInputError(f"--mode {given['mode']} has files of its own: leave --format out")
    if given["output"] is None:
        raise BadInputError("--format is that of files: name their folder with --output")
    if given["framework"] == "max":
        raise BadInputError(
            "--format is for torch and vllm; MAX writes its files by itself: leave it out, or "
            "give --style binary"
        )
    return PrintStyle.SAFETENSORS if file_format == "safetensors" else PrintStyle.NATIVE


def _print_summary(run: DebugRun) -> None:
    certificate = run.manifest.certificate
    if run.was_whole and certificate is not None:
        print(
            f"{run.output} is whole: {certificate.saved} tensors of this very run, none rewritten"
        )
        return
    if certificate is not None:
        fired = f"{certificate.fired} of {certificate.registered} modules fired"
        if run.output is None:
            print(f"Printed {certificate.saved} tensors; {fired}")
        else:
            size = f"{run.size_bytes / 1e6:.1f} MB in {run.seconds:.1f} s"
            print(f"Saved {certificate.saved} tensors, {size}, to {run.output}; {fired}")
    for note in (run.manifest.layers_left_out, *run.manifest.options["notes"]):
        if note is not None:
            print(f"note: {note}")


def _oracle(pipeline: str | None, oracle_file: str | None) -> tuple[PipelineOracle, str]:
    """Return the oracle that the user named, and that name."""
    if oracle_file is not None and pipeline is None:
        from oracles.oracle_file import load_oracle_file

        return load_oracle_file(oracle_file), oracle_file
    if pipeline is not None and oracle_file is None:
        from oracles.registry import find_oracle

        return find_oracle(pipeline), pipeline
    found = "neither" if pipeline is None else "both"
    raise BadInputError(f"give --pipeline NAME or --oracle FILE.py[:NAME]; {found} was given")


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
