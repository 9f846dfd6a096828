"""Runs Bazel: says in one line which, fetches it if need be, and hands over to it."""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Mapping
from pathlib import Path

from bazel.launcher.bazel_choice import BazelChoice, NoBazelError, choose_bazel, fetch
from bazel.launcher.bazelisk import ChecksumError
from bazel.launcher.cache import cache_folder, write_whole
from bazel.launcher.torch_flavour import choose_torch, is_chosen_by_hand

ROOT = Path(__file__).absolute().parents[2]
MODULE = "model_accuracy_tools"


def uses_this_module(folder: Path) -> bool:
    """Tells whether the workspace around `folder` is this one or depends on it."""
    for above in [folder, *folder.parents]:
        module = above / "MODULE.bazel"
        if module.is_file():
            return MODULE in module.read_text()
    return False


def offline_options(root: Path) -> list[str]:
    """Lists the options of --config=offline, for any workspace, as lines of a bazelrc."""
    lines = (root / "bazel/offline/offline.bazelrc").read_text().splitlines()
    pairs = [line.split(" ", 1) for line in lines if line and not line.startswith("#")]
    return [
        f'{command.removesuffix(":offline")} "{option.replace("%workspace%", str(root))}"'
        for command, option in pairs
    ]


def write_bazelrc(lines: list[str], cache: Path) -> Path:
    """Writes options into a file named by its content; returns it."""
    content = "".join(f"{line}\n" for line in lines).encode()
    path = cache / f"{hashlib.sha256(content).hexdigest()[:16]}.bazelrc"
    if not path.exists():
        write_whole(path, content)
    return path


def torch_option(arguments: list[str], cache: Path, environ: Mapping[str, str]) -> tuple[str, str]:
    """Chooses the build of torch.

    Returns:
        The option that goes into the bazelrc, empty for none, and what to tell of it.
    """
    home = Path(environ.get("HOME") or Path.home())
    here = Path.cwd()
    if not uses_this_module(here):
        return "", f"no build of torch: {here} is in no workspace with {MODULE}, {ROOT} is"
    if is_chosen_by_hand(arguments, [ROOT / "user.bazelrc", home / ".bazelrc"]):
        return "", "torch as told"
    flavour = choose_torch(ROOT / "requirements/cpu.txt", cache=cache, environ=environ)
    reason = "pip offers" if flavour == "cpu" else "pip does not offer"
    said = f"torch={flavour} ({reason} the CPU build)"
    return f"build --@{MODULE}//:torch={flavour}", said


def prepare(arguments: list[str], environ: dict[str, str]) -> tuple[BazelChoice, Path]:
    """Chooses, says what was chosen, and fetches.

    Args:
        arguments: Bazel's arguments.
        environ: The environment; gets MODULAR_CACHE_DIR, so that tests and commands share compiled
            graphs.

    Returns:
        The Bazel and the bazelrc to run it with.
    """
    cache = cache_folder(environ)
    choice = choose_bazel(environ, cache)
    option, said = torch_option(arguments, cache, environ)
    fetching = ", fetching it now" if choice.is_missing else ""
    print(f"bazelw: {choice.description}{fetching}; {said}", file=sys.stderr, flush=True)
    if choice.is_missing:
        fetch(choice, offline_folder=ROOT / "bazel/offline")
    graphs = Path(environ.setdefault("MODULAR_CACHE_DIR", str(cache / "modular")))
    graphs.mkdir(parents=True, exist_ok=True)
    lines = [f'build "--sandbox_writable_path={graphs}"', "build --test_env=MODULAR_CACHE_DIR"]
    lines += [option] if option else []
    lines += offline_options(ROOT) if choice.is_offline else []
    return choice, write_bazelrc(lines, cache)


def main(arguments: list[str]) -> None:
    """Becomes Bazel.

    Args:
        arguments: Bazel's arguments.
    """
    environ = dict(os.environ)
    try:
        choice, bazelrc = prepare(arguments, environ)
        os.execve(choice.program, [choice.program, f"--bazelrc={bazelrc}", *arguments], environ)
    except (NoBazelError, ChecksumError, OSError) as error:
        sys.exit(f"bazelw: {error}")
