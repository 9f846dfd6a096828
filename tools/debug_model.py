"""Runs a pipeline on MAX or Torch with hooks on every layer and dumps all intermediate tensors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from comparison.schema.errors import BadInputError
from tools.entry_point import run_command

if TYPE_CHECKING:
    from oracles.oracle import PipelineOracle


@click.command(
    context_settings={"help_option_names": ["-h", "--help"], "show_default": True},
    epilog="See docs/debug_model.md.",
)
@click.option(
    "--framework", type=click.Choice(["max", "torch"]), default="max", help="Engine to run."
)
@click.option("--pipeline", help="Oracle key, Hugging Face id or local folder.")
@click.option("--oracle", "oracle_file", help="FILE.py or FILE.py:NAME with your own oracle.")
@click.option("--device", default="default", help="cpu, gpu, gpu:<index>, or what there is.")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder for full tensors; without it an abbreviated form goes to the console.",
)
@click.option("--overwrite", is_flag=True, help="Replace an earlier dump in the output folder.")
@click.option("--num-hidden-layers", default="1", metavar="N|all", help="Hidden layers to keep.")
@click.option("--num-steps", type=int, default=1, help="Steps to run; the first is the prefill.")
@click.option("--prompt", "prompts", multiple=True, help="Prompt; repeat it for more rows.")
@click.option("--encoding", help="float32, bfloat16, ...  [default: the pipeline's first]")
@click.option("--max-batch-size", type=int, help="Rows in a batch.")
@click.option("--hf-config-overrides", metavar="JSON", help="Fields of the model's configuration.")
@click.option("--prefer-module-v3", is_flag=True, help="Choose MAX's ModuleV3 architecture.")
def debug_model(**given: Any) -> int:
    r"""Run a pipeline on one engine and capture every layer's inputs and outputs.

    \b
    debug_model --framework torch --pipeline tiny-random/llama -o torch_tensors/
    debug_model --framework max --pipeline google/gemma-3-1b-it --num-hidden-layers all
    """
    from oracles.registry import nearest_names_offered
    from test_common.debug_options import DebugOptions
    from test_common.debug_run import run_debug_model

    oracle, name = _oracle(given.pop("pipeline"), given.pop("oracle_file"))
    options = DebugOptions(
        pipeline=name,
        **given
        | {
            "num_hidden_layers": _layers(given["num_hidden_layers"]),
            "hf_config_overrides": _overrides(given["hf_config_overrides"]),
        },
    )
    with nearest_names_offered(name):
        run = run_debug_model(oracle, options)
    certificate = run.manifest.certificate
    if certificate is not None:
        print(
            f"{'Saved' if run.output else 'Printed'} {certificate.saved} tensors; "
            f"{certificate.fired} of {certificate.registered} modules fired"
            + (f"; in {run.output}" if run.output else "")
        )
    for note in run.manifest.options["notes"]:
        print(f"note: {note}")
    return 0


def _oracle(pipeline: str | None, oracle_file: str | None) -> tuple[PipelineOracle, str]:
    """Return the oracle that the user named, and that name."""
    if oracle_file is not None and pipeline is None:
        from oracles.oracle_file import load_oracle_file

        return load_oracle_file(oracle_file), oracle_file
    if pipeline is not None and oracle_file is None:
        from oracles.registry import find_oracle

        return find_oracle(pipeline), pipeline
    raise BadInputError("give --pipeline NAME, or --oracle FILE.py[:NAME], and not both")


def _layers(text: str) -> int | str:
    """Parse `--num-hidden-layers`."""
    if text == "all":
        return text
    try:
        return int(text)
    except ValueError:
        message = f"--num-hidden-layers must be a number or 'all', got {text!r}"
        raise BadInputError(message) from None


def _overrides(text: str | None) -> dict[str, Any]:
    """Parse `--hf-config-overrides`."""
    if text is None:
        return {}
    try:
        overrides = json.loads(text)
    except json.JSONDecodeError as error:
        raise BadInputError(
            f"--hf-config-overrides is not JSON: {error.msg} at character {error.pos}: {text!r}"
        ) from error
    if not isinstance(overrides, dict):
        raise BadInputError(f"--hf-config-overrides must be a JSON object, got {text!r}")
    return overrides


if __name__ == "__main__":
    run_command(debug_model)
