"""Says of each command of a page what a machine needs to run it, or why no test here does.

A new command needs nothing until it is told otherwise here; so the tests run it, and fail.
"""

import enum
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from tests.docs.page_commands import Command


class Needs(enum.Enum):
    """What a command needs beside the packages of Torch."""

    NOTHING = "nothing"
    MAX = "a graph of MAX, which takes minutes to build"
    VLLM = "the environment of vLLM"
    WEIGHTS = "the packages with real weights"


_WEIGHTS = ("packaged/", "weights=packaged")
_NO_SENTENCE_MODEL = "--embedding-model none"
_MAX = ("--framework max", "--candidate max ", "explain_fma")
# Of the guide, whose commands use what such a command left.
_AFTER_MAX = ("max_tensors", "my_llama3", "$architecture")

# Commands that no test here runs, by their pages, and who does or why nobody does.
_EXTERNAL = "tests/external_workspace/check.py, of .ci/run, does the same in such a workspace"
NOT_RUN: Final[Mapping[tuple[str, str], str]] = MappingProxyType(
    {
        ("README.md", "./bazelw test //..."): ".ci/run runs it, and this test is part of it",
        (
            "README.md",
            "pip install --require-hashes --no-deps -r requirements/cpu.txt # or cuda.txt",
        ): "installs 2.4 GB",
        ("bazel.md", "bazel test //models:llama_max"): "a target of that name is in tests/models",
        ("bazel.md", "bazel build //models:golden"): _EXTERNAL,
        (
            "bazel.md",
            "cp -rL bazel-bin/models/golden models/stored && chmod -R u+w models/stored",
        ): _EXTERNAL,
        ("bazel.md", "../model_accuracy_tools/bazelw test //..."): _EXTERNAL,
        (
            "testing.md",
            "python -m tests.fuzz.run_hypothesis 200000 safetensors max",
        ): "a long run; tests/fuzz/test_readers.py does the same with fewer inputs",
        (
            "testing.md",
            "python -m tests.fuzz.run_atheris safetensors"
            " -runs=200000 -timeout=30 -rss_limit_mb=1500",
        ): "a long run, with a package that is not among the locked ones",
        (
            "testing.md",
            "python -m tests.branch_coverage --fresh",
        ): "runs all these tests once more, with a package that is not among the locked ones",
    }
)


def needs_of(command: Command) -> Needs:
    """Return what a command needs."""
    text = f"{command.text} "
    launched = command.launched()
    module, arguments = launched[:2] if launched else ("", ())
    detector = module == "utils.modular_model_detector"
    if any(mark in text for mark in _WEIGHTS) or (detector and _NO_SENTENCE_MODEL not in text):
        return Needs.WEIGHTS
    if "--framework vllm" in text:
        return Needs.VLLM
    default = module == "tools.debug_model" and "--framework" not in arguments
    return Needs.MAX if default or any(mark in text for mark in _MAX) else Needs.NOTHING


def follows_max(command: Command) -> bool:
    """Whether a command of the guide needs MAX, or uses what such a command left."""
    return needs_of(command) is Needs.MAX or any(mark in command.text for mark in _AFTER_MAX)
