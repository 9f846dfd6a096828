"""Which Bazel runs."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from bazel.launcher import bazelisk
from bazel.launcher.cache import locked

OLDEST_MAJOR = 7


class NoBazelError(RuntimeError):
    """No Bazel is here and none can be fetched."""


class BazelChoice(NamedTuple):
    """A Bazel to run."""

    program: str
    description: str
    is_offline: bool = False  # takes its modules from bazel/offline
    is_missing: bool = False  # has to be fetched first


def major_version(program: str, *, timeout_s: float = 5) -> int | None:
    """Asks a program for Bazel's version.

    Returns:
        The major version, or None if it does not say. A bazelisk that has nothing downloaded and
        cannot download is one that does not say.
    """
    try:
        done = subprocess.run(
            [program, "--version"],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            timeout=timeout_s,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.match(r"bazel (\d+)\.", done.stdout)
    return int(found[1]) if found else None


def find_on_path(search_path: str | None) -> BazelChoice | None:
    """Finds a bazel or bazelisk on PATH that is recent enough."""
    for name in ["bazel", "bazelisk"]:
        program = shutil.which(name, path=search_path)
        if not program:
            continue
        major = major_version(program)
        if major is not None and major >= OLDEST_MAJOR:
            return BazelChoice(program, f"{program} from PATH")
        if major is None and name == "bazelisk" and bazelisk.is_reachable(bazelisk.BAZEL_RELEASES):
            return BazelChoice(program, f"{program} from PATH")
    return None


def choose_bazel(environ: Mapping[str, str], cache: Path) -> BazelChoice:
    """Chooses a Bazel: $BAZEL, PATH, what was fetched before, and last what can be fetched.

    Args:
        environ: The environment.
        cache: The folder of fetched ones.

    Returns:
        The choice; fetch() brings it if it is missing.

    Raises:
        NoBazelError: There is none.
    """
    if environ.get("BAZEL"):
        return BazelChoice(environ["BAZEL"], f"{environ['BAZEL']} from $BAZEL")
    on_path = find_on_path(environ.get("PATH"))
    if on_path:
        return on_path
    released = BazelChoice(
        str(cache / f"bazelisk-{bazelisk.VERSION}"), f"bazelisk {bazelisk.VERSION}"
    )
    debian = BazelChoice(
        str(cache / "bazel-debian" / "bazel"), "Bazel made of Debian's packages", is_offline=True
    )
    for choice in [debian, released]:
        if Path(choice.program).exists():
            return choice
    if bazelisk.can_fetch():
        return released._replace(is_missing=True)
    if shutil.which("dpkg-deb", path=environ.get("PATH")):
        return debian._replace(is_missing=True)
    raise NoBazelError(
        f"no Bazel {OLDEST_MAJOR} or newer on PATH, its downloads are out of reach, and this is no"
        " Debian; set BAZEL to the path of one"
    )


def fetch(choice: BazelChoice, *, offline_folder: Path) -> None:
    """Brings a chosen Bazel that is missing, once, however many launchers ask for it.

    Args:
        choice: What choose_bazel() said.
        offline_folder: The folder of fetch_bazel.py.

    Raises:
        NoBazelError: Debian's Bazel could not be made.
    """
    program = Path(choice.program)
    if not choice.is_offline:
        bazelisk.fetch_bazelisk(program)
        return
    with locked(program.parent) as guard:
        if program.exists():
            return
        script = str(offline_folder / "fetch_bazel.py")
        command = [sys.executable, "-B", script, str(program.parent)]
        done = subprocess.run(
            command,
            stdin=guard,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise NoBazelError(f"Debian's Bazel could not be made:\n{done.stdout}")
