from pathlib import Path

import numpy as np

from comparison.details import DetailKeeper, compare_with_details, sizes_of
from comparison.pipeline import compare
from comparison.schema.manifest import Padding
from tests.comparison.dumps import make_manifest, numbers, write_dump

SHIFTS = (0.0, 1e-6, 3e-6, 1e-2, 0.02, 0.03, 0.0)


def dumps(tmp_path: Path) -> tuple[Path, Path]:
    """Write tensors whose distance is known: it jumps at the fourth, and grows on."""
    right = {f"model.layers.{i}-output": numbers(9, 10, seed=i) for i in range(len(SHIFTS))}
    wrong = {
        name: array + np.float32(shift)
        for (name, array), shift in zip(right.items(), SHIFTS, strict=True)
    }
    for side, tensors in (("a", right), ("b", wrong)):
        write_dump(tmp_path / side, [tensors], lengths=(5, 4))
    return tmp_path / "a", tmp_path / "b"


def kept(keeper: DetailKeeper) -> set[str]:
    return {reference.name.split("-")[0][-1] for reference, _ in keeper.details()}


def test_every_pair_that_differs_has_details_where_there_are_few(tmp_path: Path) -> None:
    compared, details = compare_with_details(*dumps(tmp_path))
    names = [reference.name for reference, _ in details]
    assert sorted(names) == [f"model.layers.{i}-output" for i in (1, 2, 3, 4, 5)]
    pair = compared.pairs[3]
    detail = details[pair.reference, pair.candidate]
    assert detail.axes == ("token", "channel")
    assert sum(detail.histogram.counts) == 90


def test_the_named_go_first_then_the_jumps_then_the_worst(tmp_path: Path) -> None:
    keeper = DetailKeeper(limit=3, named={"model.layers.2-output"})
    compare(*dumps(tmp_path), look=keeper.look)
    # 2 is named; 1 and 3 are far above all before them; 5, which is the worst, comes after these.
    assert kept(keeper) == {"1", "2", "3"}


def test_no_more_than_the_limit_is_held_while_comparing(tmp_path: Path) -> None:
    keeper = DetailKeeper(limit=1)
    compare(*dumps(tmp_path), look=keeper.look)
    assert len(keeper._kept) <= 2
    assert len(keeper.details()) == 1


def test_the_window_is_around_the_first_nan(tmp_path: Path) -> None:
    right = numbers(9, 10)
    wrong = right.copy()
    wrong[2, 3] += 5
    wrong[7, 8] = np.nan
    write_dump(tmp_path / "a", [{"x": right}])
    write_dump(tmp_path / "b", [{"x": wrong}])
    _, details = compare_with_details(tmp_path / "a", tmp_path / "b")
    (detail,) = details.values()
    assert detail.center == (7, 8)


def test_sizes_come_from_the_manifests() -> None:
    manifest = make_manifest("torch", padding=Padding.LEFT, rows=((1, 2, 3), (4, 5)))
    manifest.config.update(num_attention_heads=6, num_key_value_heads=2, hidden_size=60)
    sizes = sizes_of(None, manifest)
    assert (sizes.tokens, sizes.rows, sizes.heads, sizes.head_size) == (5, 2, (6, 2), 10)
    assert sizes_of(None, None).tokens is None
