"""The benchmark runs, on a checkpoint too small to be worth measuring."""

from pathlib import Path

from benchmarks.streamed import WAYS, forward, run, write_checkpoint


def test_all_ways_give_the_same_logits(tmp_path: Path) -> None:
    size = write_checkpoint(tmp_path, size_bytes=2e6, hidden=128)
    assert size > 1e6
    found = [forward(way, tmp_path, tokens=5) for way in WAYS]
    assert len({told["digest"] for told in found}) == 1
    assert all(told["seconds"] > 0 for told in found)


def test_anonymous_memory_of_a_process_is_seen() -> None:
    code = "import time; held = bytearray(b'x') * 60_000_000; time.sleep(0.5); print(len(held))"
    measured = run(["-c", code])
    assert measured.output.strip() == "60000000"
    assert 60e6 < measured.peak_bytes < 200e6
    assert measured.seconds >= 0.5
