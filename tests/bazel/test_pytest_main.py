import os
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import bazel.pytest_main

TWO_TESTS = "def test_a():\n    pass\n\n\ndef test_b():\n    pass\n"


def run_main(folder: Path, source: str, **environ: str) -> subprocess.CompletedProcess[str]:
    (folder / "test_planted.py").write_text(source)
    ours = ("TEST", "VLLM", "XML")
    kept = {name: v for name, v in os.environ.items() if not name.startswith(ours)}
    path = os.pathsep.join([str(Path(__file__).parents[2]), *sys.path])
    return subprocess.run(
        [sys.executable, bazel.pytest_main.__file__, "test_planted.py"],
        cwd=folder,
        env={**kept, "PYTHONPATH": path, **environ},
        text=True,
        capture_output=True,
        check=False,
    )


def test_passing_tests_pass_and_are_reported(tmp_path):
    report = tmp_path / "test.xml"
    assert run_main(tmp_path, TWO_TESTS, XML_OUTPUT_FILE=str(report)).returncode == 0
    names = [case.get("name") for case in ElementTree.parse(report).iter("testcase")]
    assert names == ["test_a", "test_b"]


def test_a_failing_test_fails(tmp_path):
    assert run_main(tmp_path, "def test_a():\n    assert False\n").returncode == 1


def test_a_file_without_tests_fails(tmp_path):
    assert run_main(tmp_path, "def check_a():\n    pass\n").returncode != 0


def test_a_file_that_cannot_be_imported_fails(tmp_path):
    assert run_main(tmp_path, "import no_such_module\n" + TWO_TESTS).returncode != 0


def test_a_filter_picks_tests(tmp_path):
    done = run_main(tmp_path, TWO_TESTS, TESTBRIDGE_TEST_ONLY="test_b")
    assert done.returncode == 0
    assert "1 passed, 1 deselected" in done.stdout


def test_a_filter_that_picks_nothing_fails(tmp_path):
    assert run_main(tmp_path, TWO_TESTS, TESTBRIDGE_TEST_ONLY="test_c").returncode != 0


def test_shards_share_the_tests(tmp_path):
    status = tmp_path / "status"
    shard = {"TEST_TOTAL_SHARDS": "2", "TEST_SHARD_STATUS_FILE": str(status)}
    done = run_main(tmp_path, TWO_TESTS, TEST_SHARD_INDEX="1", **shard)
    assert done.returncode == 0
    assert status.exists()
    assert "test_b PASSED" in done.stdout
    assert "test_a PASSED" not in done.stdout


def test_a_shard_without_tests_passes(tmp_path):
    shard = {"TEST_TOTAL_SHARDS": "3", "TEST_SHARD_INDEX": "2"}
    assert run_main(tmp_path, TWO_TESTS, **shard).returncode == 0


def test_child_processes_import_what_the_test_does(tmp_path):
    source = """
import subprocess, sys

def test_child():
    subprocess.run([sys.executable, "-c", "import pytest, bazel.pytest_main"], check=True)
"""
    done = run_main(tmp_path, source)
    assert done.returncode == 0, done.stdout


def test_engines_cache_where_a_test_can_write(tmp_path):
    source = """
import os

def test_caches():
    assert os.environ["MODULAR_CACHE_DIR"] == "/given"
    assert os.environ["VLLM_CACHE_ROOT"] == os.environ["TEST_TMPDIR"] + "/vllm"
"""
    environ = {"MODULAR_CACHE_DIR": "/given", "TEST_TMPDIR": str(tmp_path)}
    done = run_main(tmp_path, source, **environ)
    assert done.returncode == 0, done.stdout
