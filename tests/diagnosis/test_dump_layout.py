"""What a dump's manifest says of how its rows lie in its tensors."""

from pathlib import Path

from comparison.schema.manifest import Manifest, Padding, Row
from comparison.store.dump import Dump
from diagnosis.dump_layout import layout_of


def dump_of(*generated: tuple[int, ...], complete: bool = True) -> Dump:
    rows = tuple(Row(prompt=None, token_ids=(1, 2, 3), generated=tokens) for tokens in generated)
    manifest = Manifest(
        engine="max",
        versions={},
        model="m",
        pipeline="m",
        revision=None,
        encoding="float32",
        device="cpu",
        padding=Padding.RAGGED,
        rows=rows,
        steps=1,
        seed=None,
    )
    return Dump(path=Path("dump"), manifest=manifest, entries=(), complete=complete)


def test_rows_that_chose_tokens_may_keep_the_last_one_alone() -> None:
    layout = layout_of(dump_of((7, 8), (9, 1)), step=1)
    assert (layout.padding, layout.lengths, layout.step) == (Padding.RAGGED, (3, 3), 1)
    assert layout.last_tokens


def test_rows_of_an_encoder_keep_no_token_alone() -> None:
    assert not layout_of(dump_of((), ()), step=0).last_tokens


def test_nothing_is_said_of_a_run_that_was_cut_off() -> None:
    assert layout_of(dump_of((), (), complete=False), step=0).last_tokens


def test_without_a_manifest_no_row_is_known() -> None:
    layout = layout_of(Dump(path=Path("dump"), manifest=None, entries=()), step=0)
    assert layout.lengths == ()
