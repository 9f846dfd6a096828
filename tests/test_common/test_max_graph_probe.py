"""Real graphs of MAX, built and not compiled: which fields of a configuration change them."""

from typing import Any

import pytest

from oracles.registry import find_oracle
from test_common.config_reads import watched_config_reads
from test_common.debug_options import DebugOptions
from test_common.max_graph_probe import BuiltGraph, build_max_graph

pytestmark = pytest.mark.full


def build(pipeline: str, overrides: dict[str, Any]) -> BuiltGraph:
    options = DebugOptions(
        pipeline=pipeline,
        framework="max",
        num_hidden_layers="all",
        hf_config_overrides=overrides,
    )
    return build_max_graph(find_oracle(pipeline), options, rows=2)


def test_a_field_that_the_engine_heeds_changes_the_graph() -> None:
    first = build("tiny-random/llama", {})
    assert first.graphs
    assert first.failed == ""
    assert build("tiny-random/llama", {}) == first
    for heeded in ({"rms_norm_eps": 1e-3}, {"rope_parameters": {"rope_theta": 777.0}}):
        changed = build("tiny-random/llama", heeded)
        assert changed.graphs != first.graphs
        assert changed.weights == first.weights
    assert build("tiny-random/llama", {"attention_dropout": 0.5}) == first


def test_mistral_reads_no_sliding_window_and_builds_the_same_graph_with_another() -> None:
    with watched_config_reads() as reads:
        first = build("tiny-random/mistral", {})
    assert "rms_norm_eps" in reads.fields()
    assert "sliding_window" not in reads.fields()
    assert build("tiny-random/mistral", {"sliding_window": 300}) == first


def test_gemma3_reads_its_query_scalar_and_builds_the_same_graph_with_another() -> None:
    with watched_config_reads() as reads:
        first = build("tiny-random/gemma3", {})
    assert "query_pre_attn_scalar" in reads.fields()
    assert build("tiny-random/gemma3", {"query_pre_attn_scalar": 77}) == first
    assert build("tiny-random/gemma3", {"sliding_window": 512}).graphs != first.graphs
