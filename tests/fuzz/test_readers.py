"""Every reader of files that others made gives a value or one clear error, whatever it is given.

The long runs are by hand: run_atheris.py chooses inputs by what code they reach, run_hypothesis.py
as hypothesis does.
"""

import random

import pytest

from comparison.schema.errors import CorruptFileError
from tests.fuzz.checked import OUTCOMES, FindingError, check_reader
from tests.fuzz.damaged_files import inputs
from tests.fuzz.readers import READERS
from tests.fuzz.run_hypothesis import MOST_BYTES, feed

# A few seconds all together; reading .pt files and whole dumps takes longer.
_SEEDED = {"pt": 150, "dump": 60}
_USUAL = 400
_REGRESSIONS = list(inputs())


@pytest.mark.parametrize("name", READERS)
def test_seeded_damage(name: str) -> None:
    generator = random.Random(name)
    OUTCOMES.clear()
    for _ in range(_SEEDED.get(name, _USUAL)):
        data = generator.randbytes(generator.randrange(1, MOST_BYTES))
        try:
            READERS[name](data)
        except Exception as error:
            raise AssertionError(f"READERS[{name!r}]({data!r}) failed") from error
    # Damage that leaves nothing to read, or nothing to refuse, would test half of a reader.
    assert min(OUTCOMES["read"], OUTCOMES["refused"]) > _SEEDED.get(name, _USUAL) // 20


@pytest.mark.parametrize("name", READERS)
def test_damage_that_hypothesis_chooses(name: str) -> None:
    feed(READERS[name], count=_SEEDED.get(name, _USUAL) // 8, derandomize=True)


@pytest.mark.parametrize(
    ("name", "data"),
    [(name, data) for name, _, data in _REGRESSIONS],
    ids=[f"{name}: {what}" for name, what, _ in _REGRESSIONS],
)
def test_what_once_failed(name: str, data: bytes) -> None:
    READERS[name](data)


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (KeyError("x"), "x"),
        (MemoryError("much"), "much"),
        (RecursionError("deep"), "deep"),
        (ValueError("not ours"), "not ours"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_other_errors_are_findings(error: Exception, message: str) -> None:
    def read(_path: object) -> None:
        raise error

    with pytest.raises(type(error), match=message):
        check_reader(read, "x.npy", b"")


def test_messages_that_do_not_name_the_file_are_findings() -> None:
    def read(_path: object) -> None:
        raise CorruptFileError("expected another file")

    with pytest.raises(FindingError, match="does not name"):
        check_reader(read, "x.npy", b"")
