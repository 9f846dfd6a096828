"""Pictures from files and made by code; those from the web are in test_image_download."""

import hashlib
import io
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from comparison.schema.errors import BadInputError
from test_common import images
from test_common.images import default_images, load_images


def picture(width: int = 5, height: int = 3, kind: str = "PNG") -> bytes:
    data = io.BytesIO()
    Image.new("RGB", (width, height), (200, 100, 50)).save(data, format=kind)
    return data.getvalue()


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "GIF", "BMP", "WEBP"])
def test_a_file_is_loaded_with_its_hash(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "picture"
    path.write_bytes(picture(kind=kind))
    (loaded,) = load_images([str(path)])
    assert loaded.source == str(path)
    assert loaded.data == path.read_bytes()
    assert loaded.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    decoded = loaded.decoded()
    assert (decoded.mode, decoded.size) == ("RGB", (5, 3))
    assert np.abs(np.asarray(decoded, dtype=int) - (200, 100, 50)).max() <= 3


def test_order_and_repetition_are_kept(tmp_path: Path) -> None:
    paths = [str(tmp_path / name) for name in ("b.png", "a.png")]
    for number, path in enumerate(paths):
        Path(path).write_bytes(picture(width=4 + number))
    loaded = load_images([paths[1], paths[0], paths[1]])
    assert [image.decoded().size[0] for image in loaded] == [5, 4, 5]


def test_transparency_and_grey_become_rgb(tmp_path: Path) -> None:
    for mode in ("L", "RGBA", "P", "1"):
        path = tmp_path / f"{mode}.png"
        Image.new(mode, (4, 4)).save(path)
        assert load_images([str(path)])[0].decoded().mode == "RGB"


def test_a_picture_is_turned_as_its_exif_data_say(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # the camera was held upright
    path = tmp_path / "turned.jpg"
    Image.new("RGB", (6, 2)).save(path, exif=exif)
    assert load_images([str(path)])[0].decoded().size == (2, 6)


def test_all_that_is_wrong_is_said_at_once(tmp_path: Path) -> None:
    text, cut, good = tmp_path / "text.png", tmp_path / "cut.png", tmp_path / "good.png"
    text.write_text("no picture")
    cut.write_bytes(default_images(1)[0].data[:200])
    good.write_bytes(picture())
    (tmp_path / "empty.png").write_bytes(b"")
    names = ["none.png", "text.png", "cut.png", "good.png", "empty.png", "."]
    with pytest.raises(BadInputError) as raised:
        load_images([str(tmp_path / name) for name in names])
    message = str(raised.value)
    assert f"image {tmp_path}/none.png does not exist" in message
    assert f"image {text}: expected a picture (PNG, JPEG, " in message
    assert f"image {cut}: expected a picture" in message
    assert f"image {tmp_path}/empty.png: expected a picture, found an empty file" in message
    assert f"image {tmp_path}: expected a file, found a folder" in message
    assert "good.png" not in message
    assert "\n" not in message


def test_pipes_and_devices_are_refused_without_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(BadInputError, match=r"pipe: expected a file, found a pipe; .* a device"):
        load_images([str(tmp_path / "pipe"), "/dev/zero"])


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("", "the name is empty"),
        ("ftp://host/a.png", "expected a file, or http:// or https://"),
        ("file:///a.png", "expected a file, or http:// or https://"),
        ("a\0b", "cannot be read"),
        ("x" * 5000, "cannot be read"),
        ("~nobody-of-that-name/a.png", "cannot be read|does not exist"),
    ],
)
def test_names_of_another_form(source: str, message: str) -> None:
    with pytest.raises(BadInputError, match=message):
        load_images([source])


def test_a_large_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "picture.png"
    path.write_bytes(picture(50, 40))
    assert load_images([path])
    monkeypatch.setattr(images, "MOST_BYTES", 10)
    with pytest.raises(BadInputError, match="is larger than"):
        load_images([str(path)])


def test_pictures_made_by_code() -> None:
    made = default_images(4)
    assert made == default_images(4)
    assert len({image.sha256 for image in made}) == 4
    for image in made:
        pixels = np.asarray(image.decoded())
        height, width, _ = pixels.shape
        assert height != width
        for other in (pixels[::-1], pixels[:, ::-1], pixels[..., ::-1]):
            assert not np.array_equal(pixels, other)
        assert pixels.reshape(-1, 3).std(axis=0).min() > 20


def test_names_are_escaped_in_messages_and_kept_as_paths(tmp_path: Path) -> None:
    path = tmp_path / "\x1b[31mred.png"
    path.write_bytes(picture())
    (loaded,) = load_images([path])
    assert loaded.source == f"{tmp_path}/\\x1b[31mred.png"
    for given in (tmp_path / "\x1bnone.png", tmp_path / "\x1b", "a\0b", f"{tmp_path}/\x1b\udcff"):
        (tmp_path / "\x1b").mkdir(exist_ok=True)
        with pytest.raises(BadInputError) as raised:
            load_images([given])
        assert str(raised.value).isprintable()


@pytest.mark.parametrize("given", ["ok.png", b"ok.png", [b"\x89PNG"], [3], [None], 3])
def test_what_is_no_list_of_files(given: Any) -> None:
    with pytest.raises(BadInputError, match=r"must be a (list of files|file or a web address)"):
        load_images(given)
