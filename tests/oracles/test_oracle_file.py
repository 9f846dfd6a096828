"""Tests of oracles from a user's file."""

import sys
from pathlib import Path

import pytest

from comparison.schema.errors import BadInputError, MissingPathError, UnknownPipelineError
from oracles.oracle_file import load_oracle_file
from oracles.registry import PIPELINE_ORACLES

HEAD = """
from tools.create_pipelines import PIPELINE_ORACLES as REGISTERED, GenericOracle, PipelineOracle

def make(path):
    return GenericOracle(model_path=path, device_encoding_map={"cpu": ["float32"]})

"""

SUBCLASS = """
class Mine(PipelineOracle):
    model_path = "of/class"
    device_encoding_map = {"cpu": ["float32"]}
    def __init__(self, {argument}): pass
    def create_max_pipeline(self, *, encoding, device_specs): ...
    def create_torch_pipeline(self, *, encoding, device): ...
"""


def _write(folder: Path, body: str) -> str:
    path = folder / "my_oracles.py"
    path.write_text(HEAD + body)
    return str(path)


def test_sole_instance_is_taken(tmp_path: Path) -> None:
    oracle = load_oracle_file(_write(tmp_path, "ORACLE = make('a/b')"))
    assert oracle.model_path == "a/b"


def test_instance_known_by_two_names_is_one(tmp_path: Path) -> None:
    spec = _write(tmp_path, "ORACLE = make('a/b')\nPIPELINE_ORACLES = {'a/b': ORACLE}")
    assert load_oracle_file(spec).model_path == "a/b"


@pytest.mark.parametrize("name", ["SECOND", "my-org/my-model"])
def test_name_is_a_variable_or_a_key(tmp_path: Path, name: str) -> None:
    body = "FIRST = make('a/b')\nSECOND = make('c/d')\n"
    body += "PIPELINE_ORACLES = {'my-org/my-model': SECOND}"
    assert load_oracle_file(f"{_write(tmp_path, body)}:{name}").model_path == "c/d"


def test_subclass_is_taken_where_there_is_no_instance(tmp_path: Path) -> None:
    oracle = load_oracle_file(_write(tmp_path, SUBCLASS.replace("{argument}", "path=None")))
    assert oracle.model_path == "of/class"


def test_instance_comes_before_its_class(tmp_path: Path) -> None:
    body = SUBCLASS.replace("{argument}", "path=None") + "ORACLE = make('a/b')"
    assert load_oracle_file(_write(tmp_path, body)).model_path == "a/b"


def test_entry_that_the_file_adds_to_the_registry_is_taken(tmp_path: Path) -> None:
    spec = _write(tmp_path, "REGISTERED['my-org/added'] = make('my-org/added')")
    try:
        assert load_oracle_file(spec).model_path == "my-org/added"
    finally:
        del PIPELINE_ORACLES["my-org/added"]


def test_module_has_a_private_name(tmp_path: Path) -> None:
    load_oracle_file(_write(tmp_path, "ORACLE = make('a/b')"))
    assert "my_oracles" not in sys.modules


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(MissingPathError, match=r"oracle file .*none\.py does not exist"):
        load_oracle_file(str(tmp_path / "none.py"))


def test_syntax_error_names_the_line(tmp_path: Path) -> None:
    path = tmp_path / "broken.py"
    path.write_text("x = 1\ny = (\n")
    with pytest.raises(BadInputError, match=r"broken\.py, line 2: syntax error: "):
        load_oracle_file(str(path))


def test_error_of_the_file_names_its_line(tmp_path: Path) -> None:
    path = tmp_path / "raises.py"
    path.write_text("x = 1\n\nint('x')\n")
    with pytest.raises(BadInputError, match=r"raises\.py, line 3: ValueError: invalid literal"):
        load_oracle_file(str(path))


def test_file_that_is_not_python(tmp_path: Path) -> None:
    path = tmp_path / "oracle.txt"
    path.write_text("")
    with pytest.raises(BadInputError, match=r"its name must end in \.py"):
        load_oracle_file(str(path))


def test_file_without_oracle(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="has no oracle: expected an instance or a concrete"):
        load_oracle_file(_write(tmp_path, ""))


def test_several_oracles_are_listed(tmp_path: Path) -> None:
    spec = _write(tmp_path, "B = make('a/b')\nA = make('c/d')")
    with pytest.raises(BadInputError, match=r"several oracles; give one as .*\.py:NAME: A, B$"):
        load_oracle_file(spec)


def test_unknown_name_lists_what_there_is(tmp_path: Path) -> None:
    spec = _write(tmp_path, "B = make('a/b')")
    with pytest.raises(UnknownPipelineError, match="has no oracle 'C'; it has: B"):
        load_oracle_file(f"{spec}:C")


def test_colon_without_name(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="nothing follows the colon"):
        load_oracle_file(f"{_write(tmp_path, '')}:")


def test_class_that_needs_arguments(tmp_path: Path) -> None:
    spec = _write(tmp_path, SUBCLASS.replace("{argument}", "path"))
    with pytest.raises(BadInputError, match="Mine needs arguments; make an instance in the file"):
        load_oracle_file(spec)
