"""One file from the web, with a limit, and with errors that say whether trying again helps."""

from __future__ import annotations

from typing import Any

from comparison.schema.errors import BadInputError, TryAgainError
from test_common.error_text import describe
from test_common.model_load_errors import is_offline

_TIMEOUT_SECONDS = 30.0
_TOO_MANY_REQUESTS = 429


def download(address: str, *, most_bytes: int) -> bytes:
    """Return the body of what lies at an address.

    Args:
        address: begins with http:// or https://; redirections are followed.
        most_bytes: greatest size that is taken.

    Raises:
        BadInputError: the address is none, the server refuses it (4xx), the body is too large, or
            HF_HUB_OFFLINE forbids to ask.
        TryAgainError: no connection, or the server fails (5xx, 429).
    """
    import httpx

    if is_offline():
        raise BadInputError(
            f"image {address} is not fetched, because HF_HUB_OFFLINE is set; unset it, or give a "
            "local file"
        )
    try:
        with httpx.stream(
            "GET", address, follow_redirects=True, timeout=_TIMEOUT_SECONDS
        ) as response:
            _check_status(address, response.status_code)
            return _body(address, response, most_bytes)
    except (httpx.InvalidURL, httpx.UnsupportedProtocol, httpx.TooManyRedirects) as error:
        raise BadInputError(f"image {address} cannot be fetched: {describe(error)}") from error
    except httpx.HTTPError as error:
        raise TryAgainError(
            f"image {address} cannot be fetched ({describe(error)}); try again later, or give a "
            "local file"
        ) from error


def _check_status(address: str, status: int) -> None:
    if status >= 500 or status == _TOO_MANY_REQUESTS:
        raise TryAgainError(f"image {address}: the server answered {status}; try again later")
    if status != 200:
        raise BadInputError(f"image {address}: the server answered {status}")


def _body(address: str, response: Any, most_bytes: int) -> bytes:
    body = bytearray()
    for chunk in response.iter_bytes():
        body += chunk
        if len(body) > most_bytes:
            raise BadInputError(f"image {address} is larger than {most_bytes // 2**20} MiB")
    return bytes(body)
