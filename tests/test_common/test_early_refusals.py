"""What is refused before an engine is imported, and what is left to the run."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from comparison.schema.errors import BadInputError
from oracles.generic_oracle import GenericOracle
from oracles.registry import find_oracle
from test_common.early_refusals import model_layers, refuse_early
from tests.child_processes import ROOT, user_environment

NOTHING_ASKED: dict[str, Any] = {
    "encoding": None,
    "device": "default",
    "num_hidden_layers": "all",
    "overrides": {},
}
ENCODINGS = {"cpu": ["float32"], "gpu": ["bfloat16", "float8_e4m3fn"]}
VISION = {"num_hidden_layers": 40}
# Configurations, and of how many layers more would surely be too many; None: nobody can say.
CONFIGS: list[tuple[Any, int | None]] = [
    ({"num_hidden_layers": 3}, 3),
    ({"num_hidden_layers": 3, "vision_config": VISION}, 3),
    ({"num_hidden_layers": 3, "decoder_layers": 5}, 5),
    ({"text_config": {"num_hidden_layers": 6}, "vision_config": VISION}, 6),
    ({"num_hidden_layers": 3, "text_config": {"num_hidden_layers": 6}}, 6),
    ({"num_hidden_layers": 3, "text_config": {"hidden_size": 64}}, None),
    ({"n_layer": 3}, None),
    ({"num_layers": 5, "num_decoder_layers": 3}, None),
    ({"num_hidden_layers": "3"}, None),
    ({"num_hidden_layers": None}, None),
    ({}, None),
    ([3], None),
]


def oracle(folder: Path, config: object) -> GenericOracle:
    (folder / "config.json").write_text(json.dumps(config))
    return GenericOracle(str(folder), device_encoding_map=ENCODINGS)


def refuse(asked_of: GenericOracle, **asked: Any) -> None:
    refuse_early(asked_of, **NOTHING_ASKED | asked)


@pytest.mark.parametrize(("config", "most"), CONFIGS)
def test_more_layers_than_there_are(config: object, most: int | None, tmp_path: Path) -> None:
    model = oracle(tmp_path, config)
    refuse(model, num_hidden_layers=most or 99)
    refuse(model)
    if most is not None:
        words = f"{most + 1} is more than the model has: {most}; give 1 to {most}, or all"
        with pytest.raises(BadInputError, match=words):
            refuse(model, num_hidden_layers=most + 1)


@pytest.mark.parametrize("part", [None, "text_config"])
def test_names_of_more_labels_than_memory_holds_are_not_written(
    part: str | None, tmp_path: Path
) -> None:
    for count in (2, 10**10):
        told = {"model_type": "llama", "num_labels": count}
        model = oracle(tmp_path, told if part is None else {part: told})
        if count == 2:
            refuse(model)
            continue
        with pytest.raises(BadInputError, match=r"expected num_labels of at most .*, found 10{10}"):
            refuse(model, overrides={"rms_norm_eps": 1e-3})


@pytest.mark.parametrize("text", ["{", "\udcff", "[" * 100_000])
def test_a_damaged_configuration_is_left_to_the_run(text: str, tmp_path: Path) -> None:
    model = oracle(tmp_path, {})
    (tmp_path / "config.json").write_bytes(text.encode(errors="surrogateescape"))
    refuse(model, num_hidden_layers=99)
    (tmp_path / "config.json").unlink()
    refuse(model, num_hidden_layers=99)


def test_the_layers_of_a_model_are_told_where_its_files_are(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"num_hidden_layers": 7}')
    assert model_layers(str(tmp_path)) == 7
    assert model_layers(None) is None
    assert model_layers("nobody/has-this") is None
    assert model_layers(str(tmp_path / "none" / "of" / "these")) is None


def test_an_encoding_that_no_device_has(tmp_path: Path) -> None:
    model = oracle(tmp_path, {})
    for device, encoding in (("default", "bfloat16"), ("gpu:0,1", "float8_e4m3fn"), ("tpu", "x")):
        refuse(model, device=device, encoding=encoding)
    listed = "supported: float32 on 'cpu'; bfloat16, float8_e4m3fn on 'gpu'"
    with pytest.raises(BadInputError, match=f"does not support encoding 'q4_k'; {listed}"):
        refuse(model, encoding="q4_k")
    with pytest.raises(BadInputError, match=r"encoding 'bfloat16'; supported: float32 on 'cpu'$"):
        refuse(model, device="cpu", encoding="bfloat16")


def test_overrides_that_the_configuration_does_not_have(tmp_path: Path) -> None:
    model = oracle(tmp_path, {"model_type": "llama", "num_hidden_layers": 3})
    refuse(model, overrides={"rms_norm_eps": 1e-3})
    with pytest.raises(BadInputError, match="unknown field rms_norm_epss, nearest: rms_norm_eps"):
        refuse(model, overrides={"rms_norm_epss": 1e-3})
    with pytest.raises(BadInputError, match=r"rms_norm_eps must be a number, .* found 'small'"):
        refuse(model, overrides={"rms_norm_eps": "small"})


@pytest.mark.parametrize(
    "config",
    [
        {},
        {"model_type": "no_such_model"},
        {"model_type": "mine", "auto_map": {"AutoConfig": "mine.Config"}},
    ],
)
def test_overrides_of_a_configuration_of_another_class_are_left_to_the_run(
    config: object, tmp_path: Path
) -> None:
    (tmp_path / "mine.py").write_text("raise SystemExit('this was run')\n")
    refuse(oracle(tmp_path, config), overrides={"nothing": 1})


def test_commands_refuse_before_they_import_an_engine() -> None:
    made = find_oracle("tiny-random/llama").model_path  # here, if it is not there: it takes Torch
    assert made is not None
    code = (
        "import sys\n"
        "from comparison.schema.errors import BadInputError\n"
        "from tools.debug_model import debug_model\n"
        "from tools.diff_models import diff_models\n"
        "llama = ['--pipeline', 'tiny-random/llama']\n"
        "for command, more in ((debug_model, []), (debug_model, ['--plan']),\n"
        "                      (diff_models, ['--candidate', 'max'])):\n"
        "    for asked in (['--num-hidden-layers', '99'], ['--encoding', 'q4_k']):\n"
        "        try:\n"
        "            command.main([*llama, *more, *asked], standalone_mode=False)\n"
        "        except BadInputError as error:\n"
        "            print(error)\n"
        "print(sorted({'torch', 'max', 'transformers', 'vllm'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env=user_environment(Path(made).parents[2]),
        capture_output=True,
        text=True,
        check=False,
    )
    lines = done.stdout.splitlines()
    assert (len(lines), lines[-1]) == (7, "[]"), done.stderr
    assert all("more than the model has: 4" in line for line in lines[:6:2])
