"""What a coarse and a fine pass capture of a model that is too deep to be dumped whole.

Layers are found by the names of modules: a stack is a list of modules that lies in no other, such
as `model.model.layers.0` to `.31`. The globs fit the names that other engines give the same
modules (see comparison/align/renames.py): MAX's lists add `.layers`, and its sharded modules
`_shards.0`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from comparison.schema.tensor_names import parse_tensor_name, path_number

_ROOT = "model"
# Behind the name of a module: nothing, or what an engine puts there.
_OF_MODULE = ("", "_shards.0", ".distributed_linear_layers.0")
_OF_LIST = ("", ".layers")
_ENGINES_OWN = ("*.logits_processor-output*",)  # vLLM's logits are no output of its model


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Layer:
    """One layer of a stack.

    Attributes:
        stack: path of the list, `model.model.layers`.
        index: its place in the list.
    """

    stack: str
    index: int

    def __str__(self) -> str:
        return f"{self.stack}.{self.index}"

    def globs(self, end: str) -> Iterator[str]:
        """Name the layer as engines do, with something behind its name."""
        for added in _OF_LIST:
            yield f"*.{self.stack.rpartition('.')[2]}{added}.{self.index}{end}"


@dataclass(frozen=True, slots=True, kw_only=True)
class FinePass:
    """What a fine pass captures.

    Attributes:
        globs: names of modules and tensors.
        layers: captured whole, in order.
        left: layers that are suspect too and did not fit.
        outside: whether the modules outside of the layers are captured whole as well.
    """

    globs: tuple[str, ...]
    layers: tuple[Layer, ...]
    left: tuple[Layer, ...]
    outside: bool


class CapturePlan:
    """Divides the tensors of a full dump into those of layers and those outside of them."""

    def __init__(self, sizes: Mapping[str, int]) -> None:
        """Find the layers.

        Args:
            sizes: bytes of each tensor of a full dump, by its name.
        """
        self.total_bytes = sum(sizes.values())
        modules = list(dict.fromkeys(filter(None, map(_module_of, sizes))))
        self.layers: tuple[Layer, ...] = tuple(_layers(modules))
        self._outside = [module for module in modules if self.layer_of(module) is None]
        self._bytes: defaultdict[Layer | None, int] = defaultdict(int)
        self.coarse_bytes = 0
        for name, size in sizes.items():
            module = _module_of(name) or ""
            layer = self.layer_of(module)
            self._bytes[layer] += size
            if "-output" in name and (layer is None or module == str(layer)):
                self.coarse_bytes += size

    @property
    def coarse_modules(self) -> int:
        """Number of modules whose output the coarse pass holds."""
        return len(self.layers) + len(self._outside)

    def layer_of(self, module: str) -> Layer | None:
        """Return the layer that a module is, or lies in."""
        for layer in self.layers:
            if module == str(layer) or module.startswith(f"{layer}."):
                return layer
        return None

    def coarse(self) -> tuple[str, ...]:
        """Name the outputs of the layers and of all modules outside of them."""
        layers = [glob for layer in self.layers for glob in layer.globs("-output*")]
        return tuple(dict.fromkeys([*layers, *self._outside_globs("-output*"), *_ENGINES_OWN]))

    def fine(self, suspects: Iterable[str], *, max_bytes: int) -> FinePass:
        """Name all tensors of the suspect layers, and what the coarse pass holds.

        Layers are taken from the first one on as long as there is room, and one in any case: what
        goes wrong later may be a consequence.

        Args:
            suspects: modules, the most suspect ones first.
            max_bytes: greatest size of the dump.
        """
        named = list(suspects)
        found = [layer for layer in map(self.layer_of, named) if layer is not None]
        outside = any(self.layer_of(module) is None for module in named)
        taken, left = self._fitting(
            list(dict.fromkeys(found)), max_bytes - (self._bytes[None] if outside else 0)
        )
        globs = [glob for layer in taken for end in ("", ".*") for glob in layer.globs(end)]
        if outside:
            globs += [*self._outside_globs(""), f"{_ROOT}-input*"]
        return FinePass(
            globs=tuple(dict.fromkeys([*self.coarse(), *globs])),
            layers=taken,
            left=left,
            outside=outside,
        )

    def _fitting(
        self, layers: Sequence[Layer], max_bytes: int
    ) -> tuple[tuple[Layer, ...], tuple[Layer, ...]]:
        room = max_bytes - self.coarse_bytes
        for count, layer in enumerate(layers):
            room -= self._bytes[layer]
            if room < 0 and count > 0:
                return tuple(layers[:count]), tuple(layers[count:])
        return tuple(layers), ()

    def _outside_globs(self, end: str) -> Iterator[str]:
        for module in self._outside:
            if module == _ROOT:
                yield f"{_ROOT}{end or '-output*'}"
                continue
            last = module.rpartition(".")[2]
            for added in _OF_MODULE:
                yield f"*.{last}{added}{end}"


def suspects_of(
    guilty: Iterable[str], errors: Iterable[tuple[str, float]], *, limit: float
) -> tuple[str, ...]:
    """List the modules that a coarse pass blames, and then those that it cannot clear.

    Args:
        guilty: modules that are wrong by themselves, in order of execution.
        errors: tensors with their own error in units of rounding.
        limit: error from which on a layer is looked into; a fault of one of its modules is
            thinned out in what the layer gives.
    """
    unsure = [_module_of(name) or name for name, error in errors if not error <= limit]
    return tuple(dict.fromkeys([*guilty, *unsure]))


def _module_of(name: str) -> str | None:
    parsed = parse_tensor_name(name)
    return None if parsed is None else parsed.module


def _layers(modules: Collection[str]) -> Iterator[Layer]:
    """Find the lists of modules, without those that lie inside of another list's module."""
    found: dict[str, set[int]] = {}
    for module in modules:
        parts = module.split(".")
        numbers = {at: path_number(part) for at, part in enumerate(parts) if at > 0}
        place = next((at for at, number in numbers.items() if number is not None), None)
        if place is not None:
            found.setdefault(".".join(parts[:place]), set()).add(int(parts[place]))
    for stack, indices in found.items():
        yield from (Layer(stack=stack, index=index) for index in sorted(indices))
