from pathlib import Path
from typing import Any

import pytest

from comparison.schema.errors import BadInputError
from test_common.capture_mode import CaptureMode
from test_common.debug_options import DebugOptions


def test_all_problems_are_named_at_once() -> None:
    with pytest.raises(BadInputError) as error:
        DebugOptions(
            pipeline="x",
            framework="jax",
            num_hidden_layers=0,
            num_steps=0,
            max_batch_size=0,
            prefer_module_v3=True,
        )
    for words in ("framework", "num_hidden_layers", "num_steps", "max_batch_size", "module_v3"):
        assert words in str(error.value)


@pytest.mark.parametrize("layers", [1, 7, "all"])
def test_layers_that_are_taken(layers: int | str) -> None:
    assert DebugOptions(pipeline="x", num_hidden_layers=layers).num_hidden_layers == layers


@pytest.mark.parametrize("layers", [-1, "some", 1.5])
def test_layers_that_are_refused(layers: object) -> None:
    with pytest.raises(BadInputError, match=r"at least 1 or 'all'"):
        DebugOptions(pipeline="x", num_hidden_layers=layers)  # type: ignore[arg-type]  # on purpose


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"framework": "vllm", "tensor_parallel_size": 0}, "must be at least 1, got 0"),
        ({"overwrite": True}, "overwrite replaces a dump: name its output folder"),
        ({"resume": True}, "resume goes on with a dump: name its output folder"),
        ({"resume": True, "output": Path("d"), "overwrite": True}, "resume or overwrite, not both"),
        ({"resume": True, "output": Path("d"), "framework": "vllm"}, "resume is for torch and max"),
        (
            {"resume": True, "output": Path("d"), "mode": CaptureMode.SKETCH},
            "resume in mode sketch is for torch",
        ),
        ({"framework": "torch", "tensor_parallel_size": 2}, "is for vllm, not for torch"),
        ({"framework": "max", "tensor_parallel_size": 2}, r"name several devices \(gpu:0,1\)"),
        (
            {"framework": "vllm", "tensor_parallel_size": 2, "device": "gpu:0"},
            "tensor_parallel_size 2 does not fit device gpu:0, which names 1",
        ),
    ],
)
def test_tensor_parallel_sizes_that_are_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(BadInputError, match=message):
        DebugOptions(pipeline="x", **options)  # type: ignore[arg-type]  # fields of DebugOptions


@pytest.mark.parametrize("device", ["cpu", "default", "gpu", "gpu:0,3"])
def test_tensor_parallel_sizes_that_are_taken(device: str) -> None:
    options = DebugOptions(pipeline="x", framework="vllm", tensor_parallel_size=2, device=device)
    assert options.tensor_parallel_size == 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tensor_parallel_size": "2"}, "tensor_parallel_size must be a whole number, got '2'"),
        ({"tensor_parallel_size": 1.5}, "tensor_parallel_size must be a whole number, got 1.5"),
        ({"tensor_parallel_size": True}, "tensor_parallel_size must be a whole number, got True"),
        ({"device": None}, "device must be a text, got None"),
        ({"device": "gpu:x"}, "device must be cpu, gpu, .* got 'gpu:x'"),
        ({"num_hidden_layers": True}, "num_hidden_layers must be at least 1 or 'all', got True"),
        ({"num_steps": "1"}, "num_steps must be a whole number, got '1'"),
        ({"max_batch_size": 1.0}, "max_batch_size must be a whole number, got 1.0"),
        ({"precision": None}, "precision must be a whole number, got None"),
        ({"images": "ok.png"}, "images must be a list of files and web addresses, found 'ok.png'"),
        ({"images": b"ok.png"}, "images must be a list of files and web addresses, found b'ok"),
        ({"images": (3, b"x")}, "image 0 must be a file or a web address, found 3; image 1 must"),
        ({"prompts": "hi"}, "prompts must be a list of prompts, found 'hi'"),
    ],
)
def test_values_of_another_kind_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInputError, match=message):
        DebugOptions(pipeline="x", framework="vllm", **options)


def test_pictures_may_be_paths() -> None:
    assert DebugOptions(pipeline="x", images=(Path("a.png"), "b.png")).images[0] == Path("a.png")
