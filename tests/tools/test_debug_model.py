"""The command line: what is refused, with which words and exit code, and that nothing is left."""

import json
import sys
from pathlib import Path

import pytest

from tools.debug_model import debug_model
from tools.entry_point import run_command


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    """Run the command in this process and return its exit code."""
    monkeypatch.setattr(sys, "argv", ["debug_model", *arguments])
    with pytest.raises(SystemExit) as exit_info:
        run_command(debug_model)
    assert isinstance(exit_info.value.code, int)
    return exit_info.value.code


LLAMA = ("--framework", "torch", "--pipeline", "tiny-random/llama")
REFUSED = {
    "unknown pipeline": (
        ("--pipeline", "tiny-random/lama"),
        "unknown pipeline 'tiny-random/lama'",
    ),
    "missing folder": (("--pipeline", "./no/such/folder"), "unknown pipeline './no/such/folder'"),
    "no pipeline": ((), "give --pipeline NAME, or --oracle FILE.py[:NAME]"),
    "both": ((*LLAMA, "--oracle", "x.py"), "and not both"),
    "missing oracle file": (("--oracle", "no_such.py"), "no_such.py"),
    "malformed JSON": ((*LLAMA, "--hf-config-overrides", "{'a': 1}"), "is not JSON"),
    "JSON that is no object": ((*LLAMA, "--hf-config-overrides", "[1]"), "must be a JSON object"),
    "unknown field": (
        (*LLAMA, "--hf-config-overrides", '{"rms_norm_epsilon": 1}'),
        "rms_norm_eps",
    ),
    "no layers": ((*LLAMA, "--num-hidden-layers", "0"), "num_hidden_layers must be at least 1"),
    "negative layers": ((*LLAMA, "--num-hidden-layers", "-3"), "must be at least 1"),
    "layers no number": ((*LLAMA, "--num-hidden-layers", "some"), "must be a number or 'all'"),
    "too many layers": ((*LLAMA, "--num-hidden-layers", "99"), "more than the model has: 4"),
    "no steps": ((*LLAMA, "--num-steps", "0"), "num_steps must be at least 1"),
    "steps no number": ((*LLAMA, "--num-steps", "x"), "'x' is not a valid integer"),
    "unsupported encoding": ((*LLAMA, "--encoding", "q4_k"), "does not support encoding 'q4_k'"),
    "unknown device": ((*LLAMA, "--device", "tpu"), "device must be cpu, gpu"),
    "unknown framework": (("--framework", "jax", "--pipeline", "x"), "'jax' is not one of"),
    "empty prompt": ((*LLAMA, "--prompt", ""), "prompt 0 is empty"),
    "too long a prompt": ((*LLAMA, "--prompt", "a " * 3000), "shorten it"),
    "too many prompts": (
        (*LLAMA, "--prompt", "a", "--prompt", "b", "--max-batch-size", "1"),
        "2 prompts do not fit max_batch_size 1",
    ),
    "V3 on torch": ((*LLAMA, "--prefer-module-v3"), "is for max"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_bad_input_is_one_line_and_exit_code_2(
    case: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    arguments, words = REFUSED[case]
    monkeypatch.chdir(tmp_path)
    assert run(monkeypatch, *arguments, "-o", "dump") == 2
    errors = [line for line in capfd.readouterr().err.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1
    assert words in errors[0]
    assert list(tmp_path.iterdir()) == []


def test_the_nearest_pipeline_is_offered(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, "--pipeline", "tiny-random/lama") == 2
    assert "tiny-random/llama" in capfd.readouterr().err


def test_output_that_is_a_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "file"
    target.write_text("mine")
    assert run(monkeypatch, *LLAMA, "-o", str(target)) == 2
    assert "is a file" in capfd.readouterr().err
    assert target.read_text() == "mine"


def test_output_below_a_read_only_place(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    # Root may write anywhere but where the kernel itself refuses.
    assert run(monkeypatch, *LLAMA, "-o", "/proc/dump") == 2
    assert "cannot write /proc" in capfd.readouterr().err


def test_output_that_is_not_empty(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    assert run(monkeypatch, *LLAMA, "-o", str(tmp_path)) == 2
    assert "is not empty" in capfd.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_a_torch_run_writes_a_dump_and_its_certificate(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("BUILD_WORKING_DIRECTORY", str(tmp_path / "users"))
    (tmp_path / "users").mkdir()
    assert run(monkeypatch, *LLAMA, "-o", "dump", "--num-steps", "2") == 0
    printed = capfd.readouterr().out
    assert "Model class: transformers.models.llama.modeling_llama.LlamaForCausalLM" in printed
    assert "modeling_llama.py" in printed
    dump = tmp_path / "users" / "dump"  # where the user stands, not where the program does
    manifest = json.loads((dump / "manifest.json").read_text())
    assert manifest["complete"] is True
    assert manifest["config"]["num_hidden_layers"] == 1
    assert [len(row["generated"]) for row in manifest["rows"]] == [2, 2]
    names = (dump / "1" / "tensor_names.txt").read_text().splitlines()
    assert "model.model.layers.0.mlp-output" in names
    assert len(list((dump / "1").glob("*.pt"))) == len(names)
    assert f"Saved {manifest['certificate']['saved']} tensors" in printed


def test_users_overrides_win_over_the_number_of_layers(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    overrides = '{"num_hidden_layers": 3, "rms_norm_eps": 0.01}'
    arguments = (*LLAMA, "-o", str(tmp_path / "dump"), "--hf-config-overrides", overrides)
    assert run(monkeypatch, *arguments) == 0
    config = json.loads((tmp_path / "dump" / "manifest.json").read_text())["config"]
    assert config["num_hidden_layers"] == 3
    assert config["rms_norm_eps"] == 0.01


def test_without_output_tensors_are_printed(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, *LLAMA, "--prompt", "hello there, reader") == 0
    printed = capfd.readouterr().out
    assert "model.model.layers.0.mlp-output = tensor([[[" in printed
    assert "dtype=f32, shape=[1, " in printed


def test_an_oracle_of_the_users_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from oracles.registry import find_oracle

    path = find_oracle("tiny-random/qwen2").model_path
    (tmp_path / "mine.py").write_text(
        "from tools.create_pipelines import GenericOracle\n"
        f"ORACLE = GenericOracle({path!r}, device_encoding_map={{'cpu': ['float32']}},\n"
        "                       prompts=['what is in here is mine'])\n"
    )
    arguments = ("--framework", "torch", "--oracle", f"{tmp_path}/mine.py:ORACLE")
    assert run(monkeypatch, *arguments, "-o", str(tmp_path / "dump")) == 0
    manifest = json.loads((tmp_path / "dump" / "manifest.json").read_text())
    assert [row["prompt"] for row in manifest["rows"]] == ["what is in here is mine"]
