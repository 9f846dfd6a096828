"""Dumps a Torch module that a caller has in hand, so that it reaches the diagnosis as a dump."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from operator import index
from pathlib import Path
from typing import TYPE_CHECKING, Any

from comparison.numerics.dtypes import Array
from comparison.schema.errors import BadInputError
from comparison.schema.manifest import Manifest, Padding, Row
from comparison.store.dump import Dump, open_dump
from diagnosis.replay.reference_calls import ReferenceCall, calls_of_manifest
from diagnosis.side_errors import side_errors

if TYPE_CHECKING:
    import torch

    from test_common.dump_writer import DumpWriter

TokenRows = Sequence[Sequence[int]]
Inputs = TokenRows | Mapping[str, Any] | tuple[Any, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleInputs:
    """What both modules are run on.

    Attributes:
        rows: token ids, one list a row; empty where the modules are called with tensors.
        args: positional tensors.
        kwargs: tensors by keyword.
        num_steps: greedy steps on rows of token ids.
        encoder: whether the rows are embedded, in one step.
    """

    rows: tuple[tuple[int, ...], ...] = ()
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any]
    num_steps: int = 1
    encoder: bool = False

    @classmethod
    def of(cls, inputs: Inputs, *, num_steps: int, encoder: bool) -> ModuleInputs:
        """Tell rows of token ids from tensors by position and by keyword."""
        if isinstance(inputs, Mapping):
            return cls(kwargs=dict(inputs))
        if isinstance(inputs, tuple) and any(hasattr(item, "detach") for item in inputs):
            return cls(args=inputs, kwargs={})
        try:
            rows = tuple(tuple(index(token) for token in row) for row in inputs)
        except TypeError as error:
            raise BadInputError(
                f"expected rows of token ids, or tensors by position or keyword: {error}"
            ) from error
        return cls(rows=rows, kwargs={}, num_steps=num_steps, encoder=encoder)


def dump_module(
    module: torch.nn.Module,
    inputs: ModuleInputs,
    folder: Path,
    *,
    globs: Sequence[str] | None = None,
    ops: Sequence[str] = (),
) -> Dump:
    """Run a module with a print hook on every layer.

    Args:
        module: any module; causal language models and encoders take rows of token ids.
        inputs: what to run it on.
        folder: where the dump goes.
        globs: names of the layers or tensors to dump, None for all.
        ops: names of the modules whose operations to dump too.

    Raises:
        EngineError: the module raises; its own error is quoted.
    """
    from test_common.dump_writer import DumpWriter

    with closing(DumpWriter(folder)) as writer, side_errors("the candidate"):
        _dump(module, inputs, writer, globs=globs, ops=ops)
    return open_dump(folder)


def measure_module(
    module: torch.nn.Module, inputs: ModuleInputs, folder: Path, *, max_bytes: int
) -> tuple[Dump | None, dict[str, int]]:
    """Dump a module if that is not too large, and tell how large it is.

    Args:
        module: as for `dump_module`.
        inputs: what to run it on.
        folder: where the dump goes; gone again if it is too large.
        max_bytes: greatest size of the dump.

    Returns:
        The dump, None where it is too large; and the bytes of each tensor.
    """
    from test_common.limited_writer import LimitedDumpWriter

    writing = LimitedDumpWriter(folder, max_bytes=max_bytes)
    with closing(writing) as writer, side_errors("the candidate"):
        _dump(module, inputs, writer)
    if writer.overflowed:
        shutil.rmtree(folder)  # holds no tensors
        return None, dict(writer.sizes)
    return open_dump(folder), dict(writer.sizes)


def _dump(
    module: torch.nn.Module,
    inputs: ModuleInputs,
    writer: DumpWriter,
    *,
    globs: Sequence[str] | None = None,
    ops: Sequence[str] = (),
) -> None:
    from test_common.observer_effect import measured_effect
    from test_common.torch_print_hook import TorchPrintHook
    from test_common.weight_recorder import weights_of_module

    draft = manifest_of(module, inputs)
    writer.start(draft)
    writer.save_weights(weights_of_module(module))
    with TorchPrintHook(filter=globs, sink=writer, ops=ops) as hook:
        hook.name_layers(module)
        manifest, watched = _run(module, inputs, draft, hook)
        certificate = hook.require_capture()
    once = replace(inputs, num_steps=1)
    effect = measured_effect(watched, lambda: _run(module, once, draft, None)[1])
    manifest = replace(manifest, observer_effect=effect)
    writer.finish(manifest, certificate)


def calls_of(
    module: torch.nn.Module, inputs: ModuleInputs, dump: Dump
) -> tuple[ReferenceCall, ...]:
    """Make the reference's calls from what the candidate was run on."""
    if inputs.rows and dump.manifest is not None:
        return calls_of_manifest(dump.manifest, module, encoder=inputs.encoder)
    return (ReferenceCall(args=inputs.args, kwargs=inputs.kwargs),)


def _run(
    module: torch.nn.Module, inputs: ModuleInputs, draft: Manifest, hook: Any
) -> tuple[Manifest, tuple[Array, ...]]:
    """Run a module; return what is known then, and what it gave in the first step."""
    from test_common.torch_runner import run_torch, run_torch_encoder

    if not inputs.rows:
        given = ReferenceCall(args=inputs.args, kwargs=inputs.kwargs).run(module.eval())
        return draft, tuple(_arrays(given))
    if inputs.encoder:
        embedded = run_torch_encoder(module, inputs.rows, pad_token_id=_pad(module), hook=hook)
        return replace(draft, padding=embedded.padding), (embedded.embeddings,)
    run = run_torch(
        module, inputs.rows, num_steps=inputs.num_steps, pad_token_id=_pad(module), hook=hook
    )
    rows = zip(draft.rows, run.generated, strict=True)
    manifest = replace(
        draft,
        padding=run.padding,
        rows=tuple(replace(row, generated=tuple(tokens)) for row, tokens in rows),
    )
    return manifest, run.logits[:1]


def _arrays(given: Any) -> Iterator[Array]:
    """Yield the tensors that a module gave, those of bfloat16 and the like as float32."""
    import torch

    from test_common.tensor_tree import output_tensors

    tree = output_tensors(given, is_tensor=lambda item: isinstance(item, torch.Tensor))
    for _, tensor in tree.tensors:
        tensor = tensor.detach().cpu()
        yield (tensor.float() if tensor.is_floating_point() else tensor).numpy()


def _pad(module: torch.nn.Module) -> int | None:
    return getattr(getattr(module, "config", None), "pad_token_id", None)


def manifest_of(module: torch.nn.Module, inputs: ModuleInputs) -> Manifest:
    """Write down what is known of a module and its inputs before it is run."""
    import json
    from importlib.metadata import version

    parameter = next(iter(module.parameters()), None)
    as_json = getattr(getattr(module, "config", None), "to_json_string", None)
    dtype = "float32" if parameter is None else str(parameter.dtype).removeprefix("torch.")
    return Manifest(
        engine="torch",
        versions={"torch": version("torch")},
        model=f"{type(module).__module__}.{type(module).__qualname__}",
        pipeline="",
        encoding=dtype,
        device="cpu" if parameter is None else str(parameter.device),
        padding=Padding.NONE,
        rows=tuple(Row(prompt=None, token_ids=row) for row in inputs.rows),
        steps=inputs.num_steps,
        config=json.loads(as_json(use_diff=False)) if as_json is not None else {},
    )
