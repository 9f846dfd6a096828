"""From a model to the culprit: runs both sides and says who is wrong, where, and how badly."""

from __future__ import annotations

import json
import sys
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from comparison.schema.errors import BadInputError
from tools.entry_point import as_called, run_command
from tools.idle_options import given_fields, require_effect
from tools.option_values import parse_layers, parse_overrides, parse_size
from tools.output_paths import check_paths
from tools.path_type import PathType
from tools.report_files import ReportFiles, report_options

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from comparison.align.pairing import Pairing
    from comparison.report.report_model import Report
    from comparison.schema.diagnosis import Diagnosis
    from comparison.store.dump import Dump
    from diagnosis.sides import SideSpec
    from test_common.batch_file import Prompt


@click.command(
    context_settings={"help_option_names": ["-h", "--help"], "show_default": True},
    epilog="\b\n"
    "diff_models --pipeline tiny-random/llama --reference torch --candidate max\n"
    "diff_models --reference torch --candidate torch@my_oracle.py:FIXED --pipeline org/model\n"
    "diff_models --reference torch_tensors/ --candidate max_tensors/\n\n"
    "Exit codes: 0 agree, 1 diverge, 2 bad input or inconclusive. See docs/diff_models.md.",
)
@click.option("--pipeline", help="Oracle key, Hugging Face id, local folder, or FILE.py[:NAME].")
@click.option("--reference", default="torch", help="Engine, ENGINE@ORACLE, or folder of a dump.")
@click.option(
    "--candidate", "candidates", multiple=True, required=True, help="The same; may be repeated."
)
@click.option("--prompt", "texts", multiple=True, help="Prompt; repeat it for more rows.")
@click.option("--prompt-ids", multiple=True, help="Prompt as token ids, 1,5,7; repeat it too.")
@click.option(
    "--num-steps",
    type=int,
    default=3,
    show_default="those of a dump, else 3",
    help="Steps to run; the first is the prefill.",
)
@click.option(
    "--num-hidden-layers",
    default="all",
    show_default="those of a dump, else all",
    metavar="N|all",
    help="Hidden layers to keep.",
)
@click.option("--encoding", help="float32, bfloat16, ...  [default: the pipeline's first]")
@click.option("--device", default="default", help="cpu, gpu, gpu:0,1, or default: what there is.")
@click.option("--hf-config-overrides", metavar="JSON", help="Fields of the model's configuration.")
@click.option("--prefer-module-v3", is_flag=True, help="Choose MAX's ModuleV3 architecture.")
@click.option("--trust-remote-code", is_flag=True, help="Let code of the model's repository run.")
@click.option("--stream-reference", is_flag=True, help="Read the reference's weights as needed.")
@click.option("--no-cache", is_flag=True, help="Run the reference, even if it was run before.")
@click.option(
    "--one-at-a-time/--side-by-side",
    default=None,
    help="Run all sides here, or candidates in processes of their own beside the reference; "
    "default: side by side on more than two cores.",
)
@click.option("--map", "map_file", type=PathType(), help="JSON file of pairs that win.")
@click.option("--print-map", type=PathType(), help="Write the pairs that were found to this file.")
@click.option("--keep-going", is_flag=True, help="Replay also where the inputs differ.")
@click.option("--max-bytes", default="8GB", metavar="SIZE", help="A larger dump: two passes.")
@click.option(
    "--mode",
    type=click.Choice(["sketch", "full"]),
    default="full",
    help="Begin with sketches, and dump what is suspect in them.",
)
@click.option("--drill", metavar="MODULE|off", help="Capture and pair the operations below it.")
@click.option("--calibrate", is_flag=True, help="Run the candidate again, and allow its jitter.")
@click.option("--audit-config", is_flag=True, help="List config fields without effect.")
@click.option("--verify-capture", is_flag=True, help="Run the sides again without hooks.")
@click.option("--check-fma", is_flag=True, help="Measure how MAX rounds a multiply-add here.")
@click.option("--repro", type=PathType(), help="New folder: the fault by itself, for a report.")
@click.option("-o", "--output", type=PathType(), help="Folder that keeps the dumps.")
@click.option("--overwrite", is_flag=True, help="Replace what an earlier run wrote there.")
@click.option("--json", "json_file", type=PathType(), help="Write the whole result to this file.")
@report_options
def diff_models(**given: Any) -> int:
    """Say which side is wrong, in which module, step and token row, or that they agree."""
    from diagnosis.candidates_ahead import cores_to_spare
    from diagnosis.diff_models import DiffOptions, diff_sides
    from diagnosis.kept_options import run_as_dumps
    from diagnosis.name_map import read_map
    from diagnosis.side_runs import RunOptions
    from diagnosis.sides import parse_side
    from test_common.capture_mode import CaptureMode
    from test_common.local_transformers import offer_local_transformers
    from test_common.progress import StageLine
    from test_common.secret_text import without_tokens

    reference = parse_side(given["reference"])
    candidates = [parse_side(text) for text in given["candidates"]]
    _check_outputs(given, [reference, *candidates])
    require_effect(click.get_current_context(), reference, candidates)
    names = {} if given["map_file"] is None else read_map(given["map_file"])
    alone = given["one_at_a_time"]
    offer_local_transformers()
    run = RunOptions(
        pipeline=given["pipeline"],
        prompts=_prompts(given["texts"], given["prompt_ids"]),
        num_steps=given["num_steps"],
        num_hidden_layers=parse_layers(given["num_hidden_layers"]),
        encoding=given["encoding"],
        device=given["device"],
        hf_config_overrides=parse_overrides(given["hf_config_overrides"]),
        prefer_module_v3=given["prefer_module_v3"],
        overwrite=given["overwrite"],
        verify_capture=given["verify_capture"],
        trust_remote_code=given["trust_remote_code"],
    )
    run, taken = run_as_dumps(
        run, [reference, *candidates], given=given_fields(click.get_current_context())
    )
    if taken is not None:
        print(taken, flush=True)
    reports: list[Report] = []
    stages = StageLine()
    options = DiffOptions(
        run=run,
        output=given["output"],
        keep_going=given["keep_going"],
        names=names,
        on_paired=partial(_write_map, given["print_map"]),
        max_bytes=parse_size("max-bytes", given["max_bytes"]),
        mode=CaptureMode(given["mode"]),
        tell=partial(print, flush=True),
        progress=stages,
        calibrate=given["calibrate"],
        audit_config=given["audit_config"],
        check_fma=given["check_fma"],
        drill=given["drill"],
        command=without_tokens(as_called("diff_models", sys.argv[1:])),
        repro=given["repro"],
        stream_reference=given["stream_reference"],
        side_by_side=cores_to_spare() if alone is None else not alone,
        cache_reference=not given["no_cache"],
    )
    asked = ReportFiles.of(given)
    if asked.is_asked:
        options = replace(options, on_found=partial(_add_report, reports, asked))
    with closing(stages):
        found = diff_sides(reference, candidates, options)
    _report(found, given["json_file"])
    asked.write(reports)
    return found.exit_code


