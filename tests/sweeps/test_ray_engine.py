"""The engine of Ray without Ray: what it refuses, and how it keeps its actors, with a stand-in for the package."""

import os
import socket
import subprocess
import sys
from types import SimpleNamespace

import msgspec
import pytest

import tidelog as tl
from tests.sweeps.ray_stub import Lost, OutOfMemoryError, RayError, RayTaskError, Stub
from tests.training.runs import bc
from tidelog import CheckpointError, ConfigError
from tidelog.cli import main
from tidelog.ray_cluster import installed, is_loopback
from tidelog.sweeps.attempt import run_attempt
from tidelog.sweeps.engines import Job
from tidelog.sweeps.engines import ray as engine_module
from tidelog.sweeps.engines.ray import MOST_STARTS, NO_SHARED_FOLDER, About, Ray, Worker
from tidelog.training.runs.record import PACKAGES


class Fake(Worker):
    """An actor of the stand-in: `does` says what its jobs end with, `about` what it says of itself."""

    does, about = staticmethod(lambda job: "ended with code 0"), {}

    def describe(self, packages):
        if isinstance(self.about, Exception):
            raise Lost(self.about)
        own = {"node": "0a", "host": "a", "process": 7, "cores": [0, 1, 2, 3], "versions": installed(packages)}
        return msgspec.json.encode(About(**{**own, **self.about})).decode()

    def run(self, text, plan, sha256):
        return type(self).does(msgspec.json.decode(text, type=Job))


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
    monkeypatch.setattr(engine_module, "Worker", Fake)
    monkeypatch.setattr(Fake, "does", Fake.does)
    monkeypatch.setattr(Fake, "about", {})
    monkeypatch.setattr(engine_module, "POOL_SECONDS", 0.0)
    return stub


@pytest.fixture
def job(tmp_path):
    (tmp_path / "sweep.json").write_text("{}")
    return Job(str(tmp_path), 0, 1, 1)


def ready(*arguments, **options):
    engine = Ray(*arguments, **options)
    engine.wait(0.0)
    return engine


def test_a_sweep_on_ray_is_started_on_this_machine_alone(ray, origin, tmp_path):
    Fake.does = staticmethod(lambda job: f"ended with code {run_attempt(job)}")
    algorithms = tl.grid(bc(), learning_rate=(1e-2, 1e-3, 1e-4))
    sweep = tl.sweep(algorithms, origin, 2, out=tmp_path / "sweep", on="ray", every=1, workers=2, progress=False)
    assert [row["state"] for row in sweep.table] == ["complete"] * 3
    assert ray.options["address"] == "local"
    assert not ray.options["include_dashboard"]
    assert ray.options["num_cpus"] <= 2
    assert len(ray.actors) == len(ray.killed) == 2
    assert not ray.initialized


def test_a_sweep_whose_own_files_are_refused_leaves_ray(ray, log, tmp_path):
    with pytest.raises(ConfigError, match="this run has no such metric"):
        tl.sweep(bc(), log, 2, out=tmp_path / "sweep", on="ray", best="held_out/los", progress=False)
    assert not ray.initialized


def test_ray_of_the_user_is_left_running(ray):
    ray.initialized = True
    Ray(trials=1).close()
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


def test_an_unreachable_head_is_named_at_once(ray, monkeypatch):
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{closed.getsockname()[1]}"
    monkeypatch.setenv("RAY_ADDRESS", address)
    with pytest.raises(ConfigError, match=f"no head of a Ray cluster answers at {address}.*fix: start the cluster"):
        Ray()


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
    with pytest.raises(ConfigError, match=r"on = 'ray' requires Ray, which is not installed\. fix: pip install .*ray"):
        Ray()


def test_ray_that_would_listen_to_the_network_is_not_started(ray, monkeypatch):
    monkeypatch.delenv("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER")
    with pytest.raises(ConfigError, match="Ray was imported before, and would listen to the network"):
        Ray()
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
        Ray().close()
    else:
        with pytest.raises(ConfigError, match=r"cluster at 10\.0\.0\.1:6379 is not shown to require a token"):
            Ray()
        assert not ray.initialized
    ((address, environment),) = commands
    assert address == "10.0.0.1:6379"
    assert environment["RAY_AUTH_MODE"] == "disabled"
    assert "RAY_AUTH_TOKEN" not in environment
    Ray(insecure=True).close()
    assert len(commands) == 1


def test_a_probe_without_an_answer_shows_no_token(ray, monkeypatch):
    def run(*arguments, **options):
        raise subprocess.TimeoutExpired("probe", 1)

    ray.use("auto", gcs="[2001:db8::1]:6379")
    monkeypatch.setattr(subprocess, "run", run)
    with pytest.raises(ConfigError, match="not shown to require a token"):
        Ray()


