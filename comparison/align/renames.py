"""One name for what engines name differently.

Hooks call the root module `model` and put the module's attribute path behind it. The same
modules lie elsewhere in each engine's tree:

    torch   model.model.layers.0.mlp-output             model.lm_head-output
    MAX     model.layers.layers.0.mlp-output            (lists add `.layers`)
            model.language_model.layers.layers.0.mlp_shards.0-output
    MAX V3  model.language_model.layers.0.mlp-output
    vLLM    model.model.layers.0.mlp-output             model.logits_processor-output

Towers of multimodal models are called `vision` in all of them:

    torch   model.model.vision_tower.ln_pre-output      model.model.connector-output
    MAX     model.vision.layer_norm-output              model.vision.connector-output
"""

import re
from dataclasses import dataclass

from comparison.schema.tensor_names import TensorName, is_operation_name, parse_tensor_name

# Modules that get one tensor, so that their first input means the same on every engine.
_ONE_INPUT = re.compile(
    r"(proj|norm|LayerNorm|layer_norm\d|ln_pre|mlp|feed_forward|embed_tokens|lm_head|dense|act_fn"
    r"|fc\d+|linear_\d|projector|connector)$"
)
_TOWERS = ("vision_tower", "vision_model", "visual", "vision")
_TOWER = "vision"
# MAX has them inside of the tower.
_AFTER_TOWER = ("multi_modal_projector", "connector")
_HIDDEN_STATES_MODULE = re.compile(r"(^|\.)(layers?\.\d+|self_attn)$")
_ENCODER_LAYER = re.compile(r"(^|\.)layer\.\d+$")
_LAYER = re.compile(r"(^|\.)layers?\.\d+$")
_HIDDEN_KEYWORDS = {"0", "hidden_states", "hidden_state", "input", "x"}
# The root that hooks name; a second model is `model2`.
_HOOKED = re.compile(r"model[0-9]*(\.|$)")
# What a model is run for; of an encoder the one vector a row that engines make of its tokens.
_LOGITS_SLOTS = {"logits", "next_token_logits", "embedding"}
# vLLM's layers return the residual apart; its capture adds the sum, which others call the output.
_VLLM_LAYER_SLOT = "residual_sum"


@dataclass(frozen=True, slots=True, kw_only=True)
class CanonicalName:
    """What a tensor is, whichever engine dumped it.

    Attributes:
        module: path without what only one engine has; empty for the whole model.
        side: `input`, `output`, or empty for a name of another form.
        slot: position or keyword.
    """

    module: str
    side: str
    slot: str

    def __str__(self) -> str:
        what = f"{self.side} {self.slot}".strip()
        return f"{self.module or 'the model'} {what}".strip()


def canonical_name(name: str, *, engine: str | None, other: str | None) -> CanonicalName | None:
    """Give the name that both engines' names are brought to.

    Args:
        name: tensor name as dumped.
        engine: engine that dumped it, None where it is not known.
        other: engine of the dump it is to be paired with.

    Returns:
        None for a tensor that has no counterpart of one meaning on the other engine.
    """
    parsed = parse_tensor_name(name)
    across = None not in (engine, other) and engine != other
    if parsed is None:  # operations are numbered by each engine as it runs them
        return None if across and is_operation_name(name) else _as_it_is(name)
    module = canonical_module(parsed.module)
    if parsed.side == "output":
        return _output(parsed, module, engine=engine, across=across)
    slot = _input_slot(parsed, module, engine) if across else parsed.slot or "0"
    return None if slot is None else CanonicalName(module=module, side="input", slot=slot)


def _as_it_is(name: str) -> CanonicalName:
    return CanonicalName(module=name, side="", slot="")


def differs_by_engine(name: str) -> bool:
    """Tell whether one name may mean something else on each engine.

    What hooks call an input by its position is the engine's own choice; names that a user gave
    by hand mean the same everywhere, and so do keywords.

    Args:
        name: tensor name that canonical_name knows no meaning of.
    """
    if is_operation_name(name):
        return True
    parsed = parse_tensor_name(name)
    if parsed is None or not was_hooked(name):
        return False
    return parsed.slot is None or parsed.slot.isdecimal()


