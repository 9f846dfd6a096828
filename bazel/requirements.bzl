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

# The environments that hold a package unless its declaration says otherwise.
_ENVIRONMENTS = ["engines", "vllm"]

def engine_requirement(name, environments = _ENVIRONMENTS, visibility = ["//visibility:public"]):
    """Declares a package's label: the package as the chosen environment has it.

    Args:
      name: the package's name in the lock files.
      environments: those that hold it, of "engines" and "vllm"; in the other it is nothing.
      visibility: who may depend on it.
    """
    package = name.lower().replace("-", "_").replace(".", "_")
    native.alias(
        name = name,
        actual = select({
            ":%s_%s" % (environment, build): (
                "@model_accuracy_tools_%s//%s" % (hub, package) if environment in environments else ":nothing"
            )
            for environment, build, hub in [
                ("engines", "cpu", "cpu"),
                ("engines", "cuda", "cuda"),
                ("vllm", "cpu", "vllm_cpu"),
                ("vllm", "cuda", "vllm_cuda"),
            ]
        }),
        visibility = visibility,
    )
