"""Oracles from a user's own Python file: `FILE.py` or `FILE.py:NAME`."""

import hashlib
import importlib.util
import inspect
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType

from comparison.schema.errors import BadInputError, MissingPathError, UnknownPipelineError
from oracles.oracle import PipelineOracle
from oracles.registry import PIPELINE_ORACLES


def load_oracle_file(spec: str) -> PipelineOracle:
    """Return the oracle of a user's file.

    The file may hold instances of PipelineOracle, subclasses that need no argument, or a
    dictionary PIPELINE_ORACLES of its own; it may also add to ours.

    Args:
        spec: `FILE.py`, when it holds one oracle, or `FILE.py:NAME`, where NAME is a variable, a
            class, or a key of PIPELINE_ORACLES.

    Raises:
        MissingPathError: the file does not exist.
        BadInputError: the file cannot be imported, or holds no oracle, or several and no NAME.
        UnknownPipelineError: the file has no oracle NAME.
    """
    path, name = _split(spec)
    if not path.is_file():
        raise MissingPathError(f"oracle file {path} does not exist")
    known_before = set(PIPELINE_ORACLES)
    module = _import(path)
    added = {key: PIPELINE_ORACLES[key] for key in PIPELINE_ORACLES if key not in known_before}
    found = _oracles_in(module, added)
    if name is not None:
        return _named(found, name, path)
    return _sole(found, path)


def _split(spec: str) -> tuple[Path, str | None]:
    file, separator, name = spec.partition(".py:")
    if not separator:
        return Path(spec).expanduser(), None
    if not name:
        raise BadInputError(f"{spec}: expected FILE.py:NAME, nothing follows the colon")
    return Path(f"{file}.py").expanduser(), name


def _import(path: Path) -> ModuleType:
    """Import the file under a name that no other module has."""
    digest = hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:12]
    module_name = f"_oracle_file_{path.stem}_{digest}"
    spec = importlib.util.spec_from_file_location(module_name, path)
    if spec is None or spec.loader is None:
        raise BadInputError(f"oracle file {path} is no Python file: its name must end in .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module  # dataclasses and pickling look their module up
    try:
        spec.loader.exec_module(module)
    except SyntaxError as error:
        del sys.modules[module_name]
        raise BadInputError(
            f"oracle file {path}, line {error.lineno}: syntax error: {error.msg}"
        ) from error
    # A user's file may raise anything.
    except Exception as error:
        del sys.modules[module_name]
        raise BadInputError(
            f"oracle file {path}, line {_line_in(path, error)}: {type(error).__name__}: {error}"
        ) from error
    return module


def _line_in(path: Path, error: BaseException) -> int | None:
    """Return the line of the file itself that led to the error."""
    line, trace = None, error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == str(path):
            line = trace.tb_lineno
        trace = trace.tb_next
    return line


def _oracles_in(
    module: ModuleType, added: Mapping[str, PipelineOracle]
) -> dict[str, PipelineOracle | type[PipelineOracle]]:
    """Return what the file offers: instances and keys by name, else its classes."""
    variables = {
        name: value for name, value in vars(module).items() if isinstance(value, PipelineOracle)
    }
    table = getattr(module, "PIPELINE_ORACLES", {})
    own_table = {} if table is PIPELINE_ORACLES else dict(table)
    classes = {
        name: value
        for name, value in vars(module).items()
        if isinstance(value, type)
        and issubclass(value, PipelineOracle)
        and value.__module__ == module.__name__
        and not inspect.isabstract(value)
    }
    return {**classes, **variables, **own_table, **added}


def _named(
    found: Mapping[str, PipelineOracle | type[PipelineOracle]], name: str, path: Path
) -> PipelineOracle:
    if name not in found:
        offered = ", ".join(sorted(found)) or "none"
        raise UnknownPipelineError(f"oracle file {path} has no oracle {name!r}; it has: {offered}")
    return _instance(found[name], name, path)


def _sole(found: Mapping[str, PipelineOracle | type[PipelineOracle]], path: Path) -> PipelineOracle:
    instances = {k: value for k, value in found.items() if isinstance(value, PipelineOracle)}
    # A class beside an instance is how the instance was made.
    candidates = instances or found
    if not candidates:
        raise BadInputError(
            f"oracle file {path} has no oracle: expected an instance or a concrete subclass of "
            "PipelineOracle, or a dictionary PIPELINE_ORACLES"
        )
    if len({id(value) for value in candidates.values()}) > 1:
        raise BadInputError(
            f"oracle file {path} has several oracles; give one as {path}:NAME: "
            + ", ".join(sorted(candidates))
        )
    name = next(iter(candidates))
    return _instance(candidates[name], name, path)


def _instance(
    oracle: PipelineOracle | type[PipelineOracle], name: str, path: Path
) -> PipelineOracle:
    if not isinstance(oracle, type):
        return oracle
    try:
        return oracle()
    except TypeError as error:
        raise BadInputError(
            f"oracle file {path}: {name} needs arguments; make an instance in the file ({error})"
        ) from error
