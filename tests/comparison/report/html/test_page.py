import base64
import hashlib
import json
import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from comparison.report.html.page import json_block, report_page
from comparison.report.html.page_data import ROW_FIELDS, detail_data, run_data
from comparison.report.report_model import Report
from tests.comparison.report.html.hostile_pair import ENDS, SCRIPT, report_of


class Elements(HTMLParser):
    """Gathers what a browser would see as elements."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self._in_script = False
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        self._in_script = tag == "script"

    def handle_data(self, data: str) -> None:
        if self._in_script:
            self.scripts.append(data)
            self._in_script = False


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Report:
    return report_of(tmp_path_factory.mktemp("pair"))


@pytest.fixture(scope="module")
def page(report: Report) -> str:
    return report_page([report])


def test_no_name_becomes_markup(page: str, report: Report) -> None:
    elements = Elements(page)
    tags = [tag for tag, _ in elements.found]
    assert "img" not in tags
    blocks = sum(tag == "script" for tag in tags)
    assert blocks == 1 + report.detailed + 1  # the data, the details, and the one that runs
    assert "alert(1)" in page  # it is there, as data
    assert SCRIPT not in page
    assert "onerror=" not in re.sub(r"<script type=.*?</script>", "", page, flags=re.DOTALL)


@pytest.mark.parametrize("text", [SCRIPT, ENDS, "<!--<script>", "]]>", "\ud800", "\u2029"])
def test_no_text_ends_a_block_of_json(text: str) -> None:
    block = json_block({"name": text}, block="x")
    inside = block.removeprefix('<script type="application/json" id="x">')
    inside = inside.removesuffix("</script>")
    assert not set("<>&") & set(inside)
    assert inside.isascii()
    assert json.loads(inside) == {"name": text}


def test_policy_lets_only_the_own_script_and_style_in(page: str) -> None:
    elements = Elements(page)
    policy = next(
        attributes["content"] or ""
        for tag, attributes in elements.found
        if attributes.get("http-equiv") == "Content-Security-Policy"
    )
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert rules.pop("default-src") == "'none'"
    assert rules.pop("base-uri") == rules.pop("form-action") == "'none'"
    digest = base64.b64encode(hashlib.sha256(elements.scripts[-1].encode()).digest()).decode()
    assert rules.pop("script-src") == f"'sha256-{digest}'"
    assert re.fullmatch(r"'sha256-[^ ]+'", rules.pop("style-src"))
    assert not rules


def test_page_needs_nothing_else(page: str) -> None:
    outside = re.sub(r"<script type=.*?</script>", "", page, flags=re.DOTALL)
    addresses = set(re.findall(r"https?://[^\s\"'<>)]+", outside))
    assert addresses == {"http://www.w3.org/2000/svg"}  # the name of SVG, which is not fetched
    assert not re.findall(r"<(?:link|img|iframe|object)\b|\bsrc=|@import|url\(", outside)


def test_rows_are_short_lists_of_the_named_fields(report: Report) -> None:
    data = run_data(report)
    assert tuple(data["fields"]) == ROW_FIELDS
    assert len(data["rows"]) == len(report.rows)
    by_id = {row[0]: row for row in data["rows"]}
    row = by_id[f"0/{SCRIPT}"]
    assert row[ROW_FIELDS.index("candidate")] == 0  # named as the reference
    assert data["texts"][row[ROW_FIELDS.index("finding")]] == "measured"
    json.dumps(data, allow_nan=False)


def test_details_are_strict_json(report: Report) -> None:
    for row in report.rows:
        if row.detail is not None:
            json.dumps(detail_data(row.detail), allow_nan=False)
    nan = next(row.detail for row in report.rows if row.reference == "with_nan")
    assert nan is not None
    assert detail_data(nan)["window"]["candidate"][0][0] == "NaN"


def test_parts_are_not_read_as_templates(page: str) -> None:
    assert "{{DATA}}" in page  # of a name; it was not filled in
    assert page.count('id="runs"') == 1


def test_a_page_of_several_candidates_has_blocks_of_each(report: Report) -> None:
    page = report_page([report, report])
    ids = [attributes.get("id") for _, attributes in Elements(page).found]
    details = [name for name in ids if name and name.startswith("detail-1-")]
    assert len(details) == report.detailed
    assert len(ids) - len(set(ids)) == sum(name is None for name in ids) - 1


def test_a_long_name_fills_no_page(report: Report) -> None:
    name = "n" * 1_000_000
    rows = (replace(report.rows[0], reference=name, module=name, leaf=name, id=name),)
    assert len(json.dumps(run_data(replace(report, rows=rows, sentence=name)))) < 200_000
