"""The documented JSON form of a tree of calls, whole and as a summary, and what is left out."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from comparison.store.atomic_file import write_text
from test_common.call_tree import CallNode
from test_common.indented_json import indented_json
from test_common.safetensors_folder import LaterFile, plain_file_name
from test_common.value_description import Described, DescribedTensor

SUMMARY_SUFFIX = "_debug_tree_SUMMARY.json"
FULL_SUFFIX = "_debug_tree_FULL_TENSORS.json"
_MOST_BYTES = 200  # of a name, so that the suffix fits behind it


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeForm:
    """What is written of a tree.

    Attributes:
        container_outputs: whether a call with calls inside has outputs too.
        names_pruned: whether a node lists the calls that it had and that are not written.
        numbers_calls: whether a later call of a module says which one it is.
    """

    container_outputs: bool = False
    names_pruned: bool = False
    numbers_calls: bool = False


def write_tree(folder: Path, name: str, root: CallNode, form: TreeForm) -> None:
    """Write the two files of a tree.

    Args:
        folder: an existing folder.
        name: what the files' names begin with; encoded where it is no file name.
        root: the outermost call.
        form: what is written.

    Raises:
        UnwritableOutputError: the folder cannot be written, or the disk is full.
    """
    stem = plain_file_name(name, most_bytes=_MOST_BYTES)
    for suffix, full in ((FULL_SUFFIX, True), (SUMMARY_SUFFIX, False)):
        text = indented_json(tree_as_json(root, form, full=full))
        write_text(folder / f"{stem}{suffix}", text)


def tree_as_json(node: CallNode, form: TreeForm, *, full: bool) -> dict[str, Any]:
    """Return a call and those inside of it as JSON.

    Args:
        node: the call.
        form: what is written.
        full: whether tensors have their `value`.
    """
    written = [child for child in node.children if not child.is_hidden]
    entry: dict[str, Any] = {"module_path": node.path}
    if form.numbers_calls and node.number > 1:
        entry["call"] = node.number
    entry["inputs"] = _as_json(node.inputs, full=full)
    if form.container_outputs or not node.children:
        entry |= _outputs(node, full=full)
    if node.raised:
        entry["raised"] = node.raised
    if form.names_pruned and len(written) < len(node.children):
        entry["pruned"] = [child.path for child in node.children if child.is_hidden]
    if written:
        entry["children"] = [tree_as_json(child, form, full=full) for child in written]
    return entry


def _outputs(node: CallNode, *, full: bool) -> dict[str, Any]:
    """Return the outputs; null for a module whose parts were not called, as documented."""
    outputs = None if node.outputs is None else _as_json(node.outputs, full=full)
    return {} if node.is_root and not outputs else {"outputs": outputs}


def _as_json(value: Described, *, full: bool) -> Any:
    if isinstance(value, DescribedTensor):
        body = {"value": _value(value)} if full else {}
        return {"shape": value.shape, "dtype": value.dtype} | body | dict(value.statistics)
    if isinstance(value, list):
        return [_as_json(child, full=full) for child in value]
    if isinstance(value, dict):
        return {key: _as_json(child, full=full) for key, child in value.items()}
    return value


def _value(tensor: DescribedTensor) -> list[str] | str:
    """Return the text or path, now that the tensor is wanted."""
    return tensor.value.save() if isinstance(tensor.value, LaterFile) else tensor.value
