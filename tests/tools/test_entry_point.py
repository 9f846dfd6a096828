"""One wrapper gives every command its exit codes, whatever becomes of its streams."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import click
import pytest

from comparison.schema.errors import BadInputError, EngineError, TryAgainError
from tools.entry_point import as_called, run_command


def run(monkeypatch: pytest.MonkeyPatch, function: object) -> int:
    """Run a command in this process; stdout and the handler of Ctrl-C are put back afterwards."""
    monkeypatch.setattr(sys, "argv", ["command"])
    monkeypatch.setattr(sys, "stdout", sys.stdout)
    handler = signal.getsignal(signal.SIGINT)
    try:
        with pytest.raises(SystemExit) as exit_info:
            run_command(click.command()(function))  # type: ignore[arg-type]  # any function will do
    finally:
        signal.signal(signal.SIGINT, handler)
    assert isinstance(exit_info.value.code, int)
    return exit_info.value.code


def raising(error: BaseException) -> object:
    def command() -> int:
        raise error

    return command


def start(body: str, **streams: object) -> subprocess.Popen[str]:
    """Start a command of its own, whose function has this body."""
    code = (
        "import click\nfrom tools.entry_point import run_command\n"
        "@click.command()\ndef command():\n"
        + "".join(f"    {line}\n" for line in body.splitlines())
        + "run_command(command)\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    environment |= streams.pop("env", {})  # type: ignore[operator]  # a dictionary
    return subprocess.Popen(
        [sys.executable, "-c", code],
        env=environment,
        text=True,
        **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | streams,  # type: ignore[call-overload]
    )


@pytest.mark.parametrize("code", [0, 1, 75])
def test_code_of_a_model_that_ends_the_process_is_no_verdict(code: int) -> None:
    with start(f"import os\nprint('so far', flush=True)\nos._exit({code})") as process:
        output, errors = process.communicate()
    assert process.returncode == 2
    assert output == "so far\n"
    assert errors == f"error: code of the model or oracle ended the process: os._exit({code})\n"


def test_a_package_that_is_not_there_is_no_fault_of_the_tool(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def lacking() -> None:
        import no_such_package.part  # noqa: F401

    assert run(monkeypatch, lacking) == 2
    assert capsys.readouterr().err.startswith(
        "error: expected the Python package no_such_package, found none: install what"
    )


def test_a_module_of_ours_that_is_not_there_is_a_fault_of_the_tool(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert run(monkeypatch, raising(ModuleNotFoundError("no", name="tools.nowhere"))) == 70


def test_a_forked_child_ends_as_it_likes() -> None:
    body = (
        "import os\nchild = os.fork()\nif child == 0:\n    os._exit(7)\n"
        "return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])"
    )
    with start(body) as process:
        _, errors = process.communicate()
    assert (process.returncode, errors) == (7, "")


@pytest.mark.parametrize("code", [0, 1, 2])
def test_the_functions_own_code(monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    assert run(monkeypatch, lambda: code) == code


def test_no_code_is_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(monkeypatch, lambda: None) == 0


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        (BadInputError("no such thing"), 2, "error: no such thing"),
        (EngineError("no such thing"), 2, "error: no such thing"),
        (TryAgainError("no such thing"), 75, "error: no such thing"),
        (click.UsageError("no such thing"), 2, "error: no such thing"),
        (
            OSError(36, "File name too long", "a" * 9),
            2,
            "error: the system refuses aaaaaaaaa: File",
        ),
        (MemoryError(), 2, "error: there is not enough memory"),
        (SystemExit(0), 2, "error: code of the model or oracle ended the process"),
        (KeyboardInterrupt(), 130, "interrupted"),
        (ZeroDivisionError("x"), 70, "error: this is a fault of the tool"),
    ],
)
def test_errors(
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    error: BaseException,
    code: int,
    words: str,
) -> None:
    assert run(monkeypatch, raising(error)) == code
    assert capfd.readouterr().err.splitlines()[-1].startswith(words)


def test_a_message_of_several_lines_becomes_one(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, raising(BadInputError("first\n  second"))) == 2
    assert capfd.readouterr().err == "error: first second\n"


def test_a_users_folder_that_is_not_there(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setenv("BUILD_WORKING_DIRECTORY", str(tmp_path / "nowhere"))
    assert run(monkeypatch, lambda: 0) == 2
    assert "BUILD_WORKING_DIRECTORY is" in capfd.readouterr().err


def test_a_reader_that_goes_leaves_the_result(tmp_path: Path) -> None:
    process = start("for n in range(100000): print(n)\nreturn 1")
    assert process.stdout is not None
    process.stdout.readline()
    process.stdout.close()
    assert process.wait() == 1
    assert process.stderr is not None
    assert process.stderr.read() == ""


@pytest.mark.parametrize("buffered", ["", "1"])
def test_a_full_disk_behind_stdout_is_one_line(buffered: str) -> None:
    with open("/dev/full", "w") as full:
        process = start("print('result')", stdout=full, env={"PYTHONUNBUFFERED": buffered})
        _, errors = process.communicate()
    assert process.returncode == 2
    assert errors == "error: cannot write to standard output: No space left on device\n"


def test_closed_streams_change_nothing(tmp_path: Path) -> None:
    marker = tmp_path / "file"
    body = f"print('lost')\nopen({str(marker)!r}, 'w').write('kept')\nreturn 1"
    process = start(body, stdout=None, stderr=None, preexec_fn=lambda: [os.close(1), os.close(2)])
    assert process.wait() == 1
    assert marker.read_text() == "kept"


def test_an_error_that_nobody_can_read_keeps_its_code() -> None:
    with open("/dev/full", "w") as full:
        process = start("raise click.UsageError('x')", stderr=full)
        process.communicate()
    assert process.returncode == 2


def test_letters_that_the_stream_lacks_are_escaped() -> None:
    process = start("print('\\u00e9')", env={"PYTHONIOENCODING": "ascii"})
    printed, _ = process.communicate()
    assert (process.returncode, printed) == (0, "\\xe9\n")


@pytest.mark.parametrize("swallow", ["raise", "raise ImportError('turned into another') from e"])
def test_ctrl_c_is_130_whatever_a_library_makes_of_it(swallow: str) -> None:
    body = (
        "import sys, time\nprint('ready', flush=True)\n"
        f"try: time.sleep(60)\nexcept BaseException as e: {swallow}"
    )
    process = start(body)
    assert process.stdout is not None
    process.stdout.readline()
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=20)
    assert process.returncode == 130
    assert errors == "interrupted\n"


def test_a_second_ctrl_c_ends_a_slow_end() -> None:
    body = (
        "import time\nprint('ready', flush=True)\n"
        "try: time.sleep(60)\nfinally:\n    print('cleaning', flush=True); time.sleep(60)"
    )
    process = start(body)
    assert process.stdout is not None
    process.stdout.readline()
    process.send_signal(signal.SIGINT)
    process.stdout.readline()
    began = time.monotonic()
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=20) == 130
    assert time.monotonic() - began < 20


def test_a_command_is_named_as_it_was_called(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    given = ["--pipeline", "a b"]
    monkeypatch.delenv("BUILD_WORKSPACE_DIRECTORY", raising=False)
    assert as_called("diff_models", given) == "diff_models --pipeline 'a b'"
    monkeypatch.setenv("BUILD_WORKSPACE_DIRECTORY", str(tmp_path))
    of_others = "bazel run @model_accuracy_tools//tools:diff_models -- --pipeline 'a b'"
    assert as_called("diff_models", given) == of_others
    for path in (tmp_path / "bazelw", tmp_path / "tools" / "diff_models.py"):
        path.parent.mkdir(exist_ok=True)
        path.touch()
    ours = "bazelw run //tools:diff_models -- --pipeline 'a b'"
    monkeypatch.chdir(tmp_path)
    assert as_called("diff_models", given) == f"./{ours}"
    monkeypatch.chdir(tmp_path / "tools")
    assert as_called("diff_models", given) == f"../{ours}"


def test_an_error_cannot_steer_a_terminal_or_a_ci_run() -> None:
    text = "in zz\\x1b]0;owned\\x07\\x1b[31m ##vso[x] ##[error]f\\n::error::y"
    process = start(f"raise click.ClickException('{text}')")
    _, errors = process.communicate()
    assert process.returncode != 0
    assert errors.startswith("error: in zz\\x1b]0;owned\\x07")
    assert not {"\x1b", "\x07"} & set(errors)
    assert "##" not in errors
    assert errors.count("\n") == 1
