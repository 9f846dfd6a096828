import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from test_common.torch_tensors import plain_copy, reason_unreadable, same_bytes

DTYPES = [
    torch.float32,
    torch.bfloat16,
    torch.float16,
    torch.float8_e4m3fn,
    torch.float8_e5m2,
    torch.complex64,
    torch.int8,
    torch.uint16,
    torch.bool,
]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 3)])
def test_copy_has_the_same_bytes_and_its_own_storage(
    dtype: torch.dtype, shape: tuple[int, ...]
) -> None:
    tensor = torch.ones(shape).to(dtype)
    copy = plain_copy(tensor)
    assert (copy.dtype, copy.shape) == (dtype, shape)
    assert same_bytes(copy, tensor)
    assert copy.numel() == 0 or copy.data_ptr() != tensor.data_ptr()


def test_copy_takes_only_the_elements_of_a_view() -> None:
    whole = torch.arange(1000.0).reshape(10, 100)
    copy = plain_copy(whole[2:4, ::7])
    assert copy.is_contiguous()
    assert copy.untyped_storage().nbytes() == copy.numel() * 4
    assert copy.tolist() == whole[2:4, ::7].tolist()
    assert plain_copy(torch.tensor([1.0]).expand(3, 4)).untyped_storage().nbytes() == 48


def test_copy_resolves_lazy_conjugates_and_negatives() -> None:
    tensor = torch.tensor([1 + 2j]).conj()
    assert plain_copy(tensor).tolist() == [1 - 2j]
    assert not plain_copy(tensor).is_conj()
    assert plain_copy(tensor.imag).tolist() == [-2.0]


def test_copy_of_a_parameter_is_a_plain_tensor() -> None:
    copy = plain_copy(torch.nn.Parameter(torch.ones(2)))
    assert type(copy) is torch.Tensor
    assert not copy.requires_grad


def test_same_bytes_is_about_bits() -> None:
    nan = torch.tensor([torch.nan])
    assert same_bytes(nan, nan.clone())
    assert not same_bytes(torch.tensor([0.0]), torch.tensor([-0.0]))
    assert not same_bytes(torch.zeros(2), torch.zeros(2, dtype=torch.int32))
    assert not same_bytes(torch.zeros(2, 1), torch.zeros(1, 2))


def test_plain_tensors_are_readable() -> None:
    for tensor in (torch.ones(2), torch.nn.Parameter(torch.ones(2)), torch.ones(3, 2).T):
        assert reason_unreadable(tensor) is None
    with torch.inference_mode():
        assert reason_unreadable(torch.ones(2)) is None


def test_meta_and_fake_tensors_have_no_data() -> None:
    assert reason_unreadable(torch.ones(2, device="meta")) == (
        "a meta or fake tensor has a shape but no data"
    )
    with FakeTensorMode():
        assert "fake" in str(reason_unreadable(torch.ones(2)))


def test_sparse_quantized_and_nested_tensors_are_named_by_their_kind() -> None:
    assert reason_unreadable(torch.eye(2).to_sparse()) == "a sparse_coo tensor is not a plain array"
    quantized = torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.qint8)
    assert reason_unreadable(quantized) == "a qint8 tensor is not a plain array"
    nested = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged)
    assert reason_unreadable(nested) == "a jagged tensor is not a plain array"


def test_nested_tensor_of_the_old_kind_is_not_readable() -> None:
    nested = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])
    assert nested.layout is torch.strided
    assert reason_unreadable(nested) == "a nested tensor is not a plain array"


@pytest.mark.parametrize("name", ["uint1", "uint7", "int4"])
def test_integers_of_less_than_a_byte_cannot_be_copied(name: str) -> None:
    tensor = torch.zeros(4, dtype=torch.uint8).view(getattr(torch, name))
    assert reason_unreadable(tensor) == f"torch cannot copy {name}"
    for whole in (torch.uint8, torch.int8, torch.int16):
        assert reason_unreadable(torch.zeros(1, dtype=whole)) is None


def test_tensor_under_a_transform_is_not_readable() -> None:
    reasons = []

    def function(x: torch.Tensor) -> torch.Tensor:
        reasons.append(reason_unreadable(x))
        return x * 2

    torch.func.vmap(function)(torch.ones(2, 3))
    assert reasons == ["a tensor under a torch.func transform has no data of its own"]
