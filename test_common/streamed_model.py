"""Lets transformers load a model whose weights stay in their files."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from comparison.schema.errors import BadInputError
from test_common.patching import Patch, apply_patches
from test_common.returned_memory import give_back_large_blocks

_API = "a way to load a model without its weights that leaves them reachable from outside"
_GONE = "transformers or accelerate offer one; accelerate's hooks put them on `meta` between calls"


@contextmanager
def streamed_weights(*, wanted: bool = True) -> Iterator[None]:
    """Keep the weights of every model that transformers loads in the block in their files.

    Each operation on a weight reads it, casts it to the model's dtype and lets go of it; see
    `streamed_tensor`. Buffers are read at once. What transformers does to weights as it loads them
    (other names, stacked experts) is noted then and done at each reading.

    Args:
        wanted: False changes nothing.

    Raises:
        BadInputError: the weights are no safetensors or are quantised, or no model was loaded.
    """
    if not wanted:
        yield
        return
    from transformers import modeling_utils

    give_back_large_blocks()
    loads: list[str] = []

    def loading(original: Callable[..., Any]) -> Callable[..., Any]:
        def load(
            *, model: Any, state_dict: Mapping[str, Any], load_config: Any, **kwargs: Any
        ) -> Any:
            _require_streamed(model, state_dict, load_config)
            result = original(model=model, state_dict=state_dict, load_config=load_config, **kwargs)
            _settle(model)
            loads.append(type(model).__name__)
            return result

        return load

    patches = (
        _patch(modeling_utils, "safe_open", _opening),
        _patch(modeling_utils, "convert_and_load_state_dict_in_model", loading),
    )
    with apply_patches(patches):
        yield
    if not loads:
        raise BadInputError(
            "no weights were streamed: the oracle builds its model without transformers' "
            "from_pretrained; run it without streaming"
        )


def _patch(target: Any, name: str, wrapper: Callable[..., Any]) -> Patch:
    return Patch(
        target=target,
        name=name,
        replacement=wrapper,
        missing_api=_API,
        remove_when=_GONE,
        wraps=True,
    )


def _opening(original: Callable[..., Any]) -> Callable[..., Any]:
    def opened(path: Any, *args: Any, **kwargs: Any) -> _StreamedFile:
        return _StreamedFile(path, original(path, *args, **kwargs))

    return opened


class _StreamedFile:
    """An open safetensors file, as safetensors gives it, whose slices are not read."""

    def __init__(self, path: Any, file: Any) -> None:
        self._path, self._file = Path(path), file

    def __enter__(self) -> _StreamedFile:
        self._file.__enter__()
        return self

    def __exit__(self, *raised: Any) -> None:
        self._file.__exit__(*raised)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def get_slice(self, key: str) -> _StreamedSlice:
        """Return a tensor to load a model from."""
        return _StreamedSlice(self._path, key, self._file.get_slice(key))


class _StreamedSlice:
    """A tensor of an open file, as safetensors gives it, which is not read."""

    def __init__(self, path: Path, key: str, plain: Any) -> None:
        self._path, self._key, self._plain = path, key, plain

    def __getattr__(self, name: str) -> Any:
        return getattr(self._plain, name)

    def __getitem__(self, index: Any) -> Any:
        from test_common.streamed_tensor import stored_tensor

        if index is not Ellipsis:
            return self._plain[index]
        return stored_tensor(self._path, self._key)


def _require_streamed(model: Any, state_dict: Mapping[str, Any], load_config: Any) -> None:
    name = type(model).__name__
    if load_config.hf_quantizer is not None:
        raise BadInputError(
            f"{name}: quantised weights cannot be streamed; give the model before quantisation"
        )
    plain = [key for key, value in state_dict.items() if not isinstance(value, _StreamedSlice)]
    if plain or not state_dict:
        raise BadInputError(
            f"{name}: only safetensors can be streamed, and its weights are none: save it again "
            "with save_pretrained"
        )


def _settle(model: Any) -> None:
    """Let weights be read from now on, and read the buffers."""
    from test_common.streamed_tensor import StreamedTensor, settle

    for parameter in model.parameters():
        settle(parameter)
    for module in model.modules():
        for name, buffer in module._buffers.items():
            if isinstance(buffer, StreamedTensor):
                module._buffers[name] = buffer.whole().clone()
