import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from comparison.schema.errors import BadInputError, MissingPathError
from test_common.vllm_environment import PYTHON_VARIABLE, vllm_command

WORKER = """
import json, os, sys
names = {"python_path": "PYTHONPATH", "executable": "PYTHONEXECUTABLE"}
found = {key: os.environ.get(name) for key, name in names.items()}
print(json.dumps(found | {"arguments": sys.argv[1:]}))
"""


@pytest.fixture
def room(tmp_path: Path) -> Path:
    """A checkout's test_common/ that holds nothing but a worker."""
    folder = tmp_path / "checkout" / "test_common"
    folder.mkdir(parents=True)
    (folder / "__init__.py").touch()
    (folder / "vllm_worker.py").write_text(WORKER)
    return folder


def start(command: list[str], cwd: Path) -> dict[str, object]:
    environ = {**os.environ, "PYTHONPATH": "/packages/of/the/parent", "PYTHONEXECUTABLE": "/x"}
    done = subprocess.run(
        [*command, "job"], cwd=cwd, env=environ, stdout=subprocess.PIPE, text=True, check=True
    )
    return dict(json.loads(done.stdout))


def test_program_of_bazel_starts_without_the_packages_of_its_parent(
    room: Path, tmp_path: Path
) -> None:
    program = room / "vllm_worker"
    program.write_text(f"#!{sys.executable}\n{WORKER}")
    program.chmod(0o755)
    command = vllm_command(folder=room, environ={PYTHON_VARIABLE: "/not/asked/for"})
    assert start(command, tmp_path) == {
        "python_path": None,
        "executable": None,
        "arguments": ["job"],
    }


def test_named_python_runs_the_module_of_the_checkout(room: Path, tmp_path: Path) -> None:
    (tmp_path / "json.py").write_text("raise ImportError('imported from where the user stands')")
    command = vllm_command(folder=room, environ={PYTHON_VARIABLE: sys.executable})
    found = start(command, tmp_path)
    assert found == {
        "python_path": str(room.parent),
        "executable": None,
        "arguments": ["job"],
    }


def test_named_python_is_looked_for_on_the_path(room: Path) -> None:
    command = vllm_command(folder=room, environ={PYTHON_VARIABLE: "sh"})
    assert Path(command[command.index("-P") - 1]).is_absolute()


def test_absent_environment_says_how_to_get_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(PYTHON_VARIABLE, raising=False)
    with pytest.raises(BadInputError) as raised:
        vllm_command()
    assert str(raised.value) == (
        "vLLM runs in an environment of its own, and there is none: with Bazel add the flag "
        "--//:vllm=cpu (or cuda) before the target; without Bazel set "
        "MODEL_ACCURACY_TOOLS_VLLM_PYTHON to the Python of a virtual environment made from "
        "requirements/vllm_cpu.txt (or vllm_cuda.txt)"
    )


def test_named_python_that_is_not_there(room: Path) -> None:
    with pytest.raises(MissingPathError) as raised:
        vllm_command(folder=room, environ={PYTHON_VARIABLE: "/no/such/python"})
    assert str(raised.value) == (
        "MODEL_ACCURACY_TOOLS_VLLM_PYTHON is '/no/such/python', expected the path of a Python that "
        "has vLLM installed: found no such program"
    )
