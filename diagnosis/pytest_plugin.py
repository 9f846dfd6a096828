"""A plugin of pytest: `pytest_plugins = ["diagnosis.pytest_plugin"]` in a conftest.py.

It gives the fixture `capture`, and `assert_agree` its long messages.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    import torch

    from diagnosis.module_dump import Inputs

Capture = Callable[..., Path]


@pytest.fixture
def capture(tmp_path_factory: pytest.TempPathFactory) -> Capture:
    """Give a function that runs a Torch module with hooks on every layer, and returns its dump.

        def test_mine(capture):
            dump = capture(model, [[1, 5, 7, 9], [1, 8, 2]])
            assert (dump / "0" / "tensor_names.txt").exists()

    The function takes a module and its inputs, rows of token ids or tensors by position or
    keyword, and `num_steps` and `encoder` as `diff_models` does. The dump is a folder as
    debug_model writes it; pytest keeps those of the last runs.
    """

    def captured(
        module: torch.nn.Module, inputs: Inputs, *, num_steps: int = 1, encoder: bool = False
    ) -> Path:
        from diagnosis.module_dump import ModuleInputs, dump_module
        from diagnosis.replay.kept_modules import kept_as_they_are

        folder = tmp_path_factory.mktemp("capture") / "dump"
        with kept_as_they_are(module):
            given = ModuleInputs.of(inputs, num_steps=num_steps, encoder=encoder)
            dump_module(module, given, folder)
        return folder

    return captured
