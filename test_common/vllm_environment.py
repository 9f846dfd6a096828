"""Where the program is that runs vLLM, in an environment of its own."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from comparison.schema.errors import BadInputError, MissingPathError

PYTHON_VARIABLE = "MODEL_ACCURACY_TOOLS_VLLM_PYTHON"

_MODULE = "test_common.vllm_worker"
_HERE = Path(__file__).absolute().parent
# Bazel puts the program beside this file, where the flag --//:vllm asked for one.
_PROGRAM = "vllm_worker"
# MAX sets the first one in this process, unseen by os.environ: a child would look for its packages
# beside another interpreter.
_UNSET = ("--unset=PYTHONEXECUTABLE", "--unset=PYTHONHOME")


def vllm_command(*, folder: Path = _HERE, environ: Mapping[str, str] | None = None) -> list[str]:
    """Return the command that starts the vLLM worker; its own arguments are to be added.

    Packages of this process stay out of the child, whose transformers is another release: the
    command drops the import path that this process hands down.

    Args:
        folder: where this room lies.
        environ: the environment, by default that of this process.

    Raises:
        BadInputError: there is no environment with vLLM.
        MissingPathError: `MODEL_ACCURACY_TOOLS_VLLM_PYTHON` names no program.
    """
    program = folder / _PROGRAM
    if program.is_file():
        return ["env", *_UNSET, "--unset=PYTHONPATH", str(program)]
    named = (os.environ if environ is None else environ).get(PYTHON_VARIABLE, "")
    if not named:
        raise BadInputError(
            "vLLM runs in an environment of its own, and there is none: with Bazel add the flag "
            "--//:vllm=cpu (or cuda) before the target; without Bazel set "
            f"{PYTHON_VARIABLE} to the Python of a virtual environment made from "
            "requirements/vllm_cpu.txt (or vllm_cuda.txt)"
        )
    python = shutil.which(named)
    if python is None:
        raise MissingPathError(
            f"{PYTHON_VARIABLE} is {named!r}, expected the path of a Python that has vLLM "
            "installed: found no such program"
        )
    # -P: a folder that the user stands in, such as a model's, is no place to import from.
    return ["env", *_UNSET, f"PYTHONPATH={folder.parent}", python, "-P", "-m", _MODULE]
