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
from oracles.oracle_check import checked_oracle
from oracles.registry import PIPELINE_ORACLES
from test_common.error_text import describe, line_in_file, shown
from test_common.working_folder import working_folder_kept

_MOST_BYTES = 16 << 20  # Python reads it as a whole
_OURS = ("oracles", "tools")  # of which files of other workspaces guess modules
Offered = PipelineOracle | type[PipelineOracle]


def load_oracle_file(spec: str) -> PipelineOracle:
    """Return the oracle of a user's file.

    The file may hold instances of PipelineOracle, subclasses that need no argument, or a
    dictionary PIPELINE_ORACLES of its own; it may also add to ours.

    Args:
        spec: `FILE.py`, when it holds one oracle, or `FILE.py:NAME`, where NAME is a variable, a
            class, or a key of PIPELINE_ORACLES.

    Raises:
        MissingPathError: the file does not exist.
        BadInputError: the file cannot be imported, or holds no oracle, or several and no NAME, or
            one that `checked_oracle` refuses.
        UnknownPipelineError: the file has no oracle NAME.
    """
    path, name = _split(spec)
    _check_exists(path)
    known_before = set(PIPELINE_ORACLES)
    module = _import(path)
    added = {key: PIPELINE_ORACLES[key] for key in PIPELINE_ORACLES if key not in known_before}
    found = _oracles_in(module, added, path)
    if name is not None:
        return _named(found, name, path)
    return _sole(found, path)


def check_oracle_file(spec: str) -> None:
    """Refuse a file that is not there, without running it.

    Args:
        spec: as of `load_oracle_file`.

    Raises:
        MissingPathError: the file does not exist.
        BadInputError: it is named in another form.
    """
    path, _ = _split(spec)
    _check_exists(path)


def _split(spec: str) -> tuple[Path, str | None]:
    file, separator, name = spec.partition(".py:")
    if not spec:
        raise BadInputError(
            "the name of the oracle file is empty: expected FILE.py or FILE.py:NAME"
        )
    if separator and not name:
        raise BadInputError(f"{spec}: expected FILE.py:NAME, nothing follows the colon")
    path = Path(f"{file}.py" if separator else spec)
    try:
        return path.expanduser(), name or None
    except RuntimeError:  # there is no such user
        return path, name or None


def _check_exists(path: Path) -> None:
    try:
        is_file, exists = path.is_file(), path.exists()
    except OSError as error:  # a name that is too long, a folder that may not be entered
        message = f"oracle file {str(path)!r:.80} cannot be opened: {error.strerror}"
        raise MissingPathError(message) from error
    if not is_file:
        problem = "is no regular file" if exists else "does not exist"
        raise MissingPathError(f"oracle file {path} {problem}")
    if path.stat().st_size > _MOST_BYTES:
        raise BadInputError(f"oracle file {path} is larger than {_MOST_BYTES} bytes")


def _import(path: Path) -> ModuleType:
    """Import the file under a name that no other module has."""
    digest = hashlib.sha256(str(path.resolve()).encode("utf-8", "surrogatepass")).hexdigest()[:12]
    module_name = f"_oracle_file_{path.stem}_{digest}"
    spec = importlib.util.spec_from_file_location(module_name, path)
    if spec is None or spec.loader is None:
        raise BadInputError(f"oracle file {path} is no Python file: its name must end in .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module  # dataclasses and pickling look their module up
    try:
        with working_folder_kept():
            spec.loader.exec_module(module)
    except KeyboardInterrupt:
        raise
    # A user's file may raise anything, and exit: that would count as a success.
    except BaseException as error:
        del sys.modules[module_name]
        raise BadInputError(f"oracle file {path}{_reason(error, str(spec.origin))}") from error
    return module


def _reason(error: BaseException, file: str) -> str:
    """Say in which line of a file something was raised, and what."""
    line, reason = line_in_file(error, file), describe(error)
    if isinstance(error, SyntaxError) and line is None:  # not raised by what the file runs
        line, reason = error.lineno or _line_of_nul(file), f"syntax error: {error.msg}"
    if isinstance(error, ModuleNotFoundError) and (error.name or "").startswith(_OURS):
        reason += "; an oracle file has `from oracles import PIPELINE_ORACLES, GenericOracle`"
    return f": {reason}" if line is None else f", line {line}: {reason}"


def _line_of_nul(file: str) -> int | None:
    """Return the line of the first NUL byte, of which Python tells no line."""
    before, nul, _ = Path(file).read_bytes().partition(b"\0")
    return before.count(b"\n") + 1 if nul else None


def _oracles_in(
    module: ModuleType, added: Mapping[str, PipelineOracle], path: Path
) -> dict[str, Offered]:
    """Return what the file offers: instances and keys by name, else its classes."""
    variables = {
        name: value for name, value in vars(module).items() if isinstance(value, PipelineOracle)
    }
    table = getattr(module, "PIPELINE_ORACLES", {})
    own_table = {} if table is PIPELINE_ORACLES else _checked_table(table, path)
    classes = {
        name: value
        for name, value in vars(module).items()
        if isinstance(value, type)
        and issubclass(value, PipelineOracle)
        and value.__module__ == module.__name__
        and not inspect.isabstract(value)
    }
    return {**classes, **variables, **own_table, **_checked_table(added, path)}


def _checked_table(table: object, path: Path) -> dict[str, Offered]:
    """Return a file's dictionary of oracles, or what it added to ours.

    Raises:
        BadInputError: it is no dictionary, or something in it is of another kind.
    """
    where = f"oracle file {path}: PIPELINE_ORACLES"
    if not isinstance(table, Mapping):
        raise BadInputError(
            f"{where} must be a dictionary of names to oracles, it is {shown(table)}"
        )
    problems = [f"the key {shown(key)} is no text" for key in table if not isinstance(key, str)]
    problems += [
        f"{shown(key)} is {shown(value)}, no oracle"
        for key, value in table.items()
        if not isinstance(value, PipelineOracle)
        and not (isinstance(value, type) and issubclass(value, PipelineOracle))
    ]
    if problems:
        raise BadInputError(f"{where}: {'; '.join(problems)}")
    return dict(table)


def _named(found: Mapping[str, Offered], name: str, path: Path) -> PipelineOracle:
    if name not in found:
        offered = ", ".join(sorted(found)) or "none"
        raise UnknownPipelineError(f"oracle file {path} has no oracle {name!r}; it has: {offered}")
    return _instance(found[name], name, path)


def _sole(found: Mapping[str, Offered], path: Path) -> PipelineOracle:
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


def _instance(oracle: Offered, name: str, path: Path) -> PipelineOracle:
    where = f"oracle file {path}: {name}"
    return checked_oracle(_made(oracle, where) if isinstance(oracle, type) else oracle, name=where)


def _made(kind: type[PipelineOracle], where: str) -> PipelineOracle:
    """Make an instance of a class."""
    try:
        inspect.signature(kind).bind()
    except TypeError as error:
        raise BadInputError(
            f"{where} needs arguments; make an instance in the file ({error})"
        ) from error
    try:
        with working_folder_kept():
            return kind()
    except KeyboardInterrupt:
        raise
    # A user's class may raise anything, and exit.
    except BaseException as error:
        file = inspect.getsourcefile(kind)
        line = None if file is None else line_in_file(error, file)
        place = "" if line is None else f" in line {line}"
        raise BadInputError(f"{where} cannot be made{place}: {describe(error)}") from error
