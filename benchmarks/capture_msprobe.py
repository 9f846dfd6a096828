"""Runs mindstudio-probe in turns with plain forwards; a script for an environment of its own.

Called by benchmarks.capture with one argument, a JSON object: task, level, layers, hidden, tokens,
rounds. Prints pairs of seconds, plain and traced, one a round.
"""

import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.call_tree import make_model


def main() -> None:
    """Measure what the argument asks for."""
    import torch

    asked = json.loads(sys.argv[1])
    model, inputs = make_model(
        layers=asked["layers"], hidden=asked["hidden"], tokens=asked["tokens"]
    )
    pairs = []
    with tempfile.TemporaryDirectory() as place, torch.no_grad():
        debugger = _debugger(Path(place), task=asked["task"], level=asked["level"])
        for _ in range(asked["rounds"] + 1):
            began = time.perf_counter()
            model(**inputs)
            plain = time.perf_counter() - began
            began = time.perf_counter()
            debugger.start(model)
            model(**inputs)
            debugger.stop()
            debugger.step()
            pairs.append((plain, time.perf_counter() - began))
    print(json.dumps(pairs[1:]))


def _debugger(place: Path, *, task: str, level: str) -> Any:
    from msprobe.pytorch import (  # type: ignore[import-not-found]  # an environment of its own
        PrecisionDebugger,
    )

    config = {
        "task": task,
        "dump_path": str(place / "dump"),
        "rank": [],
        "step": [],
        "level": level,
        task: {"scope": [], "list": [], "data_mode": ["all"]},
    }
    path = place / "config.json"
    path.write_text(json.dumps(config), encoding="utf-8")
    return PrecisionDebugger(config_path=str(path))


if __name__ == "__main__":
    main()
