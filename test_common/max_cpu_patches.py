"""Patches that let architectures registered for GPUs only run on a CPU, for debugging.

They are applied on request alone, never on a device that is not a CPU, and are named in the
manifest of what was run under them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from comparison.schema.errors import BadInputError
from test_common.patching import Patch

_REMOVE = "MAX registers the architecture for the CPU"


def max_cpu_patches(names: Iterable[str], *, encoding: str) -> tuple[Patch, ...]:
    """Look patches up by name.

    Args:
        names: keys of `CPU_PATCHES`.
        encoding: the encoding of the run, `float32` or `bfloat16`.

    Returns:
        The records for `apply_patches`; a name may stand for several.

    Raises:
        BadInputError: a name is not known.
    """
    names = tuple(names)
    unknown = [name for name in names if name not in CPU_PATCHES]
    if unknown:
        raise BadInputError(f"unknown MAX patch {unknown}: there are {sorted(CPU_PATCHES)}")
    return tuple(patch for name in names for patch in CPU_PATCHES[name](encoding))


def _widen_cpu_encodings(encoding: str) -> tuple[Patch, ...]:
    """Let an architecture take an encoding that it does not list, and bfloat16 run on a CPU."""
    from max.pipelines.lib.arch_lookup import ArchLookup
    from max.pipelines.modeling import config_enums

    def widen(find: Callable[..., Any]) -> Callable[..., Any]:
        def find_with_encoding(*args: Any, **kwargs: Any) -> Any:
            architecture = find(*args, **kwargs)
            if architecture is None or encoding in architecture.supported_encodings:
                return architecture
            encodings = {*architecture.supported_encodings, encoding}
            return dataclasses.replace(architecture, supported_encodings=encodings)

        return find_with_encoding

    missing = "an argument that overrides an architecture's supported encodings"
    return (
        Patch(
            target=ArchLookup,
            name="find",
            replacement=widen,
            wraps=True,
            missing_api=missing,
            remove_when=_REMOVE,
        ),
        Patch(
            target=config_enums._SUPPORTED_DEVICES,
            name="bfloat16",
            replacement=("cpu", "gpu"),
            missing_api=missing,
            remove_when=_REMOVE,
        ),
    )


def _single_device_signals(encoding: str) -> tuple[Patch, ...]:
    """Replace what several GPUs say to each other by what one device need not say."""
    del encoding
    from max.driver import CPU, Buffer
    from max.dtype import DType
    from max.graph import ops
    from max.nn.comm import allreduce

    signals = allreduce.Signals

    def allocate(devices: Iterable[Any]) -> list[Any]:
        return [Buffer.zeros((signals.NUM_BYTES,), DType.uint8, device=dev) for dev in devices]

    def init_allreduce(self: Any, num_accelerators: int) -> None:
        super(allreduce.Allreduce, self).__init__()
        self.devices = [CPU() for _ in range(num_accelerators)]

    def alone(inputs: Iterable[Any], *args: Any, **kwargs: Any) -> list[Any]:
        values = list(inputs)
        if len(values) != 1:
            raise BadInputError(f"the CPU patches serve one device, found {len(values)}")
        return values

    replacements: tuple[tuple[Any, str, Any], ...] = (
        (signals, "allocate", staticmethod(allocate)),
        (signals, "buffers", lambda self: allocate([CPU() for _ in self.devices])),
        (allreduce.Allreduce, "__init__", init_allreduce),
        (ops.allreduce, "sum", alone),
        (ops, "allgather", alone),
    )
    return tuple(
        Patch(
            target=target,
            name=name,
            replacement=replacement,
            missing_api="collectives that accept one CPU device",
            remove_when=_REMOVE,
        )
        for target, name, replacement in replacements
    )


def _float32_norm_weights(encoding: str) -> tuple[Patch, ...]:
    """Give norm weights the run's dtype where an architecture insists on bfloat16."""
    from max.dtype import DType
    from max.nn.norm import RMSNorm

    def with_dtype(init: Callable[..., None]) -> Callable[..., None]:
        def init_norm(self: Any, dim: int, dtype: Any, *args: Any, **kwargs: Any) -> None:
            wanted = DType.float32 if encoding == "float32" else dtype
            init(self, dim, wanted, *args, **kwargs)

        return init_norm

    return (
        Patch(
            target=RMSNorm,
            name="__init__",
            replacement=with_dtype,
            wraps=True,
            missing_api="norm weights in the encoding of the run",
            remove_when=_REMOVE,
        ),
    )


def _cpu_device_refs(encoding: str) -> tuple[Patch, ...]:
    """Build on the CPU what an architecture places on a GPU whatever its configuration says."""
    del encoding
    from max.graph import DeviceRef

    return (
        Patch(
            target=DeviceRef,
            name="GPU",
            replacement=staticmethod(lambda id=0: DeviceRef.CPU()),  # as there
            missing_api="vision towers on the device of the configuration",
            remove_when=_REMOVE,
        ),
    )


def _float32_pictures(encoding: str) -> tuple[Patch, ...]:
    """Give pictures and their embeddings the run's dtype where bfloat16 is written in the code."""
    if encoding != "float32":
        return ()
    from max.dtype import DType
    from max.pipelines.architectures.idefics3 import batch_processor as idefics3_batch
    from max.pipelines.architectures.idefics3 import model as idefics3
    from max.pipelines.architectures.pixtral import batch_processor as pixtral_batch

    def of_type(tensor_type: Callable[..., Any]) -> Callable[..., Any]:
        def float32_type(dtype: Any, *args: Any, **kwargs: Any) -> Any:
            wanted = DType.float32 if dtype == DType.bfloat16 else dtype
            return tensor_type(wanted, *args, **kwargs)

        return float32_type

    def uncast(array: Any, old: Any, new: Any, device: Any) -> Any:
        from max.driver import Buffer

        del old, new
        return Buffer.from_numpy(array).to(device)

    def no_rows(create: Callable[..., Any]) -> Callable[..., Any]:
        return lambda device, hidden_size: create(device, hidden_size, DType.float32)

    empty = "create_empty_image_embeddings_single"
    replacements: tuple[tuple[Any, str, Any, bool], ...] = (
        (idefics3, "TensorType", of_type, True),
        (idefics3_batch, "cast_dlpack_to", uncast, False),
        (idefics3_batch, empty, no_rows, True),
        (pixtral_batch, empty, no_rows, True),
    )
    return tuple(
        Patch(
            target=target,
            name=name,
            replacement=replacement,
            wraps=wraps,
            missing_api="pictures in the encoding of the run",
            remove_when=_REMOVE,
        )
        for target, name, replacement, wraps in replacements
    )


CPU_PATCHES: Mapping[str, Callable[[str], tuple[Patch, ...]]] = {
    "widen_cpu_encodings": _widen_cpu_encodings,
    "single_device_signals": _single_device_signals,
    "float32_norm_weights": _float32_norm_weights,
    "cpu_device_refs": _cpu_device_refs,
    "float32_pictures": _float32_pictures,
}
