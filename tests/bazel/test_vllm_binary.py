"""A program of vllm_binary(), started by a process that has the packages of the engines."""

import json
import os
import re
import subprocess
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from test_common.vllm_environment import vllm_command

PROGRAM = Path(__file__).with_name("vllm_versions")
LOCK = Path(__file__).parents[2] / "requirements" / "vllm_cpu.txt"


def locked(package: str) -> str:
    found = re.search(rf"^{package}==(\S+)", LOCK.read_text(), re.MULTILINE)
    assert found
    return found[1]


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    assert os.environ["PYTHONPATH"]  # pytest_main hands its packages down
    command = [*vllm_command()[:-1], str(PROGRAM)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def test_it_imports_vllm(found: dict[str, Any]) -> None:
    assert found["versions"]["vllm"].startswith(locked("vllm-cpu"))


def test_its_transformers_is_not_that_of_the_engines(found: dict[str, Any]) -> None:
    assert found["versions"]["transformers"] == locked("transformers")
    assert found["versions"]["transformers"] != metadata.version("transformers")


def test_its_torch_is_that_of_the_engines(found: dict[str, Any]) -> None:
    assert found["versions"]["torch"] == metadata.version("torch")


def test_packages_of_the_starting_process_stay_out(found: dict[str, Any]) -> None:
    assert found["absent"] == ["accelerate", "max", "pytest"]


def test_the_worker_is_beside_the_module_that_names_it() -> None:
    assert Path(vllm_command()[-1]).name == "vllm_worker"
