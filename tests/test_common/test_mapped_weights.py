"""The weights that a plan leaves out are those that Torch maps."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from test_common.mapped_weights import mapped_bytes
from test_common.write_budget import held_memory


class Model(torch.nn.Module):
    base_model_prefix = "model"

    def __init__(self) -> None:
        super().__init__()
        self.up = torch.nn.Linear(5, 3, bias=False)
        self.down = torch.nn.Linear(3, 5, bias=False)
        self.tied = torch.nn.Linear(5, 3, bias=False)
        self.tied.weight = self.up.weight


def store(folder: Path, *, prefix: str = "", **changed: torch.Tensor) -> Path:
    held = {"up.weight": torch.ones(3, 5), "down.weight": torch.ones(5, 3)}
    held |= {f"{name}.weight": tensor for name, tensor in changed.items()}
    save_file({prefix + name: tensor for name, tensor in held.items()}, folder / "m.safetensors")
    return folder


@pytest.mark.parametrize("prefix", ["", "model."])
def test_what_is_the_same_in_the_file_is_mapped(tmp_path: Path, prefix: str) -> None:
    assert mapped_bytes(Model(), str(store(tmp_path, prefix=prefix))) == 2 * 15 * 4


@pytest.mark.parametrize(
    "down", [torch.ones(3, 5), torch.ones(5, 3, dtype=torch.bfloat16)], ids=["shape", "dtype"]
)
def test_what_is_converted_is_not(tmp_path: Path, down: torch.Tensor) -> None:
    assert mapped_bytes(Model(), str(store(tmp_path, down=down))) == 15 * 4


def test_without_files_nothing_is_known(tmp_path: Path) -> None:
    assert mapped_bytes(Model(), None) == 0
    assert mapped_bytes(Model(), "nobody/has-this") == 0
    (tmp_path / "broken.safetensors").write_bytes(b"no header")
    assert mapped_bytes(Model(), str(tmp_path)) == 0
    assert mapped_bytes(Model(), str(store(tmp_path))) == 2 * 15 * 4


def test_transformers_maps_these(tmp_path: Path) -> None:
    from transformers import LlamaConfig, LlamaForCausalLM

    sizes = {"hidden_size": 512, "intermediate_size": 8000, "num_hidden_layers": 2}
    LlamaForCausalLM(LlamaConfig(**sizes, vocab_size=7)).save_pretrained(tmp_path)
    grown = []
    for dtype in (torch.float32, torch.bfloat16):
        before = held_memory()
        model = LlamaForCausalLM.from_pretrained(tmp_path, dtype=dtype)
        grown.append(held_memory() - before)
        weights = sum(p.nbytes for p in model.parameters())
        assert mapped_bytes(model, str(tmp_path)) == (weights if dtype is torch.float32 else 0)
    assert grown[0] < weights / 2 < grown[1]  # float32 takes twice these
