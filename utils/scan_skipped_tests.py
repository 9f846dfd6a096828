#!/usr/bin/env python3
"""Tells which models skip which of the common tests, in a checkout of transformers."""

from __future__ import annotations

import gc
import sys
from pathlib import Path

if not __package__:  # run as a file: the root of this repository is not on the path then
    sys.path.insert(0, str(Path(__file__).absolute().parents[1]))

import click

from utils.command import BAD_INPUT, complain, run_command
from utils.skipped_tests.mixins import ClassTree
from utils.skipped_tests.report import scan_text, write_scans
from utils.skipped_tests.scan import (
    CommonTest,
    Row,
    choose_test,
    common_tests,
    model_test_files,
    read_rows,
    scan_test,
    scan_tests,
)


@click.command(
    context_settings={"help_option_names": ["-h", "--help"], "show_default": True},
    epilog="\b\n"
    "scan_skipped_tests --root ~/transformers --output_dir scans/\n"
    "scan_skipped_tests --root ~/transformers --test_method_name test_inputs_embeds\n\n"
    "See docs/scan_skipped_tests.md.",
)
@click.option(
    "--output_dir",
    "--output-dir",
    type=click.Path(path_type=Path),
    default=Path(),
    help="Folder for the JSON file.",
)
@click.option(
    "--test_method_name", "--test-method-name", metavar="NAME", help="Scan this test alone."
)
@click.option(
    "--root", type=click.Path(path_type=Path), default=Path(), help="Checkout of transformers."
)
def scan_skipped_tests(output_dir: Path, test_method_name: str | None, root: Path) -> int:
    """Scan the tests that all models inherit, and write who runs and who skips them.

    Exits with 0, or with 2 where a file could not be read: what was read is written then too.
    """
    gc.disable()  # it would walk the growing trees again and again, and none of them is garbage
    tree = ClassTree(root=root.resolve())
    files = model_test_files(root, tree.folder_failed)
    tests = common_tests(tree)
    chosen = choose_test(tests, test_method_name) if test_method_name else None
    click.echo(f"🔬 Parsing {len(files)} model test files once each...")
    rows = read_rows(tree, [file.resolve() for file in files], tests)
    path = _scan_one(chosen, rows, output_dir) if chosen else _scan_all(tests, rows, output_dir)
    click.echo(f"\n📄 JSON saved to {path}")
    return _tell_unreadable(tree)


def _scan_one(test: CommonTest, rows: list[Row], folder: Path) -> Path:
    scan = scan_test(test, rows)
    click.echo(scan_text(scan))
    return write_scans([scan], folder, f"scan_{test.name}.json")


def _scan_all(tests: dict[str, CommonTest], rows: list[Row], folder: Path) -> Path:
    total = len(tests)
    width = max(map(len, tests))
    is_terminal = sys.stdout.isatty()
    click.echo(f"📝 Aggregating {total} tests...")

    def tell(number: int, name: str) -> None:
        if is_terminal or number == total:
            click.echo(f"{chr(13) * is_terminal}  ({number}/{total}) {name:<{width}}", nl=False)

    scans = scan_tests(tests, rows, tell)
    click.echo("\n✅ Scan complete.")
    return write_scans(scans, folder, "all_tests_scan_result.json")


def _tell_unreadable(tree: ClassTree) -> int:
    for reason in tree.unreadable.values():
        complain(f"warning: left out: {reason}")
    if not tree.unreadable:
        return 0
    complain(f"error: {len(tree.unreadable)} files could not be read; the rest is in the result")
    return BAD_INPUT


if __name__ == "__main__":
    run_command(scan_skipped_tests)
