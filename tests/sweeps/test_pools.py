"""Functions in other processes of this machine."""

import os
import signal
import subprocess
import sys
import time
from concurrent.futures import wait

import pytest

from tidelog import ConfigError, parallel
from tidelog.parallel import ProcessPool, ending, pool_of


def deaf(path):
    """Goes on for a minute, whatever signal comes."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    path.touch()
    time.sleep(60)


def wait_until(condition, seconds=60):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def gone(process):
    return not os.path.exists(f"/proc/{process}")


@pytest.fixture
def pool():
    one = ProcessPool(workers=1)
    yield one
    one.close()


@pytest.mark.full
def test_a_process_runs_function_after_function_until_it_is_lost(pool, monkeypatch):
    monkeypatch.setattr(parallel, "MOST_CALLS", 3)
    first = pool.submit(os.getpid).result()
    assert first == pool.submit(os.getpid).result() != os.getpid()
    assert isinstance(pool.submit(int, "x").exception(), ValueError)
    second = pool.submit(os.getpid).result()
    assert second != first, "a process ends after so many functions"
    lost = pool.submit(os._exit, 3)
    assert ending(lost.exception()) == "its process was killed"
    third = pool.submit(os.getpid).result()
    assert third != second
    pool.close()
    wait_until(lambda: all(map(gone, (first, second, third))))


@pytest.mark.full
@pytest.mark.skipif(not hasattr(os, "sched_getaffinity") or len(os.sched_getaffinity(0)) < 2, reason="one core")
def test_processes_have_cores_of_their_own_and_one_that_is_lost_costs_only_itself():
    pool = ProcessPool(workers=2)
    slow = pool.submit(time.sleep, 3.0)
    lost = pool.submit(os._exit, 3)
    wait([lost])
    cores = pool.submit(os.sched_getaffinity, 0)
    assert not pool.free()
    assert len(cores.result()) == 1
    assert slow.exception() is None
    both = [pool.submit(os.sched_getaffinity, 0) for _ in range(1)] + [pool.submit(time.sleep, 1.0)]
    wait(both)
    pool.close()
    assert cores.result() < os.sched_getaffinity(0)


@pytest.mark.full
def test_a_function_that_does_not_end_when_asked_is_killed(pool, tmp_path, monkeypatch):
    monkeypatch.setattr(parallel, "SAVE_SECONDS", 0.1)
    process = pool.submit(os.getpid).result()
    future = pool.submit(deaf, tmp_path / "began")
    wait_until((tmp_path / "began").exists)
    pool.close()
    assert ending(future.exception()) == "its process was killed"
    wait_until(lambda: gone(process))
    again = pool.submit(deaf, tmp_path / "again")
    wait_until((tmp_path / "again").exists)
    pool.cancel(again)
    assert again.done()
    assert pool.free()


SCRIPT = """
import os
from tidelog.parallel import ProcessPool
pool = ProcessPool(workers=1)
print(pool.submit(os.getpid).result() != os.getpid())
pool.close()
"""


@pytest.mark.full
def test_a_script_without_a_guard_of_its_main_module_begins_a_pool(tmp_path):
    (tmp_path / "script.py").write_text(SCRIPT)
    done = subprocess.run([sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("True\n", "")


def test_a_process_takes_cores_that_no_other_one_has(monkeypatch):
    taken, kept = [], []
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {4, 5, 6, 7, 8}, raising=False)
    monkeypatch.setattr(os, "sched_setaffinity", lambda process, cores: kept.append(cores), raising=False)

    class Name:
        def __init__(self, family): ...

        def bind(self, name):
            if name in taken:
                raise OSError("in use")
            taken.append(name)

    monkeypatch.setattr(parallel.socket, "socket", Name)
    for _ in range(3):
        monkeypatch.setattr(parallel, "_own_cores", [])
        parallel._keep_to_own_cores(2)
        parallel._keep_to_own_cores(2)
    assert kept[:2] == [[4, 5], [6, 7]]
    assert len(kept) == 3, "more processes than cores share some"


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"cpus": 10_000}, "cpus = 10000: this process may use"),
        ({"workers": 10_000}, "workers = 10000: "),
        ({"workers": 0}, "workers = 0: expected a whole number of at least 1"),
        ({"cpus": 1.5}, "cpus = 1.5: expected a whole number of at least 1"),
    ],
)
def test_what_no_pool_can_be_is_refused(settings, words):
    with pytest.raises(ConfigError) as error:
        pool_of(None, **settings)
    assert words in str(error.value)
