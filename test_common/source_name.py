"""What messages and manifests call a file or a web address: without secrets, in one line."""

import re
from collections.abc import Sequence
from pathlib import Path

from test_common.error_text import shown

_MOST_CHARACTERS = 300
_ADDRESS = re.compile(r"(https?://)([^/?#\\\s]*)([^?#\s]*)(\S*)", re.IGNORECASE)
_HOST = re.compile(r"(\[[0-9a-f:.]*\]|[^:\[\]]*)(:\d*)?", re.IGNORECASE)


def printable(text: str) -> str:
    """Return a text with every character escaped that terminals obey, or UTF-8 cannot spell."""
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode() for char in text
    )


def source_name(source: str) -> str:
    r"""Return the name of a source.

    Of a web address user, password, query and fragment go: they may sign or open what lies there.

    Args:
        source: a path, or an address that begins with http:// or https://.

    Returns:
        The name; control characters are escaped, as in `\x1b`.
    """
    if not source.lower().startswith(("http://", "https://")):
        return printable(source)
    scheme, _, rest = source.partition("://")
    authority, path = _split(rest)
    host = authority.rpartition("@")[2]
    # What follows the colon may be the rest of a password that has a / in it.
    if not _HOST.fullmatch(host):
        return f"{printable(scheme)}://..."
    return printable(f"{scheme}://{host}{path}")


def sources_problem(sources: object) -> str | None:
    """Say why something is no list of sources of pictures, None where it is one.

    Args:
        sources: a list or tuple of paths and web addresses.
    """
    if not isinstance(sources, Sequence) or isinstance(sources, str | bytes | bytearray):
        return f"images must be a list of files and web addresses, found {shown(sources)}"
    wrong = [
        f"image {index} must be a file or a web address, found {shown(source)}"
        for index, source in enumerate(sources)
        if not isinstance(source, str | Path)
    ]
    return "; ".join(wrong) or None


def short_source_name(source: str) -> str:
    """Return the name of a source for a message, cut where it is very long."""
    name = source_name(source)
    return name if len(name) <= _MOST_CHARACTERS else f"{name[:_MOST_CHARACTERS]}..."


def without_secrets(text: str) -> str:
    """Return a message of a library with every web address in it as `source_name` names it."""
    return printable(_ADDRESS.sub(lambda found: source_name(found.group()), text))


def _split(rest: str) -> tuple[str, str]:
    """Split what follows the scheme into authority and path; query and fragment go."""
    rest = re.split(r"[?#]", rest, maxsplit=1)[0]
    authority, slash, path = rest.partition("/")
    return authority, f"{slash}{path}"
