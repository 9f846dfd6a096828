import os

import pytest

from test_common.engine_stderr import without_write_log


def test_only_the_write_log_is_dropped(capfd: pytest.CaptureFixture[str]) -> None:
    with without_write_log():
        os.write(2, b"Writing debug binary tensor 2x3xf32 of 24 bytes to 'o/0/y.max'\n")
        os.write(2, b"real trouble\n")
        os.write(2, b"more of it")
    assert capfd.readouterr().err == "real trouble\nmore of it"


def test_errors_reach_stderr_when_the_block_fails(capfd: pytest.CaptureFixture[str]) -> None:
    def fail() -> None:
        with without_write_log():
            os.write(2, b"last words\n")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert capfd.readouterr().err == "last words\n"


def test_stderr_is_itself_again_afterwards(capfd: pytest.CaptureFixture[str]) -> None:
    before = os.fstat(2)
    with without_write_log():
        assert os.fstat(2) != before
    assert os.fstat(2) == before
    os.write(2, b"Writing debug binary tensor outside\n")
    assert "outside" in capfd.readouterr().err
