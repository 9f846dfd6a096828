"""Names as they are shown."""

import re

_CONTROL = re.compile(
    r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff\ufffe\uffff"
    r"\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]"  # these turn the direction of writing
)
# CI services take a line that begins with `::`, and `##[` or `##vso[` anywhere, for a command.
_COMMAND = re.compile(r"^(\s*):(?=:)|(?P<hash>#)(?=#\w*\[)")


MOST_SHOWN = 10_000  # of the characters of a text; the name of a value of a trace has up to 4096
_ENDS = MOST_SHOWN // 2 - 50


def printable(text: str) -> str:
    """Spell out what could forge lines, turn their direction, or steer a terminal or a CI run.

    Of a text that no one would read its ends are kept, and told how much is left out.
    """
    if len(text) > MOST_SHOWN:
        left_out = len(text) - 2 * _ENDS
        text = f"{text[:_ENDS]}... {left_out} characters left out ...{text[-_ENDS:]}"
    spelled = _CONTROL.sub(lambda match: match[0].encode("unicode_escape").decode(), text)
    return _COMMAND.sub(lambda match: r"\x23" if match["hash"] else rf"{match[1]}\x3a", spelled)
