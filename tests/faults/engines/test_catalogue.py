"""What the cases on real engines are, and that a planted fault goes away again."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from tests.faults.engines import max_cases, vllm_cases
from tests.faults.engines.case import EngineCase, Origin
from tests.faults.engines.catalogue import ALL_CASES
from tests.faults.engines.judge import check_validity

LEAST = {"max": 12, "vllm": 3}
MOST_EDITS = {"max": 4, "vllm": 1}
PLANTED = (*max_cases.PLANTED, *vllm_cases.PLANTED)


def names_in_max() -> dict[tuple[str, str], int]:
    """Identify everything that modules and classes of MAX hold."""
    found: dict[tuple[str, str], int] = {}
    for path, module in list(sys.modules.items()):
        if path.partition(".")[0] != "max" or module is None:
            continue
        for name, value in list(vars(module).items()):
            found[path, name] = id(value)
            if isinstance(value, type) and value.__module__.partition(".")[0] == "max":
                found |= {
                    (f"{value.__module__}.{value.__qualname__}", key): id(inner)
                    for key, inner in vars(value).items()
                }
    return found


def test_names_are_unique_and_begin_with_their_engine() -> None:
    assert len({case.name for case in ALL_CASES}) == len(ALL_CASES)
    assert all(case.name.startswith(f"{case.engine}/{case.arch}") for case in ALL_CASES)


@pytest.mark.parametrize("engine", ["max", "vllm"])
def test_most_faults_are_in_the_engines_own_code(engine: str) -> None:
    cases = [case for case in PLANTED if case.engine == engine]
    assert {case.origin for case in cases} <= {Origin.CODE, Origin.EDIT}
    assert len(cases) >= LEAST[engine]
    assert sum(case.origin is Origin.EDIT for case in cases) <= MOST_EDITS[engine]
    assert len({case.cause for case in cases}) >= LEAST[engine] - 1


def test_every_fault_says_what_is_right() -> None:
    for case in ALL_CASES:
        assert bool(case.modules) == bool(case.cause) == case.is_fault, case.name


@pytest.mark.parametrize(
    "case", [case for case in max_cases.PLANTED], ids=[case.name for case in max_cases.PLANTED]
)
def test_planted_fault_changes_max_and_is_gone_afterwards(case: EngineCase) -> None:
    import max.pipelines.architectures  # noqa: F401 its modules are imported on use

    with case.plant():
        pass  # imports what it patches
    before = names_in_max()
    with case.plant():
        changed = {key for key, value in names_in_max().items() if before.get(key) != value}
        assert 1 <= len(changed) <= 3, changed
    assert names_in_max() == before


def test_void_fault_and_unclean_run_are_refused() -> None:
    fault = max_cases.PLANTED[0]
    clean = max_cases.CLEAN[0]
    with pytest.raises(ValueError, match=f"{fault.name} is void: the logits differ by 1e-06"):
        check_validity(fault, 1e-6)
    with pytest.raises(ValueError, match="is not clean: the logits differ by nan"):
        check_validity(clean, float("nan"))
    check_validity(fault, 1e-3)
    check_validity(clean, 1e-6)


def test_worker_with_a_fault_takes_the_place_of_the_usual_one(tmp_path: Path) -> None:
    from test_common import capture_vllm

    usual = ["env", "python", "-P", "-m", "test_common.vllm_worker"]
    module = "tests.faults.engines.planted_vllm"
    assert vllm_cases.planted_command(usual, "x", program=tmp_path) == [*usual[:-1], module, "x"]
    program = tmp_path / "planted_vllm_worker"
    program.touch()
    found = vllm_cases.planted_command(["env", "/its/vllm_worker"], "x", program=program)
    assert found == ["env", str(program), "x"]
    before: Any = capture_vllm.vllm_command
    with vllm_cases.planted("gelu_for_silu")():
        assert capture_vllm.vllm_command is not before
    assert capture_vllm.vllm_command is before
