"""Feeds one reader with inputs that atheris chooses by what code they reach.

    python -m tests.fuzz.run_atheris READER -runs=200000 [options of libFuzzer]

atheris is not among the requirements of this repository: install it beside them.
"""

import sys

import atheris

with atheris.instrument_imports(include=["comparison", "diagnosis", "utils"]):
    from tests.fuzz.readers import READERS


def main() -> None:
    """Run until a reader fails, or all inputs are done."""
    if len(sys.argv) < 2 or sys.argv[1] not in READERS:
        sys.exit(f"expected a reader of {', '.join(READERS)}")
    one_input = READERS[sys.argv.pop(1)]
    atheris.Setup(sys.argv, one_input)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
