"""One tensor of a dump, known by name and place, not yet read."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorEntry:
    """Where one dumped tensor lies.

    Attributes:
        name: full tensor name, `model.layers.0.mlp-output`, never percent-encoded.
        step: 0 for the prefill, 1.. for decode steps.
        order: position within the step in order of execution, from 0.
        path: the file that holds it.
        key: the tensor's key inside a file of several (.safetensors, a dictionary in a .pt),
            or None where the file holds just this one.
        rank: the rank that wrote it, or None in a dump of one process.
    """

    name: str
    step: int
    order: int
    path: Path
    key: str | None = None
    rank: int | None = None
