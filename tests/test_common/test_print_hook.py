import os
import subprocess
import sys
import warnings
from typing import Any

import numpy as np
import pytest

from comparison.schema.errors import CaptureError
from comparison.schema.manifest import Skip
from test_common.print_hook import BasePrintHook, CaptureWarning, Filter


class Layer:
    pass


class ListHook(BasePrintHook):
    """Captures numpy arrays into a list; refuses empty ones."""

    def __init__(self, filter: Filter | None = None) -> None:
        super().__init__(filter)
        self.values: list[tuple[int, str]] = []

    def is_tensor(self, value: Any) -> bool:
        return isinstance(value, np.ndarray)

    def print_value(self, name: str, value: Any) -> bool:
        if value.size == 0:
            self.skip(name, "empty")
            return False
        self.values.append((self.current_step, name))
        return True

    def call(self, layer: object, argument: Any, result: Any) -> None:
        name = self.begin_call(layer)
        self.capture_inputs(layer, name, (argument,), {})
        self.capture_outputs(layer, name, result)


A = np.ones(2)


def make_hook(filter: Filter | None = None) -> tuple[ListHook, Layer, Layer]:
    hook, first, second = ListHook(filter), Layer(), Layer()
    hook.add_layer(first, "model.first")
    hook.add_layer(second, "model.second")
    return hook, first, second


def test_names_order_and_call_count() -> None:
    hook, first, second = make_hook()
    hook.call(first, A, A)
    hook.call(second, A, (A, A))
    hook.call(first, A, {"x": A})
    assert hook.recorded_names(0) == (
        "model.first-input_0",
        "model.first-output",
        "model.second-input_0",
        "model.second-output_0",
        "model.second-output_1",
        "model.first(2)-input_0",
        "model.first(2)-output_x",
    )


@pytest.mark.parametrize("wrong", [5, [5], {"a": 1}, b"a", 1.5])
def test_filter_of_another_kind_is_refused_at_once(wrong: Any) -> None:
    with pytest.raises(TypeError, match=r"^filter must be a glob, a list of globs, or a function"):
        ListHook(wrong)


def test_steps_of_another_kind_are_refused_at_once() -> None:
    with pytest.raises(
        TypeError, match=r"^steps must be numbers of steps, such as \{0, 1\}, found"
    ):
        BasePrintHook.__init__(ListHook(), steps=5)  # type: ignore[arg-type]


@pytest.mark.parametrize("order", ["aba", "aab", "baa"])
def test_layer_named_like_a_second_call_keeps_its_name(order: str) -> None:
    hook = ListHook()
    layers = {"a": Layer(), "b": Layer()}
    hook.add_layer(layers["a"], "a")
    hook.add_layer(layers["b"], "a(2)")
    for letter in order:
        hook.call(layers[letter], None, A)
    assert sorted(hook.recorded_names()) == ["a(2)-output", "a(3)-output", "a-output"]
    assert hook.recorded_names()[order.index("b")] == "a(2)-output"


def test_layer_that_comes_after_its_name_was_used_gets_another() -> None:
    hook, first, late = ListHook(), Layer(), Layer()
    hook.add_layer(first, "a")
    hook.call(first, None, A)
    hook.call(first, None, A)
    hook.add_layer(late, "a(2)")
    hook.call(late, None, A)
    hook.step()
    hook.call(late, None, A)
    assert hook.recorded_names() == ("a-output", "a(2)-output", "a(2)(2)-output", "a(2)-output")


def test_step_counts_calls_anew() -> None:
    hook, first, _ = make_hook()
    hook.call(first, A, A)
    hook.step()
    hook.call(first, A, A)
    assert hook.current_step == 1
    assert hook.recorded_names(0) == hook.recorded_names(1)
    assert len(hook.recorded_names()) == 4
    assert hook.recorded_names(7) == ()


@pytest.mark.parametrize(
    ("chosen", "kept"),
    [
        ("model.first", ["model.first-input_0", "model.first-output"]),
        ("*first", ["model.first-input_0", "model.first-output"]),
        ("*-output", ["model.first-output", "model.second-output"]),
        (["*second-input_*", "model.first-o*"], ["model.first-output", "model.second-input_0"]),
        (("*.[f]irst-output",), ["model.first-output"]),
        (lambda name: "input" in name, ["model.first-input_0", "model.second-input_0"]),
    ],
)
def test_filter_takes_globs_and_functions(chosen: Filter, kept: list[str]) -> None:
    hook, first, second = make_hook(chosen)
    hook.call(first, A, A)
    hook.call(second, A, A)
    assert [name for _, name in hook.values] == kept


def test_filtered_layers_are_listed_with_the_reason() -> None:
    hook, first, second = make_hook("*first*")
    hook.call(first, A, A)
    hook.call(second, A, A)
    certificate = hook.certificate()
    assert (certificate.registered, certificate.fired, certificate.saved) == (2, 2, 2)
    assert certificate.skipped == (
        Skip(name="model.second", reason="no tensor of it passes the filter"),
    )


