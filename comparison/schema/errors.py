"""The errors that a caller may catch, one class a case, each also a builtin.

Every message says what was expected, what was found, where, and what to do next.
A numeric difference is a result, never an error.
"""


class AccuracyToolsError(Exception):
    """Base of every error that these tools raise on purpose."""


class BadInputError(AccuracyToolsError, ValueError):
    """An option, file or folder that cannot be used as given."""


class MissingPathError(BadInputError, FileNotFoundError):
    """A file or folder that was named does not exist."""


class UnwritableOutputError(BadInputError, PermissionError):
    """The output folder cannot be created, is not empty, or cannot be written."""


class BudgetError(UnwritableOutputError):
    """A run came to a limit that was set for it; what it had written stays readable."""


class CorruptFileError(BadInputError):
    """A file is truncated, malformed or not of the format its name says."""


class UnsupportedFormatError(BadInputError):
    """A file, dtype or encoding that these tools do not handle."""


class UnknownPipelineError(BadInputError, KeyError):
    """A pipeline that is neither a registered oracle nor a model that can be loaded."""

    # KeyError shows the repr of its argument; a sentence should stay a sentence.
    __str__ = Exception.__str__


class NothingComparedError(BadInputError, LookupError):
    """No tensor of one side has a counterpart on the other."""


class CaptureError(AccuracyToolsError, RuntimeError):
    """A run captured nothing, or less than it must."""


class EngineError(AccuracyToolsError, RuntimeError):
    """An engine cannot build or run the model; the engine's own last error is quoted."""


class TryAgainError(AccuracyToolsError, ConnectionError):
    """A failure that passes by itself: the Hub is down, a worker was killed."""
