"""An index goes to the Hub and comes back, by way of a server on this machine."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.child_processes import run_module, user_environment
from tests.utils.hub_server import Hub, hub_server
from tests.utils.model_trees import ROTATE, three_models

DATASET = "someone/index-of-code"


@pytest.fixture
def hub() -> Iterator[Hub]:
    with hub_server() as server:
        yield server


def detect(
    cwd: Path, hub: Hub, *arguments: str | Path, index: str = "index"
) -> subprocess.CompletedProcess[str]:
    environment = user_environment(
        cwd / "cache",
        HF_ENDPOINT=hub.address,
        HF_HOME=str(cwd / "hub"),
        HF_HUB_OFFLINE="0",
        HF_HUB_DISABLE_XET="1",  # the server takes large files as git does
        HF_HUB_DISABLE_TELEMETRY="1",
        HF_TOKEN="token-of-a-test",
        NO_PROXY="127.0.0.1",
    )
    return run_module(
        "utils.modular_model_detector",
        "--models-root",
        cwd / "lib" / "models",
        "--index-dir",
        cwd / index,
        *arguments,
        cwd=cwd,
        environment=environment,
    )


def push(cwd: Path, hub: Hub) -> subprocess.CompletedProcess[str]:
    three_models(cwd / "lib")
    return detect(
        cwd,
        hub,
        "--build",
        "--embedding-model",
        "none",
        "--push-new-index",
        "--hub-dataset",
        DATASET,
    )


def test_an_index_is_pushed_whole(tmp_path, hub):
    done = push(tmp_path, hub)
    assert done.returncode == 0, done.stderr
    assert f"pushed the index: {hub.address}/datasets/{DATASET}/commit/" in done.stdout
    assert hub.created == [DATASET]
    files = hub.datasets[DATASET]
    names = ["code_index_map.json", "code_index_tokens.safetensors", "index.json"]
    assert sorted(files) == names  # and no parts
    assert all(files[name] == (tmp_path / "index" / name).read_bytes() for name in names)
    assert list(hub.blobs.values()) == [files["code_index_tokens.safetensors"]]


def test_a_new_index_replaces_the_files_of_another_form(tmp_path, hub):
    hub.datasets[DATASET] = {
        "code_index_tokens.json": b"{}",
        "embeddings.safetensors": b"old",
        "README.md": b"x",
    }
    assert push(tmp_path, hub).returncode == 0
    assert "code_index_tokens.json" not in hub.datasets[DATASET]
    assert "embeddings.safetensors" not in hub.datasets[DATASET]
    assert hub.datasets[DATASET]["README.md"] == b"x"


def test_a_query_without_a_local_index_takes_it_from_the_hub(tmp_path, hub):
    push(tmp_path, hub)
    (tmp_path / "stuff.py").write_text(ROTATE)
    given = ["--modeling-file", tmp_path / "stuff.py", "--hub-dataset", DATASET]
    done = detect(tmp_path, hub, *given, index="empty")
    assert done.returncode == 0, done.stderr
    assert "    apple::rotate_half (1.0000)  identical\n" in done.stdout
    assert not (tmp_path / "empty").exists()


def test_a_data_set_that_is_named_goes_before_the_local_index(tmp_path, hub):
    push(tmp_path, hub)
    files = hub.datasets[DATASET]
    files["code_index_map.json"] = files["code_index_map.json"].replace(b"apple", b"durian")
    (tmp_path / "stuff.py").write_text(ROTATE)
    done = detect(tmp_path, hub, "--modeling-file", tmp_path / "stuff.py")
    assert "durian" not in done.stdout
    done = detect(tmp_path, hub, "--modeling-file", tmp_path / "stuff.py", "--hub-dataset", DATASET)
    assert "durian" in done.stdout


def test_a_hub_that_refuses_leaves_the_local_index(tmp_path, hub):
    hub.refuses = True
    done = push(tmp_path, hub)
    assert done.returncode == 2
    assert (
        f"error: the index was built in {tmp_path / 'index'} but not pushed to {DATASET}"
        in done.stderr
    )
    assert "Traceback" not in done.stderr
    assert (tmp_path / "index" / "index.json").is_file()


@pytest.mark.parametrize(
    ("held", "dataset", "message"),
    [
        ({}, DATASET, f"no index could be fetched from the data set {DATASET}"),
        ({DATASET: {"README.md": b"x"}}, DATASET, f"the data set {DATASET} holds no index of code"),
        ({}, "no good/name/at all", "no index could be fetched from the data set no good/name"),
    ],
)
def test_a_data_set_without_index_is_named(tmp_path, hub, held, dataset, message):
    hub.datasets |= held
    three_models(tmp_path / "lib")
    (tmp_path / "stuff.py").write_text(ROTATE)
    given = ["--modeling-file", tmp_path / "stuff.py", "--hub-dataset", dataset]
    done = detect(tmp_path, hub, *given)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_no_network_is_said_in_one_line(tmp_path, hub):
    three_models(tmp_path / "lib")
    (tmp_path / "stuff.py").write_text(ROTATE)
    hub.address = "http://127.0.0.1:9"  # nobody listens
    done = detect(tmp_path, hub, "--modeling-file", tmp_path / "stuff.py", "--hub-dataset", DATASET)
    assert done.returncode == 2
    assert f"no index could be fetched from the data set {DATASET}" in done.stderr
    assert "Traceback" not in done.stderr
