"""Which fields of a configuration are said not to reach the candidate."""

from collections.abc import Mapping
from typing import Any

import pytest

from comparison.schema.errors import BadInputError
from comparison.schema.manifest import Manifest, Padding
from diagnosis.config_audit import audit_config, matters

CONFIG: dict[str, Any] = {
    "sliding_window": 128,
    "rms_norm_eps": 1e-5,
    "hidden_size": 32,
    "hidden_act": "silu",
    "attention_bias": False,
    "rope_parameters": {"rope_theta": 5000.0, "rope_type": "default", "factor": 2},
    "attention_dropout": 0.0,
    "layer_types": ["full_attention"],
}
DEFAULT: dict[str, Any] = {**CONFIG, "sliding_window": None, "rope_parameters": {"factor": 1}}
READS = {name: ["modeling"] for name in CONFIG}


def manifest(reads: Mapping[str, list[str]] | None, engine: str = "torch") -> Manifest:
    return Manifest(
        engine=engine,
        versions={},
        model="tiny",
        pipeline="tiny",
        encoding="float32",
        device="cpu",
        padding=Padding.NONE,
        rows=(),
        steps=1,
        config=CONFIG,
        config_reads=None if reads is None else dict(reads),
    )


def graph(*heeded: str, fails: str = "") -> Any:
    """Make an engine's graph, which depends on some fields and cannot be built with another."""

    def graph_of(changes: Mapping[str, Any]) -> tuple[str, ...] | None:
        seen = _flat(changes)
        if fails in seen:
            return None
        return tuple(f"{name}={value}" for name, value in seen.items() if name in heeded)

    return graph_of


def _flat(changes: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in changes.items():
        path = f"{prefix}{name}"
        found |= _flat(value, f"{path}.") if isinstance(value, Mapping) else {path: value}
    return found


def test_a_field_that_the_candidate_never_reads_is_listed_with_its_default() -> None:
    candidate = {name: ["engine"] for name in READS if name != "sliding_window"}
    (field,) = audit_config(manifest(READS), manifest(candidate), DEFAULT)
    assert (field.field, field.value, field.default) == ("sliding_window", 128, None)
    assert field.non_default
    assert (field.reference_reads, field.candidate_reads) == (("modeling",), ())
    assert field.graph_changes is None


def test_nothing_is_listed_where_everything_is_read() -> None:
    assert audit_config(manifest(READS), manifest(READS), DEFAULT) == ()


def test_a_field_that_is_read_and_leaves_the_graph_as_it_is_is_listed() -> None:
    heeded = ("rms_norm_eps", "attention_bias", "rope_parameters.rope_theta")
    found = audit_config(manifest(READS), manifest(READS), DEFAULT, graph(*heeded))
    names = [field.field for field in found]
    # What is not the default comes first.
    assert names == ["rope_parameters.factor", "sliding_window", "hidden_act"]
    assert [field.graph_changes for field in found] == [False] * 3
    assert [field.non_default for field in found] == [True, True, False]
    assert (found[0].value, found[0].default) == (2, 1)


def test_a_value_that_the_engine_refuses_reaches_it() -> None:
    found = audit_config(
        manifest({"sliding_window": ["m"]}),
        manifest({"sliding_window": ["e"]}),
        DEFAULT,
        graph(fails="sliding_window"),
    )
    assert found == ()


def test_a_graph_that_is_another_one_each_time_tells_nothing() -> None:
    texts = iter(range(100))
    found = audit_config(
        manifest(READS), manifest(READS), DEFAULT, lambda changes: (str(next(texts)),)
    )
    assert found == ()


def test_an_unread_field_that_changes_the_graph_is_listed_as_such() -> None:
    found = audit_config(
        manifest({"rms_norm_eps": ["m"]}), manifest({}), DEFAULT, graph("rms_norm_eps")
    )
    assert [(item.field, item.graph_changes) for item in found] == [("rms_norm_eps", True)]


def test_a_candidate_that_was_not_watched_is_known_by_its_graph_alone() -> None:
    assert audit_config(manifest(READS), manifest(None), DEFAULT) == ()
    one = manifest({"hidden_act": ["m"]})
    (field,) = audit_config(one, manifest(None), DEFAULT, graph())
    assert (field.candidate_reads, field.graph_changes) == (None, False)


def test_a_reference_that_was_not_watched_is_refused() -> None:
    with pytest.raises(BadInputError, match="name an engine as --reference, not a dump"):
        audit_config(manifest(None), manifest(READS), DEFAULT)


@pytest.mark.parametrize("field", ["attention_dropout", "text_config.initializer_range", "dtype"])
def test_fields_that_change_no_number_are_left_out(field: str) -> None:
    assert not matters(field)
    assert matters("text_config.rms_norm_eps")
