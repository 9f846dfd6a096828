"""Two dumps without a model: the jump of the whole error."""

import copy
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from comparison.numerics.dtypes import Array
from comparison.schema.diagnosis import Diagnosis, Judgement
from comparison.schema.errors import CorruptFileError
from comparison.store.dump import Dump, open_dump
from comparison.store.manifest_file import write_manifest
from diagnosis import side_finding
from diagnosis.diff_models import DiffOptions, diff_sides
from diagnosis.module_dump import ModuleInputs, dump_module
from diagnosis.sides import DumpSide
from diagnosis.two_dumps import diagnose_dumps
from tests.comparison.dumps import make_manifest, numbers, write_dump, write_step
from tests.test_common.tiny_models import ROWS, tiny_llama

INPUTS = ModuleInputs.of(ROWS, num_steps=2, encoder=False)


def diagnosed(reference: Any, candidate: Any, tmp_path: Path) -> Diagnosis:
    for name, model in (("reference", reference), ("candidate", candidate)):
        dump_module(model, INPUTS, tmp_path / name)
    return diagnose_dumps(open_dump(tmp_path / "reference"), open_dump(tmp_path / "candidate"))


def test_a_copy_agrees_and_the_verdict_says_what_it_cannot_tell(tmp_path: Path) -> None:
    model = tiny_llama()
    found = diagnosed(model, copy.deepcopy(model), tmp_path)
    assert found.verdict is Judgement.AGREE
    assert found.coverage.replayed == 0
    assert any("there is no model to replay" in note for note in found.notes)


def test_the_first_jump_is_the_culprit(tmp_path: Path) -> None:
    model = tiny_llama()
    other = copy.deepcopy(model)
    with torch.no_grad():
        other.model.layers[1].mlp.up_proj.weight[3].mul_(1.01)
        other.model.layers[2].mlp.up_proj.weight[3].mul_(1.01)
    found = diagnosed(model, other, tmp_path)
    assert found.verdict is Judgement.DIVERGE
    assert [guilty.module for guilty in found.guilty] == ["model.model.layers.1.mlp.up_proj"]
    assert found.culprit is not None
    assert found.culprit.tensor == "model.model.layers.1.mlp.up_proj-output"


def test_a_dump_that_is_cut_off_is_inconclusive(tmp_path: Path) -> None:
    model = tiny_llama()
    diagnosed(model, copy.deepcopy(model), tmp_path)
    (tmp_path / "candidate" / "0" / "model.lm_head-output.pt").unlink()
    found = diagnose_dumps(open_dump(tmp_path / "reference"), open_dump(tmp_path / "candidate"))
    assert (found.verdict, found.exit_code) == (Judgement.INCONCLUSIVE, 2)
    assert found.missing


WIDE = numbers(6, 8)


def by_hand(
    tmp_path: Path,
    reference: Mapping[str, Array],
    candidate: Mapping[str, Array],
    *,
    ids: Sequence[int] = range(6),
) -> Diagnosis:
    for name, tensors in (("a", reference), ("b", candidate)):
        write_step(tmp_path / name / "0", tensors)
        rows = [range(6) if name == "a" else ids]
        write_manifest(tmp_path / name / "manifest.json", make_manifest("torch", rows=rows))
    return diagnose_dumps(open_dump(tmp_path / "a"), open_dump(tmp_path / "b"))


LAYERS = {f"model.layers.{n}-output": WIDE + n for n in range(40)}


def test_an_error_that_grows_step_by_step_is_a_drift(tmp_path: Path) -> None:
    wrong = {
        name: (array * (1 + 3e-7 * 1.5**n)).astype(np.float32)
        for n, (name, array) in enumerate(LAYERS.items())
    }
    found = by_hand(tmp_path, LAYERS, wrong)
    assert found.verdict is Judgement.DIVERGE
    assert (found.culprit, found.guilty) == (None, ())
    assert found.cause is not None
    assert found.cause.id == "drift"
    assert "drifts away from" in found.sentence
    assert found.sentence.endswith("a relative distance of 2.2 at its end.")


def test_other_tokens_are_the_cause_of_all_that_follows(tmp_path: Path) -> None:
    found = by_hand(tmp_path, LAYERS, {n: a + 1 for n, a in LAYERS.items()}, ids=(0, 1, 2, 3, 4, 9))
    assert found.verdict is Judgement.DIVERGE
    assert found.cause is not None
    assert (found.cause.id, found.culprit) == ("tokens", None)


def test_a_reference_without_numbers_is_no_judge(tmp_path: Path) -> None:
    broken = {**LAYERS, "model.norm-output": WIDE * np.nan}
    found = by_hand(tmp_path, broken, broken)
    assert found.verdict is Judgement.INCONCLUSIVE
    assert found.missing[-1] == (
        "the reference itself gives values that are no numbers, first at model.norm-output"
    )
    given = {**LAYERS, "model.norm-input_0": WIDE * np.nan}  # such as a mask
    assert by_hand(tmp_path / "given", given, given).verdict is Judgement.AGREE


def test_tensors_without_a_distance_are_told(tmp_path: Path) -> None:
    other = {**LAYERS, "model.layers.3-output": WIDE[:, :5], "by hand": np.arange(6)}
    found = by_hand(tmp_path, {**LAYERS, "by hand": WIDE[:, 0]}, other)
    assert found.verdict is Judgement.INCONCLUSIVE
    assert found.missing[-1] == (
        "the sides differ in shape or kind of numbers at model.layers.3-output and 1 more"
    )


def test_numbers_that_only_one_side_lacks_are_a_jump(tmp_path: Path) -> None:
    wrong = {**LAYERS, "model.layers.7.mlp-input_0": np.where(WIDE > 1, np.inf, WIDE)}
    right = {**LAYERS, "model.layers.7.mlp-input_0": WIDE}
    found = by_hand(tmp_path, right, wrong)
    assert [guilty.module for guilty in found.guilty] == ["model.layers.7"]  # its caller's
    assert found.guilty[0].local_error == float("inf")


def test_a_dump_that_is_cut_while_it_is_read_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tensors = {"model-output": numbers(3, 300, 400)}  # too large to be copied
    for side in ("a", "b"):
        write_dump(tmp_path / side, [tensors])
    (file,) = (tmp_path / "b").rglob("model-output*")

    def diagnosed_and_cut(*dumps: Dump, **options: Any) -> Diagnosis:
        found = diagnose_dumps(*dumps, **options)
        array = dumps[1].read(dumps[1].entries[0])
        os.truncate(file, 0)
        assert array[-1, -1, -1] == 0
        return found

    monkeypatch.setattr(side_finding, "diagnose_dumps", diagnosed_and_cut)
    sides = DumpSide(path=tmp_path / "a"), [DumpSide(path=tmp_path / "b")]
    with pytest.raises(CorruptFileError, match=r"model-output.*became shorter while it was read"):
        diff_sides(*sides, DiffOptions())
