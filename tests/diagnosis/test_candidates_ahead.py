"""Which candidates run beside the reference, and when they are given their job or ended."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from diagnosis import candidates_ahead
from diagnosis.candidates_ahead import CandidatesAhead
from diagnosis.diff_options import DiffOptions
from diagnosis.side_job import SideJob
from diagnosis.side_runs import RunOptions
from diagnosis.sides import DumpSide, EngineSide, SideSpec
from oracles.registry import find_oracle
from test_common.capture_mode import CaptureMode

RUN = RunOptions(pipeline="tiny-random/llama", num_steps=3)
TORCH = EngineSide(engine="torch")


class Process:
    """Notes what it is told."""

    def __init__(self) -> None:
        self.job: SideJob | None = None
        self.is_beside = True
        self.told: list[str] = []

    def give(self, job: SideJob) -> None:
        self.job = job
        self.told.append("give")

    def go(self) -> None:
        self.told.append("go")

    def end(self) -> None:
        self.told.append("end")


def ahead(tmp_path: Path, *engines: str, **options: Any) -> tuple[CandidatesAhead, list[Process]]:
    processes = [Process() for _ in engines]
    named: Any = {
        f"candidate-{number}": (EngineSide(engine=engine), process)
        for number, (engine, process) in enumerate(zip(engines, processes, strict=True), start=1)
    }
    return CandidatesAhead(named, tmp_path, DiffOptions(run=RUN, **options)), processes


@pytest.fixture(autouse=True)
def _room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(candidates_ahead, "memory_problem", lambda oracle, *, sides: None)


def test_a_job_that_was_known_before_only_has_to_go(tmp_path: Path) -> None:
    waiting = next(iter(candidates_ahead._WAITING))
    found, (process,) = ahead(tmp_path, waiting)
    assert found.is_wanted
    found.give(find_oracle("tiny-random/llama"), [[5, 9], [2]])
    assert process.told == ["give"]
    assert process.job is not None
    assert process.job.run.prompts == ((5, 9), (2,))
    assert process.job.output == tmp_path / "candidate-1"
    found.go(process.job.run, needed=True)
    assert process.told == ["give", "go"]
    assert found.process("candidate-1") is process
    assert found.process("candidate-2") is None


def test_another_job_than_was_given_ends_the_process(tmp_path: Path) -> None:
    waiting = next(iter(candidates_ahead._WAITING))
    found, (process,) = ahead(tmp_path, waiting)
    found.give(find_oracle("tiny-random/llama"), [[5, 9]])
    found.go(RUN, needed=True)
    assert process.told == ["give", "end"]
    assert not found.is_wanted


def test_who_is_not_needed_is_ended(tmp_path: Path) -> None:
    found, processes = ahead(tmp_path, "max", "vllm")
    found.go(RUN, needed=False)
    assert [process.told for process in processes] == [["end"], ["end"]]


def test_where_memory_is_short_the_sides_run_one_by_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        candidates_ahead, "memory_problem", lambda oracle, *, sides: f"{sides} do not fit"
    )
    said: list[str] = []
    found, (process,) = ahead(tmp_path, "max", tell=said.append)
    found.give(find_oracle("tiny-random/llama"), [[5, 9]])
    assert said == ["the sides run one after the other: 2 do not fit"]
    assert (process.told, process.is_beside) == ([], False)
    found.go(RUN, needed=True)
    assert process.told == ["give", "go"]  # but it runs in its process all the same


@pytest.mark.parametrize(
    ("reference", "changes"),
    [
        (DumpSide(path=Path("dump")), {}),
        (EngineSide(engine="max"), {}),
        (TORCH, {"calibrate": True}),
        (TORCH, {"audit_config": True}),
        (TORCH, {"check_fma": True}),
        (TORCH, {"side_by_side": False}),
        (TORCH, {"mode": CaptureMode.SKETCH}),
    ],
)
def test_who_runs_by_itself(tmp_path: Path, reference: SideSpec, changes: dict[str, Any]) -> None:
    options = replace(DiffOptions(run=RUN, side_by_side=True), **changes)
    assert not candidates_ahead._may_run_beside(reference, options)
    candidates = {"candidate": EngineSide(engine="max")}
    with candidates_ahead.candidates_ahead(reference, candidates, tmp_path, options) as found:
        assert not found.is_wanted


@pytest.mark.parametrize(("cores", "spare"), [(1, False), (2, False), (3, True)])
def test_two_cores_are_what_an_engine_takes_by_itself(
    monkeypatch: pytest.MonkeyPatch, cores: int, spare: bool
) -> None:
    monkeypatch.setattr(candidates_ahead, "usable_cores", lambda: cores)
    assert candidates_ahead.cores_to_spare() is spare


@pytest.mark.parametrize("there", [True, False])
def test_engines_that_would_share_a_gpu_take_turns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, there: bool
) -> None:
    gpu = tmp_path / "gpu"
    if there:
        gpu.touch()
    monkeypatch.setattr(candidates_ahead, "_GPUS", (str(gpu),))
    options = DiffOptions(run=replace(RUN, device="gpu"), side_by_side=True)
    assert candidates_ahead._may_run_beside(TORCH, options) is not there
    on_cpu = replace(options, run=replace(RUN, device="cpu"))
    assert candidates_ahead._may_run_beside(TORCH, on_cpu)
