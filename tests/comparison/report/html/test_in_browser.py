"""The page in a real Chromium: what it shows, how it answers, and that it opens at once."""

import json
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import numpy as np
import pytest
from safetensors.numpy import save_file

from comparison.details import compare_with_details
from comparison.report.build_report import build_report
from comparison.report.html.page import report_page
from tests.comparison.dumps import numbers
from tests.comparison.report.html.chromium import (
    HOW_TO_INSTALL,
    Browser,
    chromium,
    find_chromium,
    note_output,
)
from tests.comparison.report.html.hostile_pair import ENDS, FAULTY, SCRIPT, report_of

MANY = 5000
SECONDS = 4.0  # for a page that opens in a quarter of one, on a machine that does much else


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    if find_chromium() is None:
        pytest.skip(HOW_TO_INSTALL)
    with chromium() as started:
        started.resize(1440, 1000)
        yield started


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("page")
    report = report_of(folder)
    (folder / "report.html").write_text(report_page([report, report]), encoding="utf-8")
    return (folder / "report.html").as_uri()


@pytest.fixture
def page(browser: Browser, address: str) -> Iterator[Browser]:
    """Open the page anew; whatever a test does, the console stays clean and nothing is fetched."""
    browser.open("about:blank")
    browser.complaints.clear()
    browser.requests.clear()
    browser.open(address)
    yield browser
    assert browser.complaints == []
    assert set(browser.requests) == {address}


def chosen(page: Browser) -> str:
    return page.text("#detail h2")


def lines(page: Browser) -> list[str]:
    return page.texts("#rows .name:first-child b")


def test_opens_with_the_verdict_and_at_the_culprit(page: Browser) -> None:
    assert page.text("#badge") == "DIVERGE"
    assert "first goes wrong in model.model.layers.2.mlp" in page.text("#sentence")
    assert page.text("#counts").startswith("28 pairs, ")
    assert chosen(page) == FAULTY
    assert "is wrong by itself" in page.text("#detail .callout.bad")
    assert page.texts("#rows .chosen .guilty") == ["guilty"]


def test_shows_what_is_kept_of_a_tensor(page: Browser) -> None:
    figures = page.text("#detail .figures")
    for name in ("Absolute, greatest", "Relative, greatest", "ULP", "Cosine", "Relative L2", "SNR"):
        assert name in figures
    assert len(page.texts("#detail .cells td")) == 49
    titles = page.texts("#detail .chart h3")
    assert titles == [
        "By token (down, 13) and channel (across, 34)",
        "Histogram of |difference|",
        "Reference (across) against candidate (up)",
    ]
    row = page.run(
        "[...document.querySelector('#detail canvas').getContext('2d').getImageData(0, 0, 34, 1)"
        ".data].filter((value, i) => i % 4 === 1)"
    )
    assert row.index(min(row)) == 5  # the reddest channel is the one that is off
    assert page.run("document.querySelectorAll('#detail circle').length") > 100


def test_names_show_as_text_and_nothing_of_them_runs(page: Browser) -> None:
    for name in (SCRIPT, ENDS):
        shown = name.replace("\u2028", "\\u2028")
        link = "#" + quote(f"1:0/{shown}", safe="")
        page.run(
            "new Promise(done => { addEventListener('hashchange', () => setTimeout(done), "
            f"{{once: true}}); location.hash = {json.dumps(link)}; }})"
        )
        assert chosen(page) == shown
    assert page.run("document.querySelectorAll('img, #detail script').length") == 0


def test_policy_stops_an_inline_script_and_a_fetch(browser: Browser, address: str) -> None:
    browser.open(address)
    added = "const s = document.createElement('script'); s.textContent = 'window.ran = 1';"
    browser.run(f"(() => {{ {added} document.body.append(s); }})()")
    assert browser.run("window.ran === undefined")
    assert browser.run("fetch('data:text/plain,x').then(() => 'fetched', () => 'refused')") == (
        "refused"
    )


def test_filter_by_name_and_by_kind(page: Browser) -> None:
    page.press("/")
    assert page.run("document.activeElement.id") == "filter"
    page.press(*"layers.2 o_proj")
    assert page.text("#shown") == "2 of 37 rows shown"
    page.press("Escape")
    assert page.text("#shown") == "37 of 37 rows shown"
    page.click("#kinds [data-kind='unpaired']")
    assert page.text("#shown") == "9 of 37 rows shown"
    assert page.texts("#rows .reason").count("the candidate has no such tensor") == 1


def test_an_unpaired_tensor_tells_its_reason(page: Browser) -> None:
    page.click("#kinds [data-kind='unpaired']")
    page.press("/", *"only_here", "Enter")
    assert chosen(page) == "only_here"
    assert page.text("#detail .callout.unsure").startswith("Only in the reference: ")
    page.press("/", *"fused_only", "Enter")
    assert page.text("#detail .callout.unsure").startswith("Only in the candidate: ")


def test_keys_walk_the_tree(page: Browser) -> None:
    before = page.run("document.querySelector('.row.chosen').id")
    page.press("j")
    after = page.run("document.querySelector('.row.chosen').id")
    assert int(after.split("-")[1]) == int(before.split("-")[1]) + 1
    page.press("k")
    assert chosen(page) == FAULTY
    page.press("ArrowLeft")
    assert page.text("#detail h2").endswith("layers.2.mlp")
    count = len(lines(page))
    page.press("Enter")
    assert len(lines(page)) < count
    page.press("Enter")
    assert len(lines(page)) == count
    page.press("n")
    first = chosen(page)
    page.press("n")
    assert chosen(page) != first


