"""Tells why a model cannot be loaded: it does not exist, the Hub is away, or it is broken."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from comparison.schema.errors import (
    AccuracyToolsError,
    BadInputError,
    EngineError,
    MissingPathError,
    TryAgainError,
    UnknownPipelineError,
)
from test_common.remote_code import HOW, PARAMETER, RemoteCodeError

_TOO_MANY_REQUESTS = 429


@contextmanager
def load_errors(model_path: str, *, engine: str) -> Iterator[None]:
    """Raise whatever a loader raises as one of our errors; see `model_load_error`."""
    try:
        yield
    # A loader runs the model's own code, which may raise anything.
    except Exception as error:
        found = model_load_error(error, model_path=model_path, engine=engine)
        if found is error:
            raise
        raise found from error


def model_load_error(error: Exception, *, model_path: str, engine: str) -> AccuracyToolsError:
    """Return the error to raise for an exception that loading a model raised.

    Only what passes by itself is a TryAgainError: no connection, or the Hub answers 5xx or 429.

    Args:
        error: what the loader raised; its causes are searched, since loaders wrap the Hub's errors.
        model_path: what was to be loaded.
        engine: `torch`, `max`, ...
    """
    if isinstance(error, AccuracyToolsError):
        return error
    if not Path(model_path).exists() and not _may_be_on_hub(model_path):
        return MissingPathError(f"{model_path}: expected a model's folder, found nothing there")
    for cause in _causes(error):
        if isinstance(cause, RemoteCodeError):
            return cause
        found = _hub_error(cause, model_path)
        if found is not None:
            return found
    if not Path(model_path).exists() and isinstance(error, OSError) and is_offline():
        return _not_cached(model_path)
    if f"{PARAMETER}=True" in str(error):
        return RemoteCodeError(
            f"{model_path}: {engine} needs Python code of its repository, which is not trusted; "
            f"{HOW}"
        )
    return EngineError(f"{engine} cannot load {model_path}: {_one_line(error)}")


def _may_be_on_hub(model_path: str) -> bool:
    """Tell names that the Hub may have from what can only be a path."""
    from huggingface_hub.errors import HFValidationError
    from huggingface_hub.utils import validate_repo_id

    try:
        validate_repo_id(model_path)
    except HFValidationError:
        return False
    return True


def _hub_error(cause: BaseException, model_path: str) -> AccuracyToolsError | None:
    from huggingface_hub import errors as hub

    if isinstance(cause, hub.OfflineModeIsEnabled):
        return _not_cached(model_path)
    if isinstance(cause, hub.GatedRepoError):
        return BadInputError(
            f"the Hub refuses {model_path}: the repository is gated; accept its licence on the Hub "
            "and set HF_TOKEN"
        )
    if isinstance(cause, hub.RepositoryNotFoundError | hub.RevisionNotFoundError):
        what = "revision" if isinstance(cause, hub.RevisionNotFoundError) else "model"
        return UnknownPipelineError(
            f"the Hub has no {what} {model_path}, or it is private and HF_TOKEN is not set"
        )
    if isinstance(cause, hub.HfHubHTTPError):
        return _http_error(cause, model_path)
    if _is_connection_failure(cause):
        return _not_cached(model_path) if is_offline() else _unreachable(model_path, cause)
    return None


def _http_error(error: Exception, model_path: str) -> AccuracyToolsError | None:
    response = getattr(error, "response", None)
    status = getattr(response, "status_code", None)
    if isinstance(status, int) and (status >= 500 or status == _TOO_MANY_REQUESTS):
        return TryAgainError(f"the Hub answered {status} for {model_path}; try again later")
    return None


def _is_connection_failure(cause: BaseException) -> bool:
    import httpx

    # LocalEntryNotFoundError by itself only says that nothing is cached; its cause says why.
    is_file_error = isinstance(cause, FileNotFoundError | PermissionError)
    kinds = (httpx.TransportError, ConnectionError, TimeoutError)
    return isinstance(cause, kinds) and not is_file_error


def _unreachable(model_path: str, cause: BaseException) -> TryAgainError:
    return TryAgainError(
        f"the Hub cannot be reached for {model_path} ({_one_line(cause)}), and there is no folder "
        f"of that name in {Path.cwd()}; try again later, or give a local folder"
    )


def _not_cached(model_path: str) -> UnknownPipelineError:
    return UnknownPipelineError(
        f"{model_path} is not in the local Hub cache, and HF_HUB_OFFLINE is set; unset it, or give "
        "a local folder"
    )


def is_offline() -> bool:
    """Tell whether the user forbids asking the Hub."""
    from huggingface_hub import constants

    return bool(constants.HF_HUB_OFFLINE) or bool(os.environ.get("TRANSFORMERS_OFFLINE"))


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an exception and what it was raised from, outermost first."""
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        yield current
        current = current.__cause__ or current.__context__


def _one_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0] if lines else 'no message'}"
