"""The oracle for any model that the engines load from a Hub id or a local folder."""

from collections.abc import Mapping, Sequence
from typing import Any

from oracles.oracle import DEFAULT_PROMPTS, PipelineOracle
from test_common.pipelines import MaxPipelineAndTokenizer, TorchModelAndDataProcessor


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
    ) -> None:
        """Record what to load.

        Args:
            model_path: local folder or Hub id.
            device_encoding_map: kind of device to its encodings, the default one first.
            torch_model_path: what Torch loads, where it cannot load `model_path` itself.
            weight_path_map: encoding to a weight file (or repository/file) for MAX.
            config_params: further parameters for MAX's PipelineArgs, such as `max_length`;
                Torch uses `trust_remote_code` and `huggingface_model_revision` of these.
            prompts: texts or token ids, instead of the default ones.
            apply_chat_template: whether prompts go through the chat template.
            use_cache: whether the Torch model keeps a KV cache.
            auto_model_cls: transformers class, or its name; by default the task's.
            auto_processor_cls: transformers class, or its name; by default AutoTokenizer.
            task: the engine's enum member, or its name.
            batch_size: greatest number of rows in one batch.
            add_bos_token: True or False to force it, None to leave it to the tokenizer.
            max_cpu_patches: names of the patches that MAX needs on a CPU.
        """
        self.model_path: str = model_path
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
        return f"{type(self).__name__}({self.model_path!r})"

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
            encoding=encoding,
            device=device,
            auto_model_cls=self.auto_model_cls,
            auto_processor_cls=self.auto_processor_cls,
            config_params=self.config_params,
            task=self.task_name,
        )
