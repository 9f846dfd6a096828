"""A dump that is taken to be right, and is not what its own pipeline computes."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from comparison.schema.diagnosis import Diagnosis, Judgement
from diagnosis.diff_models import diff_models
from diagnosis.diff_options import DiffOptions
from diagnosis.side_runs import RunOptions, run_engine_side
from diagnosis.sides import EngineSide

PIPELINE = "tiny-random/llama"
PROMPTS = ((1, 5, 7, 9, 2, 44, 3), (1, 8, 2))
Harm = Callable[[Path], Any]
ORACLE = """
from oracles import PIPELINE_ORACLES, GenericOracle

class Changed(GenericOracle):
    def create_torch_pipeline(self, *, encoding, device):
        built = super().create_torch_pipeline(encoding=encoding, device=device)
        built.model.model.layers[0].self_attn.o_proj.weight.data *= 1.05
        return built

ORACLE = Changed(
    PIPELINE_ORACLES["tiny-random/llama"].model_path, device_encoding_map={"cpu": ["float32"]}
)
"""


def dumped(
    folder: Path,
    *,
    prompts: tuple[tuple[int, ...], ...] = PROMPTS,
    oracle: str | None = None,
) -> Path:
    run = RunOptions(pipeline=PIPELINE, prompts=prompts, num_steps=2, num_hidden_layers=1)
    run_engine_side(EngineSide(engine="torch", oracle=oracle), folder, run)
    return folder


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return dumped(tmp_path_factory.mktemp("dumps") / "honest")


@pytest.fixture(scope="module")
def another(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the dump of another model, which says that it is the same."""
    folder = tmp_path_factory.mktemp("another")
    (folder / "oracle.py").write_text(ORACLE)
    dump = dumped(folder / "dump", oracle=str(folder / "oracle.py"))
    manifest = json.loads((dump / "manifest.json").read_text())
    (dump / "manifest.json").write_text(json.dumps({**manifest, "pipeline": PIPELINE}))
    return dump


def harmed(honest: Path, folder: Path, harm: Harm) -> Path:
    shutil.copytree(honest, folder)
    harm(folder)
    return folder


def leave(dump: Path) -> None:
    assert dump.is_dir()


def spoil_a_file(dump: Path) -> None:
    (dump / "0" / "model.model.layers.0.mlp.up_proj-output.pt").write_bytes(b"junk")


def cut_off(dump: Path) -> None:
    manifest = json.loads((dump / "manifest.json").read_text())
    (dump / "manifest.json").write_text(json.dumps({**manifest, "complete": False}))


def forget(dump: Path) -> None:
    (dump / "manifest.json").unlink()


def diagnosed(reference: Path | str, candidate: Path | str) -> Diagnosis:
    return diff_models(reference, candidate, options=DiffOptions(run=RunOptions(pipeline=PIPELINE)))


def test_a_dump_that_is_right_is_replayed(honest: Path, another: Path, tmp_path: Path) -> None:
    found = diagnosed(honest, harmed(honest, tmp_path / "copy", leave))
    assert (found.verdict, found.coverage.replayed > 0) == (Judgement.AGREE, True)
    found = diagnosed(honest, another)
    assert found.verdict is Judgement.DIVERGE
    assert found.culprit is not None
    assert found.culprit.module == "model.model.layers.0.self_attn.o_proj"
    assert found.coverage.replayed > 0


def test_a_dump_of_another_computation_is_held_against_the_candidate_itself(
    honest: Path, another: Path, tmp_path: Path
) -> None:
    found = diagnosed(another, honest)
    assert (found.verdict, found.coverage.replayed) == (Judgement.DIVERGE, 0)
    said = (
        "the reference's dump is not what its own pipeline computes here (first in "
        "model.model.layers.0.self_attn.o_proj)"
    )
    assert any(note.startswith(said) for note in found.notes)
    assert diagnosed(another, "torch").verdict is Judgement.DIVERGE
    again = harmed(another, tmp_path / "again", leave)
    assert diagnosed(another, again).verdict is Judgement.AGREE  # they are one computation


@pytest.mark.parametrize(
    ("harm", "reason"),
    [(spoil_a_file, "one tensor cannot be read"), (cut_off, "it is not complete")],
)
def test_of_a_dump_that_cannot_be_checked_nothing_is_said(
    honest: Path, another: Path, tmp_path: Path, harm: Harm, reason: str
) -> None:
    found = diagnosed(harmed(honest, tmp_path / "harmed", harm), honest)
    assert found.verdict is Judgement.INCONCLUSIVE
    said = "Nothing can be said: the reference's dump could not be held against its own pipeline: "
    assert found.sentence.startswith(said + reason)
    found = diagnosed(tmp_path / "harmed", another)
    assert found.verdict is Judgement.DIVERGE  # from the pipeline
    assert any(reason in note for note in found.notes)


def test_a_verdict_on_more_layers_than_the_reference_has_says_so(
    honest: Path, tmp_path: Path
) -> None:
    deeper = tmp_path / "deeper"
    run = RunOptions(pipeline=PIPELINE, prompts=PROMPTS, num_steps=2, num_hidden_layers=3)
    run_engine_side(EngineSide(engine="torch"), deeper, run)
    options = DiffOptions(run=RunOptions(pipeline=PIPELINE), keep_going=True)
    found = diff_models(honest, deeper, options=options)
    assert found.verdict is Judgement.DIVERGE
    said = "the reference ran 1 layer(s) and the candidate 3: what is blamed may only be that"
    assert any(note.startswith(said) for note in found.notes)


def test_a_dump_that_tells_no_prompts_is_not_replayed(honest: Path, tmp_path: Path) -> None:
    found = diagnosed(harmed(honest, tmp_path / "bare", forget), honest)
    assert (found.verdict, found.coverage.replayed) == (Judgement.AGREE, 0)


def test_dumps_of_other_tokens_blame_no_module(honest: Path, tmp_path: Path) -> None:
    bare = harmed(honest, tmp_path / "bare", forget)
    other = dumped(tmp_path / "other", prompts=((1, 5, 7, 9, 2, 44, 4), (1, 8, 2)))
    found = diagnosed(bare, other)
    assert (found.verdict, found.guilty) == (Judgement.DIVERGE, ())
    assert found.cause is not None
    assert found.cause.id == "tokens"
    (told,) = [item for item in found.inputs if item.kind == "tokens"]
    assert (told.reference, told.candidate) == ("3 at [0, 6]", "4 at [0, 6]")
