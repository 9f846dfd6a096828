"""The oracle for any model that the engines load from a Hub id or a local folder."""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import replace
from os import PathLike, fspath
from typing import Any, Self

from comparison.schema.errors import BadInputError
from oracles.oracle import DEFAULT_PROMPTS, PipelineOracle
from test_common.pipelines import (
    MaxPipelineAndTokenizer,
    TorchModelAndDataProcessor,
    VLLMPipeline,
)

# What Torch computes in where MAX loads quantised weights, and Torch the model before that or what
# the blocks dequantise to: as MAX does with them, float32 on a CPU and bfloat16 on a GPU.
DEQUANTISED: Mapping[str, str] = {
    "q4_0": "float32",
    "q4_k": "float32",
    "q6_k": "float32",
    "gptq": "bfloat16",
    "float8_e4m3fn": "bfloat16",
    "float6_e2m3fn": "bfloat16",
    "float4_e2m1fnx2": "bfloat16",
}


def _as_text(path: str | PathLike[str]) -> str:
    """Return a path as text; what is none stays as it is, for the check to name."""
    return fspath(path) if isinstance(path, PathLike) else path


class GenericOracle(PipelineOracle):
    """Builds a model from its path, with the engines' own loaders.

    Constructing one is cheap: nothing is loaded, and no engine imported, before a pipeline is made.
    """

    def __init__(
        self,
        model_path: str,
        *,
        device_encoding_map: Mapping[str, Sequence[str]],
        torch_model_path: str | None = None,
        weight_path_map: Mapping[str, str] | None = None,
        config_params: Mapping[str, Any] | None = None,
        prompts: Sequence[str | Sequence[int]] | None = None,
        apply_chat_template: bool = False,
        use_cache: bool = True,
        auto_model_cls: Any = None,
        auto_processor_cls: Any = None,
        task: Any = "TEXT_GENERATION",
        batch_size: int | None = None,
        add_bos_token: bool | None = None,
        max_cpu_patches: Sequence[str] = (),
        lora_path: str | PathLike[str] | None = None,
    ) -> None:
        """Record what to load.

        Args:
            model_path: local folder or Hub id.
            device_encoding_map: kind of device to its encodings, the default one first.
            torch_model_path: what Torch loads, where it cannot load `model_path` itself; for
                quantised encodings the model before, in the dtype that `DEQUANTISED` gives.
            weight_path_map: encoding to a weight file (or repository/file) for MAX.
            config_params: further parameters for MAX's PipelineArgs, such as `max_length`;
                Torch uses `trust_remote_code`, `huggingface_model_revision` and
                `pool_embeddings` of these.
            prompts: texts or token ids, instead of the default ones.
            apply_chat_template: whether prompts go through the chat template.
            use_cache: whether the Torch model keeps a KV cache.
            auto_model_cls: transformers class, or its name; by default the task's.
            auto_processor_cls: transformers class, or its name; by default AutoTokenizer.
            task: the engine's enum member, or its name.
            batch_size: greatest number of rows in one batch.
            add_bos_token: True or False to force it, None to leave it to the tokenizer.
            max_cpu_patches: names of the patches that MAX needs on a CPU.
            lora_path: folder of a LoRA adapter; all engines load the model with it merged in.
        """
        self.lora_path = None if lora_path is None else _as_text(lora_path)
        self.model_path = model_path
        self.torch_model_path = torch_model_path
        self.weight_path_map = dict(weight_path_map or {})
        self.config_params = dict(config_params or {})
        self.apply_chat_template = apply_chat_template
        self.use_cache = use_cache
        self.auto_model_cls = auto_model_cls
        self.auto_processor_cls = auto_processor_cls
        self.task = task
        self.default_batch_size = batch_size
        self.add_bos_token = add_bos_token
        self.max_cpu_patches = tuple(max_cpu_patches)
        self._device_encoding_map = dict(device_encoding_map)
        given = DEFAULT_PROMPTS if prompts is None else prompts
        # One text is no list of prompts; taken apart it would pass for one.
        self._prompts = given if isinstance(given, str) else tuple(given)

    def __repr__(self) -> str:
        """Show the class and the path."""
        return f"{type(self).__name__}({self._model_path!r})"

    @property
    def model_path(self) -> str:
        """Return what the engines load: with an adapter, a folder where it is merged in."""
        if self.lora_path is None:
            return self._model_path
        return self._merged(self.lora_path)

    @model_path.setter
    def model_path(self, value: str) -> None:
        """Set what is loaded where there is no adapter."""
        self._model_path = value

    @property
    def base_model_path(self) -> str:
        """Return the path as it was given; nothing is merged for it."""
        return self._model_path

    @property
    def label(self) -> str:
        """Return the path as it was given; nothing is merged for it."""
        return str(self._model_path)

    def _merged(self, lora_path: str) -> str:
        """Return the folder of the model with an adapter merged in, made on first use."""
        if self.torch_model_path is not None or self.weight_path_map:
            raise BadInputError(
                f"{self.label}: a LoRA adapter cannot be merged into weights of blocks: take the "
                "model before quantisation"
            )
        from test_common.lora_merge import ensure_merged_checkpoint

        revision = self.config_params.get("huggingface_model_revision")
        return str(ensure_merged_checkpoint(self._model_path, lora_path, revision=revision))

    def with_lora(self, lora_path: str | PathLike[str]) -> Self:
        """Return an oracle like this one whose model has an adapter merged in."""
        changed = copy.copy(self)
        changed.lora_path = _as_text(lora_path)
        return changed

    @property
    def device_encoding_map(self) -> Mapping[str, Sequence[str]]:
        """Return the encodings that work on each kind of device, the default one first."""
        return self._device_encoding_map

    @property
    def inputs(self) -> Sequence[str | Sequence[int]]:
        """Return the prompts, each a text or its token ids."""
        return self._prompts

    def create_max_pipeline(
        self, *, encoding: str, device_specs: Sequence[Any]
    ) -> MaxPipelineAndTokenizer:
        """Build the model on MAX; see `PipelineOracle`."""
        from test_common.max_builder import build_max_pipeline

        return build_max_pipeline(
            model_path=self.model_path,
            encoding=encoding,
            device_specs=device_specs,
            weight_path=self.weight_path_map.get(encoding),
            config_params=self.config_params,
            task=self.task_name,
        )

    def create_torch_pipeline(self, *, encoding: str, device: Any) -> TorchModelAndDataProcessor:
        """Build the Hugging Face reference; see `PipelineOracle`."""
        from test_common.torch_builder import build_torch_model

        return build_torch_model(
            model_path=self.torch_model_path or self.model_path,
            encoding=DEQUANTISED.get(encoding, encoding) if self.torch_model_path else encoding,
            device=device,
            auto_model_cls=self.auto_model_cls,
            auto_processor_cls=self.auto_processor_cls,
            config_params=self.config_params,
            task=self.task_name,
        )

    def create_vllm_pipeline(self, *, encoding: str, device_specs: Sequence[Any]) -> VLLMPipeline:
        """Say what vLLM has to load: of quantised weights what Torch does; see `PipelineOracle`."""
        pipeline = super().create_vllm_pipeline(encoding=encoding, device_specs=device_specs)
        if self.torch_model_path is None:
            return pipeline
        return replace(
            pipeline,
            model_path=self.torch_model_path,
            encoding=DEQUANTISED.get(encoding, encoding),
        )
