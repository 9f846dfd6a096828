"""Keeps in small what a page shows of single pairs: of the worst, and of those that are named."""

from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path

from comparison.align.rows import Aligned
from comparison.numerics.axes import ModelSizes, axes_of, by_head
from comparison.numerics.detail import reduce_pair
from comparison.numerics.severity import severity_of, unit_of
from comparison.pipeline import CompareOptions, Progress, compare
from comparison.schema.comparison import Comparison, Pair
from comparison.schema.detail import TensorDetail
from comparison.schema.manifest import Manifest
from comparison.schema.outcome import Compared, Metrics, Shape
from comparison.schema.tensor_entry import TensorEntry
from comparison.schema.tolerance import Tolerance
from comparison.store.dump import open_dump
from comparison.store.mapping_guard import mappings_guarded

DETAILS = 64
_JUMP = 10.0  # times the greatest distance before: kept, since a fault may lie there

_Kept = tuple[tuple[bool, bool, float], int, Pair, Aligned]
PairKey = tuple[TensorEntry, TensorEntry]
Details = dict[PairKey, TensorDetail]


def compare_with_details(
    reference: Path,
    candidate: Path,
    options: CompareOptions | None = None,
    *,
    named: Collection[str] = (),
    progress: Progress | None = None,
) -> tuple[Comparison, Details]:
    """Compare two dumps, and keep in small what a page shows of some pairs.

    Args:
        reference: what is taken to be right.
        candidate: what is in question.
        options: how to compare.
        named: reference names of tensors that are kept first, such as guilty ones.
        progress: as in compare.

    Raises:
        BadInputError: as compare.
    """
    options = options or CompareOptions()
    keeper = DetailKeeper(tolerance=options.tolerance, named=named)
    with mappings_guarded():  # what is kept is read once more
        result = compare(reference, candidate, options, look=keeper.look, progress=progress)
        if keeper.is_empty:  # as of sketches, which show nothing in small
            return result, {}
        keeper.sizes = sizes_of(*(open_dump(path).manifest for path in (reference, candidate)))
        return result, keeper.details()


def key_of(pair: Pair) -> PairKey:
    """Return what tells a pair from all others of a comparison."""
    return pair.reference, pair.candidate


@dataclass(slots=True, kw_only=True)
class DetailKeeper:
    """Looks on while two dumps are compared; see `compare(..., look=keeper.look)`.

    Attributes:
        tolerance: what the comparison judges by.
        sizes: of the model and the run.
        named: reference names of tensors that are kept first, such as guilty ones.
        limit: greatest number of pairs of which details are kept.
    """

    tolerance: Tolerance | None = None
    sizes: ModelSizes = field(default_factory=ModelSizes)
    named: Collection[str] = ()
    limit: int = DETAILS
    _kept: list[_Kept] = field(default_factory=list)
    _seen: int = 0
    _greatest: float = 0.0

    def look(self, pair: Pair, aligned: Aligned) -> None:
        """Keep a pair as long as it is among the worst; its files stay mapped."""
        severity = severity_of(pair.outcome, self.tolerance)
        if not severity or not isinstance(pair.outcome, Compared):
            return
        self._seen += 1
        rank = (pair.reference.name in self.named, self._jumps(pair.outcome), severity)
        self._kept.append((rank, -self._seen, pair, aligned))
        if len(self._kept) > 2 * self.limit:
            self._drop()

    @property
    def is_empty(self) -> bool:
        """Whether no pair was kept."""
        return not self._kept

    def details(self) -> Details:
        """Reduce what was kept."""
        self._drop()
        found: Details = {}
        for _, _, pair, aligned in self._kept:
            detail = self._reduce(pair, aligned)
            if detail is not None:
                found[key_of(pair)] = detail
        return found

    def _drop(self) -> None:
        self._kept.sort(key=lambda kept: kept[:2], reverse=True)
        del self._kept[self.limit :]

    def _jumps(self, outcome: Compared) -> bool:
        """Tell a pair that is much further apart than all before it."""
        distance = outcome.metrics.relative_l2 if isinstance(outcome.metrics, Metrics) else 0.0
        jumps = distance > _JUMP * max(self._greatest, unit_of(outcome) or 0.0)
        self._greatest = max(self._greatest, distance)
        return jumps

    def _reduce(self, pair: Pair, aligned: Aligned) -> TensorDetail | None:
        return reduce_pair(
            aligned.blocks,
            shape=aligned.shape,
            axes=axes_of(aligned.shape, pair.reference.step, self.sizes),
            center=_center(pair),
            by_head=by_head(pair.reference.name, aligned.shape, self.sizes),
        )


def sizes_of(*manifests: Manifest | None) -> ModelSizes:
    """Read a model's and a run's sizes from the first manifest that tells them.

    Args:
        manifests: of both sides; None where a dump has none.
    """
    known = [manifest for manifest in manifests if manifest is not None]
    rows = next((manifest.rows for manifest in known if manifest.rows), ())
    config = next((manifest.config for manifest in known if manifest.config), {})
    heads = [config.get(key) for key in ("num_attention_heads", "num_key_value_heads")]
    counts = tuple(count for count in heads if isinstance(count, int) and count > 0)
    size, hidden = config.get("head_dim"), config.get("hidden_size")
    if not isinstance(size, int) and isinstance(hidden, int) and counts:
        size = hidden // counts[0]
    return ModelSizes(
        tokens=sum(len(row.token_ids) for row in rows) or None,
        rows=len(rows) or None,
        heads=counts,
        head_size=size if isinstance(size, int) and size > 0 else None,
    )


def _center(pair: Pair) -> Shape:
    """Find the element to look at: where NaN or infinity differs first, else the worst."""
    outcome = pair.outcome
    assert isinstance(outcome, Compared)  # nothing else is kept
    first = outcome.non_finite.first_difference
    if first is not None or not isinstance(outcome.metrics, Metrics):
        return first if first is not None else (0,) * len(outcome.shape)
    return outcome.metrics.greatest_absolute.index
