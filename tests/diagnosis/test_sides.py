"""What a user names as a side."""

from pathlib import Path

import pytest

from comparison.schema.errors import BadInputError
from diagnosis.sides import DumpSide, EngineSide, parse_side


@pytest.mark.parametrize(
    ("text", "side"),
    [
        ("torch", EngineSide(engine="torch")),
        ("max", EngineSide(engine="max")),
        ("vllm@my_oracle.py:FIXED", EngineSide(engine="vllm", oracle="my_oracle.py:FIXED")),
        ("torch@tiny-random/llama", EngineSide(engine="torch", oracle="tiny-random/llama")),
        ("./torch", DumpSide(path=Path("./torch"))),
        ("dumps/new", DumpSide(path=Path("dumps/new"))),
    ],
)
def test_names_and_paths(text: str, side: object) -> None:
    assert parse_side(text) == side


def test_an_engine_wins_over_a_folder_of_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "max").mkdir()
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path)
    assert parse_side("max") == EngineSide(engine="max")
    assert parse_side("other") == DumpSide(path=Path("other"))


@pytest.mark.parametrize("text", ["", "trch", "torch@", "maxx"])
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(BadInputError):
        parse_side(text)
