"""What to run: the abstract oracle that knows how to build one model on every engine."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

from comparison.schema.errors import BadInputError, EngineError
from test_common.pipelines import (
    MaxPipelineAndTokenizer,
    TorchModelAndDataProcessor,
    VLLMPipeline,
)

# Two lengths, so that batches show faults of padding and row offsets.
DEFAULT_PROMPTS: tuple[str, ...] = (
    "The quick brown fox jumps over the lazy dog, and then it runs home.",
    "Numerical accuracy is not a matter of opinion: measure first, round later, and always "
    "keep the reference at hand while you look for the first layer that differs.",
)


class PipelineOracle(ABC):
    """Knows how to build one model on every engine, and with which inputs to run it.

    A subclass gives `device_encoding_map`, `create_max_pipeline` and `create_torch_pipeline`; it
    overrides the rest, as attributes or properties, where the defaults do not fit.

    Attributes:
        model_path: local folder or Hub id, None where a subclass builds the model otherwise.
        task: pipeline task, by name or as the engine's enum.
        default_batch_size: greatest number of rows in one batch, None for all prompts at once.
        use_cache: whether the Torch model keeps a KV cache.
        apply_chat_template: whether prompts go through the tokenizer's chat template.
        add_bos_token: True or False to force it, None for what the tokenizer does by itself.
        config_params: further parameters for the engine, such as `max_length`.
        max_cpu_patches: names of the patches that MAX needs to run this model on a CPU.
        lora_path: folder of a LoRA adapter that is merged into the model, or None.
        takes_images: whether each prompt comes with pictures; see `MultimodalOracle`.
    """

    model_path: str | None = None
    task: Any = "TEXT_GENERATION"
    default_batch_size: int | None = None
    use_cache: bool = True
    apply_chat_template: bool = False
    add_bos_token: bool | None = None
    config_params: Mapping[str, Any] = {}
    max_cpu_patches: tuple[str, ...] = ()
    lora_path: str | None = None
    takes_images: bool = False

    @property
    @abstractmethod
    def device_encoding_map(self) -> Mapping[str, Sequence[str]]:
        """Return the encodings that work on each kind of device, the default one first."""

    @abstractmethod
    def create_max_pipeline(
        self, *, encoding: str, device_specs: Sequence[Any]
    ) -> MaxPipelineAndTokenizer:
        """Build the model on MAX.

        Args:
            encoding: `float32`, `bfloat16`, ...
            device_specs: MAX's DeviceSpec records.
        """

    @abstractmethod
    def create_torch_pipeline(self, *, encoding: str, device: Any) -> TorchModelAndDataProcessor:
        """Build the Hugging Face reference.

        Args:
            encoding: `float32`, `bfloat16`, ...
            device: `cpu`, `gpu`, `gpu:0`, or a torch.device.
        """

    def create_vllm_pipeline(self, *, encoding: str, device_specs: Sequence[Any]) -> VLLMPipeline:
        """Say what vLLM has to load; the engine itself runs in a process of its own.

        Args:
            encoding: `float32`, `bfloat16`, ...
            device_specs: not used; vLLM takes the devices of its build.

        Raises:
            EngineError: the oracle has no model path, and does not override this.
        """
        del device_specs
        if self.model_path is None:
            raise EngineError(f"{self.label} has no model path that vLLM could load")
        return VLLMPipeline(
            model_path=self.model_path,
            encoding=encoding,
            trust_remote_code=bool(self.config_params.get("trust_remote_code", False)),
        )

    @property
    def label(self) -> str:
        """Return what messages call this oracle; nothing is loaded or made for it."""
        return str(self.model_path or type(self).__name__)

    @property
    def inputs(self) -> Sequence[str | Sequence[int]]:
        """Return the prompts, each a text or its token ids."""
        return DEFAULT_PROMPTS

    @property
    def task_name(self) -> str:
        """Return the task as the name of the engine's enum member, such as TEXT_GENERATION."""
        return str(getattr(self.task, "name", self.task)).upper()

    def resolve_encoding(self, encoding: str | None, *, device_type: str) -> str:
        """Return the encoding to use on a kind of device.

        Args:
            encoding: what the user asked for, None for the default.
            device_type: `cpu` or `gpu`.

        Raises:
            BadInputError: the oracle does not list that device or that encoding.
        """
        known = self.device_encoding_map
        encodings = known.get(device_type, ())
        if not encodings:
            raise BadInputError(
                f"{self.label} has no encoding for device {device_type!r}; "
                f"its devices: {', '.join(known) or 'none'}"
            )
        if encoding is not None and encoding not in encodings:
            raise BadInputError(
                f"{self.label} does not support encoding {encoding!r} on "
                f"{device_type!r}; supported: {', '.join(encodings)}"
            )
        return encoding or encodings[0]
