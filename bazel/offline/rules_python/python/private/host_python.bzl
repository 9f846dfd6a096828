"""Runs this folder's scripts with the machine's own Python."""

# What changes where the scripts put things, or what pip finds.
ENVIRON = [
    "HOME",
    "PATH",
    "PIP_CONFIG_FILE",
    "PIP_EXTRA_INDEX_URL",
    "PIP_FIND_LINKS",
    "PIP_INDEX_URL",
    "XDG_CACHE_HOME",
]

_VERSION_AND_PATH = "import sys; print('%d.%d' % sys.version_info[:2]); print(sys.executable)"

def _find_python(rctx, version):
    for name in ["python" + version, "python3", "python"]:
        path = rctx.which(name)
        if path:
            run = rctx.execute([path, "-c", _VERSION_AND_PATH])
            lines = run.stdout.strip().split("\n")
            if run.return_code == 0 and lines[0] == version:
                return lines[1]
    fail("no Python %s on PATH" % version)

def run_script(rctx, script, arguments):
    """Runs a script of this folder.

    Args:
      rctx: the repository rule's context.
      script: file name.
      arguments: its arguments.

    Returns:
      What the script printed last, read as JSON.
    """
    rctx.watch(Label("//python/private:made_once.py"))
    run = rctx.execute(
        [
            _find_python(rctx, rctx.attr.python_version),
            "-B",
            rctx.path(Label("//python/private:" + script)),
        ] + arguments,
        timeout = 3600,
    )
    if run.return_code != 0:
        fail("%s failed:\n%s%s" % (script, run.stdout, run.stderr))
    return json.decode(run.stdout.strip().split("\n")[-1])
