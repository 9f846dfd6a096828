"""What the system says of a file that cannot be written, as our error."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from comparison.schema.errors import UnwritableOutputError
from test_common.output_folder import unwritable


@contextmanager
def write_errors(path: Path) -> Iterator[None]:
    """Turn what the system says into our error.

    torch.save reports a failed write of an open file as a RuntimeError with the OSError behind
    it.

    Args:
        path: what is written.

    Raises:
        UnwritableOutputError: the block raised an OSError, or torch one of that kind.
    """
    try:
        yield
    except UnwritableOutputError:
        raise
    except OSError as error:
        raise unwritable(path, error) from error
    except RuntimeError as error:
        if isinstance(error.__context__, OSError):
            raise unwritable(path, error.__context__) from error
        raise
