"""Python packages by name, from the environment that the command line picks."""

def requirement(name):
    """The label of a package, for BUILD files of other repositories and for macros.

    BUILD files of this repository write the label itself: "//requirements:numpy".

    Args:
      name: the package's name in requirements/base.in, for example "numpy".

    Returns:
      A string, so that it fits a plain list.
    """
    return str(Label("//requirements:" + name))

def requirements(names):
    """The labels of several packages; see requirement().

    Args:
      names: names in requirements/base.in.

    Returns:
      A list of strings.
    """
    return [requirement(name) for name in names]

def engine_requirement(name, visibility = ["//visibility:public"]):
    """Declares a package's label: the package as the chosen environment has it.

    Args:
      name: the package's name in the lock files.
      visibility: who may depend on it.
    """
    package = name.lower().replace("-", "_").replace(".", "_")
    native.alias(
        name = name,
        actual = select({
            ":torch_cpu": "@model_accuracy_tools_cpu//%s" % package,
            ":torch_cuda": "@model_accuracy_tools_cuda//%s" % package,
        }),
        visibility = visibility,
    )
