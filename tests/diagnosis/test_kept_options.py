"""What a dump's manifest says of how its run was asked for."""

import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from comparison.schema.errors import BadInputError, EngineError
from comparison.store.dump import Dump, open_dump
from comparison.store.manifest_file import write_manifest
from diagnosis.kept_options import kept_layers, kept_overrides, run_as_dumps
from diagnosis.side_runs import RunOptions, measure_side, run_engine_side
from diagnosis.sides import DumpSide, EngineSide
from tests.comparison.dumps import make_manifest, numbers, write_dump

TORCH = EngineSide(engine="torch")
RUN = RunOptions(num_hidden_layers=3, hf_config_overrides={"rope_theta": 5.0})


def dump(folder: Path, **options: Any) -> Dump:
    found = open_dump(write_dump(folder, [{"model-output": numbers(2, 3)}]))
    assert found.manifest is not None
    return replace(found, manifest=replace(found.manifest, options=options))


def test_what_a_dump_says_goes_before_what_the_run_says(tmp_path: Path) -> None:
    kept = dump(tmp_path, num_hidden_layers="all", hf_config_overrides={})
    assert (kept_layers(kept, RUN), kept_overrides(kept, RUN)) == ("all", {})


def test_a_dump_that_does_not_say_leaves_it_to_the_run(tmp_path: Path) -> None:
    silent = dump(tmp_path)
    for kept in (silent, replace(silent, manifest=None)):
        assert (kept_layers(kept, RUN), kept_overrides(kept, RUN)) == (3, {"rope_theta": 5.0})


@pytest.mark.parametrize("overrides", [[1], "zz", None, 7])
def test_overrides_that_are_no_object_are_refused(tmp_path: Path, overrides: Any) -> None:
    with pytest.raises(BadInputError, match=r"an object as 'options.hf_config_overrides'"):
        kept_overrides(dump(tmp_path, hf_config_overrides=overrides), RUN)


@pytest.mark.parametrize("layers", [[1], 2.5, None, True, "abc", "2", 0, -1, 10**30])
def test_a_number_of_layers_that_is_none_is_refused(tmp_path: Path, layers: Any) -> None:
    with pytest.raises(BadInputError, match=r"a number of layers, or all, as 'options.num_hidden"):
        kept_layers(dump(tmp_path, num_hidden_layers=layers), RUN)


TOKENS = ((1, 5, 7), (1, 8, 2))
ASKED = {"num_hidden_layers": 1, "hf_config_overrides": {"rope_theta": 5.0}}


def dump_side(folder: Path, pipeline: str = "tiny-random/llama", **options: Any) -> DumpSide:
    """Write a dump of two rows and two steps, with these options in its manifest."""
    write_dump(folder, [{"model-output": numbers(2, 3)}] * 2)
    manifest = make_manifest("max", rows=TOKENS, steps=2)
    rows = tuple(replace(row, generated=(3, 4)) for row in manifest.rows)
    manifest = replace(manifest, rows=rows, pipeline=pipeline, seed=7, options=options)
    write_manifest(folder / "manifest.json", manifest)
    return DumpSide(path=folder)


@pytest.mark.parametrize("first", [True, False])
def test_an_engine_runs_as_the_dump_beside_it(first: bool, tmp_path: Path) -> None:
    side = dump_side(tmp_path / "d", **ASKED)
    sides = (side, TORCH) if first else (TORCH, side)
    run, taken = run_as_dumps(RunOptions(), sides)
    expected = RunOptions(
        pipeline="tiny-random/llama",
        prompts=TOKENS,
        num_steps=2,
        seed=7,
        num_hidden_layers=1,
        hf_config_overrides={"rope_theta": 5.0},
        recorded_in=tmp_path / "d",
    )
    assert run == expected
    assert taken == (
        f"what is run takes from {tmp_path / 'd'}: pipeline tiny-random/llama, its token ids, "
        "num_steps 2, seed 7, num_hidden_layers 1, its hf_config_overrides"
    )


def test_what_the_user_gave_stays(tmp_path: Path) -> None:
    side = dump_side(tmp_path / "d", **ASKED)
    own = RunOptions(prompts=("hi",), hf_config_overrides={"rope_theta": 9.0})
    run, _ = run_as_dumps(own, [TORCH, side])
    assert (run.prompts, run.num_steps) == (("hi",), 2)
    assert run.hf_config_overrides == {"rope_theta": 9.0}
    run, _ = run_as_dumps(RunOptions(), [TORCH, side], given={"num_steps", "num_hidden_layers"})
    assert (run.prompts, run.num_steps, run.num_hidden_layers) == (TOKENS, 3, "all")


