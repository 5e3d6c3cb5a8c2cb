"""Collectors in a real Ray cluster of this machine: the bits of local ones, also after a lost actor."""

import json
import os
import subprocess
import sys
import tempfile

import pytest

from tests.training.runs import finish
from tests.training.test_collectors import HOST, OPTIONS
from tests.training.test_learn import all_of, begin

pytest.importorskip("ray", reason="Ray is not installed: pip install 'tidelog[ray]'")
pytestmark = pytest.mark.full

SCRIPT = """
import json, os, signal, sys
from tests.training.runs import finish
from tests.training.test_collectors import HOST, OPTIONS
from tests.training.test_learn import all_of, begin
from tidelog.training.online.collectors.ray import Actors

sent, real = [], Actors._send

def send(self, block, slot):
    begins = slot.request is not None
    real(self, block, slot)
    if begins and block == 1:
        sent.append(block)
        if len(sent) == 2:  # of the second round
            import psutil  # Ray has it
            found = [one for one in psutil.Process().children(recursive=True) if "Actor" in "".join(one.cmdline())]
            os.kill(found[0].pid, signal.SIGKILL)
            print("killed", len(found), file=sys.stderr)

Actors._send = send
run = finish(begin(HOST, on="ray", **OPTIONS))
import ray
print(json.dumps([all_of(run), len(sent), ray.is_initialized()]))
"""


def test_actors_give_the_bits_of_processes_also_where_one_is_killed():
    with tempfile.TemporaryDirectory(prefix="ray", ignore_cleanup_errors=True) as folder:  # short, as it holds sockets
        environment = {**os.environ, "RAY_TMPDIR": folder, "RAY_USAGE_STATS_ENABLED": "0"}
        environment |= {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        environment.pop("RAY_ADDRESS", None)
        done = subprocess.run(
            [sys.executable, "-c", SCRIPT], env=environment, capture_output=True, text=True, check=False
        )
    assert done.returncode == 0, done.stderr
    everything, sent, initialized = json.loads(done.stdout.splitlines()[-1])
    expected = all_of(finish(begin(HOST, **OPTIONS)))
    assert everything == json.loads(json.dumps(expected))
    assert "killed 2" in done.stderr
    assert sent in (5, 6)  # five rounds; whose actor was killed is not told
    assert not initialized
