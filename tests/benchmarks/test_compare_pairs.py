"""The benchmark runs, on pairs too small to be worth measuring."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.compare_msprobe import compare_by_probe, write_probe_dump
from benchmarks.compare_pairs import (
    DTYPES,
    compare_in_process,
    measure,
    ratio,
    write_dumps,
)
from comparison.store.max_file import read_max_file


@pytest.fixture(autouse=True)
def _no_user_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a folder to keep it in, the compiled code is not asked for where it is not needed."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def test_each_way_takes_its_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("comparison.numerics.kernel_object.load_kernel", lambda *_, **__: None)
    for dtype in DTYPES:
        times = measure(dtype, elements=3 * 4096, rounds=2)
        assert set(times) == {"ours", "formula", "assert_close", "reading"}
        assert all(len(each.seconds) == 2 and each.rate > 0 for each in times.values())
        middle, least, greatest = ratio(times["ours"], times["formula"])
        assert 0 < least <= middle <= greatest


def test_dumps_are_compared_in_a_process_of_its_own(tmp_path: Path) -> None:
    seconds, memory = compare_in_process(write_dumps(tmp_path, pairs=3, pair_bytes=1536))
    assert seconds > 0
    assert 5 < memory < 500


def test_a_large_pair_is_mostly_a_hole(tmp_path: Path) -> None:
    sides = write_dumps(tmp_path, pairs=1, pair_bytes=300 << 20)
    stats = [os.stat(next(side.iterdir())) for side in sides]
    assert all(stat.st_size > 150 << 20 and stat.st_blocks * 512 < 80 << 20 for stat in stats)


def test_a_table_is_printed() -> None:
    done = subprocess.run(
        [
            *(sys.executable, "-m", "benchmarks.compare_pairs", "--way", "files", "--rounds", "1"),
            *("--pairs", "2", "--small-pairs", "3", "--large-bytes", "4096"),
        ],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert done.returncode == 0, done.stderr
    assert [line.split(" | ")[0] for line in done.stdout.splitlines()] == [
        "| pairs", "|---|---|---|---|", "| 2", "| 3", "| 1",
    ]  # fmt: skip


def test_the_rival_is_given_the_same_tensors(tmp_path: Path) -> None:
    import torch

    sides = write_dumps(tmp_path, pairs=3, pair_bytes=3 * 512)
    dump = write_probe_dump(sides[1], tmp_path / "probe")
    calls = json.loads(dump.read_text())["data"]
    assert len(calls) == 3
    for source, (call, parts) in zip(sorted(sides[1].iterdir()), calls.items(), strict=True):
        [output] = parts["output"]
        tensor = torch.load(dump.parent / "dump_tensor_data" / output["data_name"])
        assert call.split(".")[1:-3] == source.stem.removesuffix("-output").split(".")
        assert torch.equal(tensor, torch.from_numpy(read_max_file(source).copy()))
        assert output["Max"] == tensor.max()


def test_a_rival_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match=r"listed \[\] of 3 pairs: .*No module named 'msprobe'"):
        compare_by_probe(Path(sys.executable), tmp_path, tmp_path, pairs=3)
