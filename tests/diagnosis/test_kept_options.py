"""What a dump's manifest says of how its run was asked for."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from comparison.schema.errors import BadInputError
from comparison.store.dump import Dump, open_dump
from diagnosis.kept_options import kept_layers, kept_overrides
from diagnosis.side_runs import RunOptions
from tests.comparison.dumps import numbers, write_dump

RUN = RunOptions(num_hidden_layers=3, hf_config_overrides={"rope_theta": 5.0})


def dump(folder: Path, **options: Any) -> Dump:
    found = open_dump(write_dump(folder, [{"model-output": numbers(2, 3)}]))
    assert found.manifest is not None
    return replace(found, manifest=replace(found.manifest, options=options))


def test_what_a_dump_says_goes_before_what_the_run_says(tmp_path: Path) -> None:
    kept = dump(tmp_path, num_hidden_layers="all", hf_config_overrides={})
    assert (kept_layers(kept, RUN), kept_overrides(kept, RUN)) == ("all", {})


def test_a_dump_that_does_not_say_leaves_it_to_the_run(tmp_path: Path) -> None:
    silent = dump(tmp_path)
    for kept in (silent, replace(silent, manifest=None)):
        assert (kept_layers(kept, RUN), kept_overrides(kept, RUN)) == (3, {"rope_theta": 5.0})


@pytest.mark.parametrize("overrides", [[1], "zz", None, 7])
def test_overrides_that_are_no_object_are_refused(tmp_path: Path, overrides: Any) -> None:
    with pytest.raises(BadInputError, match=r"an object as 'options.hf_config_overrides'"):
        kept_overrides(dump(tmp_path, hf_config_overrides=overrides), RUN)


@pytest.mark.parametrize("layers", [[1], 2.5, None, True])
def test_a_number_of_layers_that_is_none_is_refused(tmp_path: Path, layers: Any) -> None:
    with pytest.raises(BadInputError, match=r"a number of layers, or all, as 'options.num_hidden"):
        kept_layers(dump(tmp_path, num_hidden_layers=layers), RUN)
