"""Builds a MAX pipeline, in the engine's own way, with the settings that a capture needs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from test_common.later_layers import is_of_later_layer
from test_common.max_print_hook import MaxPrintHook
from test_common.model_load_errors import load_errors
from test_common.patching import Patch
from test_common.pipelines import MaxPipelineAndTokenizer
from test_common.weight_file import check_weight_file

_HOOK_API = "hooks that name layers themselves, once the weights are in"
_HOOK_REMOVE = "MAX's print hook names layers on load in V2 and names the traced copy in V3"


def build_max_pipeline(
    *,
    model_path: str,
    encoding: str,
    device_specs: Sequence[Any],
    weight_path: str | None = None,
    config_params: Mapping[str, Any] | None = None,
    task: str = "TEXT_GENERATION",
) -> MaxPipelineAndTokenizer:
    """Build a pipeline.

    Args:
        model_path: local folder or Hub id.
        encoding: MAX's name of the quantization encoding, `float32`, `bfloat16`, `q4_k`, ...
        device_specs: `max.driver.DeviceSpec` of each device.
        weight_path: file of weights that are not those of `model_path`, or None.
        config_params: further arguments of `PipelineArgs`, flat, such as `max_length`.
        task: name of a `PipelineTask`.

    Returns:
        The pipeline and MAX's tokenizer.

    Raises:
        BadInputError: the file of weights is missing or broken.
        UnknownPipelineError: there is no such model.
        TryAgainError: the Hub cannot be reached.
        EngineError: MAX cannot build the model; its own error is quoted.
    """
    if weight_path is not None:
        check_weight_file(weight_path, model_path=model_path)
    from max.pipelines import PIPELINE_REGISTRY, PipelineArgs, PipelineConfig
    from max.pipelines.modeling.types.task import PipelineTask

    kind = PipelineTask[task]
    with load_errors(model_path, engine="max"):
        args = PipelineArgs.from_flat_kwargs(
            model_path=model_path,
            quantization_encoding=encoding,
            device_specs=list(device_specs),
            weight_path=[Path(weight_path)] if weight_path else [],
            task=kind,
            **(config_params or {}),
        )
        config = PipelineConfig.from_args(args)
        tokenizer, pipeline = PIPELINE_REGISTRY.retrieve(config, task=kind)
    return MaxPipelineAndTokenizer(pipeline=pipeline, tokenizer=tokenizer)


def capture_settings(*, max_batch_size: int | None, prefer_module_v3: bool) -> tuple[Patch, ...]:
    """Make the patches that give every pipeline the settings a capture needs.

    They reach pipelines that an oracle builds without `build_max_pipeline` too. Subgraphs are
    off, since print operations in a subgraph have one label for all layers of the group; the
    prefix cache and chunked prefill are off, since each prompt must be seen whole. The
    configuration that an earlier run of the process kept is not taken: it had other overrides.

    Args:
        max_batch_size: rows in a batch, or None for the engine's choice.
        prefer_module_v3: whether to choose the ModuleV3 variant of an architecture.
    """
    from max.pipelines import PipelineConfig
    from max.pipelines.lib import _hf_config

    def with_settings(from_args: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def from_capture_args(args: Any) -> Any:
            runtime: dict[str, Any] = {"enable_chunked_prefill": False}
            if max_batch_size is not None:
                runtime["max_batch_size"] = max_batch_size
            if prefer_module_v3:
                runtime["prefer_module_v3"] = True
            settings = {
                "use_subgraphs": False,
                "runtime": args.runtime.model_copy(update=runtime),
                "kv_cache": args.kv_cache.model_copy(update={"enable_prefix_caching": False}),
            }
            return from_args(args.model_copy(update=settings))

        return from_capture_args

    return (
        Patch(
            target=_hf_config,
            name="_config_cache",
            replacement={},
            missing_api="a way to load the Hugging Face configuration of a repository anew",
            remove_when="MAX does not keep it for the life of the process, overrides and all",
        ),
        Patch(
            target=PipelineConfig,
            name="from_args",
            replacement=with_settings,
            wraps=True,
            missing_api="process-wide defaults of pipeline arguments",
            remove_when="MAX takes such defaults",
        ),
    )


def apply_max_hooks(hook: MaxPrintHook) -> tuple[Patch, ...]:
    """Make the patches that let a hook name the layers of every model that is built.

    V2 models are named when their weights are loaded. V3 models are named on the copy that
    `Module.compile` traces, right after MAX named that copy's weights.

    Args:
        hook: the hook, attached already.

    Returns:
        The records for `apply_patches`.
    """
    from max.experimental.nn import Module as ModuleV3
    from max.experimental.nn import module as module_v3
    from max.nn.layer import Module

    def name_after_load(load: Callable[..., Any]) -> Callable[..., Any]:
        def load_and_name(self: Any, *args: Any, **kwargs: Any) -> Any:
            loaded = load(self, *args, **kwargs)
            hook.name_layers(self)
            return loaded

        return load_and_name

    def name_copy(name_weights: Callable[[Any], None]) -> Callable[[Any], None]:
        def name_weights_and_layers(root: Any) -> None:
            name_weights(root)
            hook.name_layers(root)

        return name_weights_and_layers

    def inline_subgraphs(compile_module: Callable[..., Any]) -> Callable[..., Any]:
        def compile_inlined(self: Any, *args: Any, **kwargs: Any) -> Any:
            return compile_module(self, *args, **{**kwargs, "allow_subgraphs": False})

        return compile_inlined

    wrappers: tuple[tuple[Any, str, Any], ...] = (
        (Module, "load_state_dict", name_after_load),
        (module_v3, "name_weights", name_copy),
        (ModuleV3, "compile", inline_subgraphs),
    )
    return tuple(
        Patch(
            target=target,
            name=name,
            replacement=wrapper,
            wraps=True,
            missing_api=_HOOK_API,
            remove_when=_HOOK_REMOVE,
        )
        for target, name, wrapper in wrappers
    )


def fewer_layers(num_hidden_layers: int) -> tuple[Patch, ...]:
    """Make the patch that drops the weights of layers that a shortened model does not have.

    Some architectures load strictly and would refuse the rest of the checkpoint. Only weights of
    layers from `num_hidden_layers` on are dropped: strictness stays as it is for all others.

    Args:
        num_hidden_layers: number of layers kept, from the first one on.
    """
    from max.nn.layer import Module

    def dropping(load: Callable[..., Any]) -> Callable[..., Any]:
        def load_kept(self: Any, state_dict: Mapping[str, Any], **kwargs: Any) -> Any:
            expected = self.raw_state_dict().keys()
            kept = {
                key: value
                for key, value in state_dict.items()
                if key in expected or not is_of_later_layer(key, num_hidden_layers)
            }
            return load(self, kept, **kwargs)

        return load_kept

    return (
        Patch(
            target=Module,
            name="load_state_dict",
            replacement=dropping,
            wraps=True,
            missing_api="loading a checkpoint into a model with fewer layers",
            remove_when="load_state_dict can ignore given layers",
        ),
    )
