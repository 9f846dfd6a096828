"""Faults in models whose full dump is larger than it may be."""

import copy
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from comparison.schema.diagnosis import (
    Coverage,
    Diagnosis,
    Growth,
    Guilty,
    Judgement,
    Spot,
)
from comparison.schema.outcome import Side
from comparison.store.dump import open_dump
from diagnosis.capture_plan import CapturePlan
from diagnosis.diff_models import DiffOptions, diff_models
from diagnosis.finding import Finding
from diagnosis.sketch_pass import SketchedSuspects
from diagnosis.two_passes import Passes
from tests.test_common.tiny_models import ROWS, tiny_gemma3, tiny_llama

FULL = "a full dump would hold "


def diff(
    plant: Callable[[Any], None],
    *,
    make: Callable[[], Any] = tiny_llama,
    max_bytes: int = 120_000,
    output: Path | None = None,
) -> tuple[Diagnosis, list[str]]:
    model, said = make(), list[str]()
    candidate = copy.deepcopy(model)
    plant(candidate)
    options = DiffOptions(max_bytes=max_bytes, tell=said.append, output=output, drill="off")
    return diff_models(model, candidate, ROWS, options=options), said


def _nothing(model: Any) -> None:
    del model


def _scale_attention(model: Any) -> None:
    model.model.layers[1].self_attn.scaling *= 1.001


def _scale_all_attention(model: Any) -> None:
    for layer in model.model.layers:
        layer.self_attn.scaling *= 1.001


def _drop_head(model: Any) -> None:
    model.lm_head.weight.data[7] = 0


def test_a_small_dump_is_made_at_once() -> None:
    found, said = diff(_scale_attention, max_bytes=10**9)
    assert said == []
    assert not any(note.startswith(FULL) for note in found.notes)


@pytest.mark.parametrize("make", [tiny_llama, tiny_gemma3])
def test_a_copy_agrees_by_what_its_layers_give(make: Callable[[], Any]) -> None:
    found, said = diff(_nothing, make=make)
    assert found.verdict is Judgement.AGREE
    assert found.sentence.endswith("This rests on a coarse pass, by what layers give.")
    assert (len(said), said[0]) == (1, found.notes[0])
    assert said[0].startswith(FULL)
    assert "what 3 layers and " in said[0]
    reasons = [item.reason for item in found.unpaired if item.side is Side.REFERENCE]
    assert len(reasons) > 20
    assert set(reasons) == {"it was not captured in this pass"}


@pytest.mark.full
def test_a_fault_in_a_layer_is_found_by_the_fine_pass(tmp_path: Path) -> None:
    found, said = diff(_scale_attention, output=tmp_path)
    attention = "model.model.layers.1.self_attn"
    assert [guilty.module for guilty in found.guilty] == [attention]
    assert found.guilty[0].between is not None
    assert said[1] == "the fine pass captures model.model.layers.1"
    assert "a fine one, which captured model.model.layers.1." in found.sentence
    coarse = {entry.name for entry in open_dump(tmp_path / "candidate-coarse").entries}
    fine = {entry.name for entry in open_dump(tmp_path / "candidate-fine").entries}
    assert not (tmp_path / "candidate").exists()
    assert coarse < fine
    inside = [name for name in fine - coarse if not name.startswith("model.model.layers.1")]
    assert inside == []


def test_the_fine_verdict_is_that_of_a_full_dump() -> None:
    found, _ = diff(_scale_attention)
    full, _ = diff(_scale_attention, max_bytes=10**9)
    assert found.culprit == full.culprit


def test_a_fault_outside_of_layers_is_found() -> None:
    found, said = diff(_drop_head)
    assert [guilty.module for guilty in found.guilty] == ["model.lm_head"]
    assert said[1] == "the fine pass captures the modules outside of layers"


@pytest.mark.full  # many modules are explained
def test_suspects_that_do_not_fit_are_judged_as_a_whole() -> None:
    found, _ = diff(_scale_all_attention)
    layers = "model.model.layers"
    modules = [guilty.module for guilty in found.guilty]
    assert modules == [f"{layers}.0.self_attn", f"{layers}.1", f"{layers}.2"]
    assert any(note.startswith("2 more layers are suspect") for note in found.notes)


SIZES = {
    "model.embed-output": 10,
    **{f"model.layers.{n}{part}-output": 10 for n in range(4) for part in ("", ".mlp", ".attn")},
    "model.head-output": 10,
}
LAYER = "model.layers"


def told(*guilty: str, growth: Sequence[tuple[str, float]] = (), **more: Any) -> Finding:
    """Make what a pass finds: modules that are wrong, and errors of others."""
    diagnosis = Diagnosis(
        verdict=Judgement.DIVERGE if guilty else Judgement.AGREE,
        sentence="It is so.",
        reference_engine="torch",
        candidate_engine="max",
        coverage=Coverage(paired=9, unpaired=0, replayed=9, modules=9, modules_checked=9),
        guilty=tuple(
            Guilty(
                module=module,
                candidate_module=more.get("theirs"),
                tensor=f"{module}-output",
                candidate_tensor=f"{module}-output",
                between=None,
                spot=Spot(step=0, row=0, position=0),
                local_error=0.5,
                bound=1e-6,
                excess=9,
            )
            for module in guilty
        ),
        growth=tuple(
            Growth(tensor=tensor, inherited=0.0, local=0.0, excess=excess)
            for tensor, excess in growth
        ),
    )
    if more.get("unsure"):
        diagnosis = replace(diagnosis, verdict=Judgement.INCONCLUSIVE)
    return Finding(diagnosis=diagnosis, guilty={})


