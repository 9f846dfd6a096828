"""Everything that goes into a run changes its key."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from diagnosis import reference_key
from diagnosis.reference_key import NotCacheableError, key_of_run, parts_of_run
from oracles.generic_oracle import GenericOracle
from test_common import numeric_environment
from test_common.debug_options import DebugOptions
from test_common.file_digests import FileDigests

_ROWS = [[1, 5, 7], [2, 9]]


class Case:
    """One run that could be kept, of a model of a few bytes."""

    def __init__(self, tmp_path: Path) -> None:
        self.model = tmp_path / "model"
        self.model.mkdir()
        (self.model / "config.json").write_text('{"hidden_size": 8}')
        (self.model / "model.safetensors").write_bytes(b"weights")
        self.file = tmp_path / "mine.py"
        self.file.write_text("ORACLE = 1\n")
        self.oracle: Any = GenericOracle(
            str(self.model), device_encoding_map={"cpu": ["float32", "bfloat16"]}
        )
        self.options = DebugOptions(
            pipeline="mine", framework="torch", device="cpu", num_steps=3, output=tmp_path / "out"
        )
        self.rows: Any = _ROWS
        self.digests = FileDigests(tmp_path / "index.json")

    def key(self) -> str:
        return key_of_run(self.oracle, self.options, self.rows, self.digests, file=self.file)


@pytest.fixture(name="case")
def _case(tmp_path: Path) -> Case:
    return Case(tmp_path)


def _option(**changed: Any) -> Callable[[Case], None]:
    def change(case: Case) -> None:
        case.options = replace(case.options, **changed)

    return change


def _weights(case: Case) -> None:
    (case.model / "model.safetensors").write_bytes(b"Weights")  # of the same size


def _config(case: Case) -> None:
    (case.model / "config.json").write_text('{"hidden_size": 9}')


def _renamed_file(case: Case) -> None:
    (case.model / "model.safetensors").rename(case.model / "other.safetensors")


def _oracle_file(case: Case) -> None:
    case.file.write_text("ORACLE = 2\n")


def _oracle(case: Case) -> None:
    case.oracle.use_cache = False


def _model_class(case: Case) -> None:
    case.oracle.auto_model_cls = torch.nn.Linear


def _rows(case: Case) -> None:
    case.rows = [[1, 5, 7], [2, 8]]


_CHANGES: dict[str, Callable[[Case], None]] = {
    "weights": _weights,
    "config": _config,
    "file name": _renamed_file,
    "oracle file": _oracle_file,
    "oracle": _oracle,
    "model class": _model_class,
    "token ids": _rows,
    "prompts": _option(prompts=("a", "b")),
    "steps": _option(num_steps=2),
    "seed": _option(seed=1),
    "filter": _option(filter=("*.mlp",)),
    "ops": _option(ops=("*.mlp",)),
    "encoding": _option(encoding="bfloat16"),
    "layers": _option(num_hidden_layers=2),
    "overrides": _option(hf_config_overrides={"rope_theta": 2.0}),
    "pipeline": _option(pipeline="other"),
}


@pytest.mark.parametrize("change", _CHANGES.values(), ids=_CHANGES)
def test_each_part_of_a_run_changes_its_key(case: Case, change: Callable[[Case], None]) -> None:
    before = case.key()
    assert case.key() == before
    change(case)
    assert case.key() != before


_MACHINE: dict[str, tuple[str, Any]] = {
    "processor": ("processor_flags", lambda: "another"),
    "versions": ("_version", lambda name: "0.1"),
    "switches": ("_switches", lambda: ["tf32"]),
}


@pytest.mark.parametrize(("name", "value"), _MACHINE.values(), ids=_MACHINE)
def test_each_part_of_the_machine_changes_the_key(
    case: Case, monkeypatch: pytest.MonkeyPatch, name: str, value: Any
) -> None:
    before = case.key()
    monkeypatch.setattr(numeric_environment, name, value)
    assert case.key() != before


def test_threads_variables_and_our_own_code_change_the_key(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = {case.key()}
    threads = torch.get_num_threads()
    torch.set_num_threads(threads + 1)
    keys.add(case.key())
    torch.set_num_threads(threads)
    monkeypatch.setenv("ATEN_CPU_CAPABILITY", "default")
    keys.add(case.key())
    monkeypatch.delenv("ATEN_CPU_CAPABILITY")
    monkeypatch.setattr(reference_key, "_our_source", lambda digests: "edited")
    keys.add(case.key())
    assert len(keys) == 4


def test_where_the_dump_goes_does_not_matter(case: Case, tmp_path: Path) -> None:
    before = case.key()
    case.options = replace(case.options, output=tmp_path / "elsewhere", overwrite=True)
    assert case.key() == before


def test_our_own_code_is_read(case: Case) -> None:
    files = [Path(reference_key.__file__).parents[1] / "test_common" / "torch_runner.py"]
    assert all(file.is_file() for file in files)
    assert len(parts_of_run(case.oracle, case.options, _ROWS, case.digests)["ours"]) == 64


class _OwnCode(GenericOracle):
    def create_torch_pipeline(self, **given: Any) -> Any:
        return given


def _own_code(case: Case) -> None:
    case.oracle = _OwnCode(str(case.model), device_encoding_map={"cpu": ["float32"]})


def _pictures(case: Case) -> None:
    case.oracle.takes_images = True


def _no_rows(case: Case) -> None:
    case.rows = None


def _not_here(case: Case) -> None:
    case.oracle.model_path = "nobody/not-on-this-machine"


_REFUSED: dict[str, tuple[Callable[[Case], None], str]] = {
    "own code": (_own_code, "code of its own"),
    "pictures": (_pictures, "pictures"),
    "unknown rows": (_no_rows, "pictures"),
    "watched": (_option(watch_config=True), "watched"),
    "verified": (_option(verify_capture=True), "verified"),
    "remote code": (_option(trust_remote_code=True), "repository"),
    "not downloaded": (_not_here, "not on this machine"),
}


@pytest.mark.parametrize(("change", "reason"), _REFUSED.values(), ids=_REFUSED)
def test_a_run_of_which_not_all_is_known_has_no_key(
    case: Case, change: Callable[[Case], None], reason: str
) -> None:
    change(case)
    with pytest.raises(NotCacheableError, match=reason):
        case.key()


def test_a_library_that_someone_edits_has_no_key(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reference_key, "editable_packages", lambda: ["transformers"])
    with pytest.raises(NotCacheableError, match="transformers"):
        case.key()
