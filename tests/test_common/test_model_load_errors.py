"""Tests of why a model cannot be loaded, with the real loader and a Hub on this machine."""

import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from comparison.schema.errors import (
    EngineError,
    MissingPathError,
    TryAgainError,
    UnknownPipelineError,
)
from test_common.layer_overrides import load_hf_config
from test_common.model_load_errors import load_errors, model_load_error
from tests.test_common.hub_server import ANSWERS, load_errors_from, running_hub


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What loading raises, by how the Hub answers; the waiting for retries runs side by side."""
    home = tmp_path_factory.mktemp("hub")
    names = [f"some-org/{name}" for name in ANSWERS]
    with running_hub() as hub, socket.socket() as silent, ThreadPoolExecutor() as pool:
        silent.bind(("127.0.0.1", 0))  # bound, and nobody listens
        nobody = f"http://127.0.0.1:{silent.getsockname()[1]}"
        answered = pool.submit(load_errors_from, hub, names, home / "a")
        unreachable = pool.submit(load_errors_from, nobody, ["some-org/away"], home / "b")
        offline = pool.submit(load_errors_from, hub, ["some-org/off"], home / "c", offline=True)
        messages = [*answered.result(), *unreachable.result(), *offline.result()]
    return dict(zip([*ANSWERS, "unreachable", "offline"], messages, strict=True))


def test_model_that_does_not_exist(answers: dict[str, str]) -> None:
    assert answers["missing"] == (
        "UnknownPipelineError: the Hub has no model some-org/missing, or it is private and "
        "HF_TOKEN is not set"
    )


def test_model_that_is_gated(answers: dict[str, str]) -> None:
    assert answers["gated"] == (
        "BadInputError: the Hub refuses some-org/gated: the repository is gated; accept its "
        "licence on the Hub and set HF_TOKEN"
    )


def test_hub_that_fails_passes_by_itself(answers: dict[str, str]) -> None:
    assert answers["failing"] == (
        "TryAgainError: the Hub answered 500 for some-org/failing; try again later"
    )


def test_hub_that_cannot_be_reached_passes_by_itself(answers: dict[str, str]) -> None:
    assert answers["unreachable"].startswith(
        "TryAgainError: the Hub cannot be reached for some-org/away (ConnectError: "
    )
    assert answers["unreachable"].endswith(
        f"), and there is no folder of that name in {Path.cwd()}; try again later, or give a local "
        "folder"
    )


def test_offline_is_no_passing_failure(answers: dict[str, str]) -> None:
    assert answers["offline"] == (
        "UnknownPipelineError: some-org/off is not in the local Hub cache, and HF_HUB_OFFLINE is "
        "set; unset it, or give a local folder"
    )


def test_failure_of_the_loader_is_quoted_in_one_line() -> None:
    error = model_load_error(
        RuntimeError("\nfirst line\nsecond line"), model_path="a/b", engine="max"
    )
    assert type(error) is EngineError
    assert str(error) == "max cannot load a/b: RuntimeError: first line"


def test_failure_without_message() -> None:
    error = model_load_error(KeyError(), model_path="a/b", engine="torch")
    assert str(error) == "torch cannot load a/b: KeyError: no message"


def test_cause_counts_however_deep_it_lies() -> None:
    try:
        try:
            raise ConnectionError("refused")
        except ConnectionError as inner:
            raise OSError("cannot load") from inner
    except OSError as outer:
        error = model_load_error(outer, model_path=__file__, engine="torch")
    assert isinstance(error, TryAgainError | UnknownPipelineError)


@pytest.mark.parametrize("path", ["/no/such", "./no", "no/such/model", "~/no"])
def test_a_folder_that_is_not_there_is_no_matter_of_the_hub(path: str) -> None:
    with pytest.raises(MissingPathError) as error:
        load_hf_config(path)
    assert str(error.value) == f"{path}: expected a model's folder, found nothing there"


def test_errors_of_ours_pass_unchanged() -> None:
    with pytest.raises(EngineError, match=r"^as it is$"), load_errors("a/b", engine="torch"):
        raise EngineError("as it is")


def test_interrupt_passes_unchanged() -> None:
    with pytest.raises(KeyboardInterrupt), load_errors("a/b", engine="torch"):
        raise KeyboardInterrupt
