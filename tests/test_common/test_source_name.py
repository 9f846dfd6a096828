"""Names of files and addresses as messages and manifests show them."""

import pytest

from test_common.source_name import (
    printable,
    short_source_name,
    source_name,
    sources_problem,
    without_secrets,
)


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("a b.png", "a b.png"),
        ("\x1b[31mred\0.png", "\\x1b[31mred\\x00.png"),
        ("a\nb\udcff.png", "a\\nb\\udcff.png"),
        ("me@home?.png", "me@home?.png"),  # a file may be called like that
        ("http://host/a.png", "http://host/a.png"),
        ("https://bob:pw@host:80/a@b.png?Signature=s#f", "https://host:80/a@b.png"),
        ("HTTP://bob@[::1]:80?s", "HTTP://[::1]:80"),
        ("http://bob:p/w@host/a.png", "http://..."),
        ("http://bob:p?w@host/a.png", "http://..."),
        ("http://host/\x1b.png", "http://host/\\x1b.png"),
    ],
)
def test_secrets_go_and_control_characters_are_escaped(source: str, name: str) -> None:
    assert source_name(source) == name


def test_long_names_are_cut_in_messages_only() -> None:
    assert len(short_source_name("x" * 5000)) == 303
    assert len(source_name("x" * 5000)) == 5000


def test_addresses_in_messages_of_libraries_lose_their_secrets() -> None:
    assert without_secrets("no 'http://a:b@c/d?e=f' \x1b") == "no 'http://c/d \\x1b"
    assert printable("plain text") == "plain text"


def test_what_is_no_list_of_sources() -> None:
    assert sources_problem(["a.png"]) is None
    assert sources_problem("a.png") is not None
    assert sources_problem(None) is not None
    assert sources_problem([None]) == "image 0 must be a file or a web address, found None"
