"""What the process of a side is given: one folder of files, to which it adds its result."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from comparison.schema import errors
from comparison.schema.errors import AccuracyToolsError, EngineError
from comparison.store.atomic_file import write_text
from diagnosis.side_runs import RunOptions
from diagnosis.sides import EngineSide

JOB_FILE = "job.json"
ERROR_FILE = "error.json"
DONE_FILE = "done"
# The lines that the process is sent.
RUN = b"run\n"  # the job is there: build the model
GO = b"go\n"  # and write its dump


@dataclass(frozen=True, slots=True, kw_only=True)
class SideJob:
    """One run of one side.

    Attributes:
        spec: the side.
        output: where its dump goes.
        run: how it is run.
    """

    spec: EngineSide
    output: Path
    run: RunOptions

    def text(self) -> str:
        """Return the job as JSON.

        Raises:
            TypeError: options hold values that are no JSON.
        """
        run = {**dataclasses.asdict(self.run)}
        if self.run.recorded_in is not None:
            run["recorded_in"] = str(self.run.recorded_in.absolute())
        run["hf_config_overrides"] = dict(self.run.hf_config_overrides)
        output = str(self.output.absolute())
        return json.dumps({"spec": dataclasses.asdict(self.spec), "output": output, "run": run})

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Read the job that lies in a folder."""
        job = json.loads((folder / JOB_FILE).read_text(encoding="utf-8"))
        run: dict[str, Any] = job["run"]
        run |= {name: tuple(run[name]) for name in ("filter", "ops")}
        if run["recorded_in"] is not None:
            run["recorded_in"] = Path(run["recorded_in"])
        run["prompts"] = tuple(
            prompt if isinstance(prompt, str) else tuple(prompt) for prompt in run["prompts"]
        )
        return cls(
            spec=EngineSide(**job["spec"]), output=Path(job["output"]), run=RunOptions(**run)
        )


def write_error(folder: Path, error: AccuracyToolsError) -> None:
    """Leave an error for the parent to raise."""
    told = {"kind": type(error).__name__, "message": str(error)}
    write_text(folder / ERROR_FILE, json.dumps(told))


def read_error(folder: Path) -> AccuracyToolsError | None:
    """Return the error that a process left, one of ours; None where it left none."""
    try:
        told = json.loads((folder / ERROR_FILE).read_text(encoding="utf-8"))
    except OSError:
        return None
    kind = getattr(errors, told["kind"], EngineError)
    error: AccuracyToolsError = kind(told["message"])
    return error
