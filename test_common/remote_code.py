"""Whether Python code of a model's repository may run: only where the user says so for this run."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NoReturn, Protocol, TypeVar

from comparison.schema.errors import BadInputError
from test_common.oracle_errors import oracle_label
from test_common.patching import Patch, apply_patches
from test_common.working_folder import working_folder_kept

PARAMETER = "trust_remote_code"
HOW = "read that code, then give --trust-remote-code (in Python: trust_remote_code=True)"


class RemoteCodeError(BadInputError):
    """Code of a model's repository was about to run, and the user did not allow it."""


class RemoteCodeWarning(UserWarning):
    """Code of a model's repository may run."""


class HasParameters(Protocol):
    """The part of an oracle that says what its loaders get."""

    config_params: Mapping[str, Any]


Oracle = TypeVar("Oracle", bound=HasParameters)


def with_trust(oracle: Oracle, *, trusted: bool) -> Oracle:
    """Return an oracle whose loaders may run the repository's code if this run says so.

    What the oracle itself says does not count: neither a catalogue nor a file of oracles can allow
    what the user was not asked for.

    Args:
        oracle: as it was named.
        trusted: whether the user allows it for this run.

    Raises:
        BadInputError: its parameters are of its class's own making and cannot be changed.
    """
    given = oracle.config_params
    if bool(given.get(PARAMETER, False)) is trusted:
        return oracle
    params = {name: value for name, value in given.items() if name != PARAMETER}
    if trusted:
        params[PARAMETER] = True
    changed = copy.copy(oracle)
    try:
        changed.config_params = params
    except AttributeError as error:
        raise BadInputError(
            f"{oracle_label(oracle)}: config_params is a property that says "
            f"{PARAMETER}={not trusted}, and this run says {trusted}; give it a setter, or make it "
            "an attribute"
        ) from error
    return changed


@contextmanager
def repository_code(*, trusted: bool, label: str) -> Iterator[None]:
    """Let the repository's code run in this block, with a loud line, or let none of it run.

    Every loader of transformers, and with them those of MAX and vLLM, import such code through one
    function. It is refused there, since MAX switches `trust_remote_code` on by itself for
    architectures that require it.

    Args:
        trusted: whether the user allows it for this run.
        label: what the user calls the model.

    Raises:
        RemoteCodeError: in the block, where code was about to run that the user did not allow.
    """
    if trusted:
        warnings.warn(
            f"{PARAMETER} is on for this run: Python code of the repository of {label} may run "
            "with all rights that you have",
            RemoteCodeWarning,
            stacklevel=2,
        )
    from transformers import dynamic_module_utils

    load = dynamic_module_utils.get_class_in_module

    def load_here(*given: Any, **named: Any) -> Any:
        with working_folder_kept():
            return load(*given, **named)

    def refuse(class_name: str, *_: Any, **__: Any) -> NoReturn:
        raise RemoteCodeError(
            f"{label}: its repository has Python code of its own ({class_name}), which is not "
            f"trusted; {HOW}"
        )

    patch = Patch(
        target=dynamic_module_utils,
        name="get_class_in_module",
        replacement=load_here if trusted else refuse,
        missing_api="MAX has no argument that keeps trust_remote_code off",
        remove_when="MAX leaves trust_remote_code as it was given",
    )
    with apply_patches([patch]):
        yield
