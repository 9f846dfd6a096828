"""Models of the Hugging Face Hub, as data."""

from dataclasses import dataclass

from oracles.catalogue import LISTED, Architecture, run_as
from oracles.generic_oracle import DEQUANTISED, GenericOracle
from oracles.oracle import PipelineOracle


@dataclass(frozen=True, slots=True, kw_only=True)
class HubModel:
    """One entry.

    Attributes:
        architecture: what the model's config.json names; the catalogue says how to run it.
        apply_chat_template: whether the default prompts go through the chat template.
    """

    architecture: str
    apply_chat_template: bool = False


_ON_CPU = ("float32", "bfloat16")
_ON_GPU = ("bfloat16", "float32")

_LLAMA = HubModel(architecture="LlamaForCausalLM")
_QWEN2 = HubModel(architecture="Qwen2ForCausalLM")
_QWEN3 = HubModel(architecture="Qwen3ForCausalLM")
_GEMMA3 = HubModel(architecture="Gemma3ForCausalLM")
_MISTRAL = HubModel(architecture="MistralForCausalLM")
_GRANITE = HubModel(architecture="GraniteForCausalLM")

HUB_MODELS: dict[str, HubModel] = {
    "HuggingFaceTB/SmolLM2-135M": _LLAMA,
    "HuggingFaceTB/SmolLM2-360M-Instruct": _LLAMA,
    "LiquidAI/LFM2-350M": HubModel(architecture="Lfm2ForCausalLM"),
    "Qwen/Qwen2.5-0.5B-Instruct": _QWEN2,
    "Qwen/Qwen2.5-1.5B-Instruct": _QWEN2,
    "Qwen/Qwen2.5-7B-Instruct": _QWEN2,
    "Qwen/Qwen3-0.6B": _QWEN3,
    "Qwen/Qwen3-8B": _QWEN3,
    "allenai/OLMo-1B-hf": HubModel(architecture="OlmoForCausalLM"),
    "allenai/OLMo-2-0425-1B": HubModel(architecture="Olmo2ForCausalLM"),
    "google/gemma-3-1b-it": _GEMMA3,
    "google/gemma-3-270m-it": _GEMMA3,
    "ibm-granite/granite-3.1-2b-instruct": _GRANITE,
    "ibm-granite/granite-3.1-8b-instruct": _GRANITE,
    "meta-llama/Llama-3.1-8B-Instruct": _LLAMA,
    "meta-llama/Llama-3.2-1B-Instruct": _LLAMA,
    "microsoft/Phi-3.5-mini-instruct": HubModel(architecture="Phi3ForCausalLM"),
    "microsoft/Phi-4-mini-instruct": HubModel(architecture="Phi3ForCausalLM"),
    "mistralai/Mistral-7B-Instruct-v0.3": _MISTRAL,
    "mistralai/Mistral-Nemo-Instruct-2407": _MISTRAL,
    "sentence-transformers/all-MiniLM-L6-v2": HubModel(architecture="BertModel"),
    "sentence-transformers/all-mpnet-base-v2": HubModel(architecture="MPNetForMaskedLM"),
}


def hub_model_oracles() -> dict[str, PipelineOracle]:
    """Return one oracle a model, by Hub id: those above, and the catalogue's examples.

    The example of a speculative pair is run as its target. Models that read pictures are left to
    the oracles that prepare their inputs.
    """
    examples = {
        entry.example: _oracle(entry.example, entry, own_encoding=entry.encodings[0])
        for entry in LISTED
        if entry.example and entry.no_oracle is None and not entry.reads_pictures
    }
    by_name = {entry.name: entry for entry in LISTED}
    targets = {
        pair.example: _oracle(
            pair.example, by_name[pair.speculates_on], own_encoding=pair.encodings[0]
        )
        for pair in LISTED
        if pair.example and pair.speculates_on and not by_name[pair.speculates_on].reads_pictures
    }
    chosen = {name: _chosen(name, model) for name, model in HUB_MODELS.items()}
    return {**targets, **examples, **chosen}


def _chosen(name: str, model: HubModel) -> GenericOracle:
    return _oracle(
        name,
        run_as([model.architecture]),
        own_encoding=_ON_GPU[0],
        apply_chat_template=model.apply_chat_template,
    )


def _oracle(
    name: str, how: Architecture, *, own_encoding: str, apply_chat_template: bool = False
) -> GenericOracle:
    """Make the oracle of a model whose weights have an encoding of their own."""
    quantised = own_encoding in DEQUANTISED
    on_cpu = {"cpu": _ON_CPU} if "cpu" in how.device_encoding_map else {}
    return GenericOracle(
        name,
        device_encoding_map={**on_cpu, "gpu": tuple(dict.fromkeys((own_encoding, *_ON_GPU)))},
        torch_model_path=name if quantised else None,
        config_params=how.config_params,
        apply_chat_template=apply_chat_template,
        task=how.task,
        max_cpu_patches=how.max_cpu_patches,
    )
