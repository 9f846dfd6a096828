"""The documented home of the oracles; see the package `oracles`."""

from oracles.generic_oracle import GenericOracle
from oracles.oracle import PipelineOracle
from oracles.registry import PIPELINE_ORACLES

__all__ = ["PIPELINE_ORACLES", "GenericOracle", "PipelineOracle"]
