"""Which of the tiny-random oracles are tested how: test_targets.py holds this against the registry."""

# How each is run on MAX. Few layers, since a graph takes minutes to build with an empty cache.
MODELS = {
    "bert": {"num_hidden_layers": 2},
    "gemma3": {"num_hidden_layers": 3},  # two with a sliding window and a full one
    "gemma3_multimodal": {
        "encoding": "bfloat16",
        "num_hidden_layers": 2,
    },
    "granite": {"num_hidden_layers": 2},
    "idefics3": {"num_hidden_layers": 2},
    "internvl": {"num_hidden_layers": 2},
    "lfm2": {"num_hidden_layers": 2},  # an attention and a convolution
    "llama": {"num_hidden_layers": 1},
    "llama-q4_0": {"num_hidden_layers": 2},
    "llama-q4_k": {"num_hidden_layers": 2},
    "llama-q6_k": {"num_hidden_layers": 2},
    "mistral": {"num_hidden_layers": 2},
    "mpnet": {"num_hidden_layers": 2},
    "olmo": {"num_hidden_layers": 2},
    "olmo2": {"num_hidden_layers": 2},
    "phi3": {"num_hidden_layers": 2},
    "pixtral": {"num_hidden_layers": 2},
    "qwen2": {"num_hidden_layers": 2},
    "qwen2_5_vl": {"num_hidden_layers": 2},
    "qwen3": {"num_hidden_layers": 2},
}

# Faults of MAX 26.7 that are small: it takes 1e-6 as epsilon of q_norm and k_norm.
TOLERANCES = {
    "olmo2": {
        "atol": 1e-3,
        "rtol": 1e-3,
    },
    "qwen3": {
        "atol": 1e-3,
        "rtol": 1e-3,
    },
}

# Those that run without --config=full.
ALWAYS = ["llama"]

# MAX 26.7 refuses them on a CPU.
ON_GPU = [
    "gemma3_multimodal",
    "qwen2_5_vl",
]

# What MAX 26.7 gets wrong or cannot do (docs/oracles.md): these run only where they are named, never with //... or --config=full.
BY_NAME = {
    "bert": "it pools by the sum over tokens, not by their mean",
    "idefics3": "its graph took more than seven minutes to build; pictures as of pixtral",
    "internvl": "it knows no InternVLForConditionalGeneration",
    "llama-q4_0": "most runs end with a segmentation fault",
    "llama-q4_k": "attention is off by 0.011 of its size from that with dequantised weights",
    "mpnet": "as bert",
    "pixtral": "it takes pictures with text only, and both sides are run on token ids",
}
