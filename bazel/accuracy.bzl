"""Accuracy of models as test targets, for the BUILD files of any repository."""

load("@rules_python//python:py_binary.bzl", "py_binary")
load("@rules_python//python:py_test.bzl", "py_test")

_MAIN = Label("//bazel:accuracy_main.py")
_DEPS = [
    Label("//diagnosis"),
    Label("//requirements:click"),
    Label("//requirements:weights"),
]
_VLLM_WORKER = select({
    Label("//requirements:vllm_none"): [],
    "//conditions:default": [Label("//test_common:vllm_worker")],
})

# How a pipeline is run: the options of diff_models and debug_model by these names.
_RUN = [
    "encoding",
    "device",
    "num_hidden_layers",
    "num_steps",
    "prompts",
    "hf_config_overrides",
    "seed",
    "trust_remote_code",
]

def _run_argument(name, run):
    for key in run:
        if key not in _RUN:
            fail("%s: run has no key %r, only: %s" % (name, key, ", ".join(_RUN)))
    return json.encode({key: value for key, value in run.items() if value != None})

def _quoted(text):
    """A text as one argument, past Bazel's expansion of $ and its splitting as a shell's."""
    return "'%s'" % text.replace("$", "$$").replace("'", "'\\''")

def _is_label(reference):
    return reference.startswith((":", "/", "@"))

def accuracy_test(
        name,
        pipeline,
        candidate,
        reference = "torch",
        tolerances = None,
        run = {},
        size = "large",
        tags = [],
        data = [],
        deps = [],
        **kwargs):
    """A test that passes if a candidate computes what the reference does.

    It runs both sides on the same token ids as diff_models does, and fails with its verdict: which
    module is wrong, where, and why. Verdicts are left in the test's undeclared outputs
    (`test.outputs`), a folder a pipeline.

    Args:
      name: target name.
      pipeline: oracle key, Hugging Face id, or `FILE.py[:NAME]` of a file in data, its path from the
        workspace's root; or a list of these, which `shard_count` spreads over test processes.
      candidate: the engine in question: "max", "torch", "vllm", or "max@FILE.py:NAME".
      reference: an engine, or the label of a golden_dump. Of a golden_dump no reference is loaded,
        and the candidate runs on the dump's own token ids.
      tolerances: {"rtol": ..., "atol": ...}, with torch.isclose's meaning: where every pair of
        tensors is within these, a verdict that diverges is accepted. None: rounding is the measure.
      run: how the sides are run: encoding, device, num_hidden_layers, num_steps, prompts (a list of
        texts), hf_config_overrides (a dictionary), seed, trust_remote_code.
      size: size of the test.
      tags: tags, such as those of machines with a GPU.
      data: further files: oracle files, checkpoints.
      deps: libraries that oracle files import.
      **kwargs: passed to py_test.
    """
    pipelines = [pipeline] if type(pipeline) == "string" else pipeline
    if not pipelines:
        fail("%s: name at least one pipeline" % name)
    arguments = ["test"] + [_quoted(one) for one in pipelines]
    arguments += ["--candidate", _quoted(candidate), "--run", _quoted(_run_argument(name, run))]
    if _is_label(reference):
        arguments += ["--reference", "./$(rootpath %s)" % reference]
        data = data + [reference]
    else:
        arguments += ["--reference", _quoted(reference)]
    for key, value in (tolerances or {}).items():
        if key not in ["rtol", "atol"]:
            fail("%s: tolerances are rtol and atol, not %r" % (name, key))
        arguments += ["--%s" % key, str(value)]
    py_test(
        name = name,
        size = size,
        srcs = [_MAIN],
        main = _MAIN,
        args = arguments,
        data = data + _VLLM_WORKER,
        tags = tags,
        deps = deps + _DEPS,
        **kwargs
    )

def _captured_dump_impl(ctx):
    folder = ctx.actions.declare_directory(ctx.label.name)
    ctx.actions.run(
        executable = ctx.executable.capture,
        arguments = [
            "dump",
            ctx.attr.pipeline,
            "--framework",
            ctx.attr.framework,
            "--output",
            folder.path,
            "--run",
            ctx.attr.run,
        ],
        inputs = ctx.files.data,
        outputs = [folder],
        mnemonic = "GoldenDump",
        progress_message = "Capturing %s on %s" % (ctx.attr.pipeline, ctx.attr.framework),
        use_default_shell_env = True,
    )
    return [DefaultInfo(files = depset([folder]), runfiles = ctx.runfiles(files = [folder]))]

_captured_dump = rule(
    implementation = _captured_dump_impl,
    attrs = {
        "pipeline": attr.string(mandatory = True),
        "framework": attr.string(mandatory = True),
        "run": attr.string(mandatory = True),
        "data": attr.label_list(allow_files = True),
        "capture": attr.label(
            cfg = "exec",
            executable = True,
            mandatory = True,
        ),
    },
    doc = "A folder as debug_model writes it, made once and then taken from Bazel's cache.",
)

def _stored_dump_impl(ctx):
    manifests = [file for file in ctx.files.srcs if file.basename == "manifest.json"]
    top = sorted(manifests, key = lambda file: len(file.path))
    if not top:
        fail("stored: expected the files of a dump, found none named manifest.json")
    return [DefaultInfo(
        files = depset([top[0]]),  # accuracy_main takes it for its folder
        runfiles = ctx.runfiles(files = ctx.files.srcs),
    )]

_stored_dump = rule(
    implementation = _stored_dump_impl,
    attrs = {"srcs": attr.label_list(
        allow_files = True,
        mandatory = True,
    )},
    doc = "A dump whose files lie in the repository.",
)

def golden_dump(
        name,
        pipeline = None,
        framework = "torch",
        run = {},
        stored = None,
        data = [],
        deps = [],
        tags = [],
        **kwargs):
    """The tensors of a reference: accuracy_test compares later runs against them.

    With `pipeline`, Bazel captures them once, makes them anew when their inputs change, and else
    takes them from its cache, the disk cache or a remote cache: a machine that only tests need not
    hold the reference's weights. With `stored`, they are files of the repository, such as a copy of
    what bazel-bin holds of the other kind.

    Args:
      name: target name, and that of the folder in bazel-bin.
      pipeline: as in accuracy_test; one.
      framework: the engine.
      run: as in accuracy_test.
      stored: files of a dump, for example glob(["golden/**"]); then no other argument but tags
        has a meaning.
      data: oracle files and checkpoints.
      deps: libraries that oracle files import.
      tags: tags.
      **kwargs: what every rule takes: visibility, testonly, ...
    """
    if (pipeline == None) == (stored == None):
        fail("%s: give one of pipeline and stored" % name)
    if stored != None:
        if run or data or deps or framework != "torch":
            fail("%s: a stored dump is not run, so it takes no framework, run, data or deps" % name)
        _stored_dump(name = name, srcs = stored, tags = tags, **kwargs)
        return
    py_binary(
        name = name + "_capture",
        srcs = [_MAIN],
        main = _MAIN,
        data = _VLLM_WORKER,
        tags = ["manual"],
        deps = deps + _DEPS,
        **(kwargs | {"visibility": ["//visibility:private"]})
    )
    _captured_dump(
        name = name,
        pipeline = pipeline,
        framework = framework,
        run = _run_argument(name, run),
        data = data,
        capture = name + "_capture",
        tags = tags,
        **kwargs
    )
