"""A checkpoint that comes with Python code of its own, which leaves a trace when it runs."""

import json
import shutil
from pathlib import Path

from oracles.registry import find_oracle

MODEL_CODE = """
from pathlib import Path
from transformers import LlamaConfig, LlamaForCausalLM
Path({trace!r}).open("a").write("model\\n")
class OwnConfig(LlamaConfig):
    model_type = "own_code_model"
class OwnForCausalLM(LlamaForCausalLM):
    config_class = OwnConfig
"""
TOKENIZER_CODE = """
from pathlib import Path
from transformers import PreTrainedTokenizerFast
Path({trace!r}).open("a").write("tokenizer\\n")
class OwnTokenizer(PreTrainedTokenizerFast):
    pass
"""


def copied(pipeline: str, folder: Path) -> Path:
    """Copy the checkpoint of a tiny pipeline."""
    source = find_oracle(pipeline).model_path
    assert source is not None
    shutil.copytree(source, folder)
    return folder


def with_own_model(folder: Path, trace: Path) -> Path:
    """Let a copy of a Llama need its own code for its configuration and its model."""
    (folder / "own_code.py").write_text(MODEL_CODE.format(trace=str(trace)))
    auto = {"AutoConfig": "own_code.OwnConfig", "AutoModelForCausalLM": "own_code.OwnForCausalLM"}
    changed = {"auto_map": auto, "model_type": "own_code_model"}
    _change(folder / "config.json", changed | {"architectures": ["OwnForCausalLM"]})
    return folder


def with_own_tokenizer(folder: Path, trace: Path) -> Path:
    """Offer a tokenizer of its own beside the one that transformers has for it."""
    (folder / "own_tokenizer.py").write_text(TOKENIZER_CODE.format(trace=str(trace)))
    auto = {"AutoTokenizer": [None, "own_tokenizer.OwnTokenizer"]}
    _change(folder / "tokenizer_config.json", {"auto_map": auto})
    return folder


def _change(file: Path, fields: dict[str, object]) -> None:
    file.write_text(json.dumps(json.loads(file.read_text()) | fields))