@pytest.mark.parametrize(
    ("address", "loopback"),
    [("127.0.0.1:1", True), ("[::1]:1", True), ("localhost:1", True), ("10.0.0.1:1", False), ("head:1", False)],
)
def test_loopback_is_this_machine(address, loopback):
    assert is_loopback(address) == loopback


def test_a_refusal_of_ray_shows_no_token(ray, monkeypatch):
    ray.fail_init = RuntimeError("Version mismatch:\n  cluster Ray 2.59, here 2.60, token secret-1\n")
    monkeypatch.setenv("RAY_AUTH_TOKEN", "secret-1")
    with pytest.raises(ConfigError, match=r"at local: cluster Ray 2.59, here 2.60, token \.\.\.\. fix"):
        Ray()


def test_more_cores_than_a_node_has_are_refused(ray):
    ray.use(processors=(2, 2))
    with pytest.raises(ConfigError, match="cpus = 3: no node of the Ray cluster has as many processors"):
        Ray(3)
    with pytest.raises(ConfigError, match="cpus = 3"):
        Ray(3, workers=1)  # this machine does not grow
    ray.use("auto", processors=(0,))
    assert not ready(3, workers=1).free() or ray.actors  # a cluster that grows by itself may


def test_actors_are_as_many_as_there_are_processors_and_trials(ray):
    ray.use(processors=(3, 5, 1))
    for options, count in (({"trials": 9}, 3), ({"trials": 2}, 2), ({"workers": 1}, 1)):
        ray.use(processors=(3, 5, 1))
        engine = ready(2, **options)
        assert len(ray.actors) == count
        assert engine.free()
        engine.close()
        assert len(ray.killed) == count


def test_jobs_have_cores_of_their_own(ray, job):
    ray.use(processors=(2,))
    cores = []
    Fake.does = staticmethod(lambda one: cores.append(one.cores) or "ended with code 0")
    engine = ready(2, trials=1)
    ray.nodes_list[0]["Resources"]["CPU"] = 4.0
    engine._trials = 2
    engine.wait(0.0)
    for trial in (0, 1):
        engine.submit(msgspec.structs.replace(job, number=trial))
    assert [len(one) for one in cores] == [2, 2]
    assert sorted(cores[0] + cores[1]) == [0, 1, 2, 3]
    assert [one.how for one in engine.wait(0.0)] == ["ended with code 0"] * 2


def test_a_lost_actor_is_replaced_and_its_job_has_ended(ray, job):
    losses = {
        RayError("its worker process has died by SIGKILL"): "its process was killed on node a",
        RayError("The node died"): "lost with its node on node a",
        OutOfMemoryError("x"): "ended as its node ran out of memory",
        RayError("the node was running low on memory"): "ended as its node ran out of memory",
    }
    for error, words in losses.items():
        ray.use()
        engine = ready(trials=1)

        def lose(job, error=error):
            raise Lost(error)

        Fake.does = staticmethod(lose)
        engine.submit(job)
        (ended,) = engine.wait(0.0)
        assert ended.job.attempt == 1
        assert words in ended.how
        assert ray.killed == ray.actors[:1]
        assert not engine.free()
        engine.wait(0.0)
        assert engine.free()
        assert len(ray.actors) == 2


def test_a_job_that_is_cancelled_loses_its_actor(ray, job):
    engine = ready(trials=1)
    Fake.does = staticmethod(lambda job: None)  # and never ends
    engine.submit(job)
    assert engine.wait(0.0) == []
    engine.cancel(job)
    engine.cancel(job)
    assert ray.killed == ray.actors[:1]
    engine.wait(0.0)
    engine.submit(msgspec.structs.replace(job, attempt=2))
    engine.close()
    assert ray.asked == [("0a", 7)]
    assert ray.killed == ray.actors
    engine.close()


def test_no_job_goes_to_a_node_that_was_lost(ray, job):
    ray.use(processors=(3, 1))
    engine = ready(trials=3)

    def lose(job):
        ray.nodes_list[0]["Alive"] = False
        raise Lost(RayError("The actor died because its node has died."))

    Fake.does, Fake.about = staticmethod(lose), {"node": "0b"}
    engine.submit(job)
    (ended,) = engine.wait(0.0)
    assert ended.how == "lost with its node on node a"
    assert not engine.free()
    engine.wait(0.0)
    assert len(engine._idle) == 1


