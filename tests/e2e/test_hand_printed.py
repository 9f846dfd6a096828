"""Values saved by hand on both sides: `torch.save` in transformers, `x.print` in MAX's model.

One MAX graph of its own. By hand on two cores shared with four other jobs, its graph not cached,
2026-11-29: 3 passed in 337 s, of which 189 s of processor time.
"""

import importlib.util
import shutil
from pathlib import Path

import pytest

from tests.child_processes import run_module, user_environment

pytestmark = pytest.mark.full

PROMPT = "The quick brown fox jumps over the lazy dog."
# Saved under the same names on both sides.
NAMES = ("mlp_A_input", "mlp_B_activated")
TORCH_BEFORE = "        down_proj = self.down_proj("
TORCH_SAVES = """\
        import os
        os.makedirs("torch_debug", exist_ok=True)
        torch.save(x, "torch_debug/mlp_A_input.pt")
        torch.save(self.act_fn(self.gate_proj(x)), "torch_debug/mlp_B_activated.pt")
"""
MAX_BEFORE = "        if self.swiglu_limit > 0:\n"
MAX_PRINTS = """\
        TensorValue(x).print("mlp_A_input")
        gate_out.print("mlp_B_activated")
"""
ORACLE = """\
from pathlib import Path

from oracles.registry import find_oracle
from tools.create_pipelines import GenericOracle

ORACLE = GenericOracle(
    str(find_oracle("tiny-random/llama").model_path),
    device_encoding_map={"cpu": ["float32"]},
    config_params={
        "max_length": 512,
        "custom_architectures": [f"{Path(__file__).parent}:printing_llama3"],
    },
)
"""


def folder_of(module: str) -> Path:
    spec = importlib.util.find_spec(module)
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).resolve().parent


def replace_once(file: Path, old: str, new: str) -> None:
    source = file.read_text()
    assert old in source, file
    file.write_text(source.replace(old, new, 1))


def copy_of_max_llama(folder: Path) -> None:
    """Copy MAX's Llama and its MLP, and print two values inside of the latter."""
    copy = folder / "printing_llama3"
    shutil.copytree(folder_of("max.pipelines.architectures.llama3"), copy)
    (copy / "__init__.py").write_text(
        "from .arch import llama_arch\n\nARCHITECTURES = [llama_arch]\n"
    )
    mlp = copy / "mlp.py"
    source = (folder_of("max.nn") / "linear.py").read_text()
    mlp.write_text(source.replace("\nfrom .", "\nfrom max.nn."))
    replace_once(mlp, MAX_BEFORE, MAX_PRINTS + MAX_BEFORE)
    llama = copy / "llama3.py"
    replace_once(llama, "from max.nn.linear import MLP, ", "from max.nn.linear import ")
    replace_once(llama, "from .model_config", "from .mlp import MLP\nfrom .model_config")
    (folder / "my_oracle.py").write_text(ORACLE)


@pytest.fixture(scope="module")
def user(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Run both engines with their edited sources, and return the folder they ran in."""
    folder = tmp_path_factory.mktemp("user")
    environment = user_environment(folder / "cache")
    made = run_module("tools.local_transformers", "setup", cwd=folder, environment=environment)
    assert made.returncode == 0, made.stderr
    transformers = Path(made.stdout.splitlines()[0].removeprefix("Editable transformers: "))
    modeling = transformers / "models" / "llama" / "modeling_llama.py"
    replace_once(modeling, TORCH_BEFORE, TORCH_SAVES + TORCH_BEFORE)
    copy_of_max_llama(folder)
    for framework in ("torch", "max"):
        model = ("--framework", framework, "--oracle", "my_oracle.py", "--prompt", PROMPT)
        run = run_module(
            "tools.debug_model", *model, "-o", framework, cwd=folder, environment=environment
        )
        assert run.returncode == 0, run.stdout + run.stderr
    return folder


def test_the_copy_of_the_model_is_what_ran(user: Path) -> None:
    names = (user / "max" / "0" / "tensor_names.txt").read_text().splitlines()
    assert set(NAMES) < set(names)
    assert "model.layers.layers.0.mlp-output" in names
    for name in NAMES:
        assert names.count(name) == 1
        assert (user / "max" / "0" / f"{name}.max").is_file()


def test_values_saved_by_hand_pair_by_their_names(user: Path) -> None:
    compared = run_module(
        "tools.compare_tensors",
        *("--torch-tensor", "torch_debug", "--max-tensor", "max"),
        *("--rtol", "1e-4", "--atol", "1e-4"),
        cwd=user,
        environment=user_environment(user / "cache"),
    )
    assert compared.returncode == 0, compared.stdout + compared.stderr
    assert "Found 2 matching tensor pair(s)" in compared.stdout
    for name in NAMES:
        assert f"Tensor: {name} vs {name}" in compared.stdout


def test_the_whole_dumps_still_agree(user: Path) -> None:
    compared = run_module(
        "tools.compare_tensors",
        *("--torch-tensor", "torch", "--max-tensor", "max"),
        *("--rtol", "1e-4", "--atol", "1e-4"),
        cwd=user,
        environment=user_environment(user / "cache"),
    )
    assert compared.returncode == 0, compared.stdout + compared.stderr
