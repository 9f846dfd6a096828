"""Pictures for multimodal models: from files, from the web, or made by code."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from comparison.schema.errors import BadInputError, TryAgainError
from comparison.store.regular_file import open_regular
from test_common.drawn_pictures import drawn_picture
from test_common.error_text import describe, shown
from test_common.image_download import download
from test_common.picture_file import decoded_picture
from test_common.source_name import printable, short_source_name, source_name, sources_problem

if TYPE_CHECKING:
    from PIL.Image import Image

MOST_BYTES = 64 * 2**20
_WEB = ("http://", "https://")


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedImage:
    """One picture that is known to be one.

    Attributes:
        source: the file or address it came from, as `source_name` names it, or the name of a
            picture made by code.
        data: the bytes of the file, in one of `PICTURE_FORMATS`.
        sha256: of `data`, in hexadecimal digits.
    """

    source: str
    data: bytes
    sha256: str

    def decoded(self) -> Image:
        """Return the picture in RGB, turned upright as its EXIF data say, as transformers does."""
        return decoded_picture(self.data)


def load_images(sources: Sequence[str | Path]) -> tuple[LoadedImage, ...]:
    """Load pictures from files and from the web.

    Args:
        sources: paths of files, or addresses that begin with http:// or https://.

    Raises:
        BadInputError: one is missing, too large, no regular file, or no picture; the web refuses
            it; HF_HUB_OFFLINE forbids to ask; or it is neither path nor address. All such
            sources are named.
        TryAgainError: nothing else is wrong than that the web fails for now.
    """
    wrong = sources_problem(sources)
    if wrong is not None:
        raise BadInputError(wrong)
    images: list[LoadedImage] = []
    problems: list[str] = []
    passing: list[str] = []
    for source in map(str, sources):
        try:
            images.append(loaded_image(source, _read(source)))
        except TryAgainError as error:
            passing.append(str(error))
        except BadInputError as error:
            problems.append(str(error))
    if problems:
        raise BadInputError("; ".join(problems + passing))
    if passing:
        raise TryAgainError("; ".join(passing))
    return tuple(images)


def default_images(count: int) -> tuple[LoadedImage, ...]:
    """Return pictures made by code: not square, each another one, the same ones each time.

    Args:
        count: how many.
    """
    return tuple(
        loaded_image(f"made by code, number {number}", drawn_picture(number))
        for number in range(count)
    )


def loaded_image(source: str, data: bytes) -> LoadedImage:
    """Return a picture from the bytes of its file.

    Args:
        source: what messages and manifests call it.
        data: the file.

    Raises:
        BadInputError: they are no picture, or one of too many pixels.
    """
    try:
        decoded_picture(data)
    except BadInputError as error:
        raise BadInputError(f"image {short_source_name(source)}: {error}") from error
    digest = hashlib.sha256(data).hexdigest()
    return LoadedImage(source=source_name(source), data=data, sha256=digest)


def _read(source: str) -> bytes:
    if not source:
        raise BadInputError("image: the name is empty; give a file or a web address")
    if source.lower().startswith(_WEB):
        return download(source, most_bytes=MOST_BYTES)
    if "://" in source:
        name = shown(source.partition("://")[0] + "://...")  # what follows may hold a password
        raise BadInputError(f"image {name}: expected a file, or http:// or https://")
    return _read_file(source)


def _read_file(source: str) -> bytes:
    name = short_source_name(source)
    try:
        with open_regular(Path(source).expanduser()) as file:
            data = file.read(MOST_BYTES + 1)
    except BadInputError as error:
        raise BadInputError(f"image {printable(str(error))}") from error
    except FileNotFoundError as error:
        raise BadInputError(f"image {name} does not exist") from error
    except (OSError, ValueError, RuntimeError) as error:  # a NUL in the name, an unknown user
        raise BadInputError(f"image {name} cannot be read: {_reason(error)}") from error
    if len(data) > MOST_BYTES:
        raise BadInputError(f"image {name} is larger than {MOST_BYTES // 2**20} MiB")
    return data


def _reason(error: Exception) -> str:
    """Return what went wrong without the name, which the system's errors repeat."""
    return getattr(error, "strerror", None) or printable(describe(error))
