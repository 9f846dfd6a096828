"""A fuzzed dump, damaged in manifest, order and tensors: it is compared, and a run made like it."""

import functools
import json
import tempfile
from pathlib import Path

from comparison.numerics.dtypes import Array
from comparison.pipeline import CompareOptions, compare
from comparison.report.json_report import comparison_to_json
from comparison.report.text import comparison_lines
from comparison.schema.tolerance import Tolerance
from diagnosis.kept_options import run_as_dumps
from diagnosis.side_job import SideJob
from diagnosis.side_runs import RunOptions
from diagnosis.sides import DumpSide, EngineSide
from tests.comparison.dumps import numbers, write_dump
from tests.fuzz import seeds
from tests.fuzz.checked import check_reader
from tests.fuzz.json_damage import damaged_json
from tests.fuzz.steps import Steps, damaged

_TORCH = EngineSide(engine="torch")
_ORDER = "0/tensor_names.txt"


def dump_input(data: bytes) -> None:
    """Compare one dump with a sound one."""
    steps = Steps(data)
    files = dict(_sound())
    for name in sorted(files):
        if name.endswith(".max") and steps.below(8) == 0:
            files[name] = damaged(files[name], steps)
    if steps.below(4) == 0:
        files[_ORDER] = damaged(files[_ORDER], steps)
    manifest = damaged_json(seeds.MANIFEST, steps)
    check_reader(_compare, "manifest.json", manifest.encode("utf-8", "surrogatepass"), beside=files)


def run_input(data: bytes) -> None:
    """Let an engine run as one dump was run."""
    steps = Steps(data)
    text = seeds.MANIFEST.replace('"generated": [4]', '"generated": [4, 6]')
    overrides = '"options": {"hf_config_overrides": {"rope_theta": 5.0, "layer_types": ["x"]}, '
    manifest = damaged_json(text.replace('"options": {', overrides), steps)
    check_reader(
        _run_as, "manifest.json", manifest.encode("utf-8", "surrogatepass"), beside=_sound()
    )


def _run_as(manifest: Path) -> None:
    run, taken = run_as_dumps(
        RunOptions(pipeline="tiny-random/llama"), [_TORCH, DumpSide(path=manifest.parent)]
    )
    assert taken is None or len(taken.splitlines()) == 1
    SideJob(spec=_TORCH, output=manifest.parent, run=run).text()  # as a process of its own takes it


def _compare(manifest: Path) -> None:
    options = CompareOptions(tolerance=Tolerance(rtol=0.1, atol=0.0))
    result = compare(manifest.parent, _folder(), options)
    json.loads(comparison_to_json(result))
    for line in comparison_lines(result):
        assert "\x1b" not in line


@functools.cache
def _kept() -> tempfile.TemporaryDirectory[str]:
    kept = tempfile.TemporaryDirectory(prefix="fuzz-")
    tensors: dict[str, Array] = {
        "model.layers.0-input_0": numbers(4, 6),
        "model.layers.0-output": numbers(4, 6, seed=1),
        "model-output": numbers(2, 3, 5, seed=2),
    }
    write_dump(Path(kept.name), [tensors, tensors], lengths=[3, 1])
    return kept


def _folder() -> Path:
    return Path(_kept().name)


@functools.cache
def _sound() -> dict[str, bytes]:
    held = (path for path in _folder().rglob("*") if path.is_file())
    return {
        path.relative_to(_folder()).as_posix(): path.read_bytes()
        for path in held
        if path.name != "manifest.json"
    }
