import pytest

from comparison.schema.errors import BadInputError
from tools.option_values import parse_size


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("4096", 4096),
        ("500MB", 500_000_000),
        ("8GB", 8_000_000_000),
        ("8g", 8_000_000_000),
        ("1.5 kB", 1500),
        (" 2TB ", 2_000_000_000_000),
    ],
)
def test_a_size_is_a_number_of_bytes(text: str, size: int) -> None:
    assert parse_size("max-bytes", text) == size


@pytest.mark.parametrize(
    "text", ["", "0", "-1", "8GiB", "GB", "many", "1e3", "0.1", "9" * 400, "8\u212a"]
)
def test_what_is_no_size_is_refused_with_the_name_of_the_option(text: str) -> None:
    with pytest.raises(BadInputError, match="--max-bytes must be a size such as 8GB, 500MB"):
        parse_size("max-bytes", text)
