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


@pytest.mark.parametrize("where", ["\n", "\n    def __init__(self): "])
def test_a_file_that_changes_the_folder_changes_it_for_itself(
    tmp_path: Path, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    body = SUBCLASS.replace("{argument}", "*, _=None") + where + "import os; os.chdir('/')\n"
    load_oracle_file(_write(tmp_path, body))
    assert Path.cwd() == tmp_path


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


def test_syntax_error_of_another_file_names_the_line_of_the_import(tmp_path: Path) -> None:
    (tmp_path / "broken_helper.py").write_text("\n\ny = (\n")
    path = tmp_path / "mine.py"
    path.write_text(f"import sys\nsys.path.insert(0, {str(tmp_path)!r})\nimport broken_helper\n")
    try:
        with pytest.raises(BadInputError) as raised:
            load_oracle_file(str(path))
    finally:
        sys.path.remove(str(tmp_path))
    assert str(raised.value) == (
        f"oracle file {path}, line 3: SyntaxError: '(' was never closed (broken_helper.py, line 3)"
    )


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"x = 1\ny = '\0'\n", "line 2: syntax error: source code string cannot contain null"),
        (b"x = 1\ny = '\xe9'\n", "line 2: syntax error: (unicode error) 'utf-8' codec can't"),
    ],
)
def test_bytes_that_are_no_text_have_a_line(tmp_path: Path, content: bytes, told: str) -> None:
    path = tmp_path / "broken.py"
    path.write_bytes(content)
    with pytest.raises(BadInputError) as raised:
        load_oracle_file(str(path))
    assert str(raised.value).startswith(f"oracle file {path}, {told}")


@pytest.mark.parametrize(
    ("statement", "told"),
    [
        ("sys.exit(0)", "SystemExit: 0"),
        ("sys.exit('bye')", "SystemExit: bye"),
        ("raise GeneratorExit", "GeneratorExit: no message"),
        ("raise Hostile", "Hostile: its message cannot be shown"),
        ("raise Base('x\\ny')", "Base: y"),
        ("raise MemoryError", "MemoryError: no message"),
        ("raise StopIteration", "StopIteration: no message"),
        ("raise SyntaxError('x')", "SyntaxError: x"),
        ("f = lambda: f()\nf()", "RecursionError: maximum recursion depth exceeded"),
        ("import no_such_module_at_all", "ModuleNotFoundError: No module named"),
        (
            "from oracles.create_pipelines import PIPELINE_ORACLES",
            "has `from oracles import PIPELINE_ORACLES, GenericOracle`",
        ),
    ],
)
def test_whatever_the_file_raises_is_bad_input(tmp_path: Path, statement: str, told: str) -> None:
    path = tmp_path / "raises.py"
    hostile = "class Hostile(Exception):\n    def __str__(self): raise ValueError\n"
    base = "class Base(BaseException): pass\n"
    path.write_text(f"import sys\n{hostile}{base}{statement}\n")
    with pytest.raises(BadInputError, match=r"raises\.py, line 5: ") as raised:
        load_oracle_file(str(path))
    assert told in str(raised.value)
    assert not any(name.startswith("_oracle_file_raises") for name in sys.modules)


def test_line_is_told_for_a_relative_path_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "raises.py").write_text("\nint('x')\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BadInputError, match=r"^oracle file raises\.py, line 2: ValueError: "):
        load_oracle_file("raises.py")


def test_interrupt_passes(tmp_path: Path) -> None:
    path = tmp_path / "raises.py"
    path.write_text("raise KeyboardInterrupt")
    with pytest.raises(KeyboardInterrupt):
        load_oracle_file(str(path))


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        ("~no-such-user/x.py", "oracle file ~no-such-user/x.py does not exist"),
        ("a" * 5000 + ".py", "aaa cannot be opened: File name too long"),
        ("a/" * 3000 + "x.py:X", "cannot be opened: File name too long"),
        ("a\0b.py", "does not exist"),
        ("/dev/null", "oracle file /dev/null is no regular file"),
        ("/tmp", "oracle file /tmp is no regular file"),
    ],
)
def test_path_that_can_be_no_file(spec: str, told: str) -> None:
    with pytest.raises(MissingPathError) as raised:
        load_oracle_file(spec)
    assert told in str(raised.value)
    assert len(str(raised.value)) < 300


