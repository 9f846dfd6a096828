"""What holds for the lock files, whichever versions they pin."""

import re
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "requirements"
LOCKS = ("cpu", "cuda", "docs", "lint", "vllm_cpu", "vllm_cuda", "weights")
ENGINES = ("cpu", "cuda", "vllm_cpu", "vllm_cuda")


def blocks(lock: str) -> dict[str, str]:
    """The text of each package of a lock, by its name; of several versions the first."""
    found: dict[str, str] = {}
    for block in re.split(r"\n(?=[a-z])", (FOLDER / f"{lock}.txt").read_text()):
        found.setdefault(re.split(r"[=\[ ]", block)[0], block)
    return found


def version(lock: str, package: str) -> str:
    return re.split(r"[= ]+", blocks(lock)[package])[1]


def test_every_lock_is_named_here() -> None:
    assert sorted(path.stem for path in FOLDER.glob("*.txt")) == list(LOCKS)


@pytest.mark.parametrize("lock", LOCKS)
def test_every_package_has_a_hash(lock: str) -> None:
    assert [name for name, text in blocks(lock).items() if "--hash=sha256:" not in text] == []


@pytest.mark.parametrize("lock", LOCKS)
def test_a_lock_holds_no_address(lock: str) -> None:
    assert re.findall(r"\S+:/\S+|^--.*", (FOLDER / f"{lock}.txt").read_text(), re.MULTILINE) == []


def test_dumps_of_all_environments_are_of_one_release_of_torch() -> None:
    assert len({version(lock, "torch").removesuffix("+cpu") for lock in ENGINES}) == 1


def test_both_builds_of_vllm_are_of_one_release() -> None:
    assert version("vllm_cpu", "vllm-cpu") == version("vllm_cuda", "vllm")
    assert version("vllm_cpu", "transformers") == version("vllm_cuda", "transformers")


@pytest.mark.parametrize("lock", ["cpu", "vllm_cpu"])
def test_a_lock_for_the_cpu_takes_nothing_built_for_cuda(lock: str) -> None:
    assert version(lock, "torch").endswith("+cpu")
    # built for the CUDA torch: importing them with the other fails
    foreign = {"torchaudio", "torchcodec", "torchvision"}
    assert {n for n in blocks(lock) if n in foreign or n.startswith("nvidia-")} == set()
