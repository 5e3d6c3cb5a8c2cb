"""Functions in other processes: of this machine, and of Ray with a stand-in (test_ray has the real package)."""

import os
import signal
import subprocess
import sys
import time
from concurrent.futures import wait
from types import SimpleNamespace

import pytest

import tidelog as tl
from tests.sweeps.pools import Stub, Waits
from tests.training.runs import bc, wait_until
from tidelog import ConfigError, parallel
from tidelog._machine import versions as installed
from tidelog.cli import main
from tidelog.parallel import ProcessPool, RayTasks, ending, is_loopback, pool_of
from tidelog.sweeps import job as job_module
from tidelog.sweeps.job import Job, run_job


def deaf(path):
    """Goes on for a minute, whatever signal comes."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    path.touch()
    time.sleep(60)


def waits():
    raise Waits


def gone(process):
    return not os.path.exists(f"/proc/{process}")


# This machine.


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
    monkeypatch.setattr(parallel, "_own_cores", [])
    with pytest.raises(ConfigError, match=r"cpus = 6: a process on node \S+ may use 5 core\(s\)\. fix: use cpus=5"):
        parallel._keep_to_own_cores(6)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"on": "there"}, "on = 'there': expected 'here', this machine, or 'ray'"),
        ({"on": "here", "insecure": True}, "insecure is for clusters"),
        ({"on": "here", "cpus": 10_000}, "cpus = 10000: this process may use"),
        ({"on": "here", "workers": 10_000}, "workers = 10000: "),
        ({"on": "here", "workers": 0}, "workers = 0: expected a whole number of at least 1"),
        ({"on": "here", "cpus": 1.5}, "cpus = 1.5: expected a whole number of at least 1"),
    ],
)
def test_what_no_pool_can_be_is_refused(settings, words):
    with pytest.raises(ConfigError) as error:
        pool_of(**settings)
    assert words in str(error.value)


# Ray.


@pytest.fixture
def ray(monkeypatch):
    """Ray on this machine alone; `ray.use(...)` is another cluster."""
    stub = Stub()

    def use(address=None, **options):
        stub.__init__(**options)
        if address is not None:
            monkeypatch.setenv("RAY_ADDRESS", address)
        return stub

    stub.use = use
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setenv("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
    monkeypatch.setitem(sys.modules, "ray", stub)
    monkeypatch.setattr(parallel, "_keep_to_own_cores", lambda cpus: None)
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    return stub


@pytest.fixture
def attempts(monkeypatch):
    """A job of a sweep prints here, and not to the file of its trial."""
    monkeypatch.setattr(job_module, "_print_to", lambda path: None)


def test_a_sweep_on_ray_is_started_on_this_machine_alone(ray, attempts, origin, tmp_path):
    algorithms = tl.grid(bc(), learning_rate=(1e-2, 1e-3, 1e-4))
    sweep = tl.sweep(algorithms, origin, 2, out=tmp_path / "sweep", on="ray", eval_every=1, workers=2, progress=False)
    assert [row["state"] for row in sweep.table] == ["complete"] * 3
    assert ray.options["address"] == "local"
    assert not ray.options["include_dashboard"]
    assert ray.task_options == {"num_cpus": 1, "max_retries": 3, "max_calls": 100}
    assert len(ray.tasks) == 3
    assert not ray.initialized


def test_a_sweep_whose_own_files_are_refused_leaves_ray(ray, log, tmp_path):
    with pytest.raises(ConfigError, match="this run has no such metric"):
        tl.sweep(bc(), log, 2, out=tmp_path / "sweep", on="ray", best_metric="held_out/los", progress=False)
    assert not ray.initialized


def test_ray_of_the_user_is_left_running(ray):
    ray.initialized = True
    RayTasks().close()
    assert ray.initialized
    assert ray.options is None


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("ray://me:secret@head:10001", "RAY_ADDRESS begins with ray://: expected HOST:PORT"),
        ("http://me:secret@head:8265", "RAY_ADDRESS begins with http://: expected HOST:PORT"),
        ("me:secret@nowhere", "no head of a Ray cluster answers at its address"),
        ("127.0.0.1:65536", "no head of a Ray cluster answers at 127.0.0.1:65536"),
    ],
)
def test_an_address_that_is_no_head_is_refused_and_not_shown(address, words, ray, origin, tmp_path, monkeypatch):
    monkeypatch.setenv("RAY_ADDRESS", address)
    with pytest.raises(ConfigError) as error:
        tl.sweep(bc(), origin, 2, out=tmp_path / "sweep", on="ray", progress=False)
    assert words in str(error.value)
    assert "secret" not in str(error.value)
    assert ("ray job submit" in str(error.value)) == ("//" in address)
    assert not (tmp_path / "sweep").exists()
    assert ray.options is None


def test_a_client_from_outside_is_refused_by_name(saved, tmp_path, capsys):
    out = tmp_path / "sweep"
    words = ["sweep", "bc", "--data", str(saved), "--steps", "2", "--out", str(out), "--preset", "none", "--on"]
    assert main([*words, "ray://me:secret@head:10001"]) == 2
    shown = " ".join(capsys.readouterr().err.split())
    assert "on begins with 'ray:': expected 'ray'" in shown
    assert "ray job submit" in shown
    assert "secret" not in shown
    assert main([*words, "here", "--insecure"]) == 2
    assert "insecure is for clusters" in " ".join(capsys.readouterr().err.split())
    assert not out.exists()


def test_without_ray_its_extra_is_named(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.setenv("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
    with pytest.raises(ConfigError, match=r"this needs the package ray .*fix: pip install .*ray"):
        RayTasks()


def test_ray_that_would_listen_to_the_network_is_not_started(ray, monkeypatch):
    monkeypatch.delenv("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER")
    with pytest.raises(ConfigError, match="Ray was imported before, and would listen to the network"):
        RayTasks()
    assert ray.options is None


@pytest.mark.parametrize("closed", [True, False])
def test_a_cluster_in_the_network_must_require_a_token(closed, ray, monkeypatch):
    ray.use("auto", gcs="10.0.0.1:6379")
    commands = []

    def run(command, env, **options):
        commands.append((command[-1], env))
        return SimpleNamespace(stdout="closed\n" if closed else "open\n")

    monkeypatch.setenv("RAY_AUTH_TOKEN", "secret")
    monkeypatch.setattr(subprocess, "run", run)
    if closed:
        RayTasks().close()
    else:
        with pytest.raises(ConfigError, match=r"cluster at 10\.0\.0\.1:6379 is not shown to require a token"):
            RayTasks()
        assert not ray.initialized
    ((address, environment),) = commands
    assert address == "10.0.0.1:6379"
    assert environment["RAY_AUTH_MODE"] == "disabled"
    assert "RAY_AUTH_TOKEN" not in environment
    RayTasks(insecure=True).close()
    assert len(commands) == 1


@pytest.mark.parametrize(
    ("address", "loopback"),
    [("127.0.0.1:1", True), ("[::1]:1", True), ("localhost:1", True), ("10.0.0.1:1", False), ("head:1", False)],
)
def test_loopback_is_this_machine(address, loopback):
    assert is_loopback(address) == loopback


def test_a_refusal_of_ray_shows_no_token(ray, monkeypatch):
    ray.fail_init = RuntimeError("Version mismatch:\n  cluster Ray 2.59, here 2.60, token secret-1\n")
    monkeypatch.setenv("RAY_AUTH_TOKEN", "secret-1")
    with pytest.raises(ConfigError, match=r"at local: cluster Ray 2.59, here 2.60, token \.\.\. fix"):
        RayTasks()


def test_more_cores_than_a_node_has_are_refused(ray):
    ray.use(processors=(2, 2))
    with pytest.raises(ConfigError, match="cpus = 3: no node of the Ray cluster has as many processors"):
        RayTasks(3)
    with pytest.raises(ConfigError, match="cpus = 3"):
        RayTasks(3, workers=1)  # this machine does not grow
    ray.use("auto", processors=(0,))
    assert RayTasks(3, workers=1).free()  # a cluster that grows by itself may


def test_tasks_are_as_many_as_there_are_processors_and_workers(ray):
    for options, count in (({}, 4), ({"workers": 2}, 2), ({"workers": 9}, 4)):
        ray.use(processors=(3, 5, 1))
        pool = RayTasks(2, **options)
        futures = []
        while pool.free():
            futures.append(pool.submit(waits))
        assert len(futures) == count
        ray.cancel(ray.tasks[-1], force=True)
        assert ending(futures[-1].exception()) == "ended by a signal"
        assert pool.free()


def test_tasks_are_asked_to_save_before_they_are_ended_by_force(ray, monkeypatch):
    monkeypatch.setattr(parallel, "SAVE_SECONDS", 0.0)
    pool = RayTasks()
    future, done = pool.submit(waits), pool.submit(os.getpid)
    pool.close()
    pool.close()
    (task, _) = ray.tasks
    assert [one for one in ray.cancelled if one[0] is task] == [(task, False), (task, True)]
    assert future.done()
    assert done.result() == os.getpid()


def test_a_folder_that_a_node_does_not_see_ends_the_sweep_and_it_can_go_on(
    ray, attempts, origin, tmp_path, capsys, monkeypatch
):
    written = tl.sweep(bc(), origin, 2, out=tmp_path / "sweep", eval_every=1, train=False, progress=False)
    with monkeypatch.context() as patch:
        patch.setattr(job_module, "checksum", lambda path: "0")
        assert main(["resume", str(written.folder), "--on", "ray"]) == 2
    shown = " ".join(capsys.readouterr().err.split())
    assert f"does not see {written.folder} as the sweep's process does" in shown.replace("- ", "-")
    assert not ray.initialized
    assert main(["resume", str(written.folder), "--on", "ray", "--json"]) == 0
    assert '"state": "complete"' in capsys.readouterr().out


def test_a_job_of_another_folder_or_with_other_versions_is_refused(origin, attempts, tmp_path, monkeypatch):
    folder = tl.sweep(bc(), origin, 2, out=tmp_path / "sweep", eval_every=1, train=False, progress=False).folder
    job, jobs, versions = Job(str(folder), 0, 1), [], dict(installed())
    monkeypatch.setattr("tidelog.sweeps.sweep.train_trial", jobs.append)
    sha256 = job_module.checksum(folder / "sweep.json")
    for wrong, words in (
        ((job, "0", versions), "does not see"),
        ((job._replace(folder=str(tmp_path)), sha256, versions), "does not see"),
        ((job, sha256, {**versions, "jax": "0.1"}), rf"has jax {versions['jax']}, expected 0\.1\. fix: install"),
    ):
        with pytest.raises(ConfigError, match=words):
            run_job(*wrong)
    assert jobs == []
    run_job(job, sha256, versions)
    assert jobs == [job]
