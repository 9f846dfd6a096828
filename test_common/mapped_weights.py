"""Which weights of a model stay in their files: transformers maps what it need not convert."""

from __future__ import annotations

from typing import TYPE_CHECKING

from comparison.schema.errors import BadInputError
from comparison.store.safetensors_file import read_safetensors_header
from test_common.hub_snapshot import local_snapshot

if TYPE_CHECKING:
    import torch


def mapped_bytes(model: torch.nn.Module, place: str | None, *, revision: str | None = None) -> int:
    """Add up the weights that are in a model just as in its safetensors files.

    The system takes back the memory of mapped files when it needs to. What has another name, shape
    or dtype there is converted, and what is not on this machine yet is not known: neither counts.

    Args:
        model: the model, on any device.
        place: local folder or file, or Hub id, that its weights are loaded from; None for none.
        revision: of the Hub's repository, None for its main branch.
    """
    folder = None if place is None else local_snapshot(place, revision=revision)
    if folder is None or not folder.is_dir():
        return 0
    stored = {}
    for path in sorted(folder.glob("*.safetensors")):
        try:
            stored.update(read_safetensors_header(path))
        except BadInputError:  # loading tells of it
            continue
    prefix = f"{getattr(model, 'base_model_prefix', '')}."
    sizes: dict[int, int] = {}
    for name, weight in (*model.named_parameters(), *model.named_buffers()):
        names = (name, prefix + name, name.removeprefix(prefix))
        found = next((stored[each] for each in names if each in stored), None)
        same = found is not None and found.shape == tuple(weight.shape)
        if found is not None and same and found.dtype == str(weight.dtype).removeprefix("torch."):
            storage = weight.untyped_storage()
            sizes[storage._cdata] = storage.nbytes()
    return sum(sizes.values())
