"""Limits and formats of picture files."""

import io
import os
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from comparison.schema.errors import BadInputError
from test_common import picture_file
from test_common.picture_file import decoded_picture


def saved(picture: Image.Image, kind: str = "PNG", **options: Any) -> bytes:
    data = io.BytesIO()
    picture.save(data, format=kind, **options)
    return data.getvalue()


def png_header(width: int, height: int) -> bytes:
    """Return a PNG file that says a size and holds hardly anything."""

    def chunk(name: bytes, body: bytes) -> bytes:
        crc = zlib.crc32(name + body)
        return struct.pack(">I", len(body)) + name + body + struct.pack(">I", crc)

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    pixels = zlib.compress(b"\0" * 99)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", pixels)


@pytest.mark.parametrize(
    ("width", "height", "message"),
    [
        (100_000, 100_000, "pixels"),
        (8000, 7000, "has 8000 x 7000 pixels, at most 50,000,000 are taken"),
        (49_000_000, 1, "has 49000000 x 1 pixels, at most 16,384 a side are taken"),
        (1, 16_385, "has 1 x 16385 pixels, at most 16,384 a side are taken"),
        (4097, 1, "one side may be at most 4,096 times as long as the other"),
    ],
)
def test_sizes_are_looked_at_before_pixels_are_made(width: int, height: int, message: str) -> None:
    with pytest.raises(BadInputError, match=message):
        decoded_picture(png_header(width, height))


def test_the_greatest_size_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(picture_file, "MOST_PIXELS", 2000)
    assert decoded_picture(saved(Image.new("RGB", (50, 40)))).size == (50, 40)
    with pytest.raises(BadInputError, match="has 50 x 41 pixels, at most 2,000"):
        decoded_picture(saved(Image.new("RGB", (50, 41))))


def test_a_program_is_never_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "gs"
    program.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    postscript = (
        b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 40 30\n%%EndComments\nshowpage\n%%EOF\n"
    )
    with pytest.raises(BadInputError, match="found none of these"):
        decoded_picture(postscript)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("kind", ["ICO", "ICNS", "PCX", "TGA"])
def test_other_formats_are_refused(kind: str) -> None:
    with pytest.raises(BadInputError, match=r"expected a picture \(PNG, .*\), found none of these"):
        decoded_picture(saved(Image.new("RGB", (32, 32)), kind))


@pytest.mark.parametrize(
    ("mode", "kind"), [("I;16", "PNG"), ("I;16", "TIFF"), ("I", "TIFF"), ("F", "TIFF")]
)
def test_values_that_would_be_clipped_are_refused(mode: str, kind: str) -> None:
    data = saved(Image.new(mode, (8, 6), 1), kind)
    with pytest.raises(BadInputError, match=rf"mode {mode}[;B1-6]*, expected 8 bits a channel"):
        decoded_picture(data)


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA"])
def test_modes_of_eight_bits_become_rgb(mode: str) -> None:
    assert decoded_picture(saved(Image.new(mode, (8, 6)))).mode == "RGB"


def test_cmyk_becomes_rgb() -> None:
    white = decoded_picture(saved(Image.new("CMYK", (8, 6)), "JPEG"))
    assert np.asarray(white).min() > 250


@pytest.mark.parametrize("data", [b"no picture", saved(Image.new("RGB", (9, 9)))[:45]])
def test_messages_name_no_object_of_ours(data: bytes) -> None:
    with pytest.raises(BadInputError) as raised:
        decoded_picture(data)
    assert "0x" not in str(raised.value)
    assert str(raised.value).startswith("expected a picture (PNG, JPEG")
