"""Two dumps of different models are refused, unless one insists."""

from dataclasses import replace
from pathlib import Path

import pytest

from comparison.schema.diagnosis import Judgement
from comparison.schema.errors import BadInputError
from comparison.schema.manifest import Manifest, Padding
from diagnosis.diff_models import DiffOptions, diff_models
from diagnosis.inputs import require_one_model
from diagnosis.module_dump import ModuleInputs, dump_module
from tests.test_common.tiny_models import ROWS, tiny_llama, tiny_qwen3


def _manifest(model_type: str | None) -> Manifest:
    config = {} if model_type is None else {"model_type": model_type}
    return Manifest(
        engine="torch",
        versions={},
        model=f"org/{model_type}",
        pipeline="",
        encoding="float32",
        device="cpu",
        padding=Padding.NONE,
        rows=(),
        steps=1,
        config=config,
    )


def test_other_kinds_of_models_are_refused_with_both_names() -> None:
    with pytest.raises(BadInputError, match=r"found llama \(org/llama\) .* qwen3 \(org/qwen3\)"):
        require_one_model(_manifest("llama"), _manifest("qwen3"))


@pytest.mark.parametrize("other", ["gemma3", "gemma3_text", None])
def test_one_kind_and_an_unknown_one_are_not(other: str | None) -> None:
    require_one_model(_manifest("gemma3_text"), _manifest(other))
    require_one_model(replace(_manifest("llama"), config={}), None)


def test_two_dumps_of_different_models(tmp_path: Path) -> None:
    given = ModuleInputs.of(ROWS, num_steps=1, encoder=False)
    folders = [tmp_path / "llama", tmp_path / "qwen3"]
    for model, folder in zip((tiny_llama(), tiny_qwen3()), folders, strict=True):
        dump_module(model, given, folder)
    with pytest.raises(BadInputError, match="--keep-going compares them all the same"):
        diff_models(*folders)
    found = diff_models(*folders, options=DiffOptions(keep_going=True))
    assert found.verdict is Judgement.DIVERGE
