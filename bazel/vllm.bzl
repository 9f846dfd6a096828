"""Programs that run in vLLM's environment, since vLLM and MAX need different releases of transformers."""

load("@rules_python//python:py_binary.bzl", "py_binary")

# For target_compatible_with. What needs vLLM is left out of //... with --//:vllm=none.
NEEDS_VLLM = select({
    Label("//requirements:vllm_none"): [Label("//requirements:needs_vllm_cpu_or_cuda")],
    "//conditions:default": [],
})

_ONLY_IN_VLLM_ENVIRONMENT = select({
    Label("//requirements:environment_vllm"): [],
    "//conditions:default": [Label("//requirements:needs_environment_vllm")],
})

_to_vllm_environment = transition(
    implementation = lambda settings, attr: {"//:environment": "vllm"},
    inputs = [],
    outputs = ["//:environment"],
)

def _in_vllm_environment_impl(ctx):
    executable = ctx.actions.declare_file(ctx.label.name)
    ctx.actions.symlink(
        output = executable,
        target_file = ctx.executable.program,
        is_executable = True,
    )

    # an attribute with a transition is a list
    runfiles = ctx.attr.program[0][DefaultInfo].default_runfiles
    return [DefaultInfo(executable = executable, runfiles = runfiles)]

_in_vllm_environment = rule(
    implementation = _in_vllm_environment_impl,
    attrs = {
        "program": attr.label(
            cfg = _to_vllm_environment,
            executable = True,
            mandatory = True,
        ),
        "_allowlist_function_transition": attr.label(
            default = "@bazel_tools//tools/allowlists/function_transition_allowlist",
        ),
    },
    doc = "A program with all that it depends on taken from vLLM's environment.",
    executable = True,
)

def vllm_binary(name, srcs, deps = [], testonly = False, visibility = None, **kwargs):
    """A Python program whose packages come from vLLM's environment alone.

    As `data` of another program it starts as a child process, wherever the other's packages come
    from. `//requirements:...` and what uses them are written as ever; packages that vLLM's
    environment lacks, as `//requirements:max`, are left out of it.

    Args:
      name: target name; the executable's runfile is named so too.
      srcs: the program's file.
      deps: libraries.
      testonly: whether only tests may use it.
      visibility: who may use it.
      **kwargs: passed to py_binary.
    """
    py_binary(
        name = name + "_program",
        srcs = srcs,
        main = srcs[0],
        target_compatible_with = _ONLY_IN_VLLM_ENVIRONMENT,
        testonly = testonly,
        visibility = ["//visibility:private"],
        deps = deps,
        **kwargs
    )
    _in_vllm_environment(
        name = name,
        program = name + "_program",
        target_compatible_with = NEEDS_VLLM,
        testonly = testonly,
        visibility = visibility,
    )
