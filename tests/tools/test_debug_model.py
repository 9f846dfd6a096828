"""The command line: what is refused, with which words and exit code, and that nothing is left."""

import json
import signal
import sys
from pathlib import Path

import pytest

from tools.debug_model import debug_model
from tools.entry_point import run_command


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    """Run the command in this process and return its exit code."""
    monkeypatch.setattr(sys, "argv", ["debug_model", *arguments])
    monkeypatch.setattr(sys, "stdout", sys.stdout)  # put back afterwards
    handler = signal.getsignal(signal.SIGINT)
    try:
        with pytest.raises(SystemExit) as exit_info:
            run_command(debug_model)
    finally:
        signal.signal(signal.SIGINT, handler)
    assert isinstance(exit_info.value.code, int)
    return exit_info.value.code


INTERNVL = ("--framework", "torch", "--pipeline", "tiny-random/internvl")
LLAMA = ("--framework", "torch", "--pipeline", "tiny-random/llama")
REFUSED = {
    "unknown pipeline": (
        ("--pipeline", "tiny-random/lama"),
        "unknown pipeline 'tiny-random/lama'",
    ),
    "missing folder": (("--pipeline", "./no/such/folder"), "unknown pipeline './no/such/folder'"),
    "no pipeline": ((), "give --pipeline NAME or --oracle FILE.py[:NAME]"),
    "both": ((*LLAMA, "--oracle", "x.py"), "both was given"),
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
    "missing adapter": ((*LLAMA, "--lora", "no/adapter"), "LoRA adapter no/adapter does not exist"),
    "adapter for blocks": (
        ("--framework", "torch", "--pipeline", "tiny-random/llama-q4_0", "--lora", "no/adapter"),
        "a LoRA adapter cannot be merged into weights of blocks",
    ),
    "maker of pictures": (
        ("--pipeline", "black-forest-labs/FLUX.2-dev"),
        "run as Flux2Pipeline: it makes pictures: debug_model runs text generation",
    ),
    "architecture": (("--pipeline", "Gemma3ForCausalLM"), "give one, such as google/gemma-3-1b-it"),
    "empty prompt": ((*LLAMA, "--prompt", ""), "prompt 0 is empty"),
    "too long a prompt": ((*LLAMA, "--prompt", "a " * 3000), "shorten it"),
    "too many prompts": (
        (*LLAMA, "--prompt", "a", "--prompt", "b", "--max-batch-size", "1"),
        "2 prompts do not fit max_batch_size 1",
    ),
    "prompt ids that are none": ((*LLAMA, "--prompt-ids", "1,x"), "must be numbers separated"),
    "prompt ids outside": ((*LLAMA, "--prompt-ids", "1,99999"), "99999"),
    "two kinds of prompts": (
        (*LLAMA, "--prompt", "a", "--prompt-ids", "1"),
        "give prompts by one of",
    ),
    "no batch file": ((*LLAMA, "--batch", "none.txt"), "batch file none.txt does not exist"),
    "steps not run": ((*LLAMA, "--steps", "1"), "whose steps are 0 to 0"),
    "steps of another form": ((*LLAMA, "--steps", "a-b"), "steps must be like"),
    "console style with a folder": ((*LLAMA, "--style", "full"), "leave the output out"),
    "format and style": (
        (*LLAMA, "-o", "x", "--style", "binary", "--format", "pt"),
        "give --style or --format, not both",
    ),
    "format on MAX": (
        ("--pipeline", "tiny-random/llama", "-o", "x", "--format", "safetensors"),
        "MAX writes its files by itself",
    ),
    "no size": ((*LLAMA, "--max-bytes", "much"), "--max-bytes must be a size such as 8GB"),
    "no memory": ((*LLAMA, "--max-memory", "0"), "--max-memory must be a size such as 8GB"),
    "too little memory": (
        (*LLAMA, "-o", "x", "--max-memory", "9kB"),
        "more than --max-memory 9.0 kB: take fewer layers",
    ),
    "format of sketches": (
        (*LLAMA, "-o", "x", "--mode", "sketch", "--format", "pt"),
        "--mode sketch has files of its own: leave --format out",
    ),
    "plan into a file": ((*LLAMA, "--plan", "-o", "/dev/null/x"), "/dev/null is a file"),
    "plan of nothing": (
        (*LLAMA, "--plan", "--filter", "no*"),
        "will capture nothing: no tensor fits --filter",
    ),
    "plan of sketches": (
        (*LLAMA, "--plan", "--mode", "sketch", "-o", "out"),
        "--plan counts whole tensors, and --mode sketch keeps a few KB of each",
    ),
    "plan over its limit": ((*LLAMA, "--plan", "--max-bytes", "9kB"), "more than --max-bytes"),
    "unknown style": ((*LLAMA, "--style", "json"), "'json' is not one of"),
    "precision": ((*LLAMA, "--style", "full", "--precision", "99"), "precision must be 0 to 17"),
    "precision of files": ((*LLAMA, "--precision", "6"), "--precision is that of --style full"),
    "no room for the steps": ((*LLAMA, "--num-steps", "512"), "leaves no room for a prompt"),
    "empty output": ((*LLAMA, "-o", ""), "the path is empty"),
    "a picture for text alone": (
        (*LLAMA, "--image", "none.png"),
        "tiny-random/llama takes no images: leave --image out",
    ),
    "no picture": (
        (*INTERNVL, "--image", "none.png", "--image", "/dev/null"),
        "image none.png does not exist; image /dev/null: expected a file, found a device",
    ),
    "a picture from the web, offline": (
        (*INTERNVL, "--image", "https://example.org/a.png"),
        "HF_HUB_OFFLINE is set; unset it, or give a local file",
    ),
    "ids without the tokens of the picture": (
        (*INTERNVL, "--prompt-ids", "1,60"),
        "prompt 0 has the image token <IMG_CONTEXT>",
    ),
    "pictures on vllm": (
        ("--framework", "vllm", "--pipeline", "tiny-random/internvl"),
        "are run on max and torch only, not on vllm",
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
    assert run(monkeypatch, "-o", "dump", *arguments) == 2
    errors = [line for line in capfd.readouterr().err.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1
    assert words in errors[0]
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_overwritten_without_a_folder(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, *LLAMA, "--overwrite") == 2
    assert "overwrite replaces a dump: name its output folder" in capfd.readouterr().err


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


def test_token_ids_pass_unchanged(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    out = tmp_path / "dump"
    ids = ("--prompt-ids", "1,5,7,9", "--prompt-ids", "8 6")
    assert run(monkeypatch, *LLAMA, *ids, "-o", str(out)) == 0
    rows = json.loads((out / "manifest.json").read_text())["rows"]
    assert [row["token_ids"] for row in rows] == [[1, 5, 7, 9], [8, 6]]
    assert [row["prompt"] for row in rows] == [None, None]


def test_a_batch_comes_from_a_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "prompts.txt").write_text("the first of them\nanother one\n")
    out = tmp_path / "dump"
    arguments = (*LLAMA, "--batch", str(tmp_path / "prompts.txt"), "-o", str(out))
    assert run(monkeypatch, *arguments) == 0
    rows = json.loads((out / "manifest.json").read_text())["rows"]
    assert [row["prompt"] for row in rows] == ["the first of them", "another one"]


def test_a_filter_and_steps_capture_less(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    out = tmp_path / "dump"
    arguments = (*LLAMA, "--num-steps", "4", "--steps", "1,3", "--filter", "*.mlp", "-o", str(out))
    assert run(monkeypatch, *arguments) == 0
    assert sorted(path.name for path in out.iterdir()) == ["1", "3", "manifest.json"]
    names = (out / "3" / "tensor_names.txt").read_text().split()
    assert names == ["model.model.layers.0.mlp-input_0", "model.model.layers.0.mlp-output"]


def test_full_style_prints_every_element(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    ids = ("--prompt-ids", "1,5,7", "--filter", "*.embed_tokens-input_0")
    assert run(monkeypatch, *LLAMA, *ids, "--style", "full") == 0
    assert "model.model.embed_tokens-input_0 = tensor<1x3xi64> [1, 5, 7]" in capfd.readouterr().out


@pytest.mark.parametrize(("style", "suffix"), [("binary", ""), ("binary-max-checkpoint", ".max")])
def test_styles_that_write_files_give_the_same_numbers(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    style: str,
    suffix: str,
) -> None:
    from comparison.pipeline import CompareOptions, compare
    from comparison.schema.comparison import Verdict
    from comparison.schema.tolerance import Tolerance

    arguments = (*LLAMA, "--prompt", "what is written", "-o")
    assert run(monkeypatch, *arguments, str(tmp_path / "native")) == 0
    assert run(monkeypatch, *arguments, str(tmp_path / "styled"), "--style", style) == 0
    name = f"model.model.layers.0.mlp-output{suffix}"
    assert (tmp_path / "styled" / "0" / name).is_file()
    exact = CompareOptions(tolerance=Tolerance())
    result = compare(tmp_path / "native", tmp_path / "styled", exact)
    assert result.verdict is Verdict.AGREE
    assert len(result.pairs) == result.reference.tensors == result.candidate.tensors


def test_a_plan_is_printed_and_nothing_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    steps = ("--num-steps", "4", "--num-hidden-layers", "2")
    assert run(monkeypatch, *LLAMA, *steps, "-o", str(out), "--plan", "--max-bytes", "1GB") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("Plan for tiny-random/llama on torch in float32")
    assert "step 0, the prefill: 88 tensors" in lines[2]
    assert "each of 3 decode steps, at most: 88 tensors" in lines[3]
    assert "in all: 352 tensors" in lines[4]
    assert [line.split(",")[0] for line in lines if "estimated" in line] == [
        "  memory",
        "  time",
    ]
    assert not out.exists()


def test_a_plan_refuses_to_go_on_with_another_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = (*LLAMA, "-o", str(tmp_path / "out"), "--filter", "*norm*")
    assert run(monkeypatch, *asked, "--num-steps", "1") == 0
    assert run(monkeypatch, *asked, "--num-steps", "1", "--plan", "--resume") == 0
    capsys.readouterr()
    assert run(monkeypatch, *asked, "--num-steps", "2", "--plan", "--resume") == 2
    assert "number of steps is 2 here and 1 there" in capsys.readouterr().err


def test_a_size_of_no_dump_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, *LLAMA, "--max-bytes", "2GB") == 2
    assert "name its folder with --output" in capsys.readouterr().err


@pytest.mark.parametrize(("engine", "words"), [("max", "MAX fuses"), ("vllm", "vLLM joins")])
def test_a_plan_for_another_engine_says_what_it_is_made_of(
    engine: str,
    words: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    asked = ("--framework", engine, "--pipeline", "tiny-random/llama", "--device", "cpu", "--plan")
    assert run(monkeypatch, *asked) == 0
    assert words in capsys.readouterr().out


@pytest.mark.parametrize("file_format", ["pt", "safetensors"])
def test_a_run_is_cut_at_max_bytes_with_exit_code_2(
    tmp_path: Path,
    file_format: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = tmp_path / "out"
    given = (*LLAMA, "-o", str(out), "--format", file_format, "--max-bytes", "3MB")
    assert run(monkeypatch, *given) == 2
    assert "the dump was cut at model.model." in capsys.readouterr().err
    assert json.loads((out / "manifest.json").read_text())["complete"] is False


def test_resume(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = (*LLAMA, "--filter", "*.mlp-*", "-o", str(tmp_path / "d"))
    assert run(monkeypatch, *given, "--num-steps", "2") == 0
    before = [(path, path.stat().st_mtime_ns) for path in (tmp_path / "d").rglob("*")]
    capsys.readouterr()
    assert run(monkeypatch, *given, "--num-steps", "2", "--resume") == 0
    assert "d is whole: 4 tensors of this very run, none rewritten" in capsys.readouterr().out
    assert run(monkeypatch, *given, "--num-steps", "3", "--resume") == 2
    assert "number of steps is 3 here and 2 there" in capsys.readouterr().err
    assert [(path, path.stat().st_mtime_ns) for path, _ in before] == before
