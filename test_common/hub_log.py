"""Logs what is fetched from the Hugging Face Hub."""

import logging
import sys

from test_common.secret_text import TokenFreeFormatter


def log_downloads() -> None:
    """Log every request to the Hub, and every file that comes from it, on stderr; no tokens."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(TokenFreeFormatter("hub: %(message)s"))
    for name in ("huggingface_hub.file_download", "httpx"):
        logger = logging.getLogger(name)
        logger.setLevel(logging.DEBUG if name != "httpx" else logging.INFO)
        logger.addHandler(handler)
        logger.propagate = False
