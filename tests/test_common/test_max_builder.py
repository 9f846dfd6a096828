from pathlib import Path
from typing import Any

import pytest
from max.dtype import DType
from max.graph import DeviceRef
from max.nn import Linear
from max.nn.layer import LayerList, Module
from transformers import LlamaConfig

from test_common.config_overrides import hf_config_overrides
from test_common.max_builder import capture_settings, fewer_layers
from test_common.patching import apply_patches


class Stack(Module):
    def __init__(self, layers: int) -> None:
        super().__init__()
        device = DeviceRef.CPU()
        self.layers = LayerList(
            [Linear(in_dim=2, out_dim=3, dtype=DType.float32, device=device) for _ in range(layers)]
        )

    def __call__(self, x: Any) -> Any:
        return x


def weights(layers: int) -> dict[str, Any]:
    import numpy as np

    return {f"layers.{n}.weight": np.full((3, 2), n, dtype=np.float32) for n in range(layers)}


def test_weights_of_layers_cut_off_do_not_trip_strict_loading() -> None:
    with pytest.raises(ValueError, match=r"layers\.2\.weight"):
        Stack(2).load_state_dict(weights(4))
    with apply_patches(fewer_layers(2)):
        Stack(2).load_state_dict(weights(4))


def test_any_other_surplus_or_missing_weight_still_fails() -> None:
    with apply_patches(fewer_layers(2)):
        with pytest.raises(ValueError, match="surplus"):
            Stack(2).load_state_dict(weights(2) | {"surplus": weights(1)["layers.0.weight"]})
        with pytest.raises(ValueError, match=r"layers\.1\.weight"):
            Stack(2).load_state_dict(weights(1))
        with pytest.raises(ValueError, match=r"layers\.1\.bias"):
            Stack(2).load_state_dict(weights(4) | {"layers.1.bias": weights(1)["layers.0.weight"]})


def test_the_patch_is_gone_afterwards() -> None:
    original = Module.load_state_dict
    with apply_patches(fewer_layers(2)):
        assert Module.load_state_dict is not original
    assert Module.load_state_dict is original


def test_a_run_does_not_take_the_configuration_that_an_earlier_one_kept(tmp_path: Path) -> None:
    from max.pipelines.lib._hf_config import load_huggingface_config
    from max.pipelines.weights.hf_utils import HuggingFaceRepo

    def layers() -> int:
        return int(load_huggingface_config(HuggingFaceRepo(str(tmp_path))).num_hidden_layers)

    LlamaConfig(num_hidden_layers=5).save_pretrained(tmp_path)
    with hf_config_overrides({"num_hidden_layers": 2}):
        assert layers() == 2
    assert layers() == 2  # MAX keeps it
    with apply_patches(capture_settings(max_batch_size=None, prefer_module_v3=False)):
        assert layers() == 5
