import types

import pytest

from comparison.schema.errors import EngineError
from test_common.patching import Patch, PatchTargetError, apply_patches, patched

REASONS = {"missing_api": "an option for it", "remove_when": "upstream has the option"}


def make_library() -> types.ModuleType:
    library = types.ModuleType("library")
    library.scale = 2  # type: ignore[attr-defined]
    library.load = lambda name: f"loaded {name}"  # type: ignore[attr-defined]
    return library


class Base:
    kind = "base"

    def method(self) -> str:
        return "method"

    @classmethod
    def build(cls, name: str) -> str:
        return f"{cls.__name__} {name}"

    @staticmethod
    def plain(name: str) -> str:
        return name


class Derived(Base):
    pass


def test_replaces_for_the_time_of_the_block() -> None:
    library = make_library()
    with patched(library, "scale", 3, **REASONS) as patch:
        assert library.scale == 3
        assert patch.label == "library.scale"
        assert patch.missing_api == "an option for it"
        assert patch.remove_when == "upstream has the option"
    assert library.scale == 2


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit, GeneratorExit])
def test_restores_on_any_exit(error: type[BaseException]) -> None:
    library = make_library()
    with pytest.raises(error), patched(library, "scale", 3, **REASONS):
        raise error
    assert library.scale == 2


def test_nested_patches_of_one_attribute_unwind_in_order() -> None:
    library = make_library()
    with patched(library, "scale", 3, **REASONS):
        with patched(library, "scale", 4, **REASONS):
            assert library.scale == 4
        assert library.scale == 3
    assert library.scale == 2


def test_inherited_attribute_is_absent_again_after() -> None:
    with patched(Derived, "kind", "patched", **REASONS):
        assert Derived.kind == "patched"
        assert Base.kind == "base"
    assert "kind" not in vars(Derived)
    assert Derived.kind == "base"


def test_method_of_one_instance_is_absent_again_after() -> None:
    one, other = Base(), Base()
    with patched(one, "method", lambda: "patched", **REASONS):
        assert (one.method(), other.method()) == ("patched", "method")
    assert "method" not in vars(one)
    assert one.method() == "method"


def test_classmethod_and_staticmethod_stay_what_they_are() -> None:
    before = vars(Base)["build"], vars(Base)["plain"]
    with (
        patched(Base, "build", classmethod(lambda cls, name: f"new {name}"), **REASONS),
        patched(Base, "plain", staticmethod(lambda name: f"new {name}"), **REASONS),
    ):
        assert Base.build("x") == Base().plain("x") == "new x"
    assert (vars(Base)["build"], vars(Base)["plain"]) == before
    assert Derived.build("x") == "Derived x"


@pytest.mark.parametrize("name", ["build", "plain"])
def test_wrapper_of_a_class_or_static_method_gets_it_bound(name: str) -> None:
    patch = Patch(
        target=Base,
        name=name,
        replacement=lambda original: lambda text: original(text) + "!",
        wraps=True,
        **REASONS,
    )
    expected = getattr(Base, name)("x") + "!"
    with apply_patches([patch]):
        assert getattr(Base, name)("x") == getattr(Base(), name)("x") == expected
    assert getattr(Base, name)("x") == expected[:-1]


def test_wrapper_of_a_method_gets_self() -> None:
    patch = Patch(
        target=Base,
        name="method",
        replacement=lambda original: lambda self: original(self) + "!",
        wraps=True,
        **REASONS,
    )
    with apply_patches([patch]):
        assert Base().method() == "method!"
    assert Base().method() == "method"


def test_wrappers_of_one_function_nest() -> None:
    library = make_library()

    def wrapping(mark: str) -> Patch:
        return Patch(
            target=library,
            name="load",
            replacement=lambda original: lambda name: original(name) + mark,
            wraps=True,
            **REASONS,
        )

    with apply_patches([wrapping("1"), wrapping("2")]) as labels:
        assert library.load("x") == "loaded x12"
        assert labels == ("library.load", "library.load")
    assert library.load("x") == "loaded x"


def test_dictionary_item_is_replaced_and_restored() -> None:
    table = {"bfloat16": ("gpu",)}
    with patched(table, "bfloat16", ("gpu", "cpu"), **REASONS) as patch:
        assert table["bfloat16"] == ("gpu", "cpu")
        assert patch.label == "['bfloat16']"
    assert table == {"bfloat16": ("gpu",)}


def test_slots_and_properties_are_restored() -> None:
    class Slotted:
        __slots__ = ("_size", "scale")

        def __init__(self) -> None:
            self.scale, self._size = 2, 5

        @property
        def size(self) -> int:
            return self._size

        @size.setter
        def size(self, value: int) -> None:
            self._size = value

    one = Slotted()
    with patched(one, "scale", 3, **REASONS), patched(one, "size", 6, **REASONS):
        assert (one.scale, one.size) == (3, 6)
    assert (one.scale, one.size) == (2, 5)


def test_child_of_a_torch_module_is_restored() -> None:
    torch = pytest.importorskip("torch")
    model = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.ReLU())
    original = model[0]
    with patched(model, "0", torch.nn.Identity(), **REASONS):
        assert isinstance(model[0], torch.nn.Identity)
    assert model[0] is original
    assert list(dict(model.named_children())) == ["0", "1"]


def test_refuses_what_does_not_exist_and_changes_nothing() -> None:
    library = make_library()
    good = Patch(target=library, name="scale", replacement=3, **REASONS)
    lost = Patch(target=library, name="gone", replacement=3, **REASONS)
    item = Patch(target={}, name="bfloat16", replacement=3, **REASONS)
    with (
        pytest.raises(PatchTargetError, match=r"library\.gone .*an option for it.*\['bfloat16'\]"),
        apply_patches([good, lost, item]),
    ):
        pytest.fail("the block must not run")
    assert library.scale == 2
    assert not hasattr(library, "gone")
    assert issubclass(PatchTargetError, EngineError)
    assert issubclass(PatchTargetError, AttributeError)


def test_failing_wrapper_leaves_nothing_behind() -> None:
    library = make_library()

    def fail(original: object) -> object:
        raise ZeroDivisionError

    patches = [
        Patch(target=library, name="scale", replacement=3, **REASONS),
        Patch(target=library, name="load", replacement=fail, wraps=True, **REASONS),
    ]
    with pytest.raises(ZeroDivisionError), apply_patches(patches):
        pytest.fail("the block must not run")
    assert library.scale == 2
    assert library.load("x") == "loaded x"
