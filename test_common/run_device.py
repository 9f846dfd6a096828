"""The device that a run is on."""

from comparison.schema.errors import BadInputError
from test_common.debug_options import device_problem


def resolve_device(device: str, *, framework: str) -> str:
    """Turn `default` into what this machine has, and check the form of the rest.

    Args:
        device: `default`, `cpu`, `gpu`, or `gpu:` with one or several indices.
        framework: the engine that looks for the device.

    Returns:
        `cpu`, `gpu`, `gpu:<index>` or `gpu:<index>,<index>`.

    Raises:
        BadInputError: the device is of another form.
    """
    if device == "default":
        return "gpu" if _has_gpu(framework) else "cpu"
    problem = device_problem(device)
    if problem is not None:
        raise BadInputError(problem)
    return device


def _has_gpu(framework: str) -> bool:
    if framework == "max":
        from max.driver import accelerator_count

        return accelerator_count() > 0
    import torch  # vLLM's own build may differ, but both see the same devices

    return torch.cuda.is_available()
