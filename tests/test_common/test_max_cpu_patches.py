import numpy as np
import pytest
from max.driver import CPU
from max.dtype import DType
from max.graph import DeviceRef
from max.nn.comm.allreduce import Allreduce, Signals
from max.nn.norm import RMSNorm
from max.pipelines import PIPELINE_REGISTRY
from max.pipelines.architectures.idefics3 import batch_processor as idefics3_batch
from max.pipelines.architectures.idefics3 import model as idefics3
from max.pipelines.architectures.pixtral import batch_processor as pixtral_batch
from max.pipelines.lib.arch_lookup import ARCH_LOOKUP

from comparison.schema.errors import BadInputError
from test_common.max_cpu_patches import CPU_PATCHES, max_cpu_patches
from test_common.patching import apply_patches


def test_an_unknown_name_is_refused_with_those_there_are() -> None:
    with pytest.raises(BadInputError, match=r"unknown MAX patch \['nonsense'\].*widen_cpu"):
        max_cpu_patches(["widen_cpu_encodings", "nonsense"], encoding="float32")


def test_an_architecture_takes_the_encoding_only_under_the_patch() -> None:
    assert PIPELINE_REGISTRY is not None  # registers the architectures
    stock = ARCH_LOOKUP.find("MistralForCausalLM")
    assert stock is not None
    assert "float32" not in stock.supported_encodings
    with apply_patches(max_cpu_patches(["widen_cpu_encodings"], encoding="float32")):
        widened = ARCH_LOOKUP.find("MistralForCausalLM")
        assert widened is not None
        assert "float32" in widened.supported_encodings
    again = ARCH_LOOKUP.find("MistralForCausalLM")
    assert again is not None
    assert "float32" not in again.supported_encodings


def test_norm_weights_take_the_encoding_of_the_run() -> None:
    with apply_patches(max_cpu_patches(["float32_norm_weights"], encoding="float32")):
        assert RMSNorm(4, DType.bfloat16).weight.dtype == DType.float32
    with apply_patches(max_cpu_patches(["float32_norm_weights"], encoding="bfloat16")):
        assert RMSNorm(4, DType.bfloat16).weight.dtype == DType.bfloat16
    assert RMSNorm(4, DType.bfloat16).weight.dtype == DType.bfloat16


def test_collectives_run_on_a_cpu_only_under_the_patch() -> None:
    def build() -> list[int]:
        devices = Allreduce(1).devices
        return [len(devices), *(buffer.num_elements for buffer in Signals.allocate(devices))]

    with pytest.raises(ValueError, match="No supported"):
        build()
    with apply_patches(max_cpu_patches(["single_device_signals"], encoding="float32")):
        assert build() == [1, Signals.NUM_BYTES]
    with pytest.raises(ValueError, match="No supported"):
        build()


def test_collectives_of_several_devices_are_refused() -> None:
    from max.graph import ops

    with apply_patches(max_cpu_patches(["single_device_signals"], encoding="float32")):
        assert ops.allreduce.sum(["value"], []) == ["value"]
        with pytest.raises(BadInputError, match="serve one device, found 2"):
            ops.allgather(["one", "two"], [])


@pytest.mark.parametrize("name", sorted(CPU_PATCHES))
def test_every_patch_says_what_it_works_around(name: str) -> None:
    for patch in max_cpu_patches([name], encoding="float32"):
        assert patch.missing_api
        assert patch.remove_when


def test_a_gpu_in_the_code_becomes_the_cpu() -> None:
    with apply_patches(max_cpu_patches(["cpu_device_refs"], encoding="float32")):
        assert DeviceRef.GPU() == DeviceRef.CPU()
        assert DeviceRef.GPU(1) == DeviceRef.CPU()
    assert DeviceRef.GPU() != DeviceRef.CPU()


def test_pictures_take_the_encoding_of_the_run() -> None:
    def types() -> list[DType]:
        empty = pixtral_batch.create_empty_image_embeddings_single(CPU(), 4)
        pixels = idefics3.TensorType(DType.bfloat16, [2], device=DeviceRef.CPU())
        indices = idefics3.TensorType(DType.int64, [2], device=DeviceRef.CPU())
        array = np.zeros((2, 3), dtype=np.float32)
        cast = idefics3_batch.cast_dlpack_to(array, DType.float32, DType.bfloat16, CPU())
        return [empty.dtype, pixels.dtype, indices.dtype, cast.dtype]

    bfloat16 = [DType.bfloat16, DType.bfloat16, DType.int64, DType.bfloat16]
    assert types() == bfloat16
    with apply_patches(max_cpu_patches(["float32_pictures"], encoding="float32")):
        assert types() == [DType.float32, DType.float32, DType.int64, DType.float32]
    with apply_patches(max_cpu_patches(["float32_pictures"], encoding="bfloat16")):
        assert types() == bfloat16
