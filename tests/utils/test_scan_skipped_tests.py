"""The scanner on every way in which a model's tests skip a common one."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest

from tests.child_processes import ROOT, run_module, user_environment
from tests.utils.scan_trees import CLASS, HEAD, make_root, one_class, scan_root, state_of, write

METHOD = "test_inputs_embeds"


def scan_body(folder: Path, body: str, **given: str) -> tuple[str, list[str]]:
    """Scan one class; return the state of the method, and the reasons."""
    root = make_root(folder, {"bert": one_class(body, **given), "plain": one_class("x = 1")})
    result = scan_root(root)[METHOD]
    assert state_of(result, "plain") == "ran"
    state = state_of(result, "bert")
    return state, [*result["reasons_skipped"], *result.get("reasons_conditional", [])]


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("@unittest.skip('plain')\ndef test_inputs_embeds(self):\n    pass", "plain"),
        (
            "@unittest.skip(\n    reason=(\n        'over '\n        'lines'\n    )\n)\n"
            "# a comment\n\ndef test_inputs_embeds(self):\n    pass",
            "over lines",
        ),
        ("@unittest.skip\ndef test_inputs_embeds(self):\n    self.work()", ""),
        ("@pytest.mark.skip(reason='marked')\ndef test_inputs_embeds(self):\n    pass", "marked"),
        ('def test_inputs_embeds(self):\n    self.skipTest("isn\'t it")', "isn't it"),
        ("def test_inputs_embeds(self):\n    self.skipTest(reason='named')", "named"),
        ("def test_inputs_embeds(self):\n    return self.skipTest('returned')", "returned"),
        ("def test_inputs_embeds(self):\n    x = 1\n    raise unittest.SkipTest('r')", "r"),
        ("def test_inputs_embeds(self):\n    '''Doc.'''\n    pytest.skip('p')", "p"),
        ("def test_inputs_embeds(self):\n    with self.x():\n        self.skipTest('w')", "w"),
        (
            "def test_inputs_embeds(self):\n    if self.a:\n        self.skipTest('one')\n"
            "    else:\n        self.skipTest('two')",
            "one",
        ),
        ("@unittest.skipIf(True, 'always')\ndef test_inputs_embeds(self):\n    x()", "always"),
        ("@unittest.skipUnless(False, 'never')\ndef test_inputs_embeds(self):\n    x()", "never"),
        (
            "@slow\n@unittest.skip(f'no {X} in {\"it\"}')\ndef test_inputs_embeds(self):\n    x()",
            "no {X} in it",
        ),
        (
            "@unittest.skip('say \"#\" \\'\\'')\ndef test_inputs_embeds(self):\n    x()",
            "say \"#\" ''",
        ),
        ("@unittest.skip('async')\nasync def test_inputs_embeds(self):\n    x()", "async"),
        ("test_inputs_embeds = unittest.skip('value')(ModelTesterMixin.x)", "value"),
        ("def setUp(self):\n    self.skipTest('set up')", "set up"),
        ("pytestmark = [pytest.mark.skip(reason='all of it')]", "all of it"),
        ("pytestmark: list = [pytest.mark.skip(reason='noted')]", "noted"),
        ("pytestmark = []\npytestmark += [pytest.mark.skip(reason='more')]", "more"),
        ("__unittest_skip__ = True\n__unittest_skip_why__ = 'why'", "why"),
        ("__test__ = False", "__test__ = False"),
    ],
)
def test_what_always_skips_is_skipped(tmp_path, body, reason):
    assert scan_body(tmp_path, body) == ("skipped", [f"bert: {reason}"])


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (
            "@unittest.skipIf(sys.maxsize < 9, 'small')\ndef test_inputs_embeds(self):\n    x()",
            "skipIf(sys.maxsize < 9): small",
        ),
        (
            "@unittest.skipUnless(A, 'b')\ndef test_inputs_embeds(self):\n    x()",
            "skipUnless(A): b",
        ),
        (
            "@pytest.mark.skipif(A, reason='c')\ndef test_inputs_embeds(self):\n    x()",
            "skipif(A): c",
        ),
        ("@require_torch_gpu\ndef test_inputs_embeds(self):\n    x()", "require_torch_gpu"),
        ("@slow\n@require_torch\ndef test_inputs_embeds(self):\n    x()", "slow; require_torch"),
        (
            "@require_memory(gb=8)\ndef test_inputs_embeds(self):\n    x()",
            "require_memory(gb=8)",
        ),
        (
            "def test_inputs_embeds(self):\n    if not a:\n        self.skipTest('d')\n    b()",
            "if not a: d",
        ),
        (
            "def test_inputs_embeds(self):\n    if self.a:\n        return\n    self.skipTest('e')",
            "e",
        ),
        ("def test_inputs_embeds(self):\n    for x in y:\n        self.skipTest('f')", "f"),
        ("def test_inputs_embeds(self):\n    self.a or self.skipTest('g')", "g"),
        (
            "def test_inputs_embeds(self):\n    if a:\n        b()\n    elif c:\n"
            "        self.skipTest('h')",
            "if c: h",
        ),
        (
            "def test_inputs_embeds(self):\n    if a:\n        b()\n    else:\n"
            "        self.skipTest('i')",
            "unless a: i",
        ),
        (
            "def test_inputs_embeds(self):\n    if a:\n        b()\n    elif c:\n        b()\n"
            "    else:\n        self.skipTest('j')",
            "otherwise: j",
        ),
        ("def test_inputs_embeds(self):\n    x = pytest.importorskip('k', reason='l')", "l"),
        ("if a:\n    pytestmark = pytest.mark.skip('m')", "m"),
    ],
)
def test_what_skips_on_a_condition_is_a_state_of_its_own(tmp_path, body, reason):
    assert scan_body(tmp_path, body) == ("conditional", [f"bert: {reason}"])


@pytest.mark.parametrize(
    "body",
    [
        "def test_inputs_embeds(self):\n    super().test_inputs_embeds()",
        "def test_inputs_embeds(self):\n    return\n    self.skipTest('never reached')\n    x()",
        "def test_inputs_embeds(self):\n    def later():\n        self.skipTest('x')\n    run()",
        "@unittest.skipIf(False, 'x')\ndef test_inputs_embeds(self):\n    x()",
        "@parameterized.expand([1])\ndef test_inputs_embeds(self, n):\n    x('unittest.skip')",
        "# @unittest.skip('out')\ndef test_inputs_embeds(self):\n    x()",
        "@unittest.skip('another')\ndef test_inputs_embeds_more(self):\n    pass",
        "class Inner:\n    @unittest.skip('x')\n    def test_inputs_embeds(self):\n        pass",
    ],
)
def test_what_runs_is_not_skipped(tmp_path, body):
    assert scan_body(tmp_path, body) == ("ran", [])


@pytest.mark.parametrize(
    "body",
    [
        "def test_inputs_embeds(self):\n    pass",
        "def test_inputs_embeds(self):\n    '''Not needed.'''",
        "def test_inputs_embeds(self):\n    ...\n    return None",
        "test_inputs_embeds = None",
        "test_inputs_embeds: object = None",
        "test_inputs_embeds = lambda self: None",
    ],
)
def test_an_override_that_does_nothing_is_reported_as_such(tmp_path, body):
    assert scan_body(tmp_path, body) == ("empty", [])


@pytest.mark.parametrize(
    ("decorator", "state"),
    [
        ("@unittest.skip('whole')\n", ("skipped", ["bert: whole"])),
        ("@pytest.mark.skip('whole')\n", ("skipped", ["bert: whole"])),
        ("@require_torch_gpu\n", ("conditional", ["bert: require_torch_gpu"])),
        ("@require_torch\n", ("ran", [])),
    ],
)
def test_what_skips_the_class_skips_its_tests(tmp_path, decorator, state):
    assert scan_body(tmp_path, "x = 1", decorator=decorator) == state


@pytest.mark.parametrize(
    "line",
    ["pytestmark = pytest.mark.skip('file')\n", "pytest.skip('file', allow_module_level=True)\n"],
)
def test_what_skips_the_file_skips_its_tests(tmp_path, line):
    found = scan_body(tmp_path, "x = 1", head=HEAD + line)
    assert found == ("skipped", ["bert: file"])


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        ("if not a():\n    pytest.skip('b', allow_module_level=True)\n", "if not a(): b"),
        (
            "try:\n    import c\nexcept ImportError:\n"
            "    pytest.skip('d', allow_module_level=True)\n",
            "d",
        ),
        ("if a():\n    x = 1\nelse:\n    pytestmark = pytest.mark.skip('e')\n", "e"),
        ("pytest.importorskip('f')\n", "pytest.importorskip('f')"),
        ("g = pytest.importorskip('g', reason='no g')\n", "no g"),
    ],
)
def test_what_skips_the_file_on_a_condition_is_no_sure_skip(tmp_path, lines, reason):
    found = scan_body(tmp_path, "x = 1", head=HEAD + lines)
    assert found == ("conditional", [f"bert: {reason}"])


def test_torch_is_taken_for_granted(tmp_path):
    found = scan_body(tmp_path, "x = 1", head=f"{HEAD}torch = pytest.importorskip('torch')\n")
    assert found == ("ran", [])


@pytest.mark.parametrize(
    ("imports", "decorator"),
    [
        ("from unittest import skip as s, TestCase\n", "@s('r')"),
        ("import unittest as u\n", "@u.skip('r')"),
        ("import unittest as u\nnot_here = u.skip('r')\n", "@not_here"),
        ("WHY = 'r'\n", "@unittest.skip(WHY)"),
        ("sk = pytest.mark.skip\n", "@sk(reason='r')"),
        ("def sk(f):\n    'Doc.'\n    return unittest.skip('r')(f)\n", "@sk"),
        ("def sk():\n    return unittest.skip('r')\n", "@sk()"),
        ("try:\n    import pytest as p\nexcept ImportError:\n    pass\n", "@p.mark.skip('r')"),
    ],
)
def test_names_are_looked_up(tmp_path, imports, decorator):
    body = f"{decorator}\ndef test_inputs_embeds(self):\n    x()"
    assert scan_body(tmp_path, body, head=HEAD + imports) == ("skipped", ["bert: r"])


def test_four_skips_in_one_file_and_a_class_outside_of_the_suite(tmp_path):
    text = (
        HEAD
        + CLASS.format("A")
        + "    @unittest.skip(\n        reason='several lines'\n    )\n"
        + "    def test_inputs_embeds(self):\n        work()\n\n"
        + '    def test_save_load(self):\n        self.skipTest("it isn\'t saved")\n\n'
        + "    @unittest.skip('then a comment')\n    # why\n\n"
        + "    def test_greedy_generate(self):\n        work()\n\n"
        + "@unittest.skip('class')\n"
        + CLASS.format("B")
        + "    pass\n\n"
        + "class CTest(unittest.TestCase):\n    def test_inputs_embeds(self):\n        work()\n"
    )
    alone = "import unittest\n" + text.partition("class CTest")[2].join(["class CTest", ""])
    scans = scan_root(make_root(tmp_path, {"four": text, "alone": alone}))
    assert scans[METHOD]["reasons_skipped"] == ["four::ATest: several lines", "four::BTest: class"]
    assert scans["test_save_load"]["reasons_skipped"][0] == "four::ATest: it isn't saved"
    greedy = scans["test_greedy_generate"]
    assert greedy["reasons_skipped"][0] == "four::ATest: then a comment"
    for scan in scans.values():
        assert scan["models_ran"] == []
        assert scan["models_not_applicable"] == ["alone"]


def test_a_common_test_keeps_its_own_conditions(tmp_path):
    scans = scan_root(make_root(tmp_path, {"bert": one_class("x = 1")}))
    assert list(scans) == [
        "test_save_load",
        "test_inputs_embeds",
        "test_multi_gpu",
        "test_greedy_generate",
    ]
    assert [scan["origin"] for scan in scans.values()] == ["common"] * 3 + ["GenerationMixin"]
    assert state_of(scans["test_save_load"], "bert") == "ran"
    assert scans["test_multi_gpu"]["reasons_conditional"] == ["bert: require_torch_multi_gpu"]


def test_models_outside_of_a_suite_are_not_applicable(tmp_path):
    lone = (
        "import unittest\n\nclass LoneTest(unittest.TestCase):\n    def test_inputs_embeds(self):\n"
    )
    only_common = HEAD + "class HalfTest(ModelTesterMixin, unittest.TestCase):\n    pass\n"
    models = {"lone": lone + "        x()\n", "half": only_common, "empty": ""}
    scans = scan_root(make_root(tmp_path, models))
    assert scans[METHOD]["models_not_applicable"] == ["empty", "lone"]
    assert scans[METHOD]["models_ran"] == ["half"]
    assert scans["test_greedy_generate"]["models_not_applicable"] == ["empty", "half", "lone"]
    assert scans["test_greedy_generate"]["skipped_proportion"] == 0


def test_several_classes_of_a_file_have_rows_of_their_own(tmp_path):
    skipping = "    @unittest.skip('vision')\n    def test_inputs_embeds(self):\n        pass\n"
    text = (
        HEAD
        + "class Tester:\n    pass\n\n"
        + CLASS.format("Text")
        + "    pass\n\n"
        + CLASS.format("Vision")
        + skipping
        + "\nclass IntegrationTest(unittest.TestCase):\n    pass\n"
    )
    result = scan_root(make_root(tmp_path, {"clip": text, "bert": one_class("x = 1")}))[METHOD]
    assert result["models_ran"] == ["bert", "clip::TextTest"]
    assert result["models_skipped"] == ["clip::VisionTest"]
    assert result["reasons_skipped"] == ["clip::VisionTest: vision"]
    assert result["skipped_proportion"] == round(1 / 3, 4)


def test_inheritance_is_followed_across_files(tmp_path):
    base = """
        import unittest
        from .test_modeling_common import ModelTesterMixin as Common

        class CausalLMTester(Common):
            @unittest.skip("decoders only")
            def test_inputs_embeds(self):
                pass
    """
    head = "import unittest\nimport tests.causal_lm_tester\nfrom ... import causal_lm_tester as c\n"
    models = {
        "by_alias": f"{head}class ATest(c.CausalLMTester, unittest.TestCase):\n    pass\n",
        "by_path": f"{head}class BTest(tests.causal_lm_tester.CausalLMTester, unittest.TestCase):"
        "\n    pass\n",
        "by_model": "import unittest\nfrom ..by_alias.test_modeling_by_alias import ATest\n"
        "class CTest(ATest):\n    def test_inputs_embeds(self):\n        work()\n",
        "by_star": "from ...causal_lm_tester import *\nBase = CausalLMTester\n"
        "class DTest(Base, unittest.TestCase):\n    pass\n",
    }
    root = make_root(tmp_path, models)
    write(root / "tests/causal_lm_tester.py", base)
    result = scan_root(root)[METHOD]
    assert result["models_skipped"] == ["by_alias", "by_path", "by_star"]
    assert result["models_ran"] == ["by_model"]


def test_the_first_of_two_bases_wins_as_in_python(tmp_path):
    text = (
        HEAD
        + "class Skips(ModelTesterMixin):\n    @unittest.skip('first')\n"
        + "    def test_inputs_embeds(self):\n        pass\n\n"
        + "class Plain(ModelTesterMixin):\n    pass\n\n"
        + "class BertTest(Plain, Skips, unittest.TestCase):\n    pass\n"
    )
    result = scan_root(make_root(tmp_path, {"bert": text}))[METHOD]
    assert result["reasons_skipped"] == ["bert: first"]


def test_two_files_of_one_name_are_told_apart(tmp_path):
    root = make_root(tmp_path, {"bert": one_class("x = 1")})
    write(root / "tests/models/other/test_modeling_bert.py", one_class("x = 1"))
    assert scan_root(root)[METHOD]["models_ran"] == ["bert/bert", "other/bert"]


def test_two_files_of_one_name_in_folders_of_one_name_are_told_apart(tmp_path):
    root = make_root(tmp_path, {"bert": one_class("x = 1")})
    for folder in ("a/same", "b/same"):
        write(root / f"tests/models/{folder}/test_modeling_twin.py", "x = 1\n")
    assert scan_root(root)[METHOD]["models_not_applicable"] == ["a/same/twin", "b/same/twin"]


def test_every_star_import_is_looked_into(tmp_path):
    head = "import unittest\nfrom ...test_modeling_common import *\nfrom ...more import *\n"
    bases = "class ATest(ModelTesterMixin, unittest.TestCase):\n    x = 1\n"
    root = make_root(tmp_path, {"bert": head + bases})
    write(root / "tests/more.py", "class More:\n    x = 1\n")
    assert state_of(scan_root(root)[METHOD], "bert") == "ran"


def test_files_that_import_one_another_by_stars_end(tmp_path):
    stars = "".join(f"from .m{n} import *\n" for n in range(8))
    head = "import unittest\nfrom ...m0 import *\nfrom ...m7 import *\n"
    root = make_root(tmp_path, {"bert": f"{head}class A(Nobody, unittest.TestCase):\n    x = 1\n"})
    for number in range(8):
        write(root / f"tests/m{number}.py", stars)
    assert state_of(scan_root(root)[METHOD], "bert") == "not_applicable"


@pytest.mark.parametrize("where", ["test", "file"])
def test_a_row_of_a_thousand_elifs_is_read(tmp_path, where):
    row = ["if a:", "    b()", *["elif a:", "    b()"] * 1000]
    if where == "file":
        assert scan_body(tmp_path, "x = 1", head=HEAD + "\n".join([*row, ""])) == ("ran", [])
        return
    lines = ["def test_inputs_embeds(self):", *(f"    {line}" for line in row)]
    body = "\n".join([*lines, "    else:", "        self.skipTest('last')"])
    assert scan_body(tmp_path, body) == ("conditional", ["bert: otherwise: last"])


def test_expressions_too_deep_to_be_shown_are_no_fault(tmp_path):
    long = " - ".join(["x"] * 700)
    body = f"@unittest.skip({long})\ndef test_inputs_embeds(self):\n    x()"
    assert scan_body(tmp_path / "reason", body) == ("skipped", ["bert: (too deep to be shown)"])
    body = f"def test_inputs_embeds(self):\n    if {long}:\n        self.skipTest('r')"
    found = scan_body(tmp_path / "condition", body)
    assert found == ("conditional", ["bert: if (too deep to be shown): r"])


def run_scan(cwd: Path, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return run_module(
        "utils.scan_skipped_tests", *arguments, cwd=cwd, environment=user_environment(cwd)
    )


def run_scan_into(output: int, root: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "utils.scan_skipped_tests", "--output_dir", str(folder)],
        cwd=root,
        env=user_environment(folder),
        stdout=output,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )


SKIPPING = "@unittest.skip('one')\ndef test_inputs_embeds(self):\n    pass"


def test_a_full_scan_prints_and_writes_the_documented_form(tmp_path):
    root = make_root(tmp_path / "root", {"bert": one_class(SKIPPING), "vit": one_class("x = 1")})
    done = run_scan(root, "--output_dir", tmp_path / "new" / "out")
    file = tmp_path / "new" / "out" / "all_tests_scan_result.json"
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.split("\n") == [
        "🔬 Parsing 2 model test files once each...",
        "📝 Aggregating 4 tests...",
        "  (4/4) test_greedy_generate",
        "✅ Scan complete.",
        "",
        f"📄 JSON saved to {file}",
        "",
    ]
    found = json.loads(file.read_text())
    assert found[METHOD] == {
        "origin": "common",
        "models_ran": ["vit"],
        "models_skipped": ["bert"],
        "skipped_proportion": 0.5,
        "reasons_skipped": ["bert: one"],
        "models_conditional": [],
        "reasons_conditional": [],
        "models_empty": [],
        "models_not_applicable": [],
    }
    # what pandas.read_json needs for a table of tests by keys
    assert {tuple(entry) for entry in found.values()} == {tuple(found[METHOD])}


def test_one_test_is_printed_and_written_in_the_documented_form(tmp_path):
    models = {"bert": one_class(SKIPPING), "vit": one_class("x = 1"), "none": ""}
    models["gpu"] = one_class("@slow\ndef test_inputs_embeds(self):\n    x()")
    root = make_root(tmp_path / "root", models)
    done = run_scan(tmp_path, "--root", root, "--test_method_name", METHOD)
    assert done.stdout.split("\n") == [
        "🔬 Parsing 4 model test files once each...",
        "",
        "== test_inputs_embeds ==",
        "",
        "Ran    : 1/2",
        "Skipped : 1/2 (50.0%)",
        " - bert: one",
        "Conditional : 1",
        " - gpu: slow",
        "Not applicable : 1 (none)",
        "",
        f"📄 JSON saved to {tmp_path / 'scan_test_inputs_embeds.json'}",
        "",
    ]
    assert list(json.loads((tmp_path / "scan_test_inputs_embeds.json").read_text())) == [METHOD]


def test_a_file_with_a_syntax_error_is_named_skipped_and_counted(tmp_path):
    models = {"bert": one_class(SKIPPING), "broken": "class (:\n", "bytes": ""}
    root = make_root(tmp_path, models)
    (root / "tests/models/bytes/test_modeling_bytes.py").write_bytes(b"x = '\xff'\n")
    done = run_scan(root, "--output_dir", tmp_path / "out")
    assert done.returncode == 2
    assert "test_modeling_broken.py:1: invalid syntax" in done.stderr
    assert "test_modeling_bytes.py:1: " in done.stderr
    assert "error: 2 files could not be read; the rest is in the result" in done.stderr
    found = json.loads((tmp_path / "out" / "all_tests_scan_result.json").read_text())
    assert found[METHOD]["models_skipped"] == ["bert"]
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["all_tests_scan_result.json"]


def test_pipes_and_folders_out_of_reach_are_named_and_not_waited_for(tmp_path):
    root = make_root(tmp_path / "root", {"bert": one_class(SKIPPING)})
    os.mkfifo(root / "tests/models/bert/test_modeling_pipe.py")
    made = os.open(root / "tests/models", os.O_RDONLY)
    for _ in range(17):  # deeper than a path may be long
        os.mkdir("d" * 250, dir_fd=made)
        below = os.open("d" * 250, os.O_RDONLY, dir_fd=made)
        os.close(made)
        made = below
    os.close(made)
    done = run_scan(root, "--output_dir", tmp_path / "out")
    shutil.rmtree(root)  # pytest could not
    assert done.returncode == 2
    assert "test_modeling_pipe.py: no plain file" in done.stderr
    assert f"{'d' * 250}: File name too long" in done.stderr
    assert "error: 2 files could not be read; the rest is in the result" in done.stderr


def test_a_wrong_root_names_what_was_looked_for(tmp_path):
    done = run_scan(tmp_path, "--root", tmp_path, "--output_dir", tmp_path / "out")
    assert done.returncode == 2
    assert done.stderr == (
        f"error: {tmp_path} is no checkout of transformers: tests/test_modeling_common.py and "
        "tests/models not found there; run this in the root of one, or name it with --root\n"
    )
    assert not list(tmp_path.iterdir())


def test_a_reader_that_goes_does_not_stop_the_scan(tmp_path):
    root = make_root(tmp_path / "root", {"bert": one_class(SKIPPING)})
    reading, writing = os.pipe()
    os.close(reading)
    done = run_scan_into(writing, root, tmp_path / "out")
    os.close(writing)
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads((tmp_path / "out" / "all_tests_scan_result.json").read_text())
    assert found[METHOD]["models_skipped"] == ["bert"]


def test_output_that_cannot_be_written_is_an_error_in_one_line(tmp_path):
    root = make_root(tmp_path / "root", {"bert": one_class(SKIPPING)})
    with Path("/dev/full").open("w") as full:
        done = run_scan_into(full.fileno(), root, tmp_path / "out")
    assert done.returncode == 2
    assert done.stderr == "error: the system refuses: No space left on device\n"


def test_an_unknown_test_names_the_nearest(tmp_path):
    root = make_root(tmp_path / "root", {"bert": one_class("x = 1")})
    done = run_scan(tmp_path, "--root", root, "--test_method_name", "test_input_embed")
    assert done.returncode == 2
    assert "no test 'test_input_embed' among the 4" in done.stderr
    assert "nearest: test_inputs_embeds" in done.stderr


def test_an_output_that_is_a_file_is_refused(tmp_path):
    root = make_root(tmp_path / "root", {"bert": one_class("x = 1")})
    (tmp_path / "out").write_text("mine")
    done = run_scan(tmp_path, "--root", root, "--output_dir", tmp_path / "out")
    assert done.returncode == 2
    assert f"cannot make the folder {tmp_path / 'out'}" in done.stderr
    assert (tmp_path / "out").read_text() == "mine"


def test_it_runs_as_a_file_from_the_root_of_a_checkout(tmp_path):
    root = make_root(tmp_path, {"bert": one_class("x = 1")})
    environment = {k: v for k, v in os.environ.items() if k != "BUILD_WORKING_DIRECTORY"}
    subprocess.run(
        [sys.executable, str(ROOT / "utils" / "scan_skipped_tests.py")],
        cwd=root,
        env={**environment, "PYTHONPATH": os.pathsep.join(filter(None, sys.path[1:]))},
        check=True,
        capture_output=True,
    )
    assert (root / "all_tests_scan_result.json").is_file()


def test_350_files_take_less_than_three_seconds_of_one_core(tmp_path):
    own = dedent(
        """
        def test_own_{0}(self):
            config, inputs = self.model_tester.prepare_config_and_inputs()
            for model_class in self.all_model_classes:
                model = model_class(config).to(torch_device).eval()
                with torch.no_grad():
                    outputs = model(**self._prepare_for_class(inputs, model_class))[0]
                self.assertTrue(torch.allclose(outputs[:, 1:5], torch.zeros(4), atol=1e-4))
        """
    )
    body = SKIPPING + "".join(own.format(number) for number in range(12))
    root = make_root(
        tmp_path / "root",
        {f"m{n}": one_class(body, decorator="@require_torch\n") for n in range(350)},
    )
    before = os.times()
    done = run_scan(tmp_path, "--root", root)
    after = os.times()
    assert done.returncode == 0
    assert (
        len(
            json.loads((tmp_path / "all_tests_scan_result.json").read_text())[METHOD][
                "models_skipped"
            ]
        )
        == 350
    )
    assert (
        after.children_user + after.children_system - before.children_user - before.children_system
        < 3
    )
