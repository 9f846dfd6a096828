"""Tests of the tiny checkpoints with the real transformers."""

from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from comparison.schema.errors import BadInputError
from test_common.tiny_checkpoints import RECIPES, ensure_tiny_checkpoint

DECODERS = sorted(set(RECIPES) - {"bert", "mpnet"})
UNTIED = [arch for arch in DECODERS if not RECIPES[arch].config["tie_word_embeddings"]]
TEXT = "The quick brown fox jumps over 13 lazy dogs.\n\tnaïve 你好 🦊"


@cache
def _loaded(arch: str) -> tuple[Any, dict[str, Any], Any]:
    folder = ensure_tiny_checkpoint(arch)
    model_class = getattr(transformers, RECIPES[arch].model_class)
    model, info = model_class.from_pretrained(
        folder, output_loading_info=True, attn_implementation="eager"
    )
    return model.eval(), info, transformers.AutoTokenizer.from_pretrained(folder)


@pytest.mark.parametrize("arch", RECIPES)
def test_every_weight_has_a_place_and_every_place_a_weight(arch: str) -> None:
    model, info, _ = _loaded(arch)
    assert {name: len(keys) for name, keys in info.items() if keys} == {}
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}


@pytest.mark.parametrize("arch", RECIPES)
def test_config_names_the_architecture(arch: str) -> None:
    config = transformers.AutoConfig.from_pretrained(ensure_tiny_checkpoint(arch))
    assert tuple(config.architectures) == RECIPES[arch].config_architectures


@pytest.mark.parametrize("arch", RECIPES)
def test_tokenizer_fits_the_model_and_encodes_any_text(arch: str) -> None:
    model, _, tokenizer = _loaded(arch)
    ids = tokenizer(TEXT)["input_ids"]
    config = model.config.get_text_config()
    assert len(tokenizer) == config.vocab_size
    assert max(ids) < len(tokenizer)
    assert ids[0] == tokenizer.bos_token_id == config.bos_token_id
    assert tokenizer.eos_token_id == config.eos_token_id
    assert tokenizer.pad_token_id == config.pad_token_id
    assert (ids[-1] == tokenizer.eos_token_id) == RECIPES[arch].adds_eos
    assert tokenizer.decode(ids, skip_special_tokens=True) == TEXT
    assert len(ids) < len(TEXT.encode())  # letters are merged


@pytest.mark.parametrize("arch", RECIPES)
def test_chat_template_names_roles_and_starts_the_answer(arch: str) -> None:
    _, _, tokenizer = _loaded(arch)
    chat = [{"role": "user", "content": "Hi"}]
    text = tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
    assert text == "<bos>[user] Hi\n[assistant] "


@pytest.mark.parametrize("arch", DECODERS)
def test_logits_are_finite_and_have_a_clear_winner(arch: str) -> None:
    model, _, tokenizer = _loaded(arch)
    ids = torch.tensor([tokenizer(TEXT)["input_ids"]])
    with torch.no_grad():
        logits = model(ids).logits[0]
    assert torch.isfinite(logits).all()
    best = logits.topk(2, dim=-1).values
    margins = (best[:, 0] - best[:, 1]) / logits.std()
    assert margins.median() > 0.05
    assert 0.1 < logits.std() < 8.0
    assert len(set(logits.argmax(-1).tolist())) > len(logits) // 6


@pytest.mark.parametrize("arch", RECIPES)
def test_activations_stay_near_one(arch: str) -> None:
    model, _, tokenizer = _loaded(arch)
    ids = torch.tensor([tokenizer(TEXT)["input_ids"]])
    with torch.no_grad():
        hidden = model(ids, output_hidden_states=True).hidden_states
    assert all(0.03 < float(state.std()) < 6.0 for state in hidden)


@pytest.mark.parametrize("arch", UNTIED)
def test_greedy_tokens_do_not_merely_repeat_the_last_one(arch: str) -> None:
    model, _, tokenizer = _loaded(arch)
    ids = torch.tensor([tokenizer(TEXT)["input_ids"]])
    generated = model.generate(
        ids, attention_mask=torch.ones_like(ids), max_new_tokens=4, do_sample=False
    )
    assert len(set(generated[0, ids.shape[1] :].tolist())) > 1


@pytest.mark.parametrize("arch", ["llama", "mpnet"])
def test_two_makes_give_the_same_bytes(arch: str, tmp_path: Path) -> None:
    first, second = (ensure_tiny_checkpoint(arch, tmp_path / name) for name in ("one", "two"))
    assert first != second
    names = sorted(path.name for path in first.iterdir())
    assert names == sorted(path.name for path in second.iterdir())
    assert {"config.json", "model.safetensors", "tokenizer.json"} <= set(names)
    for name in names:
        assert (first / name).read_bytes() == (second / name).read_bytes(), name


def test_weights_do_not_follow_the_global_seed(tmp_path: Path) -> None:
    torch.manual_seed(1)
    first = ensure_tiny_checkpoint("olmo", tmp_path / "one") / "model.safetensors"
    torch.manual_seed(2)
    second = ensure_tiny_checkpoint("olmo", tmp_path / "two") / "model.safetensors"
    assert first.read_bytes() == second.read_bytes()


def test_unknown_architecture_names_the_nearest() -> None:
    with pytest.raises(BadInputError, match="no tiny checkpoint for architecture 'lama'; nearest"):
        ensure_tiny_checkpoint("lama")