def _report(found: Diagnosis, json_file: Path | None) -> None:
    from comparison.report.diagnosis_json import diagnosis_to_json
    from comparison.report.diagnosis_text import diagnosis_lines
    from comparison.store.atomic_file import write_text

    print()
    for line in diagnosis_lines(found):
        print(line)
    if json_file is not None:
        write_text(json_file, diagnosis_to_json(found))


def _add_report(
    reports: list[Report],
    asked: ReportFiles,
    reference: Dump,
    candidate: Dump,
    found: Diagnosis,
) -> None:
    """Make a candidate's report while the dumps of both sides are there."""
    from diagnosis.diagnosis_report import report_of

    detailed = asked.html is not None
    reports.append(report_of(reference, candidate, found, detailed=detailed))


def _write_map(path: Path | None, pairing: Pairing) -> None:
    from comparison.store.atomic_file import write_text
    from diagnosis.name_map import map_of

    if path is not None:
        write_text(path, json.dumps(map_of(pairing), indent=2) + "\n")


def _check_outputs(given: Mapping[str, Any], sides: Sequence[SideSpec]) -> None:
    """Refuse outputs that cannot be made, before anything is run."""
    from diagnosis.output_folders import check_output
    from diagnosis.sides import DumpSide

    read = [side.path for side in sides if isinstance(side, DumpSide)]
    check_paths(
        files={
            "json": given["json_file"],
            "print-map": given["print_map"],
            **ReportFiles.of(given).files,
        },
        folders={"output": given["output"], "repro": given["repro"]},
        read=[*read, *([] if given["map_file"] is None else [given["map_file"]])],
    )
    if given["output"] is not None:
        check_output(given["output"], overwrite=given["overwrite"])
    elif given["overwrite"] and given["repro"] is None:
        raise BadInputError(
            "--overwrite replaces dumps and a repro: name their folder with --output or --repro"
        )


def _prompts(texts: tuple[str, ...], ids: tuple[str, ...]) -> tuple[Prompt, ...]:
    from test_common.batch_file import parse_token_ids

    if texts and ids:
        raise BadInputError("give prompts by one of --prompt and --prompt-ids")
    return texts or tuple(parse_token_ids(text) for text in ids)


if __name__ == "__main__":
    run_command(diff_models)
