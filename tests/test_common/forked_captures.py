"""Captures of a loaded model in forks of this process, and what a dump holds after them."""

import os
import signal
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from comparison.schema.errors import BadInputError
from comparison.store.dump import open_dump
from comparison.store.sketch_dump import open_sketches
from oracles.registry import find_oracle
from test_common.capture_mode import CaptureMode
from test_common.debug_options import DebugOptions
from test_common.debug_run import DebugRun, run_debug_model
from test_common.earlier_run import earlier_manifest
from test_common.print_style import PrintStyle

PIPELINE = "tiny-random/llama"
FORMATS: dict[str, dict[str, Any]] = {
    "pt": {},
    "safetensors": {"style": PrintStyle.SAFETENSORS},
    "sketch": {"mode": CaptureMode.SKETCH},
}
Tensors = dict[tuple[int, str], object]


class LoadedPipeline:
    """A pipeline whose model stays loaded."""

    def __init__(self) -> None:
        self._oracle = find_oracle(PIPELINE)
        self._built: Any = None
        self.model_path = self._oracle.model_path  # looked up once

    def __getattr__(self, name: str) -> Any:
        return getattr(self._oracle, name)

    def create_torch_pipeline(self, **given: Any) -> Any:
        self._built = self._built or self._oracle.create_torch_pipeline(**given)
        return self._built

    def capture(self, out: Path, file_format: str, **given: Any) -> DebugRun:
        """Capture three steps of two rows."""
        options = DebugOptions(
            pipeline=PIPELINE,
            framework="torch",
            output=out,
            num_steps=3,
            prompts=(tuple(range(5, 16)), (7, 9, 31, 8, 9, 30, 5, 6, 7)),
            filter=("*.mlp*", "model.lm_head*"),
            **FORMATS[file_format],
            **given,
        )
        return run_debug_model(self, options)


def in_fork(work: Callable[[], None], *, kill_after: float | None = None) -> int:
    """Do something in a fork of this process and return its exit code, 70 after an error."""
    child = os.fork()
    if child == 0:
        code = 70
        try:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            work()
            code = 0
        except BaseException:  # told by its code, since the test's own frames are here too
            traceback.print_exc()
        finally:
            os._exit(code)
    if kill_after is not None:
        time.sleep(kill_after)
        os.kill(child, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def tensors_of(out: Path) -> Tensors:
    """Read all that can be read of a dump, by step and name; check that it is marked truly."""
    manifest = earlier_manifest(out)
    try:
        found, complete = _values(out)
    except BadInputError as error:
        if "found none" not in str(error):
            raise
        found, complete = {}, False
    assert manifest is None or manifest.complete or not complete
    assert manifest is not None or found == {}
    return found


def _values(out: Path) -> tuple[Tensors, bool]:
    if any(out.glob("*/sketch.safetensors")):
        sketches = open_sketches(out)
        values: Tensors = {
            (entry.step, entry.name): (sketch.fingerprint, sketch.statistics)
            for entry, sketch in sketches.sketches.items()
        }
        return values, sketches.dump.complete
    dump = open_dump(out)
    assert not dump.problems, dump.problems.values()
    values = {}
    for entry in dump.entries:
        array = dump.read(entry)
        values[entry.step, entry.name] = (str(array.dtype), array.shape, array.tobytes())
    return values, dump.complete


def is_whole(out: Path) -> bool:
    """Tell whether a manifest says that the run came to its end."""
    manifest = earlier_manifest(out)
    return manifest is not None and manifest.complete