def test_no_model_is_run_that_only_a_dump_names(tmp_path: Path) -> None:
    side = dump_side(tmp_path / "d", pipeline="stranger/model", **ASKED)
    with pytest.raises(
        BadInputError, match=r"name what torch is to run.*'stranger/model', which is"
    ):
        run_as_dumps(RunOptions(), [TORCH, side])
    own = EngineSide(engine="torch", oracle="mine.py")
    assert run_as_dumps(RunOptions(), [own, side])[0].pipeline is None


def test_a_dump_with_pictures_is_not_run_on_its_token_ids(tmp_path: Path) -> None:
    side = dump_side(tmp_path / "d", images=["cat.png"], **ASKED)
    run, taken = run_as_dumps(RunOptions(), [TORCH, side])
    assert (run.prompts, run.num_steps, run.seed, run.num_hidden_layers) == ((), 3, 0, 1)
    assert taken is not None
    assert "token ids" not in taken


def test_where_nothing_runs_or_nothing_was_dumped_the_run_is_as_asked(tmp_path: Path) -> None:
    side = dump_side(tmp_path / "d", **ASKED)
    bare = tmp_path / "bare"
    write_dump(bare, [{"model-output": numbers(2, 3)}])
    (bare / "manifest.json").unlink()
    for sides in ([TORCH, TORCH], [side, side], [TORCH, DumpSide(path=bare)]):
        assert run_as_dumps(RUN, sides) == (RUN, None)


def test_steps_are_those_that_a_dump_holds(tmp_path: Path) -> None:
    side = dump_side(tmp_path / "d", **ASKED)
    file = tmp_path / "d" / "manifest.json"
    told = file.read_text()
    file.write_text(told.replace('"steps": 2,', '"steps": 200000,'))
    assert run_as_dumps(RunOptions(), [TORCH, side])[0].num_steps == 2
    file.write_text(told.replace('"steps": 2,', '"steps": 0,'))
    with pytest.raises(BadInputError, match="0 steps by its manifest, whose rows"):
        run_as_dumps(RunOptions(), [TORCH, side])


def test_prompts_of_more_tokens_than_the_dump_can_hold_are_refused(tmp_path: Path) -> None:
    side = dump_side(tmp_path / "d", **ASKED)
    file = tmp_path / "d" / "manifest.json"
    manifest = json.loads(file.read_text())
    manifest["rows"] = [{**manifest["rows"][0], "token_ids": [1] * 500}] * 200
    for complete in (True, False):
        file.write_text(json.dumps({**manifest, "complete": complete}))
        with pytest.raises(BadInputError, match="prompts of 100000 tokens by its manifest, and"):
            run_as_dumps(RunOptions(), [TORCH, side])


def test_a_run_goes_as_far_as_a_dump_that_was_cut_off(tmp_path: Path) -> None:
    side = dump_side(tmp_path / "d", **ASKED)
    file = tmp_path / "d" / "manifest.json"
    manifest = json.loads(file.read_text())
    rows = [{**row, "generated": []} for row in manifest["rows"]]
    cut = {**manifest, "rows": rows, "steps": 5, "complete": False}
    file.write_text(json.dumps(cut))
    assert run_as_dumps(RunOptions(), [TORCH, side])[0].num_steps == 2


def test_errors_of_a_run_name_the_dump_that_it_is_made_like(tmp_path: Path) -> None:
    side = dump_side(tmp_path / "d", num_hidden_layers=1, hf_config_overrides={"hidden_act": "zz"})
    run, _ = run_as_dumps(RunOptions(), [TORCH, side])
    with pytest.raises(EngineError, match=r"the reference \(torch, run as .*d was\): "):
        run_engine_side(TORCH, tmp_path / "reference", run)


def test_recorded_overrides_make_no_huge_model(tmp_path: Path) -> None:
    huge = {"vocab_size": 200_000_000}
    side = dump_side(tmp_path / "d", num_hidden_layers=1, hf_config_overrides=huge)
    run, _ = run_as_dumps(RunOptions(), [TORCH, side])
    for run_it in (run_engine_side, partial(measure_side, max_bytes=1 << 30)):
        with pytest.raises(
            BadInputError, match=r"d was run: hf_config_overrides .* makes a model of"
        ):
            run_it(TORCH, tmp_path / "reference", run)