def test_filter_that_matches_nothing_is_an_error_with_the_modules() -> None:
    hook, first, second = make_hook("*nothing*")
    hook.call(first, A, A)
    hook.call(second, A, A)
    with pytest.raises(CaptureError, match=r"passes the filter '\*nothing\*'.*model\.first, model"):
        hook.require_capture()
    with pytest.warns(CaptureWarning, match="no tensor passes the filter"):
        hook.remove()


def test_certificate_tells_what_was_refused_and_what_never_fired() -> None:
    hook, first, _ = make_hook()
    hook.call(first, A, np.ones(0))
    assert hook.require_capture() == hook.certificate()
    assert hook.certificate().skipped == (
        Skip(name="model.first-output", reason="empty"),
        Skip(name="model.second", reason="registered but never called"),
    )


def test_opaque_object_is_named_once() -> None:
    hook, first, second = make_hook()
    cache = object()
    for layer in (first, second, first):
        hook.call(layer, cache, A)
    assert hook.certificate().skipped == (
        Skip(
            name="model.first-input_0",
            reason="object is neither a tensor nor a container of tensors",
        ),
    )


def test_empty_capture_warns_loudly_and_is_an_error() -> None:
    hook, _, _ = make_hook()
    with pytest.warns(CaptureWarning) as caught:
        hook.remove()
    assert str(caught[0].message) == (
        "2 modules registered, 0 fired; not captured: model.first, model.second (registered but "
        "never called); nothing was captured. Was the model run, and through its __call__?"
    )
    with pytest.raises(CaptureError, match="2 modules registered, 0 fired"):
        hook.require_capture()


def test_partial_capture_warns_with_the_list() -> None:
    hook, first, _ = make_hook()
    for number in range(11):
        hook.add_layer(Layer(), f"unused.{number}")
    hook.call(first, A, A)
    with pytest.warns(CaptureWarning, match=r"13 modules registered, 1 fired.*8 and 2 more"):
        hook.remove()


@pytest.mark.parametrize("chosen", ["model.first", "*first-output", lambda name: "first" in name])
def test_silent_layer_is_a_loss_only_if_the_filter_wants_it(chosen: Filter) -> None:
    hook, first, second = make_hook(chosen)
    hook.call(first, A, A)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        hook.remove()
    hook, first, second = make_hook(chosen)
    hook.call(second, A, A)
    with pytest.warns(CaptureWarning, match=r"1 fired; not captured: model\.first \("):
        hook.remove()


def test_fired_without_a_tensor_is_an_error() -> None:
    hook, first, second = make_hook()
    hook.call(first, None, 3)
    hook.call(second, None, None)
    with pytest.raises(CaptureError, match="2 fired, but no tensor was saved"):
        hook.require_capture()


@pytest.mark.filterwarnings("error")
def test_whole_capture_does_not_warn_and_remove_twice_is_safe() -> None:
    hook, first, second = make_hook()
    hook.call(first, A, A)
    hook.call(second, A, A)
    hook.remove()
    hook.remove()
    assert hook.certificate().saved == 4


@pytest.mark.filterwarnings("error")
def test_hook_without_layers_does_not_warn_but_is_no_capture() -> None:
    hook = ListHook()
    hook.remove()
    with pytest.raises(CaptureError, match="no layer was named"):
        hook.require_capture()


@pytest.mark.filterwarnings("error")
def test_exception_in_the_block_is_not_covered_by_a_warning() -> None:
    hook, _, _ = make_hook()
    with pytest.raises(ZeroDivisionError), hook:
        raise ZeroDivisionError


def test_end_of_block_warns() -> None:
    with pytest.warns(CaptureWarning, match="1 modules registered, 0 fired"), ListHook() as hook:
        hook.add_layer(Layer(), "model")


def test_layers_without_a_name_go_by_their_class() -> None:
    hook = ListHook()
    first, second = Layer(), Layer()
    for layer in (first, second, first):
        hook.call(layer, None, A)
    assert hook.recorded_names() == ("Layer-output", "Layer2-output", "Layer(2)-output")
    assert hook.name_of(second) == "Layer2"


def test_name_passes_to_another_layer_and_the_count_goes_on() -> None:
    hook, first, _ = make_hook()
    hook.call(first, None, A)
    other = Layer()
    assert hook.add_layer(other, "model.first")
    assert not hook.add_layer(other, "model.second")
    hook.call(other, None, A)
    assert hook.recorded_names() == ("model.first-output", "model.first(2)-output")
    assert hook.layer_of("model.first") is other
    assert hook.name_of(first) is None
    assert hook.certificate().registered == 2


def test_import_brings_in_no_engine() -> None:
    code = (
        "import sys, test_common.torch_print_hook, test_common.torch_runner, "
        "test_common.patching, test_common.dump_writer\n"
        "print([m for m in ('torch', 'max', 'vllm', 'transformers') if m in sys.modules])"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment
    )
    assert run.stdout.strip() == "[]"
