"""A picture file turned into pixels, with limits on what is taken."""

from __future__ import annotations

import io
import re
import warnings
from typing import TYPE_CHECKING

from comparison.schema.errors import BadInputError
from test_common.error_text import describe
from test_common.source_name import printable

if TYPE_CHECKING:
    from PIL.Image import Image

# Others of Pillow's run programs (EPS), hold further files (ICO, ICNS), or are no pictures.
PICTURE_FORMATS = ("PNG", "JPEG", "WEBP", "BMP", "GIF", "TIFF", "PPM")
MOST_PIXELS = 50_000_000
MOST_PIXELS_A_SIDE = 16_384
MOST_TIMES_LONGER = 4096  # the longer side than the shorter
_MODES = ("1", "L", "LA", "La", "P", "PA", "RGB", "RGBA", "RGBa", "RGBX", "CMYK", "YCbCr", "LAB")
_OBJECT = re.compile(r"<[^<>]* object at 0x[0-9a-f]+>")


def decoded_picture(data: bytes) -> Image:
    """Return the picture in RGB, turned upright as its EXIF data say.

    Args:
        data: the bytes of a file in one of `PICTURE_FORMATS`; of several frames the first counts.

    Raises:
        BadInputError: it is in no such format, broken, too large, far too thin, or has more than
            8 bits a channel.
    """
    from PIL import Image, ImageOps, UnidentifiedImageError

    if not data:
        raise BadInputError("expected a picture, found an empty file")
    try:
        with warnings.catch_warnings():
            # Of a picture inside of the file; its own size is looked at below.
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            picture = Image.open(io.BytesIO(data), formats=PICTURE_FORMATS)
            _check_size(picture.size)
            _check_mode(picture.mode)
            picture.load()
            _check_size(picture.size)
            return ImageOps.exif_transpose(picture).convert("RGB")
    except BadInputError:
        raise
    except UnidentifiedImageError as error:
        raise BadInputError(f"{_expected()}, found none of these") from error
    except (Image.DecompressionBombWarning, Image.DecompressionBombError) as error:
        raise BadInputError(
            f"the picture has more than the {MOST_PIXELS:,} pixels that are taken"
        ) from error
    # Pillow's readers raise whatever broken bytes make them raise.
    except Exception as error:
        reason = printable(_OBJECT.sub("the file", describe(error)))
        raise BadInputError(f"{_expected()}, found {reason}") from error


def _expected() -> str:
    return f"expected a picture ({', '.join(PICTURE_FORMATS)})"


def _check_size(size: tuple[int, int]) -> None:
    width, height = size
    has = f"the picture has {width} x {height} pixels"
    if width < 1 or height < 1:
        raise BadInputError(f"{has}, at least one is needed")
    if width * height > MOST_PIXELS:
        raise BadInputError(f"{has}, at most {MOST_PIXELS:,} are taken")
    if max(size) > MOST_PIXELS_A_SIDE:
        raise BadInputError(f"{has}, at most {MOST_PIXELS_A_SIDE:,} a side are taken")
    if max(size) > MOST_TIMES_LONGER * min(size):
        raise BadInputError(
            f"{has}, one side may be at most {MOST_TIMES_LONGER:,} times as long as the other"
        )


def _check_mode(mode: str) -> None:
    """Refuse what Pillow would clip: 16 bits, 32 bits and floating point."""
    if mode not in _MODES:
        raise BadInputError(
            f"the picture is of Pillow's mode {mode}, expected 8 bits a channel: convert it, since "
            "its values could only be clipped"
        )
