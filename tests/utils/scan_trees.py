"""Makes small checkouts whose model tests skip in every way, and scans them."""

from pathlib import Path
from textwrap import dedent
from typing import Any

from utils.skipped_tests.mixins import ClassTree
from utils.skipped_tests.report import scan_json
from utils.skipped_tests.scan import common_tests, model_test_files, read_rows, scan_tests

_COMMON = """
    import unittest
    from transformers.testing_utils import require_torch_multi_gpu


    class ModelTesterMixin:
        def test_save_load(self):
            for model_class in self.all_model_classes:
                if model_class is None:
                    self.skipTest("nothing to save")

        def test_inputs_embeds(self):
            pass

        @require_torch_multi_gpu
        def test_multi_gpu(self):
            self.run_on_two()


    class OwnTests(unittest.TestCase):
        def test_of_nobody(self):
            pass
"""
_GENERATION = """
    class GenerationTesterMixin:
        def test_greedy_generate(self):
            self.generate()
"""
HEAD = """\
import pytest
import unittest
from transformers.testing_utils import require_torch, require_torch_gpu, slow
from ...generation.test_utils import GenerationTesterMixin
from ...test_modeling_common import ModelTesterMixin

"""
CLASS = "class {}Test(ModelTesterMixin, GenerationTesterMixin, unittest.TestCase):\n"


def make_root(folder: Path, models: dict[str, str]) -> Path:
    """Write a checkout with one test file a model.

    Args:
        folder: its root, which is made.
        models: the files' texts by the models' names.
    """
    write(folder / "tests/test_modeling_common.py", _COMMON)
    write(folder / "tests/generation/test_utils.py", _GENERATION)
    for name, text in models.items():
        write(folder / f"tests/models/{name}/test_modeling_{name}.py", text)
    return folder


def write(path: Path, text: str) -> None:
    """Write a file with its folders."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(dedent(text), encoding="utf-8")


def one_class(body: str, *, head: str = HEAD, decorator: str = "", name: str = "Bert") -> str:
    """Write a test file with one class."""
    indented = "".join(f"    {line}\n" for line in dedent(body).strip().splitlines())
    return f"{head}{decorator}{CLASS.format(name)}{indented}"


def scan_root(root: Path) -> dict[str, dict[str, Any]]:
    """Scan a checkout, and give what the JSON file would hold."""
    tree = ClassTree(root=root)
    tests = common_tests(tree)
    rows = read_rows(tree, model_test_files(root), tests)
    assert not tree.unreadable
    return {scan.test.name: scan_json(scan) for scan in scan_tests(tests, rows, lambda *_: None)}


def state_of(result: dict[str, Any], row: str) -> str:
    """Tell in which list of a result a row stands; it must stand in exactly one."""
    (state,) = [key for key, rows in result.items() if key.startswith("models_") and row in rows]
    return state.removeprefix("models_")
