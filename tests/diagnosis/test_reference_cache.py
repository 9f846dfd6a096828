"""Runs that are kept, and what is not believed of them."""

import errno
import hashlib
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from comparison.schema.errors import UnwritableOutputError
from diagnosis import reference_run
from diagnosis.diff_models import DiffOptions, diff_models
from diagnosis.reference_cache import ReferenceCache, age_text
from diagnosis.side_runs import RunOptions
from test_common.file_digests import stamp_of

_SIZES = {"model-output": 5, "model.head-output": 5}


def dump(folder: Path, *, values: bytes = b"01234") -> Path:
    """Make what looks like a dump, with one file under two names."""
    (folder / "0").mkdir(parents=True)
    (folder / "manifest.json").write_text('{"schema_version": 1, "engine": "torch"}')
    (folder / "0" / "model-output.pt").write_bytes(values)
    os.link(folder / "0" / "model-output.pt", folder / "0" / "model.head-output.pt")
    return folder


def content(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


def kept(tmp_path: Path, *, may_link: bool = False) -> ReferenceCache:
    cache = ReferenceCache(tmp_path / "cache")
    cache.keep("key", dump(tmp_path / "run"), _SIZES, may_link=may_link)
    return cache


def take(cache: ReferenceCache, output: Path, **changed: Any) -> Any:
    usual = {"overwrite": False, "may_link": False, "max_bytes": 10**9}
    return cache.take("key", output, **(usual | changed))


@pytest.mark.parametrize("may_link", [False, True])
def test_a_kept_run_is_given_back_as_it_was(tmp_path: Path, may_link: bool) -> None:
    cache = kept(tmp_path, may_link=may_link)
    found = take(cache, tmp_path / "again", may_link=may_link)
    assert found is not None
    assert found.sizes == _SIZES
    assert abs(time.time() - found.made_at) < 60
    assert content(tmp_path / "again") == content(tmp_path / "run")
    one, two = sorted((tmp_path / "again" / "0").iterdir())
    assert one.samefile(two)


def test_there_is_nothing_under_another_key(tmp_path: Path) -> None:
    cache = kept(tmp_path)
    (tmp_path / "cache" / "key").rename(tmp_path / "cache" / "other")
    assert take(cache, tmp_path / "again") is None
    assert not (tmp_path / "again").exists()


def test_a_larger_dump_than_is_wanted_is_not_taken_and_stays(tmp_path: Path) -> None:
    cache = kept(tmp_path)
    assert take(cache, tmp_path / "again", max_bytes=9) is None
    assert not (tmp_path / "again").exists()
    assert take(cache, tmp_path / "again", max_bytes=10)


def test_a_copy_that_the_user_changes_changes_nothing_kept(tmp_path: Path) -> None:
    cache = kept(tmp_path)
    assert take(cache, tmp_path / "mine")
    (tmp_path / "mine" / "0" / "model-output.pt").write_bytes(b"98765")
    assert take(cache, tmp_path / "again")
    assert (tmp_path / "again" / "0" / "model-output.pt").read_bytes() == b"01234"


def poison(path: Path) -> None:
    path.write_bytes(b"\xff" + path.read_bytes()[1:])


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


@pytest.mark.parametrize(
    "harm", [poison, cut, Path.unlink, pipe], ids=["poisoned", "cut", "missing", "pipe"]
)
@pytest.mark.parametrize("name", ["dump/0/model-output.pt", "dump/manifest.json", "entry.json"])
def test_a_damaged_entry_is_not_believed_and_can_be_made_again(
    tmp_path: Path, name: str, harm: Any
) -> None:
    cache = kept(tmp_path)
    harm(tmp_path / "cache" / "key" / name)
    assert take(cache, tmp_path / "again") is None
    assert not (tmp_path / "again").exists()
    cache.keep("key", tmp_path / "run", _SIZES, may_link=False)
    assert take(cache, tmp_path / "again")
    assert content(tmp_path / "again") == content(tmp_path / "run")


@pytest.mark.parametrize("body", ["[" * 100_000, "[]", '{"modules": []}', '{"modules": {"x": 1}}'])
def test_an_entry_of_another_form_is_not_believed(tmp_path: Path, body: str) -> None:
    cache = kept(tmp_path)
    seal = hashlib.sha256(body.encode()).hexdigest()
    (tmp_path / "cache" / "key" / "entry.json").write_text(f"{seal}\n{body}")
    assert take(cache, tmp_path / "again") is None


def test_files_that_were_slipped_in_are_not_believed(tmp_path: Path) -> None:
    cache = kept(tmp_path)
    (tmp_path / "cache" / "key" / "dump" / "1").mkdir()
    (tmp_path / "cache" / "key" / "dump" / "1" / "model-output.pt").write_bytes(b"1")
    assert take(cache, tmp_path / "again") is None


def test_a_link_in_an_entry_is_not_followed(tmp_path: Path) -> None:
    cache = kept(tmp_path)
    tensor = tmp_path / "cache" / "key" / "dump" / "0" / "model-output.pt"
    tensor.unlink()
    (tmp_path / "elsewhere").write_bytes(b"01234")
    tensor.symlink_to(tmp_path / "elsewhere")
    assert take(cache, tmp_path / "again") is None


def test_a_run_is_not_believed_once_a_library_was_edited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "edited_library.py").write_text("SCALE = 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    import edited_library  # type: ignore[import-not-found]  # written just now

    cache = kept(tmp_path)
    assert take(cache, tmp_path / "before")
    Path(edited_library.__file__).write_text("SCALE = 2\n")
    assert take(cache, tmp_path / "after") is None
    monkeypatch.delitem(sys.modules, "edited_library")


def test_a_disk_that_is_full_costs_no_entry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(source: Path, target: Path) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(target))

    cache = kept(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "copyfile", full)
        assert take(cache, tmp_path / "again") is None
    assert not (tmp_path / "again").exists()
    assert take(cache, tmp_path / "again")


