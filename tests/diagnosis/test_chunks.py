"""Prompts of which a dump holds a part, or pieces: they are placed by what the model was given."""

import copy
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from comparison.chunks import with_stretches
from comparison.pipeline import CompareOptions, compare
from comparison.schema.diagnosis import Judgement
from comparison.schema.manifest import Stretch
from comparison.schema.outcome import Compared, Judged, Outcome
from comparison.schema.tolerance import Tolerance
from comparison.store.dump import open_dump
from comparison.store.manifest_file import read_manifest, write_manifest
from diagnosis.diff_models import diff_models
from diagnosis.module_dump import ModuleInputs, manifest_of
from test_common.dump_writer import DumpWriter
from test_common.torch_print_hook import TorchPrintHook
from tests.test_common.tiny_models import tiny_llama

IDS = [5, 9, 2, 33, 41, 7, 60, 22, 21, 3, 8, 13]
CHUNKS = ((0, 4), (4, 8), (8, 12))


def _dump(
    model: Any, folder: Path, *, cuts: Any, steps: bool, skip: int = 0, decode: int = 1
) -> Path:
    """Feed a model its prompt in pieces, then its own choices; keep the pieces from `skip` on."""
    draft = manifest_of(model, ModuleInputs.of([IDS], num_steps=1 + decode, encoder=False))
    quiet = [cut for number, cut in enumerate(cuts) if number < skip]
    loud = [cut for number, cut in enumerate(cuts) if number >= skip]
    cache, chosen = None, []
    with torch.no_grad(), closing(DumpWriter(folder)) as writer:
        for cut in quiet:
            cache = _feed(model, IDS[slice(*cut)], cut[0], cache).past_key_values
        writer.start(draft)
        with TorchPrintHook(sink=writer) as hook:
            hook.name_layers(model)
            for number, cut in enumerate(loud):
                if steps and number:
                    hook.step()
                output = _feed(model, IDS[slice(*cut)], cut[0], cache)
                cache = output.past_key_values
            for number in range(decode):
                chosen.append(int(output.logits[0, -1].argmax()))
                hook.step()
                output = _feed(model, chosen[-1:], len(IDS) + number, cache)
            chosen.append(int(output.logits[0, -1].argmax()))
        row = replace(draft.rows[0], generated=tuple(chosen))
        writer.finish(replace(draft, rows=(row,)), hook.require_capture())
    return folder


def _feed(model: Any, ids: list[int], first: int, cache: Any) -> Any:
    positions = torch.arange(first, first + len(ids))[None]
    return model(
        input_ids=torch.tensor([ids]), position_ids=positions, past_key_values=cache, use_cache=True
    )


def _scaled(model: Any) -> Any:
    other = copy.deepcopy(model)
    other.model.layers[1].self_attn.scaling *= 1.01
    return other


@pytest.mark.parametrize("steps", [True, False], ids=["as steps", "as calls"])
def test_chunks_are_joined_whether_steps_or_calls(tmp_path: Path, steps: bool) -> None:
    model = tiny_llama()
    folder = _dump(model, tmp_path / "dump", cuts=CHUNKS, steps=steps)
    found = diff_models(model, folder, [IDS])
    assert found.verdict is Judgement.AGREE
    assert found.coverage.modules_checked == found.coverage.modules
    assert "3 chunks (4, 4, 4 tokens) were joined" in found.notes
    assert not any("not computed" in note for note in found.notes)


@pytest.mark.parametrize("steps", [True, False], ids=["as steps", "as calls"])
def test_a_fault_in_chunks_is_found_at_its_position(tmp_path: Path, steps: bool) -> None:
    model = tiny_llama()
    folder = _dump(_scaled(model), tmp_path / "dump", cuts=CHUNKS, steps=steps)
    found = diff_models(model, folder, [IDS])
    assert found.culprit is not None
    assert found.culprit.module == "model.model.layers.1.self_attn"
    assert (found.culprit.spot.step, found.culprit.spot.position) == (0, 1)


