"""Oracles of a tiny llama: a right one, a wrong one, and one whose weights are gone."""

ORACLES = """
from oracles.oracle import PipelineOracle
from oracles.registry import PIPELINE_ORACLES

_LLAMA = PIPELINE_ORACLES["tiny-random/llama"]


class Right(PipelineOracle):
    model_path = property(lambda self: _LLAMA.model_path)
    device_encoding_map = {"cpu": ["float32"]}

    def create_max_pipeline(self, *, encoding, device_specs):
        raise NotImplementedError

    def create_torch_pipeline(self, *, encoding, device):
        return _LLAMA.create_torch_pipeline(encoding=encoding, device=device)


class Wrong(Right):
    def create_torch_pipeline(self, *, encoding, device):
        built = super().create_torch_pipeline(encoding=encoding, device=device)
        built.model.model.layers[0].mlp.up_proj.weight.data[3] *= 1.01
        return built


class Gone(Right):
    def create_torch_pipeline(self, *, encoding, device):
        raise OSError("no weights here")


RIGHT, WRONG, GONE = Right(), Wrong(), Gone()
"""
FAULT = "model.model.layers.0.mlp.up_proj"
