"""What a manifest says while its run goes on, and when it was cut off."""

import json
from pathlib import Path

import pytest

from comparison.schema.errors import BudgetError
from comparison.store.manifest_file import read_manifest
from oracles.registry import find_oracle
from test_common.debug_options import DebugOptions
from test_common.debug_run import run_debug_model

UNLIKE = ((1, 5, 7, 9, 2), (1, 8))


@pytest.mark.parametrize(
    ("pipeline", "prompts", "padding"),
    [
        ("tiny-random/llama", UNLIKE, "left"),
        ("tiny-random/llama", UNLIKE[:1], "none"),
        ("tiny-random/bert", UNLIKE, "right"),
    ],
)
def test_a_run_that_is_cut_off_tells_how_its_rows_were_padded(
    pipeline: str, prompts: tuple[tuple[int, ...], ...], padding: str, tmp_path: Path
) -> None:
    found = []
    for name, most in (("whole", None), ("cut", 20_000)):
        options = DebugOptions(
            pipeline=pipeline,
            framework="torch",
            output=tmp_path / name,
            prompts=prompts,
            num_hidden_layers=1,
            max_bytes=most,
        )
        if most is None:
            run_debug_model(find_oracle(pipeline), options)
        else:
            with pytest.raises(BudgetError):
                run_debug_model(find_oracle(pipeline), options)
        manifest = read_manifest(tmp_path / name / "manifest.json")
        found.append((manifest.complete, str(manifest.padding)))
    assert found == [(True, padding), (False, padding)]
    assert json.loads((tmp_path / "cut" / "manifest.json").read_text())["padding"] == padding
