"""What leaves a run: no token in any file or line, and no connection that nobody needs."""

import re
import signal
import socket
import sys
from pathlib import Path

import click
import pytest

from tools.compare_tensors import compare_tensors
from tools.debug_model import debug_model
from tools.diff_models import diff_models
from tools.entry_point import run_command

TOKEN = "hf_PlantedAbcdefgh0123456789XYZ"
SECOND = "plain-planted-second-token"
PLANTED = re.compile(rb"hf_Planted|plain-planted|planted-(password|query|key)")
ADDRESS = "https://me:planted-password@127.0.0.1:9/a.png?token=planted-query"
PROMPT = f"see {ADDRESS} and go on with {TOKEN} for a while, then with {SECOND} to the end"
LLAMA = ("--pipeline", "tiny-random/llama")


def run(monkeypatch: pytest.MonkeyPatch, command: click.Command, *arguments: object) -> int:
    """Run a command in this process and return its exit code."""
    monkeypatch.setattr(sys, "argv", [str(command.name), *map(str, arguments)])
    monkeypatch.setattr(sys, "stdout", sys.stdout)  # put back afterwards
    handler = signal.getsignal(signal.SIGINT)
    try:
        with pytest.raises(SystemExit) as exit_info:
            run_command(command)
    finally:
        signal.signal(signal.SIGINT, handler)
    assert isinstance(exit_info.value.code, int)
    return exit_info.value.code


def test_no_token_is_written_anywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    monkeypatch.setenv("HUGGING_FACE_HUB_TOKEN", SECOND)
    monkeypatch.chdir(tmp_path)
    torch = ("--framework", "torch", "--num-hidden-layers", 2)
    capture = (*torch, *LLAMA, "--prompt", PROMPT, "--log-hf-downloads")
    assert run(monkeypatch, debug_model, *capture, "-o", "a") == 0
    changed = ("--hf-config-overrides", '{"hidden_act": "gelu"}')
    assert run(monkeypatch, debug_model, *capture, *changed, "-o", "b") == 0
    wrong = ("--hf-config-overrides", f'{{"{TOKEN}": "{ADDRESS}"}}')
    assert run(monkeypatch, debug_model, *capture, *wrong) == 2
    internvl = ("--framework", "torch", "--pipeline", "tiny-random/internvl")
    assert run(monkeypatch, debug_model, *internvl, "--image", ADDRESS) == 2
    assert run(monkeypatch, debug_model, "--framework", "torch", "--pipeline", ADDRESS) == 2
    sides = ("--reference", "a", "--candidate", "b")
    files = [
        f
        for name in ("html", "csv", "junit", "markdown", "json")
        for f in (f"--{name}", f"c.{name}")
    ]
    assert run(monkeypatch, compare_tensors, *sides, *files, "--table", "--verdict") == 1
    files = ["--html", "d.html", "--json", "d.json", "--markdown", "d.md", "--repro", "repro"]
    assert run(monkeypatch, diff_models, *LLAMA, *sides, *files) == 1
    said = "".join(capfd.readouterr())
    assert "<removed>@127.0.0.1:9" in said
    assert not PLANTED.search(said.encode())
    written = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert {"manifest.json", "c.html", "c.junit", "d.html", "d.json"} <= {
        path.name for path in written
    }
    assert [path for path in written if PLANTED.search(path.read_bytes())] == []
    prompt = (tmp_path / "a" / "manifest.json").read_text()
    assert "see https://<removed>@127.0.0.1:9/a.png?token=<removed> and go on with" in prompt


class ForbiddenError(OSError):
    """A connection was about to be made."""


@pytest.fixture
def connections(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Refuse and list every connection to another machine, and every question for an address."""
    asked: list[object] = []
    connect = socket.socket.connect

    def refuse(*arguments: object, **_: object) -> None:
        asked.append(arguments[-1])
        raise ForbiddenError("no network in this test")

    def guarded(self: socket.socket, address: object) -> None:
        if self.family == socket.AF_UNIX:
            return connect(self, address)  # type: ignore[arg-type]  # as it came
        return refuse(address)

    monkeypatch.setattr(socket.socket, "connect", guarded)
    monkeypatch.setattr(socket.socket, "connect_ex", guarded)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    return asked


@pytest.mark.parametrize("offline", [True, False])
def test_local_models_need_no_network(
    offline: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    connections: list[object],
) -> None:
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", offline)
    monkeypatch.chdir(tmp_path)
    torch = ("--framework", "torch", *LLAMA)
    assert run(monkeypatch, debug_model, *torch, "-o", "a") == 0
    assert run(monkeypatch, debug_model, *torch, "-o", "b") == 0
    sides = ("--reference", "a", "--candidate", "b")
    assert run(monkeypatch, compare_tensors, *sides, "--atol", "0", "--html", "c.html") == 0
    assert run(monkeypatch, diff_models, *LLAMA, *sides) == 0
    assert connections == []


def test_nothing_is_asked_offline(
    monkeypatch: pytest.MonkeyPatch, connections: list[object], capfd: pytest.CaptureFixture[str]
) -> None:
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    torch = ("--framework", "torch", "--pipeline")
    assert run(monkeypatch, debug_model, *torch, "some-org/not-there") == 2
    assert "HF_HUB_OFFLINE is set" in capfd.readouterr().err
    image = ("--image", "https://host.example/a.png")
    assert run(monkeypatch, debug_model, *torch, "tiny-random/internvl", *image) == 2
    assert connections == []
    with pytest.raises(ForbiddenError):  # what the test rests on
        socket.create_connection(("host.example", 443))
    assert connections
