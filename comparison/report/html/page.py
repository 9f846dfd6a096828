"""One self-contained page: what is said, the script that shows it, and a policy that bars the rest.

No text of a dump becomes markup: all of it stands in blocks of JSON, which a browser does not run,
and the script puts it on the page as text; or it is escaped, for readers without a script. The
policy lets nothing else run and nothing be fetched.
"""

import base64
import hashlib
import json
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path
from typing import Any

from comparison.report.html.page_data import detail_data, run_data
from comparison.report.markdown_report import report_to_markdown
from comparison.report.names import printable
from comparison.report.report_model import Report

_SCRIPTS = ("base.js", "tree.js", "charts.js", "depth.js", "detail.js", "main.js")
# None of these may stand in a script element as it is, even inside of a string.
_UNSAFE = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"}


def report_page(reports: Sequence[Report], *, title: str = "") -> str:
    """Write the page of one candidate or of several.

    Args:
        reports: one a candidate, at least one.
        title: of the page; empty for the names of the sides.
    """
    script = "\n".join(_resource(name) for name in _SCRIPTS)
    style = _resource("page.css")
    parts = {
        "POLICY": _policy(script, style),
        "TITLE": _text(title or _title(reports[0])),
        "STYLE": style,
        "SENTENCE": _text(reports[0].sentence),
        "SUMMARY": "\n".join(_text(line) for line in _summary(reports)),
        "DATA": "\n".join(_data_blocks(reports)),
        "SCRIPT": script,
    }
    return "".join(_filled(_resource("page.html.template"), parts))


def _summary(reports: Sequence[Report]) -> Iterator[str]:
    """Give the lines that stand for the page where no script runs."""
    for report in reports:
        yield from report_to_markdown(report).splitlines()


def json_block(value: Any, *, block: str) -> str:
    """Write a script element that holds JSON, and that no text in it can end.

    Args:
        value: JSON values.
        block: id of the element.
    """
    text = json.dumps(value, separators=(",", ":"), allow_nan=False, ensure_ascii=True)
    for character, spelled in _UNSAFE.items():
        text = text.replace(character, spelled)
    return f'<script type="application/json" id="{escape(block, quote=True)}">{text}</script>'


def _data_blocks(reports: Sequence[Report]) -> Iterator[str]:
    """Give what the page is about; details stand apart, so that they are parsed when asked for."""
    yield json_block([run_data(report) for report in reports], block="runs")
    for run, report in enumerate(reports):
        for number, row in enumerate(report.rows):
            if row.detail is not None:
                yield json_block(detail_data(row.detail), block=f"detail-{run}-{number}")


def _filled(template: str, parts: dict[str, str]) -> Iterator[str]:
    """Put each part where the template names it, `{{PART}}`; parts are not read as templates."""
    head, *rest = template.split("{{")
    yield head
    for piece in rest:
        name, _, after = piece.partition("}}")
        yield parts[name]
        yield after


def _policy(script: str, style: str) -> str:
    sources = [f"'sha256-{_digest(text)}'" for text in (script, style)]
    return (
        f"default-src 'none'; script-src {sources[0]}; style-src {sources[1]}; "
        "base-uri 'none'; form-action 'none'"
    )


def _digest(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _resource(name: str) -> str:
    return Path(__file__).with_name(name).read_text(encoding="utf-8")


def _title(report: Report) -> str:
    return f"{report.verdict}: {report.candidate.name} against {report.reference.name}"


def _text(text: str) -> str:
    return escape(printable(text), quote=True)
