"""compare_tensors on folders that hold hostile files among good ones, as a user runs it."""

import json
import os
import pickle
import re
import resource
import struct
import subprocess
import sys
import tracemalloc
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from comparison.schema.errors import CorruptFileError
from comparison.store.max_file import MAGIC, write_max_file
from comparison.store.safetensors_file import write_safetensors
from comparison.store.tensor_file import list_file
from tests.child_processes import user_environment
from tests.fuzz.damaged_files import PICKLES, archive

_MOST_SECONDS = 30  # of a CPU, torch's import included; one such file used to take for ever
_MOST_BYTES = 1 << 30  # in memory at any time, torch's share included
_TERABYTE = 1 << 40
_SPARSE = 40 << 20  # few enough that nothing is compiled for a comparison of so much
_ESCAPES = "\x1b[31mred\x1b]0;title\x07"


class Planted:
    """What a pickle with code in it calls."""

    def __init__(self, marker: Path) -> None:
        self._marker = marker

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self._marker,)


@dataclass(frozen=True)
class Ran:
    code: int
    out: str
    err: str
    result: dict[str, Any]


def _compare(folder: Path) -> Ran:
    """Run the command on `a` and `b`, and check that it ends soon, and in bounded memory."""
    sides = ("--reference", "a", "--candidate", "b", "--atol", "0.1", "--json", "result.json")
    with (folder / "out").open("wb") as out, (folder / "err").open("wb") as err:
        child = subprocess.Popen(
            [sys.executable, "-P", "-m", "tools.compare_tensors", *sides],
            cwd=folder,
            env=user_environment(folder / "cache"),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
        )
        _, status, used = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    _check_used(used)
    texts = [(folder / name).read_text("utf-8") for name in ("out", "err")]
    saved = folder / "result.json"
    result = json.loads(saved.read_text()) if saved.exists() else {}
    assert "Traceback" not in texts[1]
    return Ran(child.returncode, texts[0], texts[1], result)


def _check_used(used: resource.struct_rusage) -> None:
    assert used.ru_utime + used.ru_stime < _MOST_SECONDS
    assert used.ru_maxrss * 1024 < _MOST_BYTES


def _good(folder: Path) -> dict[str, str]:
    folder.mkdir()
    np.save(folder / "good_npy.npy", np.arange(6.0))
    torch.save(torch.ones(2, 3), folder / "good_pt.pt")
    write_max_file(folder / "good_max.max", np.ones(5, np.float32), key="good_max")
    write_safetensors(folder / "many.safetensors", {"good_st": np.ones(3)}, metadata={})
    return dict.fromkeys(("good_npy", "good_pt", "good_max", "good_st"), "")


def _hostile(folder: Path, marker: Path) -> dict[str, str]:
    """Write one hostile file of each kind; what the error says of each, by name."""
    whole = {path.name: path.read_bytes() for path in folder.iterdir()}
    (folder / "cut_npy.npy").write_bytes(whole["good_npy.npy"][:-3])
    (folder / "cut_pt.pt").write_bytes(whole["good_pt.pt"][:-40])
    (folder / "cut_max.max").write_bytes(whole["good_max.max"][:-3])
    (folder / "cut_st.safetensors").write_bytes(whole["many.safetensors"][:-3])
    torch.save(Planted(marker), folder / "code.pt")
    (folder / "bare_code.pt").write_bytes(pickle.dumps(Planted(marker)))
    for number, pickled in enumerate(PICKLES.values()):
        (folder / f"pickle_{number}.pt").write_bytes(archive(pickled))
    torch.save(torch.zeros(1).expand(_TERABYTE), folder / "expanded.pt")
    _write_bomb(folder / "bomb.pt")
    _write_huge(
        folder / "huge_st.safetensors",
        '{"x":{"dtype":"F32","shape":[1152921504606846976],"data_offsets":[0,4611686018427387904]}}',
    )
    _write_sparse(folder / "sparse_npy.npy", b"\x93NUMPY\x02\x00\xff\xff\xff\xff", _SPARSE)
    _write_sparse(folder / "sparse_st.safetensors", struct.pack("<Q", _SPARSE - 8), _SPARSE)
    _write_sparse(folder / "sparse_max.max", whole["good_max.max"][:24] + b"\xff" * 4, _SPARSE)
    _write_sparse(folder / "sparse_pt.pt", b"", _SPARSE)
    _write_sparse(folder / "sparse_zip.pt", b"PK\x03\x04", _SPARSE)
    os.mkfifo(folder / "pipe_npy.npy")
    os.mkfifo(folder / "pipe_pt.pt")
    (folder / "loop.npy").symlink_to("loop.npy")
    (folder / "nothing.max").symlink_to("nowhere")
    (folder / "zeros.safetensors").symlink_to("/dev/zero")
    (folder / "folder.npy").mkdir()
    np.save(folder / f"{_ESCAPES}.npy", np.ones(3)[:0].astype("U1"))
    return {
        "cut_npy": "the file is cut off, dump it again",
        "cut_pt": "expected a file of torch.save, found",
        "cut_max": "expected 20 bytes of data",
        "cut_st": "expected a file of",
        "code": "it was not run",
        "bare_code": "it was not run",
        "pickle_0": "it makes a bytearray",
        "pickle_1": "it makes a bytearray",
        "pickle_2": "it makes a bytearray",
        "pickle_3": "it encodes bytes as 'hex'",
        "pickle_4": "expected a pickle of at most",
        "pickle_5": "expected a pickle of at most",
        "expanded": "save tensor.contiguous()",
        "bomb": "compressed to",
        "huge_st": "expected a file of",
        "sparse_npy": "found a header of 4294967295 bytes",
        "sparse_st": "expected a header in JSON",
        "sparse_max": "expected a key within 65536 bytes",
        "sparse_pt": "expected a file of torch.save, found",
        "sparse_zip": "expected a file of torch.save, found",
        "pipe_npy": "expected a file, found a pipe",
        "pipe_pt": "expected a file, found a pipe",
        "loop": "Too many levels of symbolic links",
        "nothing": "expected a file, found nothing at",
        "zeros": "expected a file, found a device",
        "folder": "expected a file, found a folder",
        _ESCAPES: "expected numbers, found dtype <U1",
    }


