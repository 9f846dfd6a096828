"""Tests of the account of a checkpoint's weights; the real loads are in test_torch_builder."""

import logging
from typing import Any

import pytest
import transformers
from transformers.utils import logging as transformers_logging

from comparison.schema.errors import EngineError
from test_common.weight_report import check_weights, quiet_load

LOGGER = logging.getLogger("transformers.modeling_utils")


def _info(**keys: Any) -> dict[str, Any]:
    return {"missing_keys": [], "unexpected_keys": [], "mismatched_keys": [], **keys}


def test_table_is_kept_away_and_other_warnings_are_not(caplog: pytest.LogCaptureFixture) -> None:
    LOGGER.addHandler(caplog.handler)
    try:
        with quiet_load():
            LOGGER.warning("LlamaForCausalLM LOAD REPORT from: a/b")
            LOGGER.warning("something else")
        LOGGER.warning("a LOAD REPORT afterwards")
    finally:
        LOGGER.removeHandler(caplog.handler)
    messages = dict.fromkeys(record.getMessage() for record in caplog.records)
    assert list(messages) == ["something else", "a LOAD REPORT afterwards"]


def _fail_inside() -> None:
    with quiet_load():
        assert not transformers_logging.is_progress_bar_enabled()
        raise ValueError("inside")


def test_progress_bars_come_back_also_after_an_error() -> None:
    before = transformers_logging.is_progress_bar_enabled()
    transformers_logging.enable_progress_bar()
    try:
        with pytest.raises(ValueError, match="inside"):
            _fail_inside()
        assert transformers_logging.is_progress_bar_enabled()
    finally:
        if not before:
            transformers_logging.disable_progress_bar()


def test_complete_checkpoint_says_nothing(caplog: pytest.LogCaptureFixture) -> None:
    check_weights("a/b", _info(), transformers.LlamaConfig())
    assert caplog.records == []


def test_long_lists_are_cut_and_counted() -> None:
    names = [f"model.layers.{layer}.mlp.up_proj.weight" for layer in range(7)]
    with pytest.raises(EngineError, match=r"a/b without 7 weight\(s\).*layers\.4\.[^,]*, \.\.\.$"):
        check_weights("a/b", _info(missing_keys=names), transformers.LlamaConfig())


@pytest.mark.parametrize(
    ("name", "is_dropped"),
    [
        ("model.layers.2.mlp.up_proj.weight", True),
        ("encoder.layer.3.output.dense.bias", True),
        ("h.2.attn.c_attn.weight", True),
        ("model.layers.1.mlp.up_proj.weight", False),
        ("model.experts.7.weight", False),
    ],
)
def test_weights_of_dropped_layers_are_expected(
    name: str, is_dropped: bool, caplog: pytest.LogCaptureFixture
) -> None:
    config = transformers.LlamaConfig(num_hidden_layers=2)
    check_weights("a/b", _info(unexpected_keys=[name]), config)
    assert (caplog.records == []) == is_dropped
