"""Runs the code cells of a notebook in order, in one namespace, and prints what each printed.

Jupyter's own packages are not among the locked ones, so nothing of a notebook is run but its code:
no magics, and no value of a last line.
"""

import contextlib
import io
import json
import re
import sys
from pathlib import Path
from typing import Any

MAX_TAG = "max"  # cells that build a MAX graph


def run_notebook(path: Path, *, with_max: bool) -> dict[int, str]:
    """Run a notebook.

    Args:
        path: the `.ipynb` file.
        with_max: whether to run the cells with the tag `max` too.

    Returns:
        What each code cell printed, by the cell's number.
    """
    namespace: dict[str, Any] = {"__name__": "__main__"}
    printed = {}
    for number, cell in enumerate(json.loads(path.read_text(encoding="utf-8"))["cells"]):
        tags = cell["metadata"].get("tags", [])
        if cell["cell_type"] != "code" or (MAX_TAG in tags and not with_max):
            continue
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            exec(compile("".join(cell["source"]), f"cell {number}", "exec"), namespace)
        printed[number] = without_machine_paths(out.getvalue())
    return printed


def without_machine_paths(text: str) -> str:
    """Cut the part of a source file's path that differs by machine."""
    return re.sub(r"(?m)^(Model source file: ).*/site-packages/", r"\1.../", text)


if __name__ == "__main__":
    print(json.dumps(run_notebook(Path(sys.argv[1]), with_max="--max" in sys.argv)))
