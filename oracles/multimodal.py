"""Oracles of models that read pictures and text, one subclass a way of preprocessing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from oracles.generic_oracle import GenericOracle
from test_common.image_preprocessing import ImagePreprocessing, PromptSettings

if TYPE_CHECKING:
    from test_common.images import LoadedImage
    from test_common.vision_inputs import VisionInputs

_ENCODINGS: Mapping[str, Sequence[str]] = {
    "cpu": ("float32", "bfloat16"),
    "gpu": ("bfloat16", "float32"),
}
_MODELS = "transformers.models"


class MultimodalOracle(GenericOracle):
    """Like `GenericOracle`, for a model whose prompts come with pictures.

    A subclass gives `preprocessing`. Every row gets all pictures, in front of its text, or where
    the prompt itself has the placeholder.

    Attributes:
        preprocessing: how the family turns pictures into tokens and tensors.
        default_image_count: how many pictures made by code a run gets where the user gives none.
    """

    preprocessing: ClassVar[ImagePreprocessing]
    takes_images = True

    def __init__(
        self,
        model_path: str,
        *,
        device_encoding_map: Mapping[str, Sequence[str]] = _ENCODINGS,
        auto_model_cls: Any = "AutoModelForImageTextToText",
        image_count: int = 1,
        **settings: Any,
    ) -> None:
        """Record what to load.

        Args:
            model_path: local folder or Hub id.
            device_encoding_map: kind of device to its encodings, the default one first.
            auto_model_cls: transformers class, or its name.
            image_count: how many pictures made by code a run gets where the user gives none.
            settings: further arguments of `GenericOracle`.
        """
        self.default_image_count = image_count
        super().__init__(
            model_path,
            device_encoding_map=device_encoding_map,
            auto_model_cls=auto_model_cls,
            **settings,
        )

    def prepare(
        self,
        prompts: Sequence[str | Sequence[int]],
        images: Sequence[LoadedImage],
        *,
        max_length: int | None = None,
    ) -> tuple[list[list[int]], VisionInputs]:
        """Return the token ids of each row, the pictures' included, and the pictures' tensors.

        Args:
            prompts: a text, or its token ids with the pictures' tokens already in it, a row.
            images: the pictures; each row has all of them.
            max_length: greatest number of tokens a row, None for no limit.

        Raises:
            BadInputError: prompts or pictures that do not go together, or do not fit.
            EngineError: the image processor fails.
            UnknownPipelineError: there is no such model.
            TryAgainError: the Hub cannot be reached.
        """
        from test_common.vision_prompts import prepare_vision

        settings = PromptSettings(
            model_path=str(self.torch_model_path or self.model_path),
            apply_chat_template=self.apply_chat_template,
            add_bos_token=self.add_bos_token,
            max_length=max_length,
            trust_remote_code=bool(self.config_params.get("trust_remote_code", False)),
            revision=self.config_params.get("huggingface_model_revision"),
        )
        return prepare_vision(prompts, images, preprocessing=self.preprocessing, settings=settings)


class Gemma3MultimodalPipelineOracle(MultimodalOracle):
    """Gemma 3 with its SigLIP tower: one picture is a fixed number of soft tokens."""

    preprocessing = ImagePreprocessing(
        family="gemma3",
        image_processor_cls=f"{_MODELS}.gemma3.image_processing_pil_gemma3:Gemma3ImageProcessorPil",
        placeholder="<start_of_image>",
        expanded_token="<start_of_image>",
    )


class InternVLPipelineOracle(MultimodalOracle):
    """InternVL in transformers' own layout (`-hf`): tiles of a picture and a thumbnail."""

    preprocessing = ImagePreprocessing(
        family="internvl",
        image_processor_cls=f"{_MODELS}.got_ocr2.image_processing_pil_got_ocr2:"
        "GotOcr2ImageProcessorPil",
        placeholder="<IMG_CONTEXT>\n",
        expanded_token="<IMG_CONTEXT>",
    )


class Qwen2_5VLPipelineOracle(MultimodalOracle):
    """Qwen2.5-VL: pictures of any size, and positions in time, height and width."""

    preprocessing = ImagePreprocessing(
        family="qwen2_5_vl",
        image_processor_cls=f"{_MODELS}.qwen2_vl.image_processing_pil_qwen2_vl:"
        "Qwen2VLImageProcessorPil",
        placeholder="<|vision_start|><|image_pad|><|vision_end|>",
        expanded_token="<|image_pad|>",
        model_inputs=("pixel_values", "image_grid_thw"),
    )


class Idefics3PipelineOracle(MultimodalOracle):
    """Idefics3: tiles in rows and columns, and the whole picture, each between tokens."""

    preprocessing = ImagePreprocessing(
        family="idefics3",
        image_processor_cls=f"{_MODELS}.idefics3.image_processing_pil_idefics3:"
        "Idefics3ImageProcessorPil",
        placeholder="<image>",
        expanded_token="<image>",
        model_inputs=("pixel_values", "pixel_attention_mask"),
    )


class PixtralPipelineOracle(MultimodalOracle):
    """Pixtral: pictures of any size, a token after each line of patches."""

    preprocessing = ImagePreprocessing(
        family="pixtral",
        image_processor_cls=f"{_MODELS}.pixtral.image_processing_pil_pixtral:"
        "PixtralImageProcessorPil",
        placeholder="[IMG]",
        expanded_token="[IMG]",
        model_inputs=("pixel_values", "image_sizes"),
    )


_BY_ARCHITECTURE: Mapping[str, type[MultimodalOracle]] = {
    "Gemma3ForConditionalGeneration": Gemma3MultimodalPipelineOracle,
    "InternVLForConditionalGeneration": InternVLPipelineOracle,
    "Qwen2_5_VLForConditionalGeneration": Qwen2_5VLPipelineOracle,
    "Idefics3ForConditionalGeneration": Idefics3PipelineOracle,
    "LlavaForConditionalGeneration": PixtralPipelineOracle,
}


def multimodal_class(architectures: Sequence[str]) -> type[MultimodalOracle] | None:
    """Return the class for what config.json names as its architectures, None for text alone."""
    found = (_BY_ARCHITECTURE.get(name) for name in architectures)
    return next((kind for kind in found if kind is not None), None)
