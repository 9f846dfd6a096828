"""The documented names are where the documentation puts them, and cost nothing until used."""

import os
import subprocess
import sys

import pytest

from tools import debugging_utils


@pytest.mark.parametrize("name", debugging_utils.__all__)
def test_every_name_can_be_had(name: str) -> None:
    assert callable(getattr(debugging_utils, name))


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        debugging_utils.nonsense  # noqa: B018  # the access is what is tested


@pytest.mark.parametrize(
    "module",
    [
        "tools.compare_tensors",
        "tools.debug_model",
        "tools.debugging_utils",
        "test_common.torch_print_hook",
    ],
)
def test_importing_pulls_in_no_engine(module: str) -> None:
    code = (
        f"import sys, {module};"
        "print([m for m in ('torch', 'max', 'transformers', 'vllm') if m in sys.modules])"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    result = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == "[]"