def _write_bomb(path: Path) -> None:
    with (
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as bomb,
        bomb.open("x/data.pkl", "w") as record,
    ):
        for _ in range(8):
            record.write(b"N" * (1 << 20))


def _write_huge(path: Path, header: str) -> None:
    path.write_bytes(len(header).to_bytes(8, "little") + header.encode())


def _write_sparse(path: Path, begin: bytes, size_bytes: int) -> None:
    """Write a file that claims to be large, and has nothing behind its begin."""
    with path.open("wb") as file:
        file.write(begin)
        file.truncate(size_bytes)


def test_good_files_are_compared_and_bad_ones_listed(tmp_path: Path) -> None:
    marker = tmp_path / "ran"
    for side in ("a", "b"):
        expected = {**_good(tmp_path / side), **_hostile(tmp_path / side, marker)}
        (tmp_path / side / "again").symlink_to(".")
    ran = _compare(tmp_path)
    assert ran.code == 2
    found = {pair["reference"]["name"]: pair for pair in ran.result["pairs"]}
    assert set(found) == set(expected)
    for name, reason in expected.items():
        outcome = found[name]["outcome"]
        if not reason:
            assert found[name]["finding"] == "agrees"
        else:
            assert found[name]["finding"] == "not compared"
            assert reason in outcome["reason"]
            assert f"a/{name}." in outcome["reason"]
    assert not marker.exists()
    assert "\x1b" not in ran.out + ran.err
    assert r"\x1b[31mred\x1b]0;title\x07" in ran.out
    torch.load(tmp_path / "a" / "code.pt", weights_only=False)  # the trap itself works
    assert marker.exists()


@pytest.mark.parametrize(
    ("begin", "size_bytes", "message"),
    [
        (b"[" * 10_000, 1 << 30, "expected at most 268435456 bytes, found more"),
        (b"[" * 10_000_000, 0, "nested too deeply"),
        (b"[" + b"[]," * 17_000_000, 0, "found more than 16000000 values"),
        (b'{"a":1,"a":2}', 0, "found the key 'a' twice in one object"),
    ],
    ids=["a gigabyte", "nested", "many", "twice"],
)
def test_hostile_manifests(tmp_path: Path, begin: bytes, size_bytes: int, message: str) -> None:
    for side in ("a", "b"):
        _good(tmp_path / side)
    with (tmp_path / "b" / "manifest.json").open("wb") as file:
        file.write(begin)
        file.truncate(max(size_bytes, len(begin)))
    ran = _compare(tmp_path)
    assert ran.code == 2
    assert re.fullmatch(rf"error: b/manifest\.json: .*{message}\n", ran.err)


@pytest.mark.parametrize(
    ("name", "begin"),
    [
        ("x.npy", b"\x93NUMPY\x02\x00\xff\xff\xff\xff"),
        ("x.safetensors", struct.pack("<Q", 99_000_000)),
        ("x.safetensors", struct.pack("<Q", _TERABYTE - 8)),
        ("x.max", MAGIC + struct.pack("<IIQI", 0, 1, 2**32, 2**32 - 1)),
        ("x.pt", b""),
        ("x.pt", b"PK\x03\x04"),
    ],
)
def test_files_that_claim_terabytes(tmp_path: Path, name: str, begin: bytes) -> None:
    _write_sparse(tmp_path / name, begin, _TERABYTE)
    tracemalloc.start()
    with pytest.raises(CorruptFileError, match=f"{name}: expected "):
        list_file(tmp_path / name, {})
    assert tracemalloc.get_traced_memory()[1] < 250 << 20
    tracemalloc.stop()


def test_an_order_of_terabytes(tmp_path: Path) -> None:
    for side in ("a", "b"):
        _good(tmp_path / side)
    _write_sparse(tmp_path / "b" / "tensor_names.txt", b"good_npy\n", _TERABYTE)
    ran = _compare(tmp_path)
    assert ran.code == 2
    assert ran.err == ("error: b/tensor_names.txt: expected at most 40000000 bytes, found more\n")
