"""Measures a warm diff_models against what the engines take by themselves to start and generate.

Run by hand: `python -m benchmarks.warm_path [--rounds 5] [--pipeline tiny-random/llama]`. Each way
is a process of its own, timed from its start to its end: an engine that is imported, loads the
model and generates; the first diagnosis; a second one, which finds the reference in the cache; and
one with a process for each side. All take turns, so that what else runs on the machine meets them
alike. A round before does not count: it makes the checkpoint and fills MAX's cache of compiled
graphs. The numbers are in benchmarks/README.md.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median

ENGINES = ("torch", "max")
_STEPS = 3
_PROMISED = 1.25  # times the slower engine, for a second diagnosis


@dataclass(frozen=True, slots=True, kw_only=True)
class Timed:
    """How long one way took.

    Attributes:
        way: an engine, or a diagnosis.
        seconds: from the start of the process to its end, each a round.
    """

    way: str
    seconds: tuple[float, ...]


def main() -> None:
    """Print one row a way."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pipeline", default="tiny-random/llama")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--engine", choices=ENGINES, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.engine is not None:
        run_engine(given.engine, given.pipeline)
        return
    found = measure(given.pipeline, rounds=given.rounds)
    print("| way | of the slower engine | s, median | least | greatest |")
    print("|---|---|---|---|---|")
    for timed in found:
        print(_row(timed, found))
    print(f"\npromised: second at most {_PROMISED}")


def measure(
    pipeline: str,
    *,
    rounds: int,
    engines: Sequence[str] = ENGINES,
    candidate: str = "max",
) -> list[Timed]:
    """Run all ways in turn.

    Args:
        pipeline: an oracle's key.
        rounds: how often each runs, after once that does not count.
        engines: those that are run by themselves.
        candidate: the engine that is diagnosed.
    """
    with tempfile.TemporaryDirectory(prefix="warm-") as cache:
        ways: dict[str, Callable[[], None]] = {
            engine: partial(_run, _engine_command(engine, pipeline), cache) for engine in engines
        }
        command = _diagnosis_command(pipeline, candidate)
        ways["first"] = partial(_first, command, cache)
        ways["second"] = partial(_run, command, cache)
        ways["side by side"] = partial(_run, [*command, "--side-by-side"], cache)
        seconds: dict[str, list[float]] = {way: [] for way in ways}
        for number in range(rounds + 1):
            for way, run in ways.items():
                began = time.perf_counter()
                run()
                if number:
                    seconds[way].append(time.perf_counter() - began)
    return [Timed(way=way, seconds=tuple(times)) for way, times in seconds.items()]


def ratio(timed: Timed, others: Sequence[Timed]) -> float:
    """Return the median over the rounds of a way's time, in those of the slower engine.

    Args:
        timed: the way.
        others: all ways, the engines among them.
    """
    engines = [other.seconds for other in others if other.way in ENGINES]
    rounds = zip(timed.seconds, *engines, strict=True)
    return float(median(own / max(slower) for own, *slower in rounds))


def run_engine(engine: str, pipeline: str) -> None:
    """Import an engine, load a pipeline's model and generate, without anything of ours around it.

    Args:
        engine: one of `ENGINES`.
        pipeline: an oracle's key.
    """
    from oracles.registry import find_oracle

    oracle = find_oracle(pipeline)
    if engine == "max":
        _generate_on_max(str(oracle.model_path), max_length=oracle.config_params["max_length"])
    else:
        _generate_on_torch(str(oracle.model_path))


def _rows() -> list[list[int]]:
    """Return token ids of two rows, as long as an oracle's own prompts are."""
    return [[5 + index % 90 for index in range(length)] for length in (51, 114)]


def _generate_on_max(path: str, *, max_length: int) -> None:
    from max.driver import DeviceSpec
    from max.pipelines import PIPELINE_REGISTRY, PipelineArgs, PipelineConfig
    from max.pipelines.lib.generate import GenerateIterator

    rows = _rows()
    args = PipelineArgs.from_flat_kwargs(
        model_path=path,
        quantization_encoding="float32",
        device_specs=[DeviceSpec.cpu()],
        max_length=max_length,
        max_batch_size=len(rows),
    )
    _, pipeline = PIPELINE_REGISTRY.retrieve(PipelineConfig.from_args(args))
    steps = GenerateIterator(
        pipeline, rows, max_new_tokens=_STEPS, temperature=0.0, ignore_eos=True
    )
    with steps:
        for _ in range(_STEPS):
            steps.step()


def _generate_on_torch(path: str) -> None:
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32)
    for row in _rows():
        model.generate(torch.tensor([row]), max_new_tokens=_STEPS, do_sample=False)


def _engine_command(engine: str, pipeline: str) -> list[str]:
    module = [sys.executable, "-m", "benchmarks.warm_path"]
    return [*module, "--engine", engine, "--pipeline", pipeline]


def _diagnosis_command(pipeline: str, candidate: str) -> list[str]:
    sides = ["--reference", "torch", "--candidate", candidate]
    return [sys.executable, "-m", "tools.diff_models", "--pipeline", pipeline, *sides]


def _first(command: Sequence[str], cache: str) -> None:
    shutil.rmtree(Path(cache) / "model_accuracy_tools" / "references", ignore_errors=True)
    _run(command, cache)


def _run(command: Sequence[str], cache: str) -> None:
    environ = {**os.environ, "XDG_CACHE_HOME": cache, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)}: exit code {done.returncode}\n{done.stderr}")


def _row(timed: Timed, others: Sequence[Timed]) -> str:
    times = timed.seconds
    cells = [
        timed.way,
        f"{ratio(timed, others):.2f}",
        f"{median(times):.1f}",
        f"{min(times):.1f}",
        f"{max(times):.1f}",
    ]
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    main()
