"""Spells a repro as files, and runs its script."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from comparison.store.atomic_file import write_text
from diagnosis.repro.case import Case
from diagnosis.repro.clean import cleaned_json

_MAX_RUN = '    if given.engine == "max":\n        output, what = run_max(), "MAX\'s own layer"\n'
# What max.nn has a layer of that computes by itself.
_MAX_FORMULAS = frozenset(
    {"linear", "embedding", "norm", "silu", "gelu", "gelu_tanh", "relu", "sigmoid", "tanh"}
)


def runs_on_max(case: Mapping[str, Any], engine: str) -> bool:
    """Tell whether MAX has a layer of its own for the guilty module.

    Args:
        case: as in `Case`.
        engine: the candidate's.
    """
    formula = case.get("formula", {})
    is_plain_norm = "centred" not in formula or not (formula["centred"] and formula["offset"])
    return engine == "max" and formula.get("name") in _MAX_FORMULAS and is_plain_norm


def write_data(folder: Path, case: Case, config: Mapping[str, Any]) -> None:
    """Write what the script reads, and the script.

    Args:
        folder: there already.
        case: the fault.
        config: the model's, cleaned.
    """
    from safetensors.torch import save

    tensors = {name: tensor.contiguous().clone() for name, tensor in case.tensors.items()}
    (folder / "tensors.safetensors").write_bytes(save(tensors))  # save_file's is the owner's alone
    write_text(folder / "config.json", json.dumps(config, indent=2) + "\n")
    write_text(folder / "repro.py", script_of(case))


def script_of(case: Case) -> str:
    """Fill in the script.

    Args:
        case: the fault.
    """
    on_max = runs_on_max(case.case, case.case["engine"])
    told = cleaned_json(case.case)
    lines = ",\n".join(f" {json.dumps(k)}: {json.dumps(v)}" for k, v in told.items())
    packages = ["torch", "numpy", "safetensors", *case.needs]
    parts = {
        "@NEEDS@": f"{', '.join(packages[:-1])} and {packages[-1]}",
        "@CASE@": f"{{\n{lines}\n}}",
        "@ENGINE@": _template("max.txt") if on_max else "",
        "@CHOICE@": ', "max"' if on_max else "",
        "@RUN@": _MAX_RUN if on_max else "",
    }
    text = _template("script.txt")
    for mark, value in parts.items():
        text = text.replace(mark, value)
    return text


def measurements_of(folder: Path) -> dict[str, dict[str, Any]]:
    """Run a script's measurements.

    Args:
        folder: where the script and what it reads are.

    Returns:
        What it finds of itself (`script`), of the `reference` and of the `candidate`.
    """
    spec = importlib.util.spec_from_file_location("repro_script", folder / "repro.py")
    assert spec is not None  # a file that ends in .py
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    return script.measurements()


def _template(name: str) -> str:
    return Path(__file__).with_name(name).read_text(encoding="utf-8")
