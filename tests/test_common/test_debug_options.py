import pytest

from comparison.schema.errors import BadInputError
from test_common.debug_options import DebugOptions


def test_all_problems_are_named_at_once() -> None:
    with pytest.raises(BadInputError) as error:
        DebugOptions(
            pipeline="x",
            framework="jax",
            num_hidden_layers=0,
            num_steps=0,
            max_batch_size=0,
            prefer_module_v3=True,
        )
    for words in ("framework", "num_hidden_layers", "num_steps", "max_batch_size", "module_v3"):
        assert words in str(error.value)


@pytest.mark.parametrize("layers", [1, 7, "all"])
def test_layers_that_are_taken(layers: int | str) -> None:
    assert DebugOptions(pipeline="x", num_hidden_layers=layers).num_hidden_layers == layers


@pytest.mark.parametrize("layers", [-1, "some", 1.5])
def test_layers_that_are_refused(layers: object) -> None:
    with pytest.raises(BadInputError, match=r"at least 1 or 'all'"):
        DebugOptions(pipeline="x", num_hidden_layers=layers)  # type: ignore[arg-type]  # on purpose
