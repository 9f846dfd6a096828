from pathlib import Path

import pytest

from tests.layering import ALLOWED_ROOMS, LAZY_ENGINES, find_violations

ROOT = Path(__file__).parents[1]


def plant(root: Path, path: str, source: str) -> list[str]:
    file = root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(source)
    return find_violations(root)


def test_rooms_import_one_way():
    assert find_violations(ROOT) == []


@pytest.mark.parametrize("room", ["comparison", "tests"])
def test_rooms_are_there_to_be_checked(room):
    assert list((ROOT / room).rglob("*.py"))


@pytest.mark.parametrize(
    ("path", "source", "violation"),
    [
        ("comparison/a.py", "import test_common.hook\n", "1: comparison imports test_common.hook"),
        ("test_common/a.py", "from oracles import x\n", "1: test_common imports oracles.x"),
        ("oracles/a.py", "def f():\n    import diagnosis\n", "2: oracles imports diagnosis"),
        ("diagnosis/b/a.py", "from tools.x import y\n", "1: diagnosis imports tools.x.y"),
        ("tools/a.py", "import tests.layering\n", "1: tools imports tests.layering"),
        ("bazel/a.py", "import tools.x\n", "1: bazel imports tools.x"),
        ("utils/a.py", "import comparison\n", "1: utils imports comparison"),
        (
            "oracles/a.py",
            "import importlib\nimportlib.import_module('tools.x')\n",
            "2: oracles imports tools.x",
        ),
    ],
)
def test_a_planted_import_against_the_order_is_named(tmp_path, path, source, violation):
    assert plant(tmp_path, path, source) == [f"{path}:{violation}"]


@pytest.mark.parametrize(
    ("room", "engine"),
    [
        (room, engine)
        for room in sorted(set(ALLOWED_ROOMS) - {"test_common", "benchmarks"})
        for engine in ("max.graph", "transformers", "vllm")
        if engine not in LAZY_ENGINES.get(room, ())
    ],
)
def test_an_engine_outside_of_test_common_is_named(tmp_path, room, engine):
    source = f"def f():\n    import {engine}\n"
    expected = f"{room}/a.py:2: {room} imports the engine {engine}"
    assert plant(tmp_path, f"{room}/a.py", source) == [expected]


def test_utils_load_transformers_inside_of_functions_only(tmp_path):
    assert plant(tmp_path, "utils/a.py", "def f():\n    import transformers, torch\n") == []
    assert sorted(plant(tmp_path, "utils/a.py", "import transformers\nimport torch\n")) == [
        "utils/a.py:1: utils imports the engine transformers",
        "utils/a.py:2: utils imports torch outside of functions",
    ]


def test_test_common_imports_engines(tmp_path):
    assert plant(tmp_path, "test_common/a.py", "import max.graph\nimport torch\n") == []


def test_torch_at_the_top_of_a_diagnosis_file_is_named(tmp_path):
    expected = ["diagnosis/a.py:1: diagnosis imports torch outside of functions"]
    assert plant(tmp_path, "diagnosis/a.py", "import torch\n") == expected


@pytest.mark.parametrize(
    "source",
    [
        "def f():\n    import torch\n",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import torch\n",
    ],
)
def test_lazy_torch_in_diagnosis_is_right(tmp_path, source):
    assert plant(tmp_path, "diagnosis/a.py", source) == []


def test_torch_in_tools_is_named(tmp_path):
    source = "def f():\n    import torch.nn\n"
    assert plant(tmp_path, "tools/a.py", source) == ["tools/a.py:2: tools imports torch"]


def test_a_second_reader_of_torch_in_comparison_is_named(tmp_path):
    lazy = "def f():\n    import torch\n"
    assert plant(tmp_path, "comparison/store/pt_file.py", lazy) == []
    expected = ["comparison/store/x.py:1: torch is imported by comparison/store/pt_file.py already"]
    assert plant(tmp_path, "comparison/store/x.py", lazy) == expected


@pytest.mark.parametrize(
    ("path", "source", "violation"),
    [
        ("schema/a.py", "from ..store import x\n", "1: comparison.schema imports comparison.store"),
        (
            "store/a.py",
            "from comparison.align.rows import x\n",
            "1: comparison.store imports comparison.align",
        ),
        (
            "report/a.py",
            "def f():\n    from comparison import pipeline\n",
            "2: comparison.report imports comparison.pipeline",
        ),
    ],
)
def test_an_import_against_the_floors_of_comparison_is_named(tmp_path, path, source, violation):
    expected = [f"comparison/{path}:{violation}"]
    assert plant(tmp_path, f"comparison/{path}", source) == expected


def test_the_pipeline_joins_the_floors(tmp_path):
    source = "from comparison.align import x\nfrom . import store, report, schema\n"
    assert plant(tmp_path, "comparison/pipeline.py", source) == []


@pytest.mark.parametrize(
    ("source", "violation"),
    [
        ("print(1)\n", "1: uses print"),
        ("import os\nx = os.environ['X']\n", "2: uses os.environ"),
        ("import sys\nx = sys.argv[1:]\n", "2: uses sys.argv"),
        ("import time\n", "1: comparison imports time"),
    ],
)
def test_impurity_in_comparison_is_named(tmp_path, source, violation):
    assert plant(tmp_path, "comparison/a.py", source) == [f"comparison/a.py:{violation}"]
