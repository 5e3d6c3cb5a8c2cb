"""One training whose processes a Ray cluster places: lost ranks and nodes change nothing, and what is refused."""

import errno
import os
import signal
import subprocess
import sys
import time
from types import SimpleNamespace

import msgspec
import pytest

from tests.sweeps.test_processes import wait_until
from tests.sweeps.test_ray import cluster, environment
from tests.training.logs import log, saved
from tests.training.test_processes import TRAIN, content, ended, wait_for_checkpoint
from tests.training.test_processes import started as started_alone
from tidelog.cli.ray_ranks import About, News, Rank, RayRanks, _probe
from tidelog.errors import ConfigError
from tidelog.ray_cluster import installed

__all__ = ["cluster", "environment", "log", "saved"]
pytestmark = pytest.mark.full
LONG = [*TRAIN, "--steps", "2000", "--patience", "80"]
IN_RAY = ["--processes", "2", "--coordinator", "ray", "--connect-seconds", "60"]


def started(words, address, environment):
    paths = os.pathsep.join([os.getcwd(), *sys.path])
    flags = f"--xla_force_host_platform_device_count=1 {os.environ.get('XLA_FLAGS', '')}"
    own = {**environment, "RAY_ADDRESS": address, "PYTHONPATH": paths, "XLA_FLAGS": flags}
    command = [sys.executable, "-m", *words]
    return subprocess.Popen(command, env=own, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.fixture(scope="module")
def alone(saved, tmp_path_factory):
    """The same training by one process over two devices."""
    folder = tmp_path_factory.mktemp("alone") / "run"
    ended([started_alone([*LONG, "--data", str(saved), "--out", str(folder), "--devices", "batch=2"], devices=2)])
    return folder


def rank_process(rank):
    return int(subprocess.run(["pgrep", "-f", "--", f"--rank {rank}$"], capture_output=True, text=True).stdout or 0)


def test_a_lost_rank_and_a_lost_node_change_nothing(cluster, environment, alone, saved, tmp_path):
    address, raylets, add_node = cluster
    run = tmp_path / "run"
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


def test_after_ctrl_c_a_run_goes_on_in_the_cluster(cluster, environment, alone, saved, tmp_path):
    address, run = cluster[0], tmp_path / "run"
    watched = started([*LONG, "--data", str(saved), "--out", str(run), *IN_RAY], address, environment)
    wait_for_checkpoint(run, 10, watched)
    watched.send_signal(signal.SIGINT)
    ended([watched], 130)
    assert len((run / "metrics.jsonl").read_text().splitlines()) < len(
        (alone / "metrics.jsonl").read_text().splitlines()
    )
    ended([started(["tidelog", "resume", str(run), "--quiet", *IN_RAY], address, environment)])
    assert content(run) == content(alone)


def test_more_processors_than_there_are_have_an_error(cluster, environment, saved, tmp_path):
    words = [*TRAIN, "--data", str(saved), "--out", str(tmp_path / "run"), *IN_RAY[:-1], "3", "--process-cpus", "2"]
    (error,) = ended([started(words, cluster[0], environment)], 2)
    assert "2 processes of 2 processor(s) found no place within 3 seconds in a Ray cluster of 2 processor(s)" in error
    assert not (tmp_path / "run").exists()


def test_too_many_processors_for_this_machine_are_refused_at_once(environment, saved, tmp_path):
    words = [*TRAIN, "--data", str(saved), "--out", str(tmp_path / "run"), *IN_RAY, "--process-cpus", "1000"]
    began = time.monotonic()
    (error,) = ended([started(words, "", environment)], 2)
    assert "2 processes of 1000 processor(s) found no place in a Ray cluster" in error
    assert time.monotonic() - began < 50, "there is nothing to wait for"


class Node:
    """The actor of a node that sees these paths alone."""

    def __init__(self, paths):
        self.paths, self.describe = paths, self

    def remote(self, packages, expected):
        missing = [path for path in expected if not any(path.startswith(one) for one in self.paths)]
        return msgspec.json.encode(About("b1", "10.0.0.2", installed(packages), missing))


def refused(node, run, logs=()):
    """What `RayRanks` says of a node."""
    ranks = object.__new__(RayRanks)
    ranks._seconds, ranks._packages = 1.0, ["numpy"]
    ranks._ray = SimpleNamespace(get=lambda answer, timeout: answer, exceptions=SimpleNamespace(RayError=OSError))
    with _probe(run) as probe, pytest.raises(ConfigError) as found:
        ranks._about(node, [probe, *logs])
    return str(found.value)


def test_a_node_that_does_not_see_the_folders_is_refused_by_their_names(tmp_path):
    text = refused(Node(["/data"]), tmp_path / "runs" / "new")
    assert f"node b1 does not see {tmp_path} as this process does. fix: use folders that all nodes share" in text
    text = refused(Node([str(tmp_path)]), tmp_path, ["/data/visits.csv"])
    assert "node b1 does not see /data/visits.csv as" in text
    assert os.listdir(tmp_path) == []


def test_a_folder_that_cannot_be_written_is_an_error_with_a_fix(tmp_path, monkeypatch):
    def refuse(**options):
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr("tempfile.NamedTemporaryFile", refuse)
    with pytest.raises(ConfigError, match=f"{tmp_path} cannot be written: Permission denied.*fix:"), _probe(tmp_path):
        pass


def test_what_a_rank_prints_and_its_code_come_back(tmp_path):
    rank, news = Rank(), []
    rank.start(["no-such-command"], str(tmp_path))
    while not news or news[-1].code is None:
        news.append(msgspec.json.decode(rank.follow(5.0), type=News))
    assert news[-1].code == 2
    assert "no command 'no-such-command'" in "".join(one.error for one in news)
