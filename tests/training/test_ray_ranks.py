"""One training whose processes a Ray cluster places: lost ranks and nodes change nothing, and what is refused."""

import os
import signal
import subprocess
import sys

import pytest

from tests.sweeps.test_processes import wait_until
from tests.sweeps.test_ray import cluster, environment
from tests.training.logs import log, saved
from tests.training.test_processes import TRAIN, content, ended, wait_for_checkpoint
from tests.training.test_processes import started as started_alone

__all__ = ["cluster", "environment", "log", "saved"]
pytestmark = pytest.mark.full
LONG = [*TRAIN, "--steps", "4000", "--patience", "80"]
IN_RAY = ["--processes", "2", "--coordinator", "ray", "--connect-seconds", "60"]


def started(words, address, environment):
    paths = os.pathsep.join([os.getcwd(), *sys.path])
    flags = f"--xla_force_host_platform_device_count=1 {os.environ.get('XLA_FLAGS', '')}"
    own = {**environment, "RAY_ADDRESS": address, "PYTHONPATH": paths, "XLA_FLAGS": flags}
    command = [sys.executable, "-m", *words]
    return subprocess.Popen(command, env=own, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def rank_process(rank):
    return int(subprocess.run(["pgrep", "-f", "--", f"--rank {rank}$"], capture_output=True, text=True).stdout or 0)


def test_a_lost_rank_and_a_lost_node_change_nothing(cluster, environment, saved, tmp_path):
    address, raylets, add_node = cluster
    run, alone = tmp_path / "run", tmp_path / "alone"
    ended([started_alone([*LONG, "--data", str(saved), "--out", str(alone), "--devices", "batch=2"], devices=2)])
    watched = started([*LONG, "--data", str(saved), "--out", str(run), *IN_RAY], address, environment)
    wait_for_checkpoint(run, 10, watched)
    killed = rank_process(1)
    os.kill(killed, signal.SIGKILL)
    wait_until(lambda: rank_process(1) not in (0, killed))
    newest = max(int(path.name) for path in (run / "checkpoints").glob("[0-9]*"))
    wait_for_checkpoint(run, newest + 1, watched)
    os.kill(raylets[0], signal.SIGKILL)
    add_node()
    (error,) = ended([watched])
    assert error.count("all 2 start again from update") == 2, error
    assert "rank 1 by signal 9" in error
    assert "lost with its node" in error
    assert content(run) == content(alone)


def test_more_processors_than_there_are_have_an_error(cluster, environment, saved, tmp_path):
    words = [*TRAIN, "--data", str(saved), "--out", str(tmp_path / "run"), *IN_RAY[:-1], "3", "--process-cpus", "2"]
    (error,) = ended([started(words, cluster[0], environment)], 2)
    assert "2 processes of 2 processor(s) found no place within 3 seconds in a Ray cluster of 2 processor(s)" in error
    assert not (tmp_path / "run").exists()
