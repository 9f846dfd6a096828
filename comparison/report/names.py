"""Names as they are shown."""

import re

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff\ufffe\uffff]")


def printable(text: str) -> str:
    """Spell out control characters, so that no name can forge lines or steer a terminal."""
    return _CONTROL.sub(lambda match: match[0].encode("unicode_escape").decode(), text)
