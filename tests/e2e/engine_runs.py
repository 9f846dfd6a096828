"""Runs of real engines, each made once a process: a MAX graph takes minutes to build cold."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from oracles.oracle import PipelineOracle
from oracles.registry import find_oracle
from test_common.debug_options import DebugOptions
from test_common.debug_run import DebugRun, run_debug_model

# Both prompts are longer than 8 tokens, and they differ in length.
PROMPTS = (
    "The quick brown fox jumps over the lazy dog, and then it runs home.",
    "Measure first, round later.",
)
STEPS = 3


class EngineRuns:
    """Makes dumps of tiny pipelines and keeps them for later tests of the process."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._runs: dict[tuple[Any, ...], DebugRun] = {}

    def run(
        self,
        framework: str,
        pipeline: str,
        *,
        oracle: PipelineOracle | None = None,
        capture: bool = True,
        **options: Any,
    ) -> DebugRun:
        """Run a pipeline, or return the run made before with the same arguments."""
        key = (framework, pipeline, capture, id(oracle), repr(sorted(options.items())))
        if key not in self._runs:
            settings = DebugOptions(
                pipeline=pipeline,
                framework=framework,
                output=self._folder / str(len(self._runs)) if capture else None,
                **{"prompts": PROMPTS, "num_steps": STEPS, "num_hidden_layers": 1} | options,
            )
            chosen = oracle or find_oracle(pipeline)
            self._runs[key] = run_debug_model(chosen, settings, capture=capture)
        return self._runs[key]


def dump_of(run: DebugRun) -> Path:
    """Return the dump folder of a run that captured."""
    assert run.output is not None
    return run.output


def tokens_of(run: DebugRun) -> list[tuple[int, ...]]:
    """Return the tokens that each row chose."""
    return [row.generated for row in run.manifest.rows]


def keep_report(name: str, text: str) -> None:
    """Print a report, and leave it among the test's outputs."""
    print(text)
    folder = os.environ.get("TEST_UNDECLARED_OUTPUTS_DIR")
    if folder:
        Path(folder, name).write_text(text, encoding="utf-8")


__all__ = ["PROMPTS", "STEPS", "EngineRuns", "dump_of", "keep_report", "tokens_of"]
