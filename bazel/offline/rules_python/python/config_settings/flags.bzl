"""Flags of the Python rule set that Bazel 7's built-in rules have no use for."""

def _impl(_ctx):
    pass

ignored_flag = rule(
    implementation = _impl,
    build_setting = config.string(flag = True),
)