def was_hooked(name: str) -> bool:
    """Tell a name as hooks make it from one that a user gave by hand."""
    parsed = parse_tensor_name(name)
    return parsed is not None and _HOOKED.match(parsed.module) is not None


def canonical_module(module: str) -> str:
    """Bring a module path to the form that all engines share; empty for the whole model."""
    segments = module.split(".")
    if "" in segments:  # no path of modules; empty, it is not the whole model either
        return module or "''"
    if segments[0] == "model":
        segments = segments[1:]
    inner = segments
    for wrappers in (("model", "transformer"), ("language_model", "text_model")):
        if inner and inner[0] in wrappers:
            inner = inner[1:]
    if inner and inner[0] in _TOWERS:
        return ".".join(_in_tower(inner[1:]))
    # A wrapper itself keeps its name: torch's `model.model` gives hidden states, not logits.
    return ".".join(_without_containers(inner or segments))


def _in_tower(segments: list[str]) -> list[str]:
    if segments and segments[0] in _AFTER_TOWER:
        return _without_containers(segments)
    if segments == ["layer_norm"]:  # MAX's name of it
        segments = ["ln_pre"]
    return [_TOWER, *_without_containers(segments)]


def _without_containers(segments: list[str]) -> list[str]:
    kept: list[str] = []
    position = 0
    while position < len(segments):
        segment = segments[position]
        following = segments[position + 1] if position + 1 < len(segments) else ""
        if segment.endswith("_shards") and following == "0":
            kept.append(segment.removesuffix("_shards"))
            position += 1
        elif segment == "layers" and kept and kept[-1] in ("layer", "layers"):
            pass
        else:
            kept.append("LayerNorm" if segment == "layer_norm" else segment)
        position += 1
    return kept


def _output(
    parsed: TensorName, module: str, *, engine: str | None, across: bool
) -> CanonicalName | None:
    slot = parsed.slot or "0"
    # MAX's language_model is the whole text model with its head; torch's is not.
    whole = module == "" or (module == "language_model" and engine == "max")
    if whole and (slot in _LOGITS_SLOTS or (engine == "max" and slot == "0")):
        return CanonicalName(module="", side="output", slot="logits")
    if across and engine == "vllm":
        return _vllm_output(module, parsed.slot)
    return CanonicalName(module=module, side="output", slot=slot)


def _vllm_output(module: str, slot: str | None) -> CanonicalName | None:
    if module == "logits_processor":  # it scales and caps what lm_head, never called, would give
        return CanonicalName(module="", side="output", slot="logits")
    if _LAYER.search(module) and slot is not None:  # what it adds, and the residual
        summed = slot == _VLLM_LAYER_SLOT
        return CanonicalName(module=module, side="output", slot="0") if summed else None
    if module.endswith("act_fn"):
        return None  # vLLM's multiplies with the up projection too, or is one for all layers
    if module.partition(".")[0] == "pooler":
        return None  # vLLM's makes the embedding
    return CanonicalName(module=module, side="output", slot=slot or "0")


def _input_slot(parsed: TensorName, module: str, engine: str | None) -> str | None:
    slot = parsed.slot or "0"
    if module == "":
        tokens = "0" if engine == "max" else "input_ids"
        return "token ids" if slot == tokens else None
    if module.startswith(f"{_TOWER}.") and _HIDDEN_STATES_MODULE.search(module):
        return "hidden states" if slot in _HIDDEN_KEYWORDS else None
    if _HIDDEN_STATES_MODULE.search(module):
        if engine == "max":  # the first input of its decoders' layers is the layer's index
            hidden = "0" if _ENCODER_LAYER.search(module) else "1"
            return "hidden states" if slot == hidden else None
        if engine == "vllm":  # the first input of its decoders' layers is the positions
            hidden = "0" if _ENCODER_LAYER.search(module) else "hidden_states"
            return "hidden states" if slot == hidden else None
        return "hidden states" if engine == "torch" and slot in _HIDDEN_KEYWORDS else None
    last = module.rsplit(".", 1)[-1]
    if engine == "vllm" and ("norm" in last or last.endswith("act_fn")):
        return None  # vLLM adds the residual inside the norm, and fuses gate and up
    return "0" if _ONE_INPUT.search(module) and slot in _HIDDEN_KEYWORDS else None
