"""Catalogue: decoders with mixtures of experts."""

from oracles.catalogue_entry import BF16, F32, FP4, FP8, Architecture

MIXTURES = (
    Architecture(
        name="DeepseekV2ForCausalLM",
        example="deepseek-ai/DeepSeek-V2-Lite-Chat",
        encodings=(BF16,),
        module_v3=(BF16,),
    ),
    Architecture(
        name="DeepseekV3ForCausalLM",
        example="deepseek-ai/DeepSeek-V3",
        encodings=(FP8, BF16, FP4),
        module_v3=(FP8, BF16, FP4),
    ),
    Architecture(
        name="DeepseekV32ForCausalLM",
        example="deepseek-ai/DeepSeek-V3.2",
        encodings=(FP8,),
        module_v3=(FP8,),
    ),
    Architecture(
        name="DeepseekV4ForCausalLM",
        example="deepseek-ai/DeepSeek-V4-Flash-0731",
        encodings=(FP8, F32),
    ),
    Architecture(
        name="GlmMoeDsaForCausalLM",
        example="zai-org/GLM-5.1-FP8",
        encodings=(FP8, BF16, FP4),
        module_v3=(FP8, BF16, FP4),
    ),
    Architecture(
        name="GptOssForCausalLM",
        example="unsloth/gpt-oss-20b-BF16",
        encodings=(BF16, FP4),
        module_v3=(BF16,),
    ),
    Architecture(name="HYV3ForCausalLM", example="tencent/Hy3-preview", encodings=(BF16,)),
    Architecture(
        name="LagunaForCausalLM", example="poolside/Laguna-M.1-NVFP4", encodings=(FP4, BF16)
    ),
    Architecture(
        name="Llama4ForCausalLM",
        example="unsloth/Llama-4-Scout-17B-16E-Instruct",
        encodings=(BF16, FP8),
    ),
    Architecture(
        name="MiMoV2ForCausalLM",
        example="XiaomiMiMo/MiMo-V2.6-Flash-RL",
        encodings=(FP4,),
        trust_remote_code=True,
    ),
    Architecture(
        name="MiniMaxM2ForCausalLM", example="MiniMaxAI/MiniMax-M2.7", encodings=(FP8, FP4)
    ),
    Architecture(
        name="Qwen3MoeForCausalLM",
        example="Qwen/Qwen3-30B-A3B-Instruct-2507-FP8",
        encodings=(FP8, BF16, F32),
    ),
    Architecture(
        name="Step3p5ForCausalLM",
        example="stepfun-ai/Step-3.5-Flash",
        encodings=(BF16,),
        trust_remote_code=True,
    ),
)
