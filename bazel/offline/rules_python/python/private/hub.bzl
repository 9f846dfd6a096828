"""The repository of a hub: one library for each package of a lock file."""

load(":host_python.bzl", "ENVIRON", "run_script")

# `site` is one source directory; `key` changes with the environment, so that tests run again.
# Groups lie below a folder whose name Python cannot import: rules put each repository's folder on the
# path of imports, and a folder "numpy" there would be a package for programs without numpy.
_GROUPS = "groups-of-packages"

_GROUP = """\
py_library(
    name = "group",
    data = [
        "key",
        "site",
    ],
    imports = ["site"],
    visibility = ["//:__subpackages__"],
)
"""

_PACKAGE = """\
package(default_visibility = ["//visibility:public"])

py_library(
    name = "{name}",
    deps = {deps},
)

alias(
    name = "pkg",
    actual = ":{name}",
)
"""

_REQUIREMENTS = """\
_PACKAGES = {names}

def requirement(name):
    package = name.lower().replace("-", "_").replace(".", "_")
    if package not in _PACKAGES:
        fail("%s is not in the lock file" % name)
    return str(Label("//" + package + ":pkg"))

all_requirements = [str(Label("//" + p + ":pkg")) for p in _PACKAGES]
"""

def _impl(rctx):
    lock = rctx.path(rctx.attr.requirements_lock)
    rctx.watch(lock)
    rctx.report_progress("installing %s" % rctx.attr.requirements_lock)
    made = run_script(rctx, "make_environment.py", [rctx.attr.hub_name, lock])
    for name, groups in made["packages"].items():
        rctx.file(name + "/BUILD.bazel", _PACKAGE.format(
            name = name,
            deps = repr(["//%s/%s:group" % (_GROUPS, first) for first in groups]),
        ))
    for first, site in made["groups"].items():
        folder = "%s/%s" % (_GROUPS, first)
        rctx.file(folder + "/BUILD.bazel", _GROUP)
        rctx.file(folder + "/key", made["key"])
        rctx.symlink(site, folder + "/site")
    rctx.file("BUILD.bazel", "exports_files([\"requirements.bzl\"])\n")
    rctx.file("requirements.bzl", _REQUIREMENTS.format(names = repr(sorted(made["packages"]))))

hub_repo = repository_rule(
    implementation = _impl,
    attrs = {
        "hub_name": attr.string(mandatory = True),
        "python_version": attr.string(mandatory = True),
        "requirements_lock": attr.label(mandatory = True),
    },
    environ = ENVIRON,
    local = True,
)
