"""Build settings of this repository."""

def _string_flag_impl(ctx):
    value = ctx.build_setting_value
    if value not in ctx.attr.values:
        fail("%s is %r, expected one of %s" % (ctx.label, value, ", ".join(ctx.attr.values)))

string_flag = rule(
    implementation = _string_flag_impl,
    attrs = {
        "values": attr.string_list(
            doc = "The values that the flag takes.",
            mandatory = True,
        ),
    },
    build_setting = config.string(flag = True),
    doc = "A flag on the command line, --//PACKAGE:NAME=VALUE, with a closed list of values.",
)
