"""The pip extension: a hub for each pip.parse, whose packages are installed when one is first used."""

load("//python/private:hub.bzl", "hub_repo")

def _impl(ctx):
    owners = {}
    for module in ctx.modules:
        for tag in module.tags.parse:
            if tag.hub_name in owners:
                fail("two pip.parse name the hub %s: of the modules %s and %s" %
                     (tag.hub_name, owners[tag.hub_name], module.name))
            owners[tag.hub_name] = module.name
            hub_repo(
                name = tag.hub_name,
                hub_name = tag.hub_name,
                python_version = tag.python_version,
                requirements_lock = tag.requirements_lock,
            )

_parse = tag_class(attrs = {
    "extra_pip_args": attr.string_list(
        doc = "Left unread: pip's own configuration names what this machine reaches.",
    ),
    "hub_name": attr.string(mandatory = True),
    "python_version": attr.string(mandatory = True),
    "requirements_lock": attr.label(mandatory = True),
})

pip = module_extension(
    implementation = _impl,
    tag_classes = {"parse": _parse},
)
