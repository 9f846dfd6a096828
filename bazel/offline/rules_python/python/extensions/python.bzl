"""The python extension: finds an interpreter on this machine."""

load("//python/private:interpreter.bzl", "interpreter_repo")

def _wanted(module):
    """The version that a module asks for, or None."""
    for tag in module.tags.defaults:
        if tag.python_version:
            return tag.python_version
    toolchains = module.tags.toolchain
    for tag in toolchains:
        if tag.is_default:
            return tag.python_version
    return toolchains[0].python_version if toolchains else None

def _impl(ctx):
    # the root module comes first
    versions = [version for version in [_wanted(module) for module in ctx.modules] if version]
    if not versions:
        fail("no module asks for a Python version: use python.toolchain(python_version = ...)")
    interpreter_repo(
        name = "rules_python_interpreter",
        python_version = versions[0],
    )

python = module_extension(
    implementation = _impl,
    tag_classes = {
        "defaults": tag_class(attrs = {"python_version": attr.string()}),
        "toolchain": tag_class(attrs = {
            "is_default": attr.bool(),
            "python_version": attr.string(mandatory = True),
        }),
    },
)
