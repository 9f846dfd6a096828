"""The Python files of a package and of all packages below it, in one target."""

def sources(name = "sources", ignored = []):
    """Declares `sources`, which test_layering reads.

    Every package below must declare it too, so that no file is left out unseen.

    Args:
      name: the target's name, which packages above rely on: leave it.
      ignored: folders below that .bazelignore names, which Bazel still takes for packages here.
    """
    here = native.package_name()
    native.filegroup(
        name = name,
        srcs = native.glob(
            ["**/*.py"],
            allow_empty = True,
        ) + [
            "//%s/%s:sources" % (here, below)
            for below in native.subpackages(
                include = ["**"],
                allow_empty = True,
                exclude = ignored,
            )
        ],
        visibility = ["//:__subpackages__"],
    )
