"""The page of diff_models: local errors of a replay, and one part a candidate."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

ORACLE = """
from oracles.oracle import PipelineOracle
from tools.create_pipelines import PIPELINE_ORACLES

_LLAMA = PIPELINE_ORACLES["tiny-random/llama"]


class Scaled(PipelineOracle):
    model_path = property(lambda self: _LLAMA.model_path)
    device_encoding_map = {"cpu": ["float32"]}

    def create_max_pipeline(self, *, encoding, device_specs):
        raise NotImplementedError

    def create_torch_pipeline(self, *, encoding, device):
        built = _LLAMA.create_torch_pipeline(encoding=encoding, device=device)
        built.model.model.layers[1].mlp.up_proj.weight.data[3] *= 1.01
        return built


SCALED = Scaled()
"""
TENSOR = "model.model.layers.1.mlp.up_proj-output"


def test_a_page_of_two_candidates(tmp_path: Path) -> None:
    (tmp_path / "my_oracle.py").write_text(ORACLE)
    command = ["--pipeline", "tiny-random/llama", "--reference", "torch", "--num-steps", "1"]
    command += ["--candidate", "torch@my_oracle.py:SCALED", "--candidate", "torch"]
    command += ["--num-hidden-layers", "2", "--drill", "off", "--html", "page.html"]
    done = subprocess.run(
        [sys.executable, "-m", "tools.diff_models", *command],
        capture_output=True,
        text=True,
        check=False,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(sys.path),
            "BUILD_WORKING_DIRECTORY": str(tmp_path),
            "OMP_NUM_THREADS": "1",
        },
    )
    assert done.returncode == 1, done.stderr
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    block = re.search(r'<script type="application/json" id="runs">(.*?)</script>', page)
    assert block is not None
    wrong, right = json.loads(block[1])
    assert (wrong["verdict"], right["verdict"]) == ("diverge", "agree")
    assert wrong["replayed"]
    assert wrong["sentence"] in done.stdout
    assert [side["path"] for side in wrong["sides"]] == ["", ""]  # these dumps are gone by now
    field = {name: number for number, name in enumerate(wrong["fields"])}
    rows = {row[field["reference"]]: row for row in wrong["rows"]}
    guilty = rows[TENSOR]
    assert "model.model.layers.1.mlp.up_proj is wrong by itself" in guilty[field["guilty"]]
    assert guilty[field["detail"]] == 1
    inherited, local, excess, rounding = guilty[field["error"]]
    assert excess > 100
    assert abs(local / excess / rounding - 1) < 0.01
    # What comes behind it inherits the error, and makes none.
    inherited, local, excess, _ = rows["model.model.layers.1.mlp.down_proj-output"][field["error"]]
    assert inherited > 1e-5
    assert excess < 3
    assert [name for name, row, _ in wrong["depth"] if row is None] == []
