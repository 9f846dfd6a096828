"""Candidates that run in processes of their own while the reference runs in this one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

from comparison.numerics.threads import usable_cores
from diagnosis.diff_options import DiffOptions
from diagnosis.side_job import SideJob
from diagnosis.side_memory import memory_problem
from diagnosis.side_process import SideProcess, side_process
from diagnosis.side_runs import RunOptions
from diagnosis.sides import EngineSide, SideSpec
from oracles.oracle import PipelineOracle
from test_common.capture_job import EMBEDDINGS_TASK
from test_common.capture_mode import CaptureMode

_ENGINES = ("max", "vllm")  # whose import and loading take long, and are not needed here
_WAITING = ("max",)  # that begin no dump before they are told to
_CORES = 2  # that an engine's import and loading keep busy
_GPUS = ("/dev/nvidia0", "/dev/kfd", "/dev/accel/accel0")


class CandidatesAhead:
    """The processes, by the names of the candidates; none where sides run one after the other."""

    def __init__(
        self,
        processes: Mapping[str, tuple[EngineSide, SideProcess]],
        folder: Path,
        options: DiffOptions,
    ) -> None:
        """Take what `candidates_ahead` started."""
        self._processes = dict(processes)
        self._folder = folder
        self._options = options

    @property
    def is_wanted(self) -> bool:
        """Whether there are any."""
        return bool(self._processes)

    def give(self, oracle: PipelineOracle, rows: Sequence[Sequence[int]]) -> None:
        """Let models be built, if they find room beside the reference's.

        Args:
            oracle: of the reference.
            rows: token ids that the reference will run on.
        """
        run = replace(
            self._options.run,
            prompts=tuple(tuple(row) for row in rows),
            num_steps=1 if oracle.task_name == EMBEDDINGS_TASK else self._options.run.num_steps,
        )
        problem = memory_problem(oracle, sides=1 + len(self._processes))
        if problem is not None:
            self._options.tell(f"the sides run one after the other: {problem}")
        for name, (spec, process) in self._processes.items():
            process.is_beside = problem is None
            if spec.engine in _WAITING and process.is_beside:
                process.give(self._job(name, spec, run))

    def go(self, run: RunOptions, *, needed: bool) -> None:
        """Let the dumps be written, once it is known what of.

        Args:
            run: how candidates are run.
            needed: False where they are run in another way.
        """
        for name, (spec, process) in list(self._processes.items()):
            job = self._job(name, spec, run)
            if needed and process.job is None:
                process.give(job)
            if needed and process.job == job:
                process.go()
            else:
                process.end()
                del self._processes[name]

    def process(self, name: str) -> SideProcess | None:
        """Return the process of a candidate; None where it is to be run here."""
        found = self._processes.get(name)
        return None if found is None else found[1]

    def _job(self, name: str, spec: EngineSide, run: RunOptions) -> SideJob:
        asked = replace(run, ops=self._options.operations)
        return SideJob(spec=spec, output=(self._folder / name).absolute(), run=asked)


@contextmanager
def candidates_ahead(
    reference: SideSpec, candidates: Mapping[str, SideSpec], folder: Path, options: DiffOptions
) -> Iterator[CandidatesAhead]:
    """Start the processes of the candidates that can run beside the reference.

    They end with the block.

    Args:
        reference: what is taken to be right.
        candidates: the candidates by name.
        folder: where their dumps go, each to a folder of its name.
        options: how to diff.

    Yields:
        The processes that were started.
    """
    with ExitStack() as stack:
        processes = {
            name: (spec, stack.enter_context(side_process(spec.engine)))
            for name, spec in candidates.items()
            if isinstance(spec, EngineSide)
            and spec.engine in _ENGINES
            and _may_run_beside(reference, options)
        }
        yield CandidatesAhead(processes, folder, options)


def cores_to_spare() -> bool:
    """Tell whether a candidate beside the reference takes no time from it."""
    return usable_cores() > _CORES


def _may_run_beside(reference: SideSpec, options: DiffOptions) -> bool:
    """Tell whether a candidate can have a process of its own while the reference runs."""
    here = options.calibrate or options.audit_config or options.check_fma  # need the engine here
    return (
        options.side_by_side
        and options.mode is CaptureMode.FULL
        and isinstance(reference, EngineSide)
        and reference.engine == "torch"
        and not here
        and not _shares_gpu(options.run.device)
    )


def _shares_gpu(device: str) -> bool:
    """Tell whether both sides would run on a GPU, of whose memory an engine takes most."""
    return device != "cpu" and any(Path(gpu).exists() for gpu in _GPUS)
