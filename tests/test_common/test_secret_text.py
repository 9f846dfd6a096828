"""Tokens and passwords do not come through; what only looks a little like one does."""

import logging

import pytest

from test_common.secret_text import (
    TokenFreeFormatter,
    manifest_without_tokens,
    values_without_tokens,
    without_tokens,
)
from tests.comparison.dumps import make_manifest

TOKEN = "hf_AbcdefghijKLMNOP0123456789"


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        (f"a {TOKEN} b", "a <removed> b"),
        ("https://me:pass@host/x", "https://<removed>@host/x"),
        ("https://tok@host:80/x?a=1", "https://<removed>@host:80/x?a=1"),
        ("http://h/x?a=1&token=abc&b=2#c", "http://h/x?a=1&token=<removed>&b=2#c"),
        ("https://h/x?X-Amz-Signature=abc", "https://h/x?X-Amz-Signature=<removed>"),
        ("key sk-abcdefghijklmnop1234 and ghp_abcdefghijklmnop1234", "key <removed> and <removed>"),
        ("the secret is s3cret-of-the-test!", "the secret is <removed>!"),
        ("hf_config_overrides and hf_hub_download stay", None),
        ("model.layers.0.mlp-output <bos> token_ids max_tokens=12345678", None),
        ("mail me@host.example, or a@b//c", None),
        ("https://h/x?page=2", None),
        ("", None),
    ],
)
def test_texts(monkeypatch: pytest.MonkeyPatch, text: str, clean: str | None) -> None:
    monkeypatch.setenv("MY_SERVICE_PASSWORD", "s3cret-of-the-test")
    monkeypatch.setenv("SHORT_TOKEN", "model")  # a word of everyday use
    monkeypatch.setenv("TOKENIZERS_PARALLELISM", "max_tokens")
    assert without_tokens(text) == (text if clean is None else clean)


def test_values_and_manifests() -> None:
    value = {"hub_token": "abc", "bos_token": "<s>", TOKEN: [1, None, {"x": f"={TOKEN}"}]}
    clean = {
        "hub_token": "<removed>",
        "bos_token": "<s>",
        "<removed>": [1, None, {"x": "=<removed>"}],
    }
    assert values_without_tokens(value) == clean
    manifest = make_manifest("torch", rows=[[1, 2]])
    assert manifest_without_tokens(manifest) == manifest


def test_logs_of_libraries() -> None:
    record = logging.LogRecord(
        "httpx", logging.INFO, "", 0, "GET %s", (f"https://{TOKEN}@h",), None
    )
    assert TokenFreeFormatter("hub: %(message)s").format(record) == "hub: GET https://<removed>@h"
