"""Makes small folders of models, and a sentence model of random weights to embed them with."""

from pathlib import Path
from textwrap import dedent

HEAD = """\
# Copyright {year} The Authors.
import torch
from torch import nn

from .configuration_{snake} import {camel}Config

"""
NORM = '''
class {camel}RMSNorm(nn.Module):
    def __init__(self, hidden_size, eps={eps}):
        """{camel}RMSNorm is documented."""
        super().__init__()
        self.weight = nn.Parameter(torch.ones(hidden_size))
        self.eps = eps  # a comment

    def forward(self, hidden_states):
        variance = hidden_states.float().pow(2).mean(-1, keepdim=True)
        return self.weight * (hidden_states * torch.rsqrt(variance + self.eps))
'''
MLP = """
class {camel}MLP(nn.Module):
    def __init__(self, config: {camel}Config):
        super().__init__()
        self.gate_proj = nn.Linear(config.hidden_size, config.intermediate_size{bias})
        self.down_proj = nn.Linear(config.intermediate_size, config.hidden_size, bias=False)

    def forward(self, x):
        return self.down_proj(torch.relu(self.gate_proj(x)))
"""
ROTATE = """
def rotate_half(x):
    x1 = x[..., : x.shape[-1] // 2]
    x2 = x[..., x.shape[-1] // 2 :]
    return torch.cat((-x2, x1), dim=-1)
"""
BASE = """
class {camel}PreTrainedModel(PreTrainedModel):
    config_class = {camel}Config
    base_model_prefix = "{snake}"
    _no_split_modules = ["{camel}MLP"]
"""


def modeling_source(
    snake: str,
    camel: str,
    *parts: str,
    eps: str = "1e-06",
    bias: str = ", bias=False",
    year: int = 2020,
) -> str:
    """Write a modeling file from parts."""
    text = "".join((HEAD, *(parts or (NORM, MLP, ROTATE, BASE))))
    return text.format(snake=snake, camel=camel, eps=eps, bias=bias, year=year)


def make_models(root: Path, files: dict[str, str], version: str = "9.9.1") -> Path:
    """Write a package of models, and return the folder of its models.

    Args:
        root: where the package lies.
        files: the modeling files' texts by the models' names.
        version: the package's version.
    """
    models = root / "models"
    models.mkdir(parents=True)
    (root / "__init__.py").write_text(f'"""A library."""\n\n__version__ = "{version}"\n')
    for name, text in files.items():
        (models / name).mkdir()
        (models / name / f"modeling_{name}.py").write_text(dedent(text))
    return models


def three_models(root: Path) -> Path:
    """Write three models: two alike, and one whose norm and MLP differ a little."""
    files = {
        "apple": modeling_source("apple", "Apple"),
        "berry_2": modeling_source("berry_2", "Berry2", year=2023),
        "cherry": modeling_source("cherry", "Cherry", eps="1e-05", bias="", year=2024),
    }
    return make_models(root, files)


def make_sentence_model(folder: Path, width: int = 24) -> Path:
    """Write a small BERT of random weights with a tokenizer of single letters."""
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

    torch.manual_seed(7)
    special = ["[PAD]", "[UNK]"]
    letters = [*"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._(),:=+-*/#\"'[]"]
    vocabulary = {token: number for number, token in enumerate([*special, *letters])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]"
    ).save_pretrained(folder)
    config = BertConfig(
        vocab_size=len(vocabulary),
        hidden_size=width,
        num_hidden_layers=2,
        num_attention_heads=3,
        intermediate_size=40,
        max_position_embeddings=700,
    )
    BertModel(config).save_pretrained(folder)
    return folder