def test_actors_without_a_node_are_given_up(ray):
    ray.use(processors=(1, 1))
    Fake.about = {}
    engine = Ray(trials=2)
    engine._ray.wait = lambda *arguments, **options: ([], [])
    engine.wait(0.0)
    ray.nodes_list[0]["Alive"] = False
    engine.wait(0.0)
    assert len(engine._starting) == 1
    assert ray.killed == ray.actors[:1]


@pytest.mark.parametrize(
    ("about", "error", "words"),
    [
        ({"versions": {**installed(list(PACKAGES)), "jax": "0.1"}}, ConfigError, "node a has jax 0.1, expected the"),
        ({"versions": {}}, ConfigError, "node a has tidelog None"),
        ({"cores": [0]}, ConfigError, "cpus = 2: a process on node a may use 1 core"),
        (RayTaskError("...\nNo module named 'tidelog'"), ConfigError, "cannot start: No module named 'tidelog'. fix"),
        (RayError("x"), CheckpointError, f"{MOST_STARTS} workers in a row were lost before their first job"),
    ],
)
def test_a_worker_that_would_not_train_the_same_is_refused(about, error, words, ray, job):
    Fake.about = about
    engine = Ray(2, trials=1)

    def begin():
        for _ in range(MOST_STARTS if error is CheckpointError else 1):
            engine.wait(0.0)

    with pytest.raises(error) as raised:
        begin()
    assert words in str(raised.value)


def test_a_folder_that_a_node_does_not_see_ends_the_sweep_and_it_can_go_on(ray, origin, tmp_path, capsys):
    Fake.does = staticmethod(lambda job: NO_SHARED_FOLDER)
    written = tl.sweep(bc(), origin, 2, out=tmp_path / "sweep", every=1, train=False, progress=False)
    assert main(["resume", str(written.folder), "--on", "ray"]) == 2
    shown = " ".join(capsys.readouterr().err.split())
    assert f"node a does not see {written.folder} as this process does" in shown.replace("- ", "-")
    assert not ray.initialized
    Fake.does = staticmethod(lambda job: f"ended with code {run_attempt(job)}")
    assert main(["resume", str(written.folder), "--on", "ray", "--json"]) == 0
    assert '"state": "complete"' in capsys.readouterr().out


def test_a_worker_looks_at_its_folder_first(origin, tmp_path, monkeypatch):
    plan = tl.sweep(bc(), origin, 2, out=tmp_path / "sweep", every=1, train=False, progress=False).folder / "sweep.json"
    job = msgspec.json.encode(Job(str(plan.parent), 0, 1, 1, cores=[0])).decode()
    kept, streams, jobs = [], [], []
    monkeypatch.setattr(os, "sched_setaffinity", lambda process, cores: kept.append(cores), raising=False)
    monkeypatch.setattr(os, "dup2", lambda source, to: streams.append(to))
    monkeypatch.setenv("JAX_PLATFORMS", "gpu")
    outcome = [5, KeyboardInterrupt(), SystemExit(143), ValueError("no")]

    def attempt(job):
        jobs.append(job)
        if isinstance(outcome[0], BaseException):
            raise outcome[0]
        return outcome[0]

    monkeypatch.setattr("tidelog.sweeps.attempt.run_attempt", attempt)
    worker, sha256 = Worker(), engine_module.checksum(plan)
    assert worker.run(job, str(plan), "0") == NO_SHARED_FOLDER
    assert worker.run(job, str(tmp_path / "sweep.json"), sha256) == NO_SHARED_FOLDER
    assert (kept, streams, jobs) == ([], [], [])
    hows = []
    while outcome:
        hows.append(worker.run(job, str(plan), sha256))
        outcome.pop(0)
    assert hows == ["ended with code 5", "ended by a signal", "ended by a signal", "ended with ValueError"]
    assert kept == [[0]] * 4
    assert streams == [1, 2] * 4
    assert os.environ["JAX_PLATFORMS"] == "cpu"
    assert len(jobs) == 4


def test_a_worker_says_where_it_is(ray):
    about = msgspec.json.decode(Worker().describe(["numpy", "no-such-package"]), type=About)
    assert (about.node, about.process) == ("0a", os.getpid())
    assert about.versions["no-such-package"] == "none"
    assert about.versions["numpy"][0].isdigit()


def test_a_process_that_has_ended_is_not_asked_to(monkeypatch):
    def kill(process, number):
        raise ProcessLookupError

    monkeypatch.setattr(os, "kill", kill)
    engine_module.ask_to_end(1)


def test_nothing_to_wait_for_is_waited_for(ray):
    engine = ready(trials=1)
    assert engine.wait(0.0) == []
