"""How to diff two models."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

from comparison.align.pairing import Pairing
from comparison.schema.diagnosis import Diagnosis
from comparison.store.dump import Dump
from diagnosis.calibration import Rerun
from diagnosis.diagnose import DiagnoseOptions
from diagnosis.drill.dump import module_globs
from diagnosis.drill.sides import OFF
from diagnosis.name_map import NameMap
from diagnosis.side_runs import RunOptions
from diagnosis.two_passes import DEFAULT_MAX_BYTES
from test_common.capture_mode import CaptureMode

OnFound = Callable[[Dump, Dump, Diagnosis], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class DiffOptions:
    """How to diff.

    Attributes:
        run: how sides that are engines are run.
        output: folder that keeps the dumps of these; None for one that goes away.
        keep_going: replay also where the runs were given unlike inputs.
        names: pairs of tensors, instead of those found.
        on_paired: is told what was paired, once a candidate.
        max_bytes: greatest size of a dump; a larger one is made in passes: sketches of everything
            (of sides that are engines) or what layers give, and then what is suspect.
        mode: `sketch` begins with sketches whatever the size of a dump.
        tell: is told what takes a while, before it is done, and what was written.
        progress: is told what is under way.
        calibrate: whether to run the candidate again and raise the limits of tensors to what its
            own jitter explains.
        audit_config: whether to list the fields of the configuration that the reference reads and
            that do not reach the candidate; of engines only.
        check_fma: whether to measure on MAX, with a graph whole and split, if it rounds a
            multiply-add once; for candidates that run there.
        drill: module of the candidate whose operations are captured as it is run; `off` for
            looking below no module. None for looking below the culprit where that is cheap: on
            Torch.
        command: what the user ran, for telling what to run next.
        on_found: is shown the dumps of both sides, while they are there, with what was found; once
            a candidate that is no module.
        repro: folder that gets the fault by itself, to attach to a bug report; new or empty.
        side_by_side: whether candidates on other engines run in processes of their own while the
            reference runs on Torch. Their oracles are loaded anew there, by name.
        cache_reference: whether to take a reference's run on Torch from the cache, and to keep it
            there.
        stream_reference: whether the reference's weights stay in their safetensors files, as it is
            run and as it is replayed.
    """

    run: RunOptions = field(default_factory=RunOptions)
    output: Path | None = None
    keep_going: bool = False
    names: NameMap = field(default_factory=dict)
    on_paired: Callable[[Pairing], None] = lambda pairing: None
    max_bytes: int = DEFAULT_MAX_BYTES
    mode: CaptureMode = CaptureMode.FULL
    tell: Callable[[str], None] = lambda text: None
    progress: Callable[[str], None] = lambda text: None
    calibrate: bool = False
    audit_config: bool = False
    check_fma: bool = False
    drill: str | None = None
    command: str = "diff_models ..."
    repro: Path | None = None
    on_found: OnFound = lambda reference, candidate, found: None
    side_by_side: bool = False
    cache_reference: bool = False
    stream_reference: bool = False

    @property
    def running_reference(self) -> RunOptions:
        """How the reference is run."""
        return replace(self.run, stream=self.stream_reference)

    @property
    def asked_below(self) -> str | None:
        """The module that the user wants to look below."""
        return None if self.drill == OFF else self.drill

    @property
    def operations(self) -> tuple[str, ...]:
        """Globs of the modules whose operations a candidate that is run captures at once."""
        return module_globs(self.asked_below)

    def diagnosing(
        self, least_modules: int | None = None, reruns: Iterable[Rerun] = ()
    ) -> DiagnoseOptions:
        """Return what of it matters to one diagnosis.

        Args:
            least_modules: how many modules have to be checked for a verdict of agreement.
            reruns: further runs of the candidate.
        """
        return DiagnoseOptions(
            keep_going=self.keep_going,
            names=self.names,
            on_paired=self.on_paired,
            least_modules=least_modules,
            reruns=tuple(reruns),
            progress=self.progress,
        )
