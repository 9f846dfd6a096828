"""The real Hub client against a server on this machine."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.test_common.hub_server import running_hub

CODE = """
from test_common.hub_log import log_downloads
from test_common.layer_overrides import load_hf_config
if {log}:
    log_downloads()
try:
    load_hf_config("organisation/missing")
except ValueError as error:
    print(error)
"""


@pytest.mark.parametrize("log", [True, False])
def test_requests_are_logged_only_when_asked_for(tmp_path: Path, log: bool) -> None:
    with running_hub() as endpoint:
        done = subprocess.run(
            [sys.executable, "-c", CODE.format(log=log)],
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join(sys.path),
                "HF_ENDPOINT": endpoint,
                "HF_HOME": str(tmp_path),
                "HF_HUB_OFFLINE": "0",
                "NO_PROXY": "127.0.0.1",
            },
            capture_output=True,
            text=True,
            check=True,
        )
    logged = [line for line in done.stderr.splitlines() if line.startswith("hub: ")]
    assert bool(logged) is log
    if log:
        assert any(endpoint in line and "404" in line for line in logged)
