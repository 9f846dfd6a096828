"""What a manifest says that a dump holds, against what is there."""

import itertools
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


def broken_rank(manifest: Manifest, run: Manifest, there: Sequence[TensorEntry]) -> list[str]:
    """Say what the manifest of one rank promises and is not there, or is of another run.

    Args:
        manifest: the rank's own.
        run: that of the whole dump, or of its first rank.
        there: the tensors of the rank that have a file.
    """
    if not manifest.complete:
        return ["the run was cut off before its end (manifest: complete is false)"]
    told = {
        "engine": (manifest.engine, run.engine),
        "steps": (manifest.steps, run.steps),
        "rows": tuple([row.token_ids for row in of.rows] for of in (manifest, run)),
    }
    unlike = [name for name, (own, other) in told.items() if own != other]
    broken = broken_promises(manifest, there)
    if unlike:
        broken.append(f"its manifest is of another run than the dump's: {', '.join(unlike)} differ")
    return broken


def missing_ranks(manifest: Manifest | None, ranks: Sequence[int]) -> str | None:
    """Say which ranks should have a folder and have none.

    Args:
        manifest: of the whole dump, if it has one.
        ranks: those that have a folder.
    """
    promised = promised_ranks(manifest, ranks)
    there = set(ranks)
    if not ranks or len(there) == len(ranks) == promised:
        return None
    if len(there) < len(ranks):
        return f"expected one folder a rank, found {len(ranks)} folders of {len(there)} ranks"
    lacking = (rank for rank in range(promised) if rank not in there)
    shown = ", ".join(str(rank) for rank in itertools.islice(lacking, _MOST_LISTED))
    more = ", ..." if promised - len(ranks) > _MOST_LISTED else ""
    return f"{promised} ranks ran, {len(ranks)} are here: no folder of rank {shown}{more}"


def promised_ranks(manifest: Manifest | None, ranks: Sequence[int]) -> int:
    """Count the ranks that a dump should hold, by the manifest and the numbers of its folders."""
    told = None if manifest is None else manifest.options.get("tensor_parallel_size")
    most = max(ranks, default=0) + 1
    return max(most, told) if type(told) is int else most


def _captured_steps(manifest: Manifest) -> set[int]:
    chosen = manifest.options.get("steps")
    if isinstance(chosen, list) and all(type(step) is int for step in chosen):
        return set(chosen)
    return set(range(manifest.steps))
