"""A model as it should be, and as a port gets it wrong."""

from typing import Any, ClassVar

from oracles.oracle import PipelineOracle
from oracles.registry import PIPELINE_ORACLES
from test_common.pipelines import TorchModelAndDataProcessor
from tools.port import scale_row

_LLAMA = PIPELINE_ORACLES["tiny-random/llama"]


class Ported(PipelineOracle):
    """The tiny llama, which needs no network."""

    device_encoding_map: ClassVar = {"cpu": ["float32"]}
    model_path = property(lambda self: _LLAMA.model_path)

    def create_max_pipeline(self, *, encoding: str, device_specs: Any) -> Any:
        """Build it on MAX."""
        return _LLAMA.create_max_pipeline(encoding=encoding, device_specs=device_specs)

    def create_torch_pipeline(self, *, encoding: str, device: str) -> TorchModelAndDataProcessor:
        """Build it on Torch."""
        return _LLAMA.create_torch_pipeline(encoding=encoding, device=device)


class Wrong(Ported):
    """The same with a fault."""

    def create_torch_pipeline(self, *, encoding: str, device: str) -> TorchModelAndDataProcessor:
        """Build it on Torch, and spoil it."""
        built = super().create_torch_pipeline(encoding=encoding, device=device)
        scale_row(built.model)
        return built


PORTED = Ported()
WRONG = Wrong()
