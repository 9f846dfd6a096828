"""Makes and removes the editable copy of transformers; see utils/local_transformers_setup."""

from __future__ import annotations

import click

from tools.entry_point import run_command


@click.command(
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="\b\nlocal_transformers setup\nlocal_transformers cleanup\n\n"
    "See docs/accuracy-debugging.md.",
)
@click.argument("action", type=click.Choice(["setup", "cleanup"]))
def local_transformers(action: str) -> int:
    """Make an editable copy of the transformers that debug_model imports, or remove it."""
    return _set_up() if action == "setup" else _clean_up()


def _set_up() -> int:
    from test_common.local_transformers import set_up_copy

    folder, is_new = set_up_copy()
    print(f"Editable transformers: {folder}" + ("" if is_new else " (set up already, no edits)"))
    print(f"Edit for example: {folder}/models/llama/modeling_llama.py")
    print("debug_model imports it from now on, with and without Bazel, and says so.")
    return 0


def _clean_up() -> int:
    from test_common.local_transformers import clean_up_copies

    versions, kept = clean_up_copies()
    for folder in kept:
        print(f"Your edited files are kept in {folder}")
    what = f"Removed the local copy of {', '.join(versions)}" if versions else "No local copy"
    print(f"{what}; the installed transformers is used")
    return 0


if __name__ == "__main__":
    run_command(local_transformers)
