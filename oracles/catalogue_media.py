"""Catalogue: makers of pictures and sound, which no oracle serves."""

from oracles.catalogue_entry import (
    BF16,
    F32,
    FP4,
    FP8,
    MAKES_PICTURES,
    MAKES_SOUND,
    Architecture,
)


def _pictures(
    name: str,
    example: str,
    encodings: tuple[str, ...] = (BF16,),
    module_v3: tuple[str, ...] = (),
) -> Architecture:
    return Architecture(
        name=name,
        example=example,
        encodings=encodings,
        module_v3=module_v3,
        task="PIXEL_GENERATION",
        no_oracle=MAKES_PICTURES,
    )


MEDIA = (
    _pictures("Flux2Pipeline", "black-forest-labs/FLUX.2-dev", (BF16, FP4), (BF16, FP4)),
    _pictures("Flux2KleinPipeline", "black-forest-labs/FLUX.2-klein-4B", (BF16, FP4)),
    _pictures("Ideogram4Pipeline", "ideogram-ai/ideogram-4-fp8"),
    _pictures("QwenImagePipeline", "Qwen/Qwen-Image-2512"),
    _pictures("QwenImageEditPipeline", "Qwen/Qwen-Image-Edit-2511"),
    _pictures("QwenImageEditPlusPipeline", "Qwen/Qwen-Image-Edit-2511"),
    _pictures("WanPipeline", "Wan-AI/Wan2.2-T2V-A14B-Diffusers", (BF16, F32, FP8)),
    _pictures("WanImageToVideoPipeline", "Wan-AI/Wan2.2-I2V-A14B-Diffusers", (BF16, F32, FP8)),
    _pictures("ZImagePipeline", "Tongyi-MAI/Z-Image"),
    Architecture(
        name="MiniMaxMusic3ModularPipeline",
        example="MiniMaxAI/MiniMax-Music3",
        encodings=(BF16,),
        task="AUDIO_GENERATION",
        no_oracle=MAKES_SOUND,
    ),
)
