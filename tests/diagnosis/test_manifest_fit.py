"""Dumps whose manifest tells other rows than the tensors are of."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from comparison.schema.diagnosis import Judgement
from comparison.schema.errors import BadInputError
from comparison.schema.manifest import Row
from comparison.store.dump import open_dump
from comparison.store.manifest_file import read_manifest, write_manifest
from diagnosis.diff_models import diff_models
from diagnosis.module_dump import ModuleInputs, dump_module
from diagnosis.two_dumps import diagnose_dumps
from tests.test_common.tiny_models import ROWS, tiny_llama

Rows = tuple[Row, ...]


def changed(rows: Rows, number: int) -> Rows:
    """Replace the second token of one row."""
    ids = list(rows[number].token_ids)
    ids[1] += 1
    row = replace(rows[number], token_ids=tuple(ids))
    return (*rows[:number], row, *rows[number + 1 :])


def longer(rows: Rows, number: int, by: int) -> Rows:
    ids = rows[number].token_ids
    changed = replace(rows[number], token_ids=(*ids, 3, 4)[: len(ids) + by])
    return (*rows[:number], changed, *rows[number + 1 :])


@pytest.fixture(scope="module")
def model() -> Any:
    return tiny_llama()


def dumped(model: Any, folder: Path, count: int, change: Callable[[Rows], Rows]) -> Path:
    """Dump a number of rows, and write others into the manifest."""
    dump_module(model, ModuleInputs.of(ROWS[:count], num_steps=2, encoder=False), folder)
    manifest = read_manifest(folder / "manifest.json")
    write_manifest(folder / "manifest.json", replace(manifest, rows=change(manifest.rows)))
    return folder


@pytest.mark.parametrize(
    ("count", "change", "says"),
    [
        (1, lambda rows: longer(rows, 0, 2), "row 0 has 15 tokens by the manifest, the steps"),
        (1, lambda rows: longer(rows, 0, -2), "row 0 has 11 tokens by the manifest, the tensors"),
        (2, lambda rows: longer(rows, 0, 2), "15 tokens by the manifest, the tensors are of 13"),
        (2, lambda rows: longer(rows, 1, 2), "row 1 has 11 tokens by the manifest, the tensors"),
        (2, lambda rows: longer(rows, 1, -2), "row 1 has 7 tokens by the manifest, the tensors"),
        (1, lambda rows: changed(rows, 0), "row 0 has other token ids by the manifest than"),
        (2, lambda rows: changed(rows, 1), "row 1 has other token ids by the manifest than"),
        (1, lambda rows: rows * 2, "row 1 has 13 tokens by the manifest, the steps computed 0"),
        (2, lambda rows: rows[:1], "1 rows by the manifest, 2 in what the model was given"),
    ],
)
def test_other_rows_are_bad_input_with_the_reason(
    model: Any, tmp_path: Path, count: int, change: Callable[[Rows], Rows], says: str
) -> None:
    folder = dumped(model, tmp_path / "wrong", count, change)
    right = dumped(model, tmp_path / "right", count, lambda rows: rows)
    with pytest.raises(BadInputError, match="do not fit its manifest: ") as error:
        diff_models(model, folder)
    assert says in str(error.value)
    with pytest.raises(BadInputError, match="do not fit its manifest: "):
        diagnose_dumps(open_dump(right), open_dump(folder))


def test_steps_that_the_manifest_has_no_tokens_for(model: Any, tmp_path: Path) -> None:
    folder = dumped(
        model,
        tmp_path / "dump",
        1,
        lambda rows: tuple(replace(row, generated=row.generated[:1]) for row in rows),
    )
    with pytest.raises(BadInputError, match="up to 1 were dumped, and row 0 generated 1 tokens"):
        diff_models(model, folder)
    # Two dumps are held against each other without being fed again.
    found = diagnose_dumps(open_dump(folder), open_dump(folder))
    assert found.verdict is Judgement.AGREE


@pytest.mark.parametrize("count", [1, 2])
def test_a_dump_that_fits_is_diagnosed(model: Any, tmp_path: Path, count: int) -> None:
    folder = dumped(model, tmp_path / "dump", count, lambda rows: rows)
    assert diff_models(model, folder).verdict is Judgement.AGREE
