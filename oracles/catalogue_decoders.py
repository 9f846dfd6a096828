"""Catalogue: dense decoders and encoders of text."""

from oracles.catalogue_entry import (
    BF16,
    EMBEDDINGS_GENERATION,
    F32,
    FLOAT32_NORM_WEIGHTS,
    FP4,
    FP8,
    SINGLE_DEVICE_SIGNALS,
    WIDEN_CPU_ENCODINGS,
    WRITES_BLOCKS,
    Architecture,
    Status,
)

_FLOATS = (BF16, F32)

DECODERS = (
    Architecture(
        name="DiffusionGemmaForBlockDiffusion",
        example="google/diffusiongemma-26B-A4B-it",
        encodings=(BF16, FP4),
        no_oracle=WRITES_BLOCKS,
    ),
    Architecture(
        name="Gemma3ForCausalLM",
        example="google/gemma-3-1b-it",
        encodings=(BF16,),
        module_v3=(BF16,),
        status=Status.RUNS_WITH_PATCHES,
        max_cpu_patches=(WIDEN_CPU_ENCODINGS, SINGLE_DEVICE_SIGNALS, FLOAT32_NORM_WEIGHTS),
    ),
    Architecture(
        name="GraniteForCausalLM",
        example="ibm-granite/granite-3.1-8b-instruct",
        encodings=_FLOATS,
        module_v3=_FLOATS,
        status=Status.RUNS,
    ),
    Architecture(
        name="Lfm2ForCausalLM",
        example="LiquidAI/LFM2.5-350M",
        encodings=_FLOATS,
        status=Status.RUNS,
        trust_remote_code=True,  # MAX insists
    ),
    Architecture(
        name="LlamaForCausalLM",
        example="meta-llama/Llama-3.1-8B-Instruct",
        encodings=(BF16, F32, FP8, FP4, "gptq", "q4_k", "q4_0", "q6_k"),
        module_v3=_FLOATS,
        status=Status.RUNS,
        module_v3_status=Status.RUNS,
    ),
    Architecture(
        name="MambaForCausalLM",
        example="state-spaces/mamba-130m-hf",
        encodings=_FLOATS,
    ),
    Architecture(
        name="MistralForCausalLM",
        example="mistralai/Mistral-Nemo-Instruct-2407",
        encodings=(BF16,),
        status=Status.RUNS_WITH_PATCHES,
        max_cpu_patches=(WIDEN_CPU_ENCODINGS,),
    ),
    Architecture(
        name="NemotronHForCausalLM",
        example="nvidia/NVIDIA-Nemotron-3-Nano-4B-FP8",
        encodings=(FP8, BF16),
        module_v3=(BF16, FP4),
        module_v3_example="nvidia/NVIDIA-Nemotron-3.5-Lightning-30B-A3B-BF16",
    ),
    Architecture(
        name="OlmoForCausalLM",
        example="allenai/OLMo-1B-hf",
        encodings=_FLOATS,
        module_v3=_FLOATS,
        status=Status.RUNS,
        max_length=2048,
    ),
    Architecture(
        name="Olmo2ForCausalLM",
        example="allenai/OLMo-2-0425-1B-Instruct",
        encodings=_FLOATS,
        module_v3=_FLOATS,
        status=Status.RUNS,
        max_length=4096,
    ),
    Architecture(
        name="Olmo3ForCausalLM",
        example="allenai/Olmo-3-7B-Instruct",
        encodings=(BF16,),
        max_cpu_patches=(WIDEN_CPU_ENCODINGS,),
    ),
    Architecture(
        name="Phi3ForCausalLM",
        example="microsoft/Phi-3.5-mini-instruct",
        encodings=_FLOATS,
        module_v3=_FLOATS,
        status=Status.RUNS,
    ),
    Architecture(
        name="Qwen2ForCausalLM",
        example="Qwen/Qwen2.5-7B-Instruct",
        encodings=_FLOATS,
        status=Status.RUNS,
    ),
    Architecture(
        name="Qwen3ForCausalLM",
        example="Qwen/Qwen3-8B",
        encodings=(BF16, F32, FP8),
        status=Status.RUNS_WITH_PATCHES,
        max_cpu_patches=(SINGLE_DEVICE_SIGNALS,),
    ),
    Architecture(
        name="Qwen3_5ForCausalLM",
        example="Mapika/decider-0.8b",
        encodings=(BF16, F32, FP8, FP4),
    ),
)

ENCODERS = (
    Architecture(
        name="BertModel",
        example="sentence-transformers/all-MiniLM-L6-v2",
        encodings=_FLOATS,
        task=EMBEDDINGS_GENERATION,
        status=Status.RUNS,
        max_length=512,
    ),
    Architecture(
        name="MPNetForMaskedLM",
        example="sentence-transformers/all-mpnet-base-v2",
        encodings=_FLOATS,
        module_v3=_FLOATS,
        task=EMBEDDINGS_GENERATION,
        status=Status.RUNS,
        max_length=512,
    ),
    # MAX registers this name for two tasks; only the encoder has a ModuleV3 variant.
    Architecture(
        name="Qwen3ForCausalLM",
        example="Qwen/Qwen3-Embedding-0.6B",
        encodings=_FLOATS,
        module_v3=_FLOATS,
        task=EMBEDDINGS_GENERATION,
    ),
)
