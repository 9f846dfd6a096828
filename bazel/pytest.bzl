"""A py_test that really runs pytest."""

load("@rules_python//python:py_test.bzl", "py_test")
load(":requirements.bzl", "requirements")
load(":vllm.bzl", "NEEDS_VLLM")

_MAIN = Label("//bazel:pytest_main.py")
_CONFIG = Label("//:pyproject.toml")
_VLLM_WORKER = Label("//test_common:vllm_worker")

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

def vllm_pytest_test(name, srcs, data = [], **kwargs):
    """A pytest_test that runs models on vLLM; with --//:vllm=none it is left out of //...

    The test itself has the packages of all other tests, and the worker at its side:
    test_common.vllm_environment.vllm_command() starts it.

    Args:
      name: target name.
      srcs: the test files.
      data: files that the tests read, and programs of vllm_binary() that they start.
      **kwargs: passed to pytest_test.
    """
    pytest_test(
        name = name,
        srcs = srcs,
        data = data + [_VLLM_WORKER],
        target_compatible_with = NEEDS_VLLM,
        **kwargs
    )
