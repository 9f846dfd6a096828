"""assert_agree, assert_close and the plugin of pytest, as another repository would use them."""

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from comparison.pipeline import CompareOptions, compare
from comparison.schema.errors import BadInputError
from comparison.schema.tolerance import Tolerance
from comparison.store.dump import open_dump
from diagnosis.assertions import assert_agree, assert_close
from tests.test_common.tiny_models import tiny_llama

pytest_plugins = ["diagnosis.pytest_plugin"]

ROWS = [list(range(3, 16)), [7, 9, 2, 30, 31, 5, 8, 4, 11]]


@pytest.fixture(scope="module")
def model() -> Any:
    return tiny_llama()


@pytest.fixture(scope="module")
def wrong(model: Any) -> Any:
    changed = copy.deepcopy(model)
    with torch.no_grad():
        changed.model.layers[1].mlp.up_proj.weight[3] *= 1.5
    return changed


def test_copies_agree(model: Any) -> None:
    found = assert_agree(model, copy.deepcopy(model), ROWS)
    assert found.coverage.modules_checked > 10
    assert 'style="color:#1a7f37">agree' in found._repr_html_()


def test_failure_is_the_verdict(model: Any, wrong: Any) -> None:
    with pytest.raises(AssertionError) as failed:
        assert_agree(model, wrong, ROWS)
    message = str(failed.value)
    assert message.startswith("The candidate first goes wrong in model.model.layers.1.mlp.up_proj")
    assert "\nVerdict: diverge\n" in message
    assert "model.layers.1.mlp.up_proj" in message


def test_capture_gives_dumps_of_a_module(
    capture: Callable[..., Path], model: Any, wrong: Any
) -> None:
    first, second = capture(model, ROWS), capture(wrong, ROWS)
    assert first != second
    dump = open_dump(first)
    assert dump.manifest is not None
    assert [list(row.token_ids) for row in dump.manifest.rows] == ROWS
    assert not any(module._forward_hooks for module in model.modules())
    assert_close(first, capture(model, ROWS))
    with pytest.raises(AssertionError, match="up_proj-output"):
        assert_close(first, second, rtol=1e-4, atol=1e-6)


def test_nothing_to_compare_is_no_agreement(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="found nothing"):
        assert_close(tmp_path / "none", tmp_path)
    for side, name in (("a", "x-output"), ("b", "y-output")):
        (tmp_path / side).mkdir()
        np.save(tmp_path / side / f"{name}.npy", np.ones(3))
        np.save(tmp_path / side / "nan-output.npy", np.full(3, np.nan))
    with pytest.raises(AssertionError, match="\nnote: the order of execution is not known"):
        assert_close(tmp_path / "a", tmp_path / "b", atol=1.0)


def test_notebooks_show_names_as_text(tmp_path: Path) -> None:
    for side, value in (("a", 1.0), ("b", 2.0)):
        (tmp_path / side).mkdir()
        np.save(tmp_path / side / "<script>-output.npy", np.full(3, value))
    options = CompareOptions(tolerance=Tolerance())
    page = compare(tmp_path / "a", tmp_path / "b", options)._repr_html_()
    assert "<td>&lt;script&gt;-output</td>" in page
    assert "<script>" not in page
    assert "<td>1</td><td>1</td>" in page


def test_a_name_that_no_file_can_have_is_no_dump() -> None:
    for name in ("x" * 400, "a\0b"):
        with pytest.raises(BadInputError, match="expected the folder of a dump, found nothing"):
            assert_close(name, name)
