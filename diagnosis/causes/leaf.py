"""What a module without modules inside is: its weight, and where it stands in the model."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from diagnosis.causes.changes import with_output

if TYPE_CHECKING:
    import torch

    from diagnosis.causes.region import Region

# Projections back to the hidden size; engines that split a model sum over ranks behind them.
_SUMMED_OVER_RANKS = re.compile(
    r"(o_proj|out_proj|down_proj|c_proj|dense|dense_4h_to_h|wo|w2|fc2|o|down)$"
)
# Projections whose rows are those of several.
_FUSED = re.compile(r"(gate_up|qkv|query_key_value|c_attn|w13|in_proj|kv_b|kv_proj)[^.]*$", re.I)


@dataclass(frozen=True, slots=True, kw_only=True)
class Matrix:
    """The weight of a linear layer or an embedding.

    Attributes:
        module: whose it is.
        name: the parameter's name.
        values: [out, in]; of an embedding [tokens, features].
        is_stored_transposed: whether the module keeps it as [in, out].
        is_embedding: whether rows are looked up.
    """

    module: Any
    name: str
    values: torch.Tensor
    is_stored_transposed: bool
    is_embedding: bool

    def stored(self, values: torch.Tensor) -> torch.Tensor:
        """Spell another matrix [out, in] the way that the module keeps it."""
        return values.T.contiguous() if self.is_stored_transposed else values.contiguous()


def matrix_of(region: Region) -> Matrix | None:
    """Return the matrix of a guilty linear layer or embedding, None where it is neither."""
    return matrix_of_module(region.module)


def matrix_of_module(module: Any) -> Matrix | None:
    """Return a module's matrix, None where it has none."""
    import torch

    weight = getattr(module, "weight", None)
    if not isinstance(weight, torch.nn.Parameter) or weight.ndim != 2:
        return None
    stored_transposed = type(module).__name__ == "Conv1D"  # GPT-2's
    return Matrix(
        module=module,
        name="weight",
        values=weight.detach().T if stored_transposed else weight.detach(),
        is_stored_transposed=stored_transposed,
        is_embedding=isinstance(module, torch.nn.Embedding),
    )


def bias_of(region: Region) -> Any:
    """Return the guilty module's bias as an array, None where it has none."""
    import torch

    bias = getattr(region.module, "bias", None)
    if not isinstance(bias, torch.nn.Parameter):
        return None
    return bias.detach().cpu().numpy()


def is_summed_over_ranks(region: Region) -> bool:
    """Tell whether an engine that splits the model sums over ranks behind the module."""
    matrix = matrix_of(region)
    if matrix is None or matrix.is_embedding:
        return False
    return _SUMMED_OVER_RANKS.search(region.name) is not None


def is_fused(region: Region) -> bool:
    """Tell whether the module's output holds several projections, one after the other."""
    return matrix_of(region) is not None and _FUSED.search(region.name) is not None


def bears_on(region: Region, module: Any) -> bool:
    """Tell whether the guilty tensor is another where a module gives another output."""
    name = region.first.name
    if module is region.module or name not in region.plain:
        return True
    changed = region.values(
        lambda: with_output(module, lambda output: output * 1.5),
        calls=region.calls[:1],
    )
    plain = region.plain[name][: len(changed.get(name, ()))]
    return not np.array_equal(changed.get(name, plain), plain, equal_nan=True)


def head_size_of(region: Region) -> int | None:
    """Return the size of a head where the guilty module is or belongs to an attention."""
    for module in (region.module, region.parent):
        size = getattr(module, "head_dim", None) or getattr(module, "attention_head_size", None)
        if isinstance(size, int):
            return size
    return None
