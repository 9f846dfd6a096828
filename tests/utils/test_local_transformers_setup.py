"""The two scripts as a user runs them: from elsewhere, twice, and with blanks in every path."""

import hashlib
import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.child_processes import ROOT, run_module, user_environment

PROMPT = "The quick brown fox jumps over the lazy dog."
SAVED = """\
        import os
        os.makedirs("torch_debug", exist_ok=True)
        torch.save(x, "torch_debug/mlp_A_input.pt")
        torch.save(self.gate_proj(x), "torch_debug/mlp_B_gate.pt")
"""
DOWN = "        down_proj = self.down_proj("


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Give a checkout whose path has blanks; the scripts are real files in it."""
    folder = tmp_path / "my check out"
    scripts = folder / "utils" / "local_transformers_setup"
    scripts.mkdir(parents=True)
    for script in (ROOT / "utils" / "local_transformers_setup").glob("*.sh"):
        shutil.copyfile(script, scripts / script.name)
    for room in ("comparison", "test_common", "tools"):
        (folder / room).symlink_to(ROOT / room)
    return folder


def run_script(checkout: Path, name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    script = checkout / "utils" / "local_transformers_setup" / f"{name}_local_transformers.sh"
    return subprocess.run(
        ["bash", str(script), *(arguments or ("--python", sys.executable))],
        cwd=checkout.parent,
        env=user_environment(checkout.parent / "my cache"),
        capture_output=True,
        text=True,
        check=False,
    )


def digest_of_installed() -> str:
    spec = importlib.util.find_spec("transformers")
    assert spec is not None
    assert spec.origin is not None
    digest = hashlib.sha256()
    for path in sorted(Path(spec.origin).resolve().parent.rglob("*.py")):
        digest.update(str(path).encode() + path.read_bytes())
    return digest.hexdigest()


def set_up(checkout: Path) -> Path:
    """Return the copy's folder."""
    made = run_script(checkout, "setup")
    assert made.returncode == 0, made.stderr
    return Path(made.stdout.splitlines()[0].removeprefix("Editable transformers: "))


def edit(copy: Path) -> Path:
    """Save two tensors inside of Llama's MLP, and return the edited file."""
    file = copy / "models" / "llama" / "modeling_llama.py"
    source = file.read_text()
    assert source.count(DOWN) == 1
    file.write_text(source.replace(DOWN, SAVED + DOWN))
    return file


def test_both_scripts_work_twice_in_a_row(checkout: Path) -> None:
    before = digest_of_installed()
    copy = set_up(checkout)
    again = run_script(checkout, "setup")
    assert again.returncode == 0, again.stderr
    assert f"{copy} (set up already, no edits)" in again.stdout
    removed = run_script(checkout, "cleanup")
    assert removed.returncode == 0, removed.stderr
    assert "Removed the local copy of 5" in removed.stdout
    assert not copy.exists()
    nothing = run_script(checkout, "cleanup")
    assert nothing.returncode == 0, nothing.stderr
    assert nothing.stdout == "No local copy; the installed transformers is used\n"
    assert digest_of_installed() == before


def test_edits_are_kept_by_both_scripts(checkout: Path) -> None:
    file = edit(set_up(checkout))
    edited = file.read_text()
    refused = run_script(checkout, "setup")
    assert refused.returncode == 2
    assert "has edits, which are kept (models/llama/modeling_llama.py)" in refused.stderr
    assert file.read_text() == edited
    removed = run_script(checkout, "cleanup")
    assert removed.returncode == 0, removed.stderr
    kept = removed.stdout.splitlines()[0].removeprefix("Your edited files are kept in ")
    assert (Path(kept) / "models" / "llama" / "modeling_llama.py").read_text() == edited


def test_a_tensor_saved_in_an_edited_forward_is_found(checkout: Path) -> None:
    user, environment = checkout.parent, user_environment(checkout.parent / "my cache")
    copy = set_up(checkout)
    file = edit(copy)
    model = ("--framework", "torch", "--pipeline", "tiny-random/llama", "--prompt", PROMPT)
    run = run_module("tools.debug_model", *model, "-o", "a", cwd=user, environment=environment)
    assert run.returncode == 0, run.stderr
    assert f"local transformers in use: {copy}\n" in run.stderr
    assert f"Model source file: {file}\n" in run.stdout
    saved = ("--reference", "torch_debug/mlp_B_gate.pt")
    hooked = ("--candidate", "a/0/model.model.layers.0.mlp.gate_proj-output.pt", "--rtol", "0")
    compared = run_module(
        "tools.compare_tensors", *saved, *hooked, cwd=user, environment=environment
    )
    assert compared.returncode == 0, compared.stdout + compared.stderr
    assert "Tensor: mlp_B_gate vs model.model.layers.0.mlp.gate_proj-output" in compared.stdout
    assert "local transformers" not in compared.stderr  # it imports none

    shutil.rmtree(user / "torch_debug")
    assert run_script(checkout, "cleanup").returncode == 0
    run = run_module("tools.debug_model", *model, "-o", "b", cwd=user, environment=environment)
    assert run.returncode == 0, run.stderr
    assert "local transformers" not in run.stderr
    assert not (user / "torch_debug").exists()


@pytest.mark.parametrize("name", ["setup", "cleanup"])
def test_a_python_that_cannot_run_the_tools_is_refused(checkout: Path, name: str) -> None:
    refused = run_script(checkout, name, "--python", "/no such/python")
    assert refused.returncode == 2
    assert "/no such/python cannot run debug_model" in refused.stderr


def test_an_unknown_option_is_refused(checkout: Path) -> None:
    refused = run_script(checkout, "setup", "--force")
    assert refused.returncode == 2
    assert "expected --bazel, --python PATH or nothing, got --force" in refused.stderr
