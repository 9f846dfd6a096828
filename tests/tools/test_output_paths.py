"""Outputs of diff_models that would be in each other's way, or in that of what is read."""

from pathlib import Path

import pytest

from comparison.schema.errors import UnwritableOutputError
from tools.output_paths import check_paths


def check(*, read: tuple[str, ...] = (), **asked: str) -> None:
    files = {"json": asked.get("json"), "print-map": asked.get("print_map")}
    folders = {"output": asked.get("output"), "repro": asked.get("repro")}
    check_paths(
        files={name: None if path is None else Path(path) for name, path in files.items()},
        folders={name: None if path is None else Path(path) for name, path in folders.items()},
        read=[Path(path) for path in read],
    )


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("out", "repro", "dump"):
        (tmp_path / name).mkdir()
    (tmp_path / "old.json").write_text("{}")
    (tmp_path / "link.json").symlink_to("old.json")


def test_outputs_beside_each_other_are_fine() -> None:
    check(json="a", print_map="b", output="out", repro="repro", read=("dump", "map.json"))
    check(json="out/found.json", output="out", repro="out/repro", read=("dump",))
    check(json="old.json")


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"json": "a", "print_map": "./a"}, "--json and --print-map are one file, a"),
        (
            {"json": "old.json", "print_map": "link.json"},
            "--json and --print-map are one file",
        ),
        ({"json": "x", "output": "x"}, "--json x lies where --output x is to go"),
        ({"json": "repro/x", "repro": "repro"}, "--json repro/x lies where --repro repro is"),
        ({"print_map": "out/candidate", "output": "out"}, "lies where --output out is to go"),
        ({"output": "x", "repro": "x"}, "--repro x and --output x lie in each other"),
        ({"output": "repro/x", "repro": "repro"}, "lie in each other"),
        ({"output": "x", "repro": "x/reference"}, "lie in each other"),
        ({"json": "dump/x", "read": ("dump",)}, "--json dump/x would change what is read, dump"),
        (
            {"print_map": "old.json", "read": ("link.json",)},
            "--print-map old.json would change what is read, link.json",
        ),
        ({"output": "dump", "read": ("dump",)}, "--output dump would change what is read"),
        ({"output": ".", "read": ("dump",)}, "--output . would change what is read, dump"),
        ({"repro": "dump/x", "read": ("dump",)}, "--repro dump/x would change what is read"),
    ],
)
def test_what_collides_is_refused(asked: dict[str, str], message: str) -> None:
    with pytest.raises(UnwritableOutputError) as error:
        check(**asked)  # type: ignore[arg-type]  # of several kinds
    assert message in str(error.value)
