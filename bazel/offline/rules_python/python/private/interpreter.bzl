"""The repository of the interpreter: the machine's Python without its packages."""

load(":host_python.bzl", "ENVIRON", "run_script")

_BUILD = """\
load("@bazel_tools//tools/python:toolchain.bzl", "py_runtime_pair")

py_runtime(
    name = "py3_runtime",
    interpreter_path = "{python}",
    python_version = "PY3",
    stub_shebang = "#!{python}",
)

py_runtime_pair(
    name = "pair",
    py3_runtime = ":py3_runtime",
)

toolchain(
    name = "toolchain",
    toolchain = ":pair",
    toolchain_type = "@bazel_tools//tools/python:toolchain_type",
)
"""

def _impl(rctx):
    made = run_script(rctx, "make_interpreter.py", [])
    rctx.file("BUILD.bazel", _BUILD.format(python = made["python"]))

interpreter_repo = repository_rule(
    implementation = _impl,
    attrs = {"python_version": attr.string(mandatory = True)},
    environ = ENVIRON,
    local = True,
)
