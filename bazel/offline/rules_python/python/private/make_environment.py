"""Installs a lock file once; prints where its packages are, as JSON.

Each package gets a folder of links to its own files alone, so that a target which does not name a
package among its dependencies cannot import it, as under the real rule set. Packages that put files
into the same folder stay together, as a group: their shared libraries find one another by place.
"""

import json
import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path, PurePath
from typing import IO, Any

from made_once import key_of, made_once
from pip._vendor.packaging.requirements import Requirement


def normalise(name: str) -> str:
    """Spells a package's name as labels do."""
    return re.sub(r"[-_.]+", "_", name).lower()


def install(lock: Path, folder: Path, guard: IO[str]) -> Path:
    """Installs a lock file with pip as this machine configures it.

    Args:
        lock: The lock file. pip checks hashes where the file has any.
        folder: Where the virtual environment goes.
        guard: Standard input of the child processes.

    Returns:
        The folder of the installed packages.
    """

    def run(*command: str, check: bool = True) -> None:
        subprocess.run(command, check=check, stdin=guard, stdout=sys.stderr)

    run(sys.executable, "-m", "venv", str(folder))
    python = str(folder / "bin" / "python")
    options = ["--quiet", "--no-deps", "--no-compile"]
    if "--hash=" in lock.read_text():
        options.append("--require-hashes")
    run(python, "-m", "pip", "install", *options, "-r", str(lock))
    # In parallel; packages ship files that are no valid Python, so the exit code says nothing.
    run(python, "-m", "compileall", "-qq", "-j", "0", str(folder / "lib"), check=False)
    return next(folder.glob("lib/python*/site-packages"))


def files_of(dist: metadata.Distribution) -> set[PurePath]:
    """Lists a package's files below the packages' folder."""
    files = {PurePath(file) for file in dist.files or []}
    return {file for file in files if ".." not in file.parts and "__pycache__" not in file.parts}


def with_parents(files: set[PurePath]) -> set[PurePath]:
    """Adds all folders in which files lie."""
    return {above for file in files for above in [file, *file.parents] if above != PurePath(".")}


def group(folders: dict[str, set[PurePath]]) -> dict[str, list[str]]:
    """Groups packages that share a folder, directly or by way of others.

    Args:
        folders: The folders and files of each package.

    Returns:
        The members of each group, by the name of its first.
    """
    groups: list[tuple[set[PurePath], list[str]]] = []
    for name in sorted(folders):
        paths, members = set(folders[name]), [name]
        for other in [g for g in groups if g[0] & paths]:
            groups.remove(other)
            paths |= other[0]
            members = other[1] + members
        groups.append((paths, sorted(members)))
    return {members[0]: members for _, members in groups}


def link(site: Path, out: Path, files: set[PurePath]) -> None:
    """Links what lies at the top of `site` of some files into `out`."""
    out.mkdir(parents=True)
    for top in {file.parts[0] for file in files}:
        (out / top).symlink_to(site / top)


def extras_of(lock: Path) -> dict[str, set[str]]:
    """Reads which extras the lock file asks of which package."""
    found = re.findall(r"^([\w.-]+)\[([\w., -]+)\]", lock.read_text(), re.MULTILINE)
    return {normalise(name): set(re.split(r"\s*,\s*", extras)) for name, extras in found}


def needs(dist: metadata.Distribution, extras: set[str]) -> set[str]:
    """Names the packages that a package requires here, with some of its extras."""
    found = set()
    for line in dist.requires or []:
        want = Requirement(line)
        if not want.marker or any(want.marker.evaluate({"extra": e}) for e in ["", *extras]):
            found.add(normalise(want.name))
    return found


def closure(name: str, direct: dict[str, set[str]]) -> set[str]:
    """Names a package and all that it needs, directly or not; packages may need one another."""
    todo, found = [name], set()
    while todo:
        package = todo.pop()
        if package in direct and package not in found:
            found.add(package)
            todo += direct[package]
    return found


def split(site: Path, out: Path, extras: dict[str, set[str]]) -> dict[str, Any]:
    """Gives each group of installed packages a folder of its own.

    Args:
        site: The folder of the installed packages.
        out: Gets one folder a group.
        extras: The extras asked of each package.

    Returns:
        The folder of each group, and the groups that each package takes.
    """
    dists = {normalise(d.metadata["Name"]): d for d in metadata.distributions(path=[str(site)])}
    files = {name: files_of(dist) for name, dist in dists.items()}
    direct = {name: needs(dist, extras.get(name, set())) for name, dist in dists.items()}
    groups = group({name: with_parents(own) for name, own in files.items()})
    for first, members in groups.items():
        link(site, out / first, set().union(*(files[name] for name in members)))
    group_of = {name: first for first, members in groups.items() for name in members}
    packages = {n: sorted({group_of[c] for c in closure(n, direct)}) for n in dists}
    return {"groups": {first: str(out / first) for first in groups}, "packages": packages}


def main(hub: str, lock: Path) -> None:
    """Makes the environment of a hub and prints its description."""
    key = key_of(lock.read_bytes(), Path(__file__).read_bytes())

    def make(folder: Path, guard: IO[str]) -> dict[str, Any]:
        site = install(lock, folder / "installed", guard)
        return {"key": key, **split(site, folder / "packages", extras_of(lock))}

    print(json.dumps(made_once(f"environment-{hub}-{key}", make)))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
