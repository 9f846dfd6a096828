"""One file from the web, with limits, and with errors that say whether trying again helps."""

from __future__ import annotations

import os
import threading
from typing import Any

from comparison.schema.errors import AccuracyToolsError, BadInputError, TryAgainError
from test_common.download_failure import passes_by_itself
from test_common.error_text import describe
from test_common.model_load_errors import is_offline
from test_common.source_name import short_source_name, without_secrets

TOTAL_SECONDS = 120.0
_LAST_PORT = 65535
_SECONDS_BETWEEN_BYTES = 30.0
_PASSING_STATUS = (408, 429)  # the server waited in vain, or is asked too often
_TLS_VARIABLES = ("SSL_CERT_FILE", "SSL_CERT_DIR", "SSLKEYLOGFILE")
_PROXY_VARIABLES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")


def download(address: str, *, most_bytes: int, total_seconds: float = TOTAL_SECONDS) -> bytes:
    """Return the body of what lies at an address.

    Args:
        address: begins with http:// or https://; redirections are followed.
        most_bytes: greatest size that is taken.
        total_seconds: how long it may take in all, however slowly bytes come.

    Raises:
        BadInputError: the address is none, the server refuses it (4xx) or speaks no HTTP, the
            body is too large, proxies or certificates are set up wrongly, or HF_HUB_OFFLINE
            forbids to ask.
        TryAgainError: no connection, it broke off or took too long, or the server fails (5xx,
            408, 429).
    """
    name = short_source_name(address)
    if is_offline():
        raise BadInputError(
            f"image {name} is not fetched, because HF_HUB_OFFLINE is set; unset it, or give a "
            "local file"
        )
    result: list[bytes | BaseException] = []

    def fetch() -> None:
        try:
            result.append(_fetched(address, name, most_bytes))
        # It is raised where it was asked for.
        except BaseException as error:
            result.append(error)

    # The library's time limits begin anew with each byte. A thread that is left ends with the
    # process.
    thread = threading.Thread(target=fetch, daemon=True)
    thread.start()
    thread.join(total_seconds)
    if not result:
        raise TryAgainError(
            f"image {name} was not there after {total_seconds:g} s; try again later, or give a "
            "local file"
        )
    if isinstance(result[0], BaseException):
        raise result[0]
    return result[0]


def _fetched(address: str, name: str, most_bytes: int) -> bytes:
    url = _parsed(address, name)
    with _client(name) as client:
        try:
            with client.stream("GET", url) as response:
                _check_answer(name, response, most_bytes)
                return _body(name, response, most_bytes)
        except AccuracyToolsError:
            raise
        # Besides its own errors the library lets those of encodings and of the system through.
        except Exception as error:
            reason = without_secrets(describe(error))
            if passes_by_itself(error):
                raise TryAgainError(
                    f"image {name} cannot be fetched ({reason}); try again later, or give a "
                    "local file"
                ) from error
            raise BadInputError(f"image {name} cannot be fetched: {reason}") from error


def _parsed(address: str, name: str) -> Any:
    import httpx

    try:
        url = httpx.URL(address)
    # Its message may quote a password.
    except Exception as error:
        raise BadInputError(
            f"image {name} cannot be fetched: {type(error).__name__}, the address is none"
        ) from error
    if (url.port or 0) > _LAST_PORT:
        raise BadInputError(f"image {name} cannot be fetched: there is no port {url.port}")
    return url


def _client(name: str) -> Any:
    """Return an HTTP client; certificates and proxies are what the environment says."""
    import httpx

    try:
        context = httpx.create_ssl_context()
    except Exception as error:  # of ssl and of the system
        raise _set_up_wrongly(name, "certificates", _TLS_VARIABLES, error) from error
    try:
        return httpx.Client(
            verify=context,
            follow_redirects=True,
            timeout=_SECONDS_BETWEEN_BYTES,
            # A small body must not become a large one.
            headers={"Accept-Encoding": "identity"},
        )
    except Exception as error:  # of the proxies' addresses, and of a missing package for SOCKS
        raise _set_up_wrongly(name, "proxies", _PROXY_VARIABLES, error) from error


def _set_up_wrongly(
    name: str, what: str, variables: tuple[str, ...], error: Exception
) -> BadInputError:
    """Name the variables that are set; their values may hold passwords."""
    spellings = [spelling for known in variables for spelling in (known, known.lower())]
    found = ", ".join(spelling for spelling in spellings if os.environ.get(spelling))
    return BadInputError(
        f"image {name} cannot be fetched: the {what} are set up wrongly "
        f"({found or 'in the system'}): {type(error).__name__}; correct or unset that"
    )


def _check_answer(name: str, response: Any, most_bytes: int) -> None:
    status = response.status_code
    if status >= 500 or status in _PASSING_STATUS:
        raise TryAgainError(f"image {name}: the server answered {status}; try again later")
    if status != 200:
        raise BadInputError(f"image {name}: the server answered {status}")
    length = response.headers.get("Content-Length", "")
    if length.isdecimal() and int(length) > most_bytes:
        raise _too_large(name, most_bytes)


def _body(name: str, response: Any, most_bytes: int) -> bytes:
    body = bytearray()
    for chunk in response.iter_bytes():
        body += chunk
        if len(body) > most_bytes:
            raise _too_large(name, most_bytes)
    return bytes(body)


def _too_large(name: str, most_bytes: int) -> BadInputError:
    return BadInputError(f"image {name} is larger than {most_bytes // 2**20} MiB")
