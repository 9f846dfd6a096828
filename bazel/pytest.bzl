"""A py_test that really runs pytest."""

load("@rules_python//python:py_test.bzl", "py_test")
load(":requirements.bzl", "requirements")

_MAIN = Label("//bazel:pytest_main.py")
_CONFIG = Label("//:pyproject.toml")

def pytest_test(name, srcs, deps = [], size = None, tags = [], args = [], data = [], **kwargs):
    """Runs test files under pytest; fails when they hold no test.

    Args:
      name: target name; by convention that of the file without its suffix.
      srcs: the test files, normally one.
      deps: libraries. pytest and pytest-timeout are added.
      size: size of the test, as of any test rule.
      tags: tags; "full" marks a test that only --config=full runs.
      args: further arguments of pytest.
      data: files that the tests read.
      **kwargs: passed to py_test.
    """

    # pytest's settings in pyproject.toml are those of this repository's own tests
    ours = [_CONFIG] if native.repo_name() == _CONFIG.workspace_name else []
    py_test(
        name = name,
        size = size,
        srcs = srcs + [_MAIN],
        args = ["$(rootpath %s)" % src for src in srcs] + args,
        data = data + ours,
        main = _MAIN,
        tags = tags,
        deps = deps + [
            dep
            for dep in requirements(["pytest", "pytest-timeout"])
            if dep not in deps and dep.removeprefix("@@") not in deps
        ],
        **kwargs
    )