def passes(
    *found: Finding, max_bytes: int = 200, engine: str = "torch", sketched: Any = None
) -> tuple[Diagnosis, list[str], list[tuple[str, tuple[str, ...]]]]:
    said, captured, left = [], [], list(found)

    def capture(name: str, globs: tuple[str, ...]) -> str:
        captured.append((name, globs))
        return name

    run = Passes(
        capture=capture,
        find=lambda side, least: left.pop(0),
        plan=CapturePlan(SIZES),
        max_bytes=max_bytes,
        tell=said.append,
        engine=engine,
        sketched=sketched,
    ).run()
    assert left == []
    return run.diagnosis, said, captured


def test_a_clean_coarse_pass_is_all_there_is() -> None:
    found, said, captured = passes(told())
    assert found.sentence == "It is so. This rests on a coarse pass, by what layers give."
    assert [name for name, _ in captured] == ["coarse"]
    assert said == [
        "a full dump would hold 140 bytes, more than --max-bytes 200 bytes: the coarse pass "
        "captures what 4 layers and 2 modules outside of them give (60 bytes)"
    ]
    unsure, _, _ = passes(told(unsure=True))
    assert unsure.sentence == "It is so."
    assert unsure.notes[1] == "nothing was suspect, so that there was no fine pass"


def test_what_is_blamed_or_not_cleared_is_captured_whole() -> None:
    coarse = told(f"{LAYER}.1", growth=[(f"{LAYER}.3-output", 5.0), (f"{LAYER}.0-output", 1.0)])
    found, said, captured = passes(coarse, told(f"{LAYER}.1.mlp"), engine="max")
    assert captured[1][0] == "fine"
    assert {"*.layers.1.*", "*.layers.3.*"} <= set(captured[1][1])
    assert "*.layers.0.*" not in captured[1][1]
    assert said[1] == (
        "the fine pass captures model.layers.1, model.layers.3; on MAX that is another graph, "
        "which takes minutes to build if not cached"
    )
    assert "a fine one, which captured model.layers.1, model.layers.3." in found.sentence
    assert len(found.notes) == 1


def test_what_the_fine_pass_clears_is_said() -> None:
    found, _, _ = passes(told(f"{LAYER}.1"), told())
    assert found.notes[-1] == ("the coarse pass blamed model.layers.1, and the fine pass clears it")
    theirs, said, _ = passes(told("model.h.1", theirs=f"{LAYER}.2"), told("model.h.1"))
    assert said[1] == "the fine pass captures model.layers.2"  # by the candidate's name
    assert not any("clears" in note for note in theirs.notes)
    _, said, _ = passes(told("model.head", theirs="lm.head"), told("model.head"))
    assert said[1] == "the fine pass captures the modules outside of layers"


def test_layers_that_do_not_fit_are_told() -> None:
    coarse = told(*(f"{LAYER}.{n}" for n in range(4)))
    found, said, _ = passes(coarse, told(f"{LAYER}.0.mlp"), max_bytes=100)
    assert said[1] == "the fine pass captures model.layers.0"
    assert found.notes[-1] == (
        "3 more layers are suspect and did not fit --max-bytes; they were judged as a whole, from "
        "model.layers.1 on"
    )


def seen(*modules: str) -> Any:
    return lambda: SketchedSuspects(modules=modules, tensors=14, size_bytes=2_500)


def test_sketches_that_show_nothing_are_followed_by_a_coarse_dump() -> None:
    found, said, captured = passes(told(), sketched=seen())
    assert [name for name, _ in captured] == ["coarse"]
    assert said == [
        "sketches first: a few KB for each of the tensors that take 140 bytes",
        "14 tensors were estimated from 2.5 kB of sketches; nothing is suspect",
    ]
    assert found.sentence == (
        "It is so. This rests on sketches of all tensors, and on a dump of what layers give and no "
        "layer whole."
    )


def test_sketches_point_at_layers_and_the_replay_at_more() -> None:
    found, said, captured = passes(told(f"{LAYER}.2.mlp"), sketched=seen(f"{LAYER}.2"))
    assert [name for name, _ in captured] == ["fine"]
    assert said[1].endswith("2.5 kB of sketches; the fine pass captures model.layers.2")
    assert found.sentence.endswith("what layers give and all of model.layers.2.")
    found, said, captured = passes(
        told(f"{LAYER}.2", f"{LAYER}.3", "model.head"), told(), sketched=seen(f"{LAYER}.2")
    )
    assert [name for name, _ in captured] == ["fine", "finer"]
    assert {"*.layers.2.*", "*.layers.3.*"} <= set(captured[1][1])
    assert found.sentence.endswith(
        "all of model.layers.3, model.layers.2 and the modules outside of layers."
    )


@pytest.mark.parametrize(
    ("size", "text"),
    [(999, "999 bytes"), (1_500, "1.5 kB"), (2 * 10**6, "2 MB"), (10**10, "10 GB")],
)
def test_sizes_are_spelled_with_their_unit(size: int, text: str) -> None:
    _, said, _ = passes(told(), max_bytes=size)
    assert f"more than --max-bytes {text}: " in said[0]
