"""Tells what of a failed download passes by itself: no connection, or one that broke off."""

import errno
import socket
import ssl
from collections.abc import Iterator

_NO_WAY_THERE = (errno.ENETUNREACH, errno.EHOSTUNREACH, errno.ENETDOWN, errno.EHOSTDOWN)
# What httpcore and h11 say of a connection that ended early; they have no class for it.
_ENDED_EARLY = ("peer closed connection", "server disconnected")


def passes_by_itself(error: BaseException) -> bool:
    """Tell whether trying again later may help.

    Connections that are refused, reset, end early or take too long are taken to pass, and so is a
    name that cannot be resolved for now. All else lasts: a certificate that is not trusted, an
    answer that is no HTTP, a body that is not encoded as it says.

    Args:
        error: what the HTTP client raised; its causes are searched.
    """
    import httpx

    if isinstance(error, httpx.TimeoutException):
        return True
    if isinstance(error, httpx.ProxyError):
        return str(error).startswith("5")  # the message begins with the proxy's status
    if isinstance(error, httpx.RemoteProtocolError):
        return str(error).lower().startswith(_ENDED_EARLY)
    return any(_is_passing(cause) for cause in _causes(error))


def _is_passing(cause: BaseException) -> bool:
    if isinstance(cause, ssl.SSLError):
        return isinstance(cause, ssl.SSLEOFError | ssl.SSLZeroReturnError)
    if isinstance(cause, socket.gaierror):
        return cause.errno == socket.EAI_AGAIN
    if isinstance(cause, ConnectionError | TimeoutError):
        return True
    return isinstance(cause, OSError) and cause.errno in _NO_WAY_THERE


def _causes(error: BaseException) -> Iterator[BaseException]:
    current: BaseException | None = error
    while current is not None:
        yield current
        current = current.__cause__ or current.__context__
