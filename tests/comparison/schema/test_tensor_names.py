"""Names of tensors, and how files are called after them."""

import pytest

from comparison.schema.tensor_names import (
    MAX_STEM_BYTES,
    TensorName,
    file_stem,
    is_operation_name,
    name_of_stem,
    operation_name,
    parse_tensor_name,
)


@pytest.mark.parametrize(
    "name",
    [
        "model-output",
        "model.a(2)-output_logits",
        "model.a-input_0",
        "a-b(13)-input_x y",
        "(2)-output",
    ],
)
def test_names_are_taken_apart_and_put_together(name: str) -> None:
    parsed = parse_tensor_name(name)
    assert parsed is not None
    assert str(parsed) == name


def test_parts() -> None:
    assert parse_tensor_name("m.a(2)-input_mask") == TensorName(
        module="m.a", call=2, side="input", slot="mask"
    )
    assert parse_tensor_name("by hand") is None
    assert parse_tensor_name("m-outputs") is None


@pytest.mark.parametrize(
    "name",
    ["a/b", "..", ".hidden", "50%", "模", "a b\nc", "x" * MAX_STEM_BYTES, "\udcff", "a\0b"],
)
def test_a_file_name_gives_the_name_back(name: str) -> None:
    stem = file_stem(name)
    assert name_of_stem(stem) == name
    assert not {"/", "\0", " ", "\n"} & set(stem)
    assert not stem.startswith(".")
    assert stem.isascii()


def test_long_names_are_cut_and_stay_apart() -> None:
    one, other = (file_stem("x" * 300 + end) for end in "ab")
    assert len(one) == len(other) == MAX_STEM_BYTES
    assert one != other
    assert one[: MAX_STEM_BYTES - 17] == "x" * (MAX_STEM_BYTES - 17)
    assert file_stem("x" * 300 + "a") == one
    # Each letter takes nine bytes; a byte of it is not left over at the cut.
    assert len(file_stem("模" * 40)) == MAX_STEM_BYTES


def test_names_that_differ_in_case_only_get_a_number() -> None:
    taken: set[str] = set()
    stems = []
    for name in ("Layer", "layer", "LAYER"):
        stems.append(file_stem(name, taken=taken))
        taken.add(stems[-1].casefold())
    assert stems == ["Layer", "layer~2", "LAYER~3"]


def test_bytes_that_are_no_utf_8_stay_a_name() -> None:
    assert name_of_stem("%FF%FE") == "\ufffd\ufffd"


def test_operations() -> None:
    name = operation_name("model.mlp(2)", 7, "aten.mul/Tensor")
    assert name == "model.mlp(2)@007.aten.mul_Tensor"
    assert is_operation_name(name)
    assert not is_operation_name("model.mlp-output")
