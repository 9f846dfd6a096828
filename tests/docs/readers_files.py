"""Makes what the reader of a page has before they type its commands: dumps, traces, pictures."""

import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from safetensors.numpy import save_file

from oracles.registry import find_oracle
from test_common.debug_options import DebugOptions
from test_common.debug_run import run_debug_model
from tests.comparison.traces.traced_llama import trace_llama
from tests.tools.own_code_checkpoint import copied, with_own_model
from tests.utils.scan_trees import make_root, one_class

PIPELINE = "tiny-random/llama"
# What the names of models that are the reader's own are replaced by.
OWN_MODELS = {
    "my-org/big": PIPELINE,
    "my-org/my-model": PIPELINE,
    "my-org/own-code": "own_code",
    "org/model": PIPELINE,
}
# Pages on which dumps are of all layers.
ALL_LAYERS = ("big_models.md", "sketches.md")
ORACLE = f"""
from tools.create_pipelines import PIPELINE_ORACLES, GenericOracle

ORACLE = GenericOracle(
    PIPELINE_ORACLES["{PIPELINE}"].model_path,
    device_encoding_map={{"cpu": ["float32"], "gpu": ["bfloat16"]}},
    config_params={{"max_length": 256}},
)
"""
MODELING = """
from torch import nn


class Beit3PreTrainedModel(nn.Module):
    pass


class Beit3MLP(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.up_proj = nn.Linear(config.hidden_size, config.intermediate_size)
        self.down_proj = nn.Linear(config.intermediate_size, config.hidden_size)

    def forward(self, hidden_states):
        return self.down_proj(nn.functional.gelu(self.up_proj(hidden_states)))
"""


class Dumps:
    """Dumps of a tiny llama, each made once.

    Args:
        folder: where they are kept.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def copy(self, folder: Path, *, num_hidden_layers: int | str, framework: str) -> None:
        """Put one into a folder that is not there yet."""
        kept = self._folder / f"{framework}_{num_hidden_layers}"
        if not kept.exists():
            options = DebugOptions(
                pipeline=PIPELINE,
                framework=framework,
                output=kept,
                num_hidden_layers=num_hidden_layers,
            )
            run_debug_model(find_oracle(PIPELINE), options)
        shutil.copytree(kept, folder)


class ReadersFiles:
    """What lies in the reader's folder.

    Args:
        folder: the folder.
        page: the name of the page that they read.
        dumps: what dumps are copied from.
        max_framework: the engine of `max_tensors/`: torch, where nothing may be built on MAX.
    """

    def __init__(self, folder: Path, page: str, dumps: Dumps, *, max_framework: str) -> None:
        self._folder = folder
        self._layers: int | str = "all" if page in ALL_LAYERS else 1
        self._dumps = dumps
        self._max_framework = max_framework

    def provide(self, name: str) -> None:
        """Make what a command names, if it is one of these things and not there."""
        make = self._makers().get(name.rstrip("/"))
        path = self._folder / name
        if make is not None and not path.exists():
            make(path)

    def _makers(self) -> Mapping[str, Callable[[Path], object]]:
        return {
            "torch_tensors": self._dump,
            "good": self._dump,
            "new": self._dump,
            "max_tensors": self._max_dump,
            "torch_debug": self._printed,
            "good_trace": trace_llama,
            "new_trace": trace_llama,
            "yesterday.json": self._result,
            "today.json": self._result,
            "left.png": lambda path: _picture(path, (96, 64)),
            "right.jpg": lambda path: _picture(path, (64, 80)),
            "my_oracle.py:ORACLE": lambda _: self._write("my_oracle.py", ORACLE),
            "modeling_beit3.py": lambda path: self._write(path.name, MODELING),
            "adapter": _adapter,
            "own_code": lambda path: with_own_model(copied(PIPELINE, path), path / "trace"),
            "~/transformers": lambda _: self._checkout(),
        }

    def _dump(self, path: Path, framework: str = "torch") -> None:
        self._dumps.copy(path, num_hidden_layers=self._layers, framework=framework)

    def _max_dump(self, path: Path) -> None:
        self._dump(path, self._max_framework)

    def _printed(self, path: Path) -> None:
        """Save a value on both sides, as the README's third step asks for."""
        path.mkdir()
        candidate = self._folder / "max_tensors" / "0"
        for folder in (path, candidate):
            torch.save(torch.arange(35.0).reshape(5, 7), folder / "mlp_gate.pt")
        with (candidate / "tensor_names.txt").open("a") as names:
            names.write("mlp_gate\n")
        # Else a stand-in is a dump of Torch, which has to have what Torch has.
        manifest = candidate.parent / "manifest.json"
        said = json.loads(manifest.read_text())
        said["engine"] = "max"
        manifest.write_text(json.dumps(said))

    def _result(self, path: Path) -> None:
        from tools.compare_tensors import compare_tensors

        for name in ("good", "new"):
            self.provide(name)
        sides = [str(self._folder / name) for name in ("good", "new")]
        arguments = ["--reference", sides[0], "--candidate", sides[1], "--rtol", "1e-3"]
        compare_tensors.main([*arguments, "--json", str(path)], standalone_mode=False)

    def _write(self, name: str, text: str) -> None:
        (self._folder / name).write_text(text)

    def _checkout(self) -> None:
        if not (self._folder / "transformers").exists():
            tests = one_class("@unittest.skip('too slow')\ndef test_inputs_embeds(self):\n    pass")
            make_root(self._folder / "transformers", {"bert": tests})


def _picture(path: Path, size: tuple[int, int]) -> None:
    Image.linear_gradient("L").resize(size).convert("RGB").save(path)


def _adapter(folder: Path) -> None:
    folder.mkdir()
    stem = "base_model.model.model.layers.0.self_attn.q_proj"
    numbers = np.random.default_rng(1)
    weights = {
        f"{stem}.lora_A.weight": numbers.standard_normal((4, 256)).astype(np.float32),
        f"{stem}.lora_B.weight": numbers.standard_normal((256, 4)).astype(np.float32),
    }
    save_file(weights, folder / "adapter_model.safetensors")
    settings = {"peft_type": "LORA", "r": 4, "lora_alpha": 8}
    (folder / "adapter_config.json").write_text(json.dumps(settings))