def test_a_cached_prefix_is_said_and_the_rest_is_aligned(tmp_path: Path) -> None:
    model = tiny_llama()
    folder = _dump(model, tmp_path / "right", cuts=((0, 4), (4, 12)), steps=True, skip=1)
    found = diff_models(model, folder, [IDS])
    assert found.verdict is Judgement.AGREE
    assert "rows 0-3 not computed (cached)" in found.notes
    folder = _dump(_scaled(model), tmp_path / "wrong", cuts=((0, 4), (4, 12)), steps=True, skip=1)
    wrong = diff_models(model, folder, [IDS])
    assert wrong.culprit is not None
    assert wrong.culprit.module == "model.model.layers.1.self_attn"
    assert wrong.culprit.spot.position == 4


def test_the_manifest_says_it_where_no_tensor_does(tmp_path: Path) -> None:
    model = tiny_llama()
    folder = _dump(model, tmp_path / "dump", cuts=((0, 4), (4, 12)), steps=True, skip=1)
    for path in [*folder.rglob("*input_ids.pt"), *folder.rglob("*position_ids.pt")]:
        path.unlink()
    for path in folder.rglob("tensor_names.txt"):
        kept = [name for name in path.read_text().splitlines() if "_ids" not in name]
        path.write_text("\n".join(kept) + "\n")
    manifest = replace(read_manifest(folder / "manifest.json"), certificate=None)
    write_manifest(folder / "manifest.json", manifest)
    unknown = diff_models(model, folder, [IDS])
    assert unknown.verdict is not Judgement.DIVERGE  # nothing is guessed from sizes alone
    assert any("cannot be cut into rows" in text for text in unknown.missing)
    known = ((Stretch(row=0, first=4, count=8),), (Stretch(row=0, first=12, count=1),))
    write_manifest(folder / "manifest.json", replace(manifest, stretches=known))
    assert read_manifest(folder / "manifest.json").stretches == known
    found = diff_models(model, folder, [IDS])
    assert found.verdict is Judgement.AGREE
    assert "rows 0-3 not computed (cached)" in found.notes


def test_a_usual_dump_is_left_as_it_is(tmp_path: Path) -> None:
    folder = _dump(tiny_llama(), tmp_path / "dump", cuts=((0, 12),), steps=True, decode=2)
    dump = open_dump(folder)
    assert with_stretches(dump) is dump


@pytest.mark.parametrize("steps", [True, False], ids=["as steps", "as calls"])
@pytest.mark.parametrize(
    ("cuts", "skip"), [(CHUNKS, 0), (((0, 4), (4, 12)), 1)], ids=["chunked", "cached"]
)
def test_two_dumps_are_compared_chunk_by_chunk(
    tmp_path: Path, steps: bool, cuts: Any, skip: int
) -> None:
    model = tiny_llama()
    whole = _dump(model, tmp_path / "whole", cuts=((0, 12),), steps=True)
    folder = _dump(model, tmp_path / "dump", cuts=cuts, steps=steps, skip=skip)
    options = CompareOptions(tolerance=Tolerance(rtol=1e-4, atol=1e-4))
    found = compare(whole, folder, options)
    note = "rows 0-3 not computed (cached)" if skip else "3 chunks (4, 4, 4 tokens) were joined"
    assert note in found.candidate.notes
    for name in ("model.model.layers.2-output", "model.lm_head-output"):
        pairs = [pair for pair in found.pairs if pair.reference.name == name]
        assert [(pair.reference.step, pair.candidate.step) for pair in pairs] == [(0, 0), (1, 1)]
        assert all(_within(pair.outcome) for pair in pairs)
    folder = _dump(_scaled(model), tmp_path / "wrong", cuts=cuts, steps=steps, skip=skip)
    (wrong,) = (
        pair
        for pair in compare(whole, folder, options).pairs
        if pair.reference.name == "model.model.layers.2-output" and not pair.reference.step
    )
    assert isinstance(wrong.outcome, Compared)
    assert not _within(wrong.outcome)


def _within(outcome: Outcome) -> bool:
    judged = outcome.judgement if isinstance(outcome, Compared) else None
    return isinstance(judged, Judged) and judged.failed == 0
