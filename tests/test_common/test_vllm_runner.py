"""What can be told without vLLM; the engine itself runs in tests/e2e."""

import pytest

from test_common.vllm_runner import device_problem, killing_signal, thread_binding


@pytest.mark.parametrize(
    ("cpus", "ranks", "expected"),
    [
        ({0, 1}, 2, "0|1"),
        ({8, 3, 5, 1, 0}, 2, "0,1|3,5"),
        ({4}, 2, "nobind"),
        ({0, 1, 2}, 1, "0,1,2"),
    ],
)
def test_each_rank_has_processors_of_its_own(cpus: set[int], ranks: int, expected: str) -> None:
    assert thread_binding(cpus, ranks) == expected


@pytest.mark.parametrize(("device", "has"), [("cpu", "cpu"), ("gpu", "cuda"), ("gpu:0,1", "cuda")])
def test_a_device_that_fits(device: str, has: str) -> None:
    assert device_problem(device, has=has) is None


@pytest.mark.parametrize(
    ("device", "has", "message"),
    [
        ("gpu:1", "cpu", "device gpu:1 was asked for, and this build of vLLM runs on the cpu"),
        ("cpu", "cuda", "give --device gpu, or take the other build (--//:vllm=cpu)"),
        ("gpu", "", "vLLM's build for GPUs found no GPU on this machine"),
    ],
)
def test_a_device_that_does_not(device: str, has: str, message: str) -> None:
    assert message in str(device_problem(device, has=has))


@pytest.mark.parametrize(
    ("exit_codes", "expected"),
    [
        ([None, None], None),
        ([None, -9], 9),
        ([-15, -9], 9),  # the engine itself ends those that are left
        ([-15, 0], 15),
        ([-15, 1], None),  # one failed by itself
        ([], None),
    ],
)
def test_a_rank_killed_by_a_signal(exit_codes: list[int | None], expected: int | None) -> None:
    assert killing_signal(exit_codes) == expected
