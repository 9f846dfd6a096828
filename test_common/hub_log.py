"""Logs what is fetched from the Hugging Face Hub."""

import logging
import sys


def log_downloads() -> None:
    """Log every request to the Hub, and every file that comes from it, on stderr."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("hub: %(message)s"))
    for name in ("huggingface_hub.file_download", "httpx"):
        logger = logging.getLogger(name)
        logger.setLevel(logging.DEBUG if name != "httpx" else logging.INFO)
        logger.addHandler(handler)
        logger.propagate = False
