"""What the axes of a compared tensor count."""

from dataclasses import dataclass

from comparison.schema.outcome import Shape
from comparison.schema.tensor_names import parse_tensor_name

_OF_HEADS = {"output": ("q_proj", "k_proj", "v_proj"), "input": ("o_proj",)}


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSizes:
    """What is known of a model's and a run's sizes.

    Attributes:
        tokens: number of prompt tokens of all rows together; None where that is not known.
        rows: number of rows; None where that is not known.
        heads: numbers of heads, of queries and of keys; empty where they are not known.
        head_size: channels of a head; None where that is not known.
    """

    tokens: int | None = None
    rows: int | None = None
    heads: tuple[int, ...] = ()
    head_size: int | None = None

    def tokens_of(self, step: int) -> int | None:
        """Return the number of tokens that a step computes."""
        return self.rows if step else self.tokens


def axes_of(shape: Shape, step: int, sizes: ModelSizes) -> tuple[str, ...]:
    """Say what each axis of a compared tensor counts.

    Args:
        shape: the compared shape.
        step: 0 for the prefill.
        sizes: of the run.

    Returns:
        One word an axis: `row`, `token`, `head`, `channel`, `key`, `element`, or `axis N` where it
        cannot be told.
    """
    tokens = sizes.tokens_of(step)
    by_token = tokens is not None and bool(shape) and shape[0] == tokens
    match len(shape):
        case 0 | 1:
            return ("element",) * len(shape)
        case 2:
            flat = tokens is not None and not by_token and shape[0] * shape[1] == tokens
            return ("row", "token") if flat else ("token", "channel")
        case 3 if by_token and (shape[1] in sizes.heads or (shape[0] > 1 and not sizes.heads)):
            return ("token", "head", "channel")
        case 3:
            return ("row", "token", "channel")
        case 4:
            return ("row", "head", "token", "key" if shape[-1] == shape[-2] else "channel")
        case _:
            return tuple(f"axis {axis}" for axis in range(len(shape)))


def by_head(name: str, shape: Shape, sizes: ModelSizes) -> Shape | None:
    """Give the shape by head of a tensor that holds the heads one behind the other.

    Args:
        name: the tensor's name: what projections to queries, keys and values give, and what goes
            into the one behind attention, is by head.
        shape: the compared shape.
        sizes: of the run.

    Returns:
        (tokens, heads, channels of a head), or None where the tensor is not by head.
    """
    parsed = parse_tensor_name(name)
    size = sizes.head_size
    if parsed is None or size is None or len(shape) < 2 or len(shape) > 3:
        return None
    if parsed.module.rpartition(".")[2] not in _OF_HEADS.get(parsed.side, ()):
        return None
    if shape[-1] % size or shape[-1] // size not in sizes.heads:
        return None
    tokens = shape[0] if len(shape) == 2 else shape[0] * shape[1]
    return tokens, shape[-1] // size, size
