"""Pictures made by code, so that multimodal models run without a network."""

from __future__ import annotations

import io

import numpy as np
import numpy.typing as npt

# Width and height: never square, so that swapped axes show; unlike from picture to picture.
_SIZES = ((96, 64), (72, 112), (136, 88))


def drawn_picture(number: int) -> bytes:
    """Return a picture as a PNG file, the same one for a number each time.

    It has a gradient that differs by channel, and a disc, a bar and stripes off the centre, so
    that a picture that is turned, mirrored, or has its channels swapped is another picture.

    Args:
        number: each gives another picture.
    """
    from PIL import Image

    width, height = _SIZES[number % len(_SIZES)]
    data = io.BytesIO()
    Image.fromarray(_pixels(width, height, number)).save(data, format="PNG")
    return data.getvalue()


def _pixels(width: int, height: int, number: int) -> npt.NDArray[np.uint8]:
    """Draw a picture [height, width, 3]."""
    y, x = np.mgrid[0:height, 0:width]
    pixels = np.stack(
        [
            30 + 200 * x // width,
            220 - 180 * y // height,
            60 + (40 * number + 120 * (x + 2 * y) // (width + 2 * height)) % 190,
        ],
        axis=-1,
    )  # [height, width, 3]
    centre_x, centre_y, radius = width * (3 + number % 3) // 10, height // 3, height // 5
    pixels[(x - centre_x) ** 2 + (y - centre_y) ** 2 < radius**2] = (240, 40, 70)
    pixels[height * 3 // 4 :, width // 2 : width * 4 // 5] = (20, 90, 230)
    pixels[(x - y + 7 * number) % 31 < 3] = (15, 15, 20)
    return pixels.astype(np.uint8)
