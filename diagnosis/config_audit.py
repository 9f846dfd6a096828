"""Fields of the configuration that the reference reads and that do not reach the candidate."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from comparison.config_differences import IDLE_FIELDS
from comparison.schema.diagnosis import ConfigField
from comparison.schema.errors import BadInputError
from comparison.schema.manifest import Manifest
from oracles.oracle import PipelineOracle
from test_common.debug_options import DebugOptions

GraphOf = Callable[[Mapping[str, Any]], tuple[str, ...] | None]
# They are the shape of the weights: no engine loads a checkpoint and ignores them.
_SIZES = ("_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "head_dim")
_TRAINING = ("dropout", "initializer", "drop_path", "_loss_coef", "jitter")


def audit_config(
    reference: Manifest,
    candidate: Manifest,
    default: Mapping[str, Any],
    graph_of: GraphOf | None = None,
) -> tuple[ConfigField, ...]:
    """List the fields that the reference reads and that do not reach the candidate.

    Args:
        reference: of a run whose reads of the configuration were watched.
        candidate: the same; where nothing was watched, only graphs tell.
        default: the configuration that its class gives without a checkpoint.
        graph_of: tells the candidate's graph with some fields changed, None where it has none
            with that; None for an engine without graphs.

    Returns:
        Those whose value is not the default first.

    Raises:
        BadInputError: it was not watched what the reference reads.
    """
    if reference.config_reads is None:
        raise BadInputError(
            "the reference's dump does not tell which fields of the configuration were read: name "
            "an engine as --reference, not a dump"
        )
    baseline = None if graph_of is None else _steady(graph_of)
    found: list[ConfigField] = []
    for field, readers in reference.config_reads.items():
        if not matters(field):
            continue
        reads = None
        if candidate.config_reads is not None:
            reads = tuple(candidate.config_reads.get(field, ()))
        record = ConfigField(
            field=field,
            value=_value(reference.config, field),
            default=_value(default, field),
            reference_reads=tuple(readers),
            candidate_reads=reads,
        )
        found += _unheeded(record, baseline, graph_of)
    return tuple(sorted(found, key=lambda item: (not item.non_default, item.field)))


def matters(field: str) -> bool:
    """Tell a field that may change a number of a forward from one that does not."""
    name = field.rpartition(".")[2]
    return name not in IDLE_FIELDS and not any(word in name for word in _TRAINING)


def _unheeded(
    record: ConfigField, baseline: tuple[str, ...] | None, graph_of: GraphOf | None
) -> Iterator[ConfigField]:
    """Give the parts of a field that do not reach the candidate."""
    if baseline is None or graph_of is None:
        if record.candidate_reads == ():
            yield record
        return
    known = False
    for part, changed in _changes(record):
        known = True
        moved = graph_of(_nested(part.field, changed)) != baseline
        if not moved or record.candidate_reads == ():
            yield replace(part, graph_changes=moved)
    if not known and record.candidate_reads == ():
        yield record


def _steady(graph_of: GraphOf) -> tuple[str, ...] | None:
    """Build the unchanged graph twice; None where the text is another one each time."""
    first = graph_of({})
    return first if first is not None and graph_of({}) == first else None


def _changes(record: ConfigField) -> Iterator[tuple[ConfigField, Any]]:
    """Give a field, or each entry of one that is an object, with another value of its kind."""
    name = record.field.rpartition(".")[2]
    if isinstance(record.value, Mapping):
        for key, value in record.value.items():
            default = record.default.get(key) if isinstance(record.default, Mapping) else None
            part = replace(record, field=f"{record.field}.{key}", value=value, default=default)
            yield from _changes(part)
    elif not name.endswith(_SIZES):
        from test_common.config_values import other_value

        changed = other_value(record.value)
        if changed is not None:
            yield record, changed


def _nested(path: str, value: Any) -> dict[str, Any]:
    first, _, rest = path.partition(".")
    return {first: _nested(rest, value) if rest else value}


def _value(config: Mapping[str, Any], path: str) -> Any:
    value: Any = config
    for name in path.split("."):
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def default_config(oracle: PipelineOracle) -> dict[str, Any]:
    """Return the configuration that an oracle's model has by its class alone, as JSON values."""
    import json

    from test_common.config_overrides import load_hf_config

    if oracle.model_path is None:
        return {}
    trust = bool(oracle.config_params.get("trust_remote_code", False))
    config = load_hf_config(oracle.model_path, trust_remote_code=trust)
    return dict(json.loads(type(config)().to_json_string(use_diff=False)))


def max_graphs(oracle: PipelineOracle, options: DebugOptions, *, rows: int) -> GraphOf:
    """Make the function that tells MAX's graph and weights with some fields changed.

    Args:
        oracle: the candidate's.
        options: of its run.
        rows: number of rows of its run.
    """
    from test_common.config_overrides import merge_overrides
    from test_common.max_graph_probe import build_max_graph

    def graph_of(changes: Mapping[str, Any]) -> tuple[str, ...] | None:
        overrides = merge_overrides(options.hf_config_overrides, changes)
        try:
            built = build_max_graph(
                oracle, replace(options, hf_config_overrides=overrides, output=None), rows=rows
            )
        except BadInputError:  # the configuration itself refuses the value
            return None
        return None if built.failed else (*built.graphs, built.weights)

    return graph_of
