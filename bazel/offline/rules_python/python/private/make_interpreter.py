"""Makes an interpreter that sees no installed packages; prints where it is, as JSON."""

import json
import subprocess
import sys
from pathlib import Path
from typing import IO

from made_once import key_of, made_once


def make(folder: Path, guard: IO[str]) -> dict[str, str]:
    """Makes a bare virtual environment in `folder`."""
    command = [sys.executable, "-m", "venv", "--without-pip", str(folder)]
    subprocess.run(command, check=True, stdin=guard, stdout=sys.stderr)
    return {"python": str(folder / "bin" / "python")}


if __name__ == "__main__":
    key = key_of(Path(__file__).read_bytes())
    print(json.dumps(made_once(f"python-{key}", make)))