@pytest.mark.parametrize("added", [False, True])
@pytest.mark.parametrize(
    ("entries", "told"),
    [
        ("{'x': 5}", "PIPELINE_ORACLES: 'x' is 5, no oracle"),
        ("{5: make('a/b'), 'y': None}", "the key 5 is no text; 'y' is None, no oracle"),
    ],
)
def test_entries_that_are_no_oracles_are_named_together(
    tmp_path: Path, entries: str, told: str, added: bool
) -> None:
    body = f"REGISTERED.update({entries})" if added else f"PIPELINE_ORACLES = {entries}"
    before = dict(PIPELINE_ORACLES)
    try:
        with pytest.raises(BadInputError) as raised:
            load_oracle_file(f"{_write(tmp_path, body)}:x")
    finally:
        PIPELINE_ORACLES.clear()
        PIPELINE_ORACLES.update(before)
    assert str(raised.value).startswith(f"oracle file {tmp_path}/my_oracles.py: PIPELINE_ORACLES: ")
    assert str(raised.value).endswith(told)


@pytest.mark.parametrize("table", ["None", "[1]", "5"])
def test_table_that_is_no_dictionary(tmp_path: Path, table: str) -> None:
    with pytest.raises(BadInputError, match="must be a dictionary of names to oracles, it is"):
        load_oracle_file(_write(tmp_path, f"PIPELINE_ORACLES = {table}"))


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


def test_empty_name() -> None:
    with pytest.raises(BadInputError, match=r"is empty: expected FILE\.py or FILE\.py:NAME"):
        load_oracle_file("")


def test_class_that_needs_arguments(tmp_path: Path) -> None:
    spec = _write(tmp_path, SUBCLASS.replace("{argument}", "path"))
    with pytest.raises(BadInputError, match="Mine needs arguments; make an instance in the file"):
        load_oracle_file(spec)


@pytest.mark.parametrize(
    ("init", "told"),
    [
        ("raise ValueError('boom')", "cannot be made in line 11: ValueError: boom"),
        ("len(5)", "cannot be made in line 11: TypeError: object of type 'int' has no len()"),
        ("raise SystemExit", "cannot be made in line 11: SystemExit: no message"),
    ],
)
def test_class_whose_init_raises(tmp_path: Path, init: str, told: str) -> None:
    body = SUBCLASS.replace("{argument}", "path=None").replace("None): pass", f"None): {init}")
    spec = _write(tmp_path, body)
    with pytest.raises(BadInputError) as raised:
        load_oracle_file(spec)
    assert str(raised.value) == f"oracle file {spec}: Mine {told}"


def test_abstract_class_in_the_table(tmp_path: Path) -> None:
    body = "class A(PipelineOracle): pass\nPIPELINE_ORACLES = {'a': A}"
    with pytest.raises(BadInputError, match="a cannot be made: TypeError: Can't instantiate"):
        load_oracle_file(_write(tmp_path, body))


def test_oracle_with_wrong_values_is_named_by_file_and_name(tmp_path: Path) -> None:
    body = "ORACLE = GenericOracle('a/b', device_encoding_map={'cpu': 'float32'}, prompts='abc')"
    spec = _write(tmp_path, body)
    with pytest.raises(BadInputError) as raised:
        load_oracle_file(spec)
    assert str(raised.value) == (
        f"oracle file {spec}: ORACLE: device_encoding_map of cpu must be a list of encodings, "
        "found 'float32'; prompts must be a list of prompts, found 'abc'"
    )
