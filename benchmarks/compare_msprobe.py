"""Lets mindstudio-probe compare two dumps, as a whole process in an environment of its own.

It reads a form of its own, which is written here: a .pt a tensor, and JSON that tells their names.
"""

from __future__ import annotations

import csv
import json
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

TENSORS = "dump_tensor_data"


def write_probe_dump(source: Path, folder: Path) -> Path:
    """Write a folder of .max files as mindstudio-probe dumps the outputs of modules.

    Args:
        source: the .max files, of float32.
        folder: made; its `TENSORS` holds the tensors.

    Returns:
        What to give to mindstudio-probe.
    """
    import torch

    from comparison.store.max_file import read_max_file

    (folder / TENSORS).mkdir(parents=True)
    data: dict[str, Any] = {}
    for path in sorted(source.iterdir()):
        call = f"Module.{path.stem.removesuffix('-output')}.Linear.forward.0"
        tensor = torch.from_numpy(read_max_file(path).copy())
        torch.save(tensor, folder / TENSORS / f"{call}.output.0.pt")
        data[call] = {"input_args": [], "input_kwargs": {}, "output": [_entry(call, tensor)]}
    head = {"task": "tensor", "level": "L0", "framework": "pytorch"}
    head["dump_data_dir"] = str(folder / TENSORS)
    _write(folder / "stack.json", {"0": [list(data), ["File model.py, line 1, in forward"]]})
    _write(folder / "construct.json", dict.fromkeys(data))
    _write(folder / "dump.json", {**head, "data": data})
    return folder / "dump.json"


def _entry(call: str, tensor: Any) -> dict[str, Any]:
    return {
        "type": "torch.Tensor",
        "dtype": str(tensor.dtype),
        "shape": list(tensor.shape),
        "Max": tensor.max().item(),
        "Min": tensor.min().item(),
        "Mean": tensor.mean().item(),
        "Norm": tensor.norm().item(),
        "requires_grad": False,
        "data_name": f"{call}.output.0.pt",
    }


def _write(path: Path, value: object) -> None:
    path.write_text(json.dumps(value), encoding="utf-8")


def compare_by_probe(python: Path, reference: Path, candidate: Path, *, pairs: int) -> float:
    """Return the seconds that `msprobe compare` takes from start to end.

    Args:
        python: of an environment with mindstudio-probe and torch.
        reference: as write_probe_dump gives it.
        candidate: as reference.
        pairs: how many it must list.

    Raises:
        RuntimeError: it failed, or listed another number of pairs.
    """
    with tempfile.TemporaryDirectory() as place:
        command = [str(python), "-m", "msprobe.msprobe", "compare", "-o", place]
        command += ["-tp", str(candidate), "-gp", str(reference)]
        began = time.perf_counter()
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        seconds = time.perf_counter() - began
        found = [sum(1 for _ in csv.DictReader(p.open())) for p in Path(place).glob("*.csv")]
    if done.returncode != 0 or found != [pairs]:
        reason = (done.stderr.strip() or "no message").splitlines()[-1]
        raise RuntimeError(f"mindstudio-probe listed {found} of {pairs} pairs: {reason:.500}")
    return seconds
