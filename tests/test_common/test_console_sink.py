import io

import pytest
import torch

from test_common.console_sink import ConsoleSink, abbreviate, short_dtype


def test_small_tensor_is_shown_whole() -> None:
    tensor = torch.tensor([[-2.0156, 0.0, 0.5], [1.0, -4.32e-2, 1e6]])
    assert abbreviate(tensor) == (
        "tensor([[-2.0156, 0.0000, 0.5000],\n"
        "        [1.0000, -4.320e-02, 1.000e+06]], dtype=f32, shape=[2, 3])"
    )


def test_only_corners_of_a_large_tensor_are_shown() -> None:
    tensor = torch.arange(700).reshape(7, 100)
    lines = abbreviate(tensor).splitlines()
    assert lines[0] == "tensor([[0, 1, 2, ..., 97, 98, 99],"
    assert lines[3] == "        ...,"
    assert lines[6] == "        [600, 601, 602, ..., 697, 698, 699]], dtype=i64, shape=[7, 100])"
    assert len(lines) == 7


def test_six_fit_and_seven_do_not() -> None:
    assert "..." not in abbreviate(torch.zeros(6))
    assert abbreviate(torch.arange(7)) == "tensor([0, 1, 2, ..., 4, 5, 6], dtype=i64, shape=[7])"


@pytest.mark.parametrize(
    ("tensor", "text"),
    [
        (torch.tensor(1.5), "tensor(1.5000, dtype=f32, shape=[])"),
        (torch.zeros(0), "tensor([], dtype=f32, shape=[0])"),
        (torch.zeros(2, 0), "tensor([[],\n        []], dtype=f32, shape=[2, 0])"),
        (torch.tensor([True, False]), "tensor([True, False], dtype=bool, shape=[2])"),
        (
            torch.tensor([torch.nan, torch.inf, -torch.inf, -0.0]),
            "tensor([nan, inf, -inf, -0.0000], dtype=f32, shape=[4])",
        ),
        (torch.tensor([1 + 2j, -1j]), "tensor([1.0000+2.0000j, -0.0000-1.0000j], dtype=c64, s"),
        (torch.tensor([-3.8125]).bfloat16(), "tensor([-3.8125], dtype=bf16, shape=[1])"),
        (torch.tensor([1.5]).to(torch.float8_e4m3fn), "tensor([1.5000], dtype=f8e4m3fn, shape="),
        (torch.tensor([2**60 + 1]), f"tensor([{2**60 + 1}], dtype=i64, shape=[1])"),
    ],
)
def test_every_kind_of_number(tensor: torch.Tensor, text: str) -> None:
    assert abbreviate(tensor).startswith(text)


def test_close_tensors_give_the_same_text_whatever_their_neighbours() -> None:
    first = abbreviate(torch.tensor([0.25, 1e-6]))
    second = abbreviate(torch.tensor([0.25000001, 1.0]))
    assert first.split(",")[0] == second.split(",")[0] == "tensor([0.2500"


def test_non_contiguous_and_grad_tensors() -> None:
    tensor = torch.arange(6.0).reshape(2, 3).requires_grad_()
    assert abbreviate(tensor.T) == (
        "tensor([[0.0000, 3.0000],\n        [1.0000, 4.0000],\n"
        "        [2.0000, 5.0000]], dtype=f32, shape=[3, 2])"
    )


@pytest.mark.parametrize(
    ("dtype", "name"),
    [
        (torch.float16, "f16"),
        (torch.float64, "f64"),
        (torch.uint8, "u8"),
        (torch.int32, "i32"),
        (torch.complex128, "c128"),
        (torch.float8_e5m2, "f8e5m2"),
        (torch.bool, "bool"),
    ],
)
def test_short_dtype(dtype: torch.dtype, name: str) -> None:
    assert short_dtype(dtype) == name


def test_sink_prints_name_and_a_heading_for_each_step_with_tensors() -> None:
    file = io.StringIO()
    sink = ConsoleSink(file)
    sink.save("model.a-output", torch.tensor([1]))
    sink.save("model.b-output", torch.tensor([2]))
    sink.step()
    sink.step()
    sink.save("model.a-output", torch.tensor([3]))
    sink.step()
    assert file.getvalue().splitlines() == [
        "step 0",
        "model.a-output = tensor([1], dtype=i64, shape=[1])",
        "model.b-output = tensor([2], dtype=i64, shape=[1])",
        "step 2",
        "model.a-output = tensor([3], dtype=i64, shape=[1])",
    ]


def test_sink_prints_to_the_standard_output_of_the_time(
    capsys: pytest.CaptureFixture[str],
) -> None:
    ConsoleSink().save("x", torch.tensor(1))
    assert capsys.readouterr().out == "step 0\nx = tensor(1, dtype=i64, shape=[])\n"
