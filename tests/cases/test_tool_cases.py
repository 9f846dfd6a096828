"""Cases of the tools themselves that have no other place; the others are in the README beside."""

import copy
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import torch

from comparison.pipeline import CompareOptions, compare
from comparison.schema.comparison import Verdict
from comparison.schema.tolerance import Tolerance
from diagnosis.diff_models import diff_models
from diagnosis.module_dump import ModuleInputs, manifest_of
from test_common.dump_writer import DumpWriter
from test_common.torch_print_hook import TorchPrintHook
from tests.test_common.tiny_models import ROWS, tiny_gemma3, tiny_llama


@pytest.mark.parametrize("make", [tiny_llama, tiny_gemma3])
def test_watching_changes_nothing(make: Any, tmp_path: Path) -> None:
    model, ids = make(), torch.tensor([ROWS[0]])
    with torch.no_grad():
        alone = model(input_ids=ids).logits
        with closing(DumpWriter(tmp_path / "dump")) as writer:
            writer.start(manifest_of(model, ModuleInputs.of(ROWS[:1], num_steps=1, encoder=False)))
            with TorchPrintHook(sink=writer) as hook:
                hook.name_layers(model)
                watched = model(input_ids=ids).logits
        after = model(input_ids=ids).logits
    assert torch.equal(alone, watched)
    assert torch.equal(alone, after)


def test_equal_sums_and_ends_do_not_pass(tmp_path: Path) -> None:
    values = torch.arange(12.0)
    other = values.clone()
    other[5], other[6] = values[6], values[5]
    for name, tensor in (("reference", values), ("candidate", other)):
        torch.save(tensor, tmp_path / f"{name}.pt")
    assert (values.sum(), values[:3].tolist()) == (other.sum(), other[:3].tolist())
    found = compare(
        tmp_path / "reference.pt",
        tmp_path / "candidate.pt",
        CompareOptions(tolerance=Tolerance(rtol=1e-5, atol=1e-5)),
    )
    assert found.verdict is not Verdict.AGREE


def test_what_is_carried_over_is_told_from_what_is_made() -> None:
    torch.manual_seed(0)
    chain = torch.nn.Sequential(*(torch.nn.Linear(6, 6) for _ in range(3)))
    faulty = copy.deepcopy(chain)
    faulty[0].weight.data[2] *= 1.5
    found = diff_models(chain, faulty, (torch.randn(9, 6),))
    growth = {item.tensor: item for item in found.growth}
    made = growth["model.0-output"]
    assert made.local == pytest.approx(made.inherited)
    for name in ("model.1-output", "model.2-output"):
        assert growth[name].inherited > 1e-3  # carried over
        assert growth[name].local < 1e-6  # not made there
