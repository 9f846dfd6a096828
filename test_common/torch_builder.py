"""Builds the Hugging Face reference: eager attention, evaluation mode, all weights there."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from comparison.schema.errors import BadInputError, UnsupportedFormatError
from test_common.model_load_errors import load_errors
from test_common.pipelines import TorchModelAndDataProcessor
from test_common.weight_report import check_weights, quiet_load

if TYPE_CHECKING:
    import torch

_DTYPES = ("float32", "bfloat16", "float16", "float64")
_DEFAULT_MODEL_CLASS: Mapping[str, str] = {"EMBEDDINGS_GENERATION": "AutoModel"}


def build_torch_model(
    *,
    model_path: str,
    encoding: str,
    device: Any,
    auto_model_cls: Any = None,
    auto_processor_cls: Any = None,
    config_params: Mapping[str, Any] | None = None,
    task: str = "TEXT_GENERATION",
) -> TorchModelAndDataProcessor:
    """Load a model and its tokenizer or processor with transformers.

    Args:
        model_path: local folder or Hub id.
        encoding: `float32`, `bfloat16`, `float16` or `float64`.
        device: `cpu`, `gpu`, `gpu:0`, a torch.device, or `gpu:0,1`: the layers are spread over
            these with accelerate's `device_map="auto"`. On `meta` no weights are read.
        auto_model_cls: transformers class, or its name; by default the task's.
        auto_processor_cls: transformers class, or its name; by default AutoTokenizer.
        config_params: of these `trust_remote_code` and `huggingface_model_revision` are used.
        task: name of the pipeline task.

    Raises:
        UnsupportedFormatError: torch cannot hold the encoding.
        BadInputError: the device or a class name does not exist, a class loads another thing than
            it should, or access is refused.
        UnknownPipelineError: there is no such model.
        TryAgainError: the Hub cannot be reached.
        EngineError: transformers cannot load the model, or weights are missing.
    """
    dtype = torch_dtype(encoding)
    torch_device = resolve_torch_device(str(device).split(",")[0])
    several = "," in str(device)
    placement = _device_map(str(device)) if several else {}
    model_class = _resolve(
        auto_model_cls or _DEFAULT_MODEL_CLASS.get(task, "AutoModelForCausalLM"), "auto_model_cls"
    )
    processor_class = _resolve(auto_processor_cls or "AutoTokenizer", "auto_processor_cls")
    hub = hub_arguments(config_params or {})
    with load_errors(model_path, engine="torch"):
        if torch_device.type == "meta":
            model = _model_without_weights(model_class, model_path, dtype=dtype, hub=hub)
        else:
            model = _load_model(model_class, model_path, dtype=dtype, hub=hub | placement)
        data_processor = _load_processor(processor_class, model_path, hub=hub)
        model = (model if several else model.to(torch_device)).eval()
    return TorchModelAndDataProcessor(model=model, data_processor=data_processor)


def hub_arguments(config_params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the `from_pretrained` arguments that an oracle's parameters for the engine imply."""
    arguments: dict[str, Any] = {
        "trust_remote_code": bool(config_params.get("trust_remote_code", False))
    }
    revision = config_params.get("huggingface_model_revision")
    if revision:
        arguments["revision"] = revision
    return arguments


def torch_dtype(encoding: str) -> "torch.dtype":
    """Return torch's dtype of an encoding.

    Raises:
        UnsupportedFormatError: torch has none; quantised weights need `torch_model_path`.
    """
    import torch

    if encoding not in _DTYPES:
        raise UnsupportedFormatError(
            f"torch cannot run encoding {encoding!r}; known: {', '.join(_DTYPES)}; for quantised "
            "weights give the oracle torch_model_path, the model before quantisation"
        )
    return getattr(torch, encoding)


def _device_map(device: str) -> dict[str, Any]:
    """Return the `from_pretrained` arguments that spread a model over `gpu:0,1`."""
    import torch

    indices = [int(index) for index in device.partition(":")[2].split(",")]
    for index in indices:
        resolve_torch_device(f"gpu:{index}")
    free = {index: torch.cuda.mem_get_info(index)[0] for index in indices}
    return {"device_map": "auto", "max_memory": free}


def resolve_torch_device(device: Any) -> "torch.device":
    """Return the torch.device of `cpu`, `gpu`, `gpu:1`, or of a torch device.

    Raises:
        BadInputError: there is no such device here.
    """
    import torch

    name = str(device).replace("gpu", "cuda")
    try:
        resolved = torch.device(name)
    except RuntimeError as error:
        raise BadInputError(f"unknown device {device!s}; known: cpu, gpu, gpu:<index>") from error
    count = torch.cuda.device_count()
    if resolved.type == "cuda" and (resolved.index or 0) >= count:
        raise BadInputError(f"device {device!s} does not exist: torch sees {count} GPU(s)")
    return resolved


def _resolve(class_or_name: Any, argument: str) -> Any:
    import transformers

    if not isinstance(class_or_name, str):
        return class_or_name
    found = getattr(transformers, class_or_name, None)
    if found is None:
        raise BadInputError(f"{argument}={class_or_name!r}: transformers has no such class")
    return found


def _load_model(
    model_class: Any, model_path: str, *, dtype: "torch.dtype", hub: Mapping[str, Any]
) -> Any:
    from transformers import AutoConfig

    # Given explicitly, so that overrides of AutoConfig reach concrete classes too.
    config = AutoConfig.from_pretrained(model_path, **hub)
    with quiet_load():
        loaded = model_class.from_pretrained(
            model_path,
            config=config,
            dtype=dtype,
            attn_implementation="eager",
            output_loading_info=True,
            ignore_mismatched_sizes=True,  # reported below, with the shapes
            **hub,
        )
    if not isinstance(loaded, tuple):  # a tokenizer knows no loading info
        raise BadInputError(f"auto_model_cls: {model_class.__name__} loads no model")
    model, info = loaded
    check_weights(model_path, info, config)
    return model


def _model_without_weights(
    model_class: Any, model_path: str, *, dtype: "torch.dtype", hub: Mapping[str, Any]
) -> Any:
    import torch
    from transformers import AutoConfig

    config = AutoConfig.from_pretrained(model_path, **hub)
    given: dict[str, Any] = {"dtype": dtype, "attn_implementation": "eager"}
    make = getattr(model_class, "from_config", None)
    if make is None:  # concrete classes have it under another name
        make = model_class._from_config
    else:  # an auto class left without it asks on stdin
        given["trust_remote_code"] = hub["trust_remote_code"]
    with torch.device("meta"):
        return make(config, **given)


def _load_processor(processor_class: Any, model_path: str, *, hub: Mapping[str, Any]) -> Any:
    import torch

    with quiet_load():
        loaded = processor_class.from_pretrained(model_path, **hub)
    if isinstance(loaded, torch.nn.Module):
        raise BadInputError(
            f"auto_processor_cls: {processor_class.__name__} loads a model, no tokenizer or "
            "processor"
        )
    return loaded
