"""Two dumps that hold what a page has to show: unlike names, faults, and hostile names."""

from pathlib import Path

import numpy as np

from comparison.numerics.dtypes import Array
from comparison.report.build_report import build_report
from comparison.report.report_model import Report
from tests.comparison.dumps import numbers, write_dump

SCRIPT = "<script>alert(1)</script>"
ENDS = "</script><img src=x onerror=alert(2)>&amp;\u2028{{DATA}}"
FAULTY = "model.model.layers.2.mlp-output"
LENGTHS = (8, 5)


def write_pair(folder: Path) -> tuple[Path, Path]:
    """Write a reference of Torch and a candidate of MAX, of two steps; the fault is in layer 2."""
    right: list[dict[str, Array]] = []
    wrong: list[dict[str, Array]] = []
    for step, tokens in enumerate((sum(LENGTHS), len(LENGTHS))):
        reference, candidate = _step(tokens, step)
        right.append(reference)
        wrong.append(candidate)
    right[0]["only_here"] = numbers(3)
    right[0][SCRIPT] = wrong[0][SCRIPT] = numbers(4, 5)
    right[0][ENDS] = numbers(4, 5)
    wrong[0][ENDS] = numbers(4, 5) + 1
    right[0]["with_nan"] = numbers(4, 5)
    wrong[0]["with_nan"] = np.full((4, 5), np.nan, np.float32)
    right[0]["of_a_shape"] = numbers(4, 5)
    wrong[0]["of_a_shape"] = numbers(4, 7)
    write_dump(folder / "reference", right, engine="torch", lengths=LENGTHS)
    write_dump(folder / "candidate", wrong, engine="max", lengths=LENGTHS)
    return folder / "reference", folder / "candidate"


def _step(tokens: int, step: int) -> tuple[dict[str, Array], dict[str, Array]]:
    reference: dict[str, Array] = {}
    candidate: dict[str, Array] = {}
    for layer in range(4):
        for part in ("input_layernorm", "self_attn.o_proj", "mlp"):
            array = numbers(tokens, 34, seed=100 * step + 10 * layer + len(part))
            noise = numbers(tokens, 34, seed=7) * np.float32(1e-7)
            if layer >= 2 and part == "mlp":
                noise[:, 5] += 0.01
            reference[f"model.model.layers.{layer}.{part}-output"] = array
            candidate[f"model.layers.layers.{layer}.{part}-output"] = array + noise
        candidate[f"model.layers.layers.{layer}.mlp.fused_only-output"] = numbers(tokens, 3)
    return reference, candidate


def report_of(folder: Path) -> Report:
    """Compare the pair, diagnose it without a model, and build its report."""
    from comparison.details import compare_with_details
    from comparison.store.dump import open_dump
    from diagnosis.two_dumps import diagnose_dumps

    paths = write_pair(folder)
    compared, details = compare_with_details(*paths)
    found = diagnose_dumps(*map(open_dump, paths), compared=compared)
    return build_report(compared, diagnosis=found, details=details)
