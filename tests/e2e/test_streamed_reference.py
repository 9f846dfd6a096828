"""A streamed reference leads to the same verdict as a loaded one."""

from pathlib import Path
from typing import Any

import pytest

from comparison.report.diagnosis_json import diagnosis_to_json
from comparison.schema.diagnosis import Judgement
from diagnosis.diff_models import DiffOptions, diff_sides
from diagnosis.side_runs import RunOptions
from diagnosis.sides import parse_side
from test_common import streamed_model

pytestmark = pytest.mark.full
_WRONG = """
import copy
from oracles.generic_oracle import GenericOracle
from oracles.registry import find_oracle

class Wrong(GenericOracle):
    def create_torch_pipeline(self, *, encoding, device):
        built = super().create_torch_pipeline(encoding=encoding, device=device)
        built.model.model.layers[1].self_attn.q_proj.weight.data[3:11] *= 1.07
        return built

WRONG = copy.copy(find_oracle("tiny-random/llama"))
WRONG.__class__ = Wrong
"""


def test_the_verdict_is_that_against_a_loaded_reference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "wrong.py").write_text(_WRONG)
    settled: list[Any] = []
    settle = streamed_model._settle
    monkeypatch.setattr(
        streamed_model, "_settle", lambda model: (settled.append(model), settle(model))
    )
    told = []
    for stream in (False, True):
        found = diff_sides(
            parse_side("torch"),
            [parse_side(f"torch@{tmp_path / 'wrong.py'}:WRONG")],
            DiffOptions(
                run=RunOptions(pipeline="tiny-random/llama", num_steps=2),
                stream_reference=stream,
                cache_reference=False,
            ),
        )
        assert bool(settled) is stream
        assert found.verdict is Judgement.DIVERGE
        assert found.culprit is not None
        assert found.culprit.module == "model.model.layers.1.self_attn.q_proj"
        told.append(diagnosis_to_json(found))
    assert told[0] == told[1]
