"""What a manifest says that a dump holds, against what is there."""

from collections.abc import Sequence

from comparison.schema.manifest import Manifest
from comparison.schema.tensor_entry import TensorEntry

_MOST_LISTED = 5


def broken_promises(manifest: Manifest, there: Sequence[TensorEntry]) -> list[str]:
    """Say what a finished run saved and is not there any more.

    Args:
        manifest: of a run that was not cut off.
        there: the tensors that have a file.
    """
    saved = None if manifest.certificate is None else manifest.certificate.saved
    broken = []
    if saved is not None and len(there) < saved:
        broken.append(f"the run saved {saved} tensors, {len(there)} are here (manifest: saved)")
    missing = sorted(_captured_steps(manifest) - {entry.step for entry in there})
    # A filter may leave steps without tensors: then the count is right all the same.
    if missing and len(there) != saved:
        shown = ", ".join(map(str, missing[:_MOST_LISTED]))
        more = ", ..." if len(missing) > _MOST_LISTED else ""
        broken.append(f"no tensors of step {shown}{more} are here (manifest: steps)")
    return broken


def _captured_steps(manifest: Manifest) -> set[int]:
    chosen = manifest.options.get("steps")
    if isinstance(chosen, list) and all(type(step) is int for step in chosen):
        return set(chosen)
    return set(range(manifest.steps))