def test_help_opens_and_closes(page: Browser) -> None:
    page.press("?")
    assert page.run("byId('help').open")
    assert "next, previous line" in page.text("#keys")
    page.press("Escape")
    assert not page.run("byId('help').open")


def test_a_click_chooses_and_the_address_links_to_it(page: Browser) -> None:
    page.press("/", *"of_a_shape", "Enter")
    link = page.run("location.href")
    assert link.endswith("#1%3A0%2Fof_a_shape")
    page.open("about:blank")
    page.open(link)
    assert chosen(page) == "of_a_shape"
    assert "shapes differ" in page.text("#detail")
    page.requests[:] = [one.split("#")[0] for one in page.requests if one != "about:blank"]


def test_the_plot_says_what_its_line_is(page: Browser) -> None:
    note = page.text("#depth-note")
    assert note.startswith("The line is each tensor's distance from the reference (relative L2)")
    assert note.endswith("a rise shows where an error is made, a height that stays is passed on.")


def test_a_click_into_the_plot_goes_to_the_tensor(page: Browser) -> None:
    page.click("#depth-plot svg")
    assert page.text("#depth-at").startswith(f"{chosen(page)}: distance ")


def test_another_candidate_can_be_looked_at(page: Browser) -> None:
    page.run("(s => { s.value = '1'; s.dispatchEvent(new Event('change')); })(byId('run'))")
    page.press("n")
    assert page.run("decodeURIComponent(location.hash)").startswith("#2:0/")


def test_light_and_dark(page: Browser) -> None:
    shades = {}
    for scheme in ("light", "dark"):
        page.prefer(scheme)
        page.run("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
        shades[scheme] = page.run("getComputedStyle(document.documentElement).backgroundColor")
        page.screenshot(f"report-{scheme}")
    assert shades == {"light": "rgb(251, 251, 250)", "dark": "rgb(22, 25, 28)"}
    page.click("#theme")  # from the system's to light
    assert page.run("getComputedStyle(document.documentElement).backgroundColor") == shades["light"]
    page.click("#theme")
    page.prefer("light")
    assert page.run("getComputedStyle(document.documentElement).backgroundColor") == shades["dark"]
    page.click("#theme")


def test_thousands_of_tensors_open_at_once(browser: Browser, tmp_path: Path) -> None:
    right = {f"model.layers.{i // 20}.part{i % 20}-output": numbers(2, 3) for i in range(MANY)}
    wrong = {name: array + np.float32(1e-3) for name, array in right.items()}
    for side, tensors in (("a", right), ("b", wrong)):
        save_file(tensors, tmp_path / f"{side}.safetensors")
    compared, details = compare_with_details(tmp_path / "a.safetensors", tmp_path / "b.safetensors")
    file = tmp_path / "many.html"
    file.write_text(report_page([build_report(compared, details=details)]), encoding="utf-8")
    browser.complaints.clear()
    seconds = browser.open(file.as_uri())
    note_output("seconds_to_open.txt", f"{MANY} tensors: {seconds:.2f} s\n")
    assert browser.text("#shown") == "5,000 of 5,000 rows shown"
    assert file.stat().st_size < 5_000_000
    assert browser.run("document.querySelectorAll('*').length") < 3000  # what is in view alone
    assert seconds < SECONDS
    browser.press("/", *"layers.249.part7")
    assert browser.text("#shown") == "1 of 5,000 rows shown"
    assert browser.complaints == []


def test_numbers_of_all_kinds_are_shown_as_they_are(browser: Browser, tmp_path: Path) -> None:
    right = {
        "a-output": np.array([1 + 2j, 3j, 5], dtype="complex64"),
        "b-output": np.array([2**63 - 1, -(2**63), 7]),
        "c-output": np.full((3, 5), np.nan, dtype="float32"),
        "d-output": np.array([1.7e308, -1.7e308, 2.0]),
    }
    wrong = {"a-output": right["a-output"].conj(), "b-output": right["b-output"][::-1].copy()}
    wrong |= {"c-output": np.full((3, 5), np.inf, dtype="float32"), "d-output": -right["d-output"]}
    for side, tensors in (("a", right), ("b", wrong)):
        (tmp_path / side).mkdir()
        for name, array in tensors.items():
            np.save(tmp_path / side / f"{name}.npy", array)
    found, details = compare_with_details(tmp_path / "a", tmp_path / "b")
    file = tmp_path / "report.html"
    file.write_text(report_page([build_report(found, details=details)]), encoding="utf-8")
    browser.complaints.clear()
    shown = {}
    for name in right:
        browser.open("about:blank")
        browser.open(f"{file.as_uri()}#{quote(f'0/{name}', safe='')}")
        assert chosen(browser) == name
        shown[name] = browser.text("#detail")
    assert "at [1]: 3j against -3j" in shown["a-output"]
    assert "Single elements of complex numbers are not shown." in shown["a-output"]
    assert "so that the page stays small" not in shown["a-output"]
    assert "9223372036854775807 against 7" in shown["b-output"] or (
        "-9223372036854775808 against" in shown["b-output"]
    )
    assert "Reference (across)" not in shown["c-output"]
    assert "Infinity to -Infinity" not in shown["c-output"]
    assert browser.run("[...document.querySelectorAll('#detail circle')].length") > 0
    assert "NaN" not in browser.run(
        "[...document.querySelectorAll('#detail circle')].map((c) => c.getAttribute('cx')).join()"
    )
    assert browser.complaints == []
