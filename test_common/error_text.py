"""Short texts of any exception and any value, for messages."""

_MOST_CHARACTERS = 500


def describe(error: BaseException) -> str:
    """Return the class of an exception and the last line of its message, whatever it is."""
    try:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    # An exception's __str__ may raise.
    except Exception:
        lines = ["its message cannot be shown"]
    return f"{type(error).__name__}: {lines[-1][:_MOST_CHARACTERS] if lines else 'no message'}"


def shown(value: object) -> str:
    """Return a short form of any value for a message."""
    try:
        text = repr(value)
    # A user's __repr__ may raise.
    except Exception:
        text = f"<{type(value).__name__}>"
    return text if len(text) <= 60 else f"{text[:57]}..."


def line_in_file(error: BaseException, file: str) -> int | None:
    """Return the innermost line of a file on the way to an exception, None if it is not on it."""
    line, trace = None, error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == file:
            line = trace.tb_lineno
        trace = trace.tb_next
    return line