def test_a_folder_in_use_is_refused_as_by_a_run(tmp_path: Path) -> None:
    cache = kept(tmp_path)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("years of work")
    with pytest.raises(UnwritableOutputError, match="mine"):
        take(cache, tmp_path / "mine")
    assert content(tmp_path / "mine") == {"thesis.tex": b"years of work"}


def test_an_earlier_dump_is_replaced_only_if_asked_for(tmp_path: Path) -> None:
    cache = kept(tmp_path)
    dump(tmp_path / "earlier", values=b"earlier")
    with pytest.raises(UnwritableOutputError):
        take(cache, tmp_path / "earlier")
    assert take(cache, tmp_path / "earlier", overwrite=True)
    assert content(tmp_path / "earlier") == content(tmp_path / "run")


def test_what_was_not_used_for_longest_makes_room(tmp_path: Path) -> None:
    run = dump(tmp_path / "run", values=b"x" * 100_000)
    cache = ReferenceCache(tmp_path / "cache", most_bytes=2_900_000)
    size = 0
    for number, key in enumerate(("first", "second", "third")):
        cache.keep(key, run, _SIZES, may_link=False)
        entry = tmp_path / "cache" / key / "entry.json"
        files = {path.stat().st_ino: path.stat().st_size for path in entry.parent.rglob("*")}
        size = sum(files.values())
        os.utime(entry, (1000 + number, 1000 + number))
    (tmp_path / "cache" / "first").rename(tmp_path / "cache" / "key")
    assert take(cache, tmp_path / "again")
    (tmp_path / "cache" / "key").rename(tmp_path / "cache" / "first")
    cache = ReferenceCache(tmp_path / "cache", most_bytes=3 * size + size // 2)
    cache.keep("fourth", run, _SIZES, may_link=False)
    names = {path.name for path in (tmp_path / "cache").iterdir()}
    assert names == {"first", "third", "fourth"}


def test_a_dump_larger_than_the_cache_is_not_kept(tmp_path: Path) -> None:
    cache = ReferenceCache(tmp_path / "cache", most_bytes=1000)
    cache.keep("key", dump(tmp_path / "run", values=b"x" * 2000), _SIZES, may_link=False)
    assert list((tmp_path / "cache").iterdir()) == []


def test_a_cache_that_cannot_be_written_is_none(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file")
    cache = ReferenceCache(tmp_path / "cache")
    cache.keep("key", dump(tmp_path / "run"), _SIZES, may_link=False)
    assert take(cache, tmp_path / "again") is None


_KEEPER = """
import sys
from pathlib import Path
from diagnosis.reference_cache import ReferenceCache
cache = ReferenceCache(Path(sys.argv[1]))
for number in range(20):
    cache.keep("key", Path(sys.argv[2]), {"model-output": 5}, may_link=False)
    output = Path(f"{sys.argv[3]}-{number}")
    found = cache.take("key", output, overwrite=False, may_link=False, max_bytes=100)
    assert found is None or (output / "0" / "model-output.pt").read_bytes() == b"01234"
"""


def test_two_processes_at_once_leave_one_sound_entry(tmp_path: Path) -> None:
    run = dump(tmp_path / "run")
    arguments = [str(tmp_path / "cache"), str(run)]
    command = [sys.executable, "-c", _KEEPER, *arguments]
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    both = [
        subprocess.Popen([*command, str(tmp_path / name)], env=environ) for name in ("one", "two")
    ]
    assert [process.wait() for process in both] == [0, 0]
    assert [path.name for path in (tmp_path / "cache").iterdir()] == ["key"]
    assert take(ReferenceCache(tmp_path / "cache"), tmp_path / "again")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(3, "less than a minute"), (60, "1 minute"), (7300, "2 hours"), (86400 * 9, "9 days")],
)
def test_an_age_is_told_in_its_largest_unit(seconds: int, text: str) -> None:
    assert age_text(1000.0, now=lambda: 1000.0 + seconds) == f"{text} ago"


def test_a_second_diagnosis_takes_the_reference_from_the_cache_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reference_run, "default_folder", lambda: tmp_path / "cache")
    told: list[str] = []
    options = DiffOptions(
        run=RunOptions(pipeline="tiny-random/llama", prompts=((5, 7, 9, 11, 13), (8, 3, 2))),
        cache_reference=True,
        tell=told.append,
    )
    first = diff_models("torch", "torch", options=options)
    second = diff_models("torch", "torch", options=options)
    assert told == ["the reference's dump is from the cache"]
    assert "taken from the cache" in second.notes[-1]
    assert second.sentence == first.sentence
    assert second.coverage == first.coverage
    assert second.notes[:-1] == first.notes
    entry = next((tmp_path / "cache").glob("*/entry.json"))
    tensor = max(entry.parent.rglob("*.pt"), key=lambda path: stamp_of(path)[0])
    poison(tensor)
    again = diff_models("torch", "torch", options=options)
    assert again.notes == first.notes
