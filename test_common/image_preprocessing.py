"""What the preparation of prompts with pictures has to be told, as data."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ImagePreprocessing:
    """The facts of a family's preprocessing, as data.

    Attributes:
        family: a key of `IMAGE_FAMILIES`.
        image_processor_cls: `module:Class` of the image processor on Pillow and numpy.
        placeholder: what is written in front of a prompt for one picture.
        expanded_token: the part of the placeholder whose place the picture's tokens take.
        model_inputs: keyword inputs of the Torch model that the image processor gives.
    """

    family: str
    image_processor_cls: str
    placeholder: str
    expanded_token: str
    model_inputs: tuple[str, ...] = ("pixel_values",)


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptSettings:
    """How prompts become token ids.

    Attributes:
        model_path: local folder or Hub id of the tokenizer and the image processor.
        apply_chat_template: whether each text is one user message of a chat, after the pictures.
        add_bos_token: as in `encode_prompts`.
        max_length: greatest number of tokens a row, the pictures' included; None for no limit.
        trust_remote_code: whether code of the model's repository may run.
        revision: Hub revision.
    """

    model_path: str
    apply_chat_template: bool = False
    add_bos_token: bool | None = None
    max_length: int | None = None
    trust_remote_code: bool = False
    revision: str | None = None
