"""What to run: oracles of models, by name."""

from oracles.generic_oracle import GenericOracle
from oracles.oracle import PipelineOracle
from oracles.registry import PIPELINE_ORACLES, find_oracle, nearest_names

__all__ = ["PIPELINE_ORACLES", "GenericOracle", "PipelineOracle", "find_oracle", "nearest_names"]
