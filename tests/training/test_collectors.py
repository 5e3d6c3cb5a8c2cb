"""Collectors: blocks of copies in processes of their own, what they collect, and what becomes of lost ones."""

import os
import shutil
import signal
import subprocess
import sys
import threading
import time

import jax
import numpy as np
import pytest

import tidelog as tl
from tests.algorithms.players import replaying, tiny
from tests.training.collector_transport import InProcess
from tests.training.runs import chunks_of, finish, stop_at
from tests.training.test_learn import STEPS, all_of, begin
from tidelog.cli import main
from tidelog.envs.toys import PointMass
from tidelog.errors import ConfigError, EnvironmentFailure
from tidelog.policies.named_arrays import fingerprint
from tidelog.training.engine.learner import as_arrays
from tidelog.training.engine.members import as_members
from tidelog.training.online import collection
from tidelog.training.online.collection import Host
from tidelog.training.online.collectors import driver, here
from tidelog.training.online.collectors.messages import Request, named, pack, unpack
from tidelog.training.online.collectors.transport import Lost

HOST, HERE = "point-mass", "tests.training.collector_envs:Collected"
OPTIONS = {"collectors": 2, "seeds": 2}


@pytest.fixture
def in_process(monkeypatch):
    """Collectors of this process; all environments share one compiled decision."""
    real, made = collection._decider, {}
    monkeypatch.setattr(driver, "Here", InProcess)
    monkeypatch.setattr(collection, "_decider", lambda *facts: made.setdefault(0, real(*facts)))


class Gone(InProcess):
    """Collectors that are lost as soon as they get a request."""

    def start(self, block):
        self._made[block], self._waiting[block] = None, []

    def send(self, block, message):
        self.sent += 1
        self._waiting[block].append(Lost("taken away"))


def collectors(members, blocks=2, env=HOST):
    """Collectors of these members, and the policies' parameters of the members."""
    made = driver.collectors_of(env, PointMass, members, blocks, False)
    spec = made.hosts[0].environment.spec
    return made, [one.algorithm.policy_params(one.algorithm.init(spec, jax.random.key(7), 1)) for one in members]


def arrays_of(rollouts):
    return [np.asarray(leaf) for columns, _ in rollouts for leaf in jax.tree.leaves(columns)]


def transport_of(run):
    return run._engine._assignment.collectors._transport


def test_messages_hold_what_they_were_given():
    arrays = {"0/state/none": np.zeros((2, 0)), "0/state/steps": np.asarray(3), "flags": np.asarray([True, False])}
    header, again = unpack(pack(Request(4, "restore"), arrays), Request)
    assert (header.round, header.begin) == (4, "restore")
    assert set(named("0/state", again)) == {"none", "steps"}
    for name, array in arrays.items():
        np.testing.assert_array_equal(again[name], array)
    for wrong in (b"", b"\0" * 40, pack(Request(0, "go on"))[:-3]):
        with pytest.raises(EnvironmentFailure, match="a message of a collector cannot be read"):
            unpack(wrong, Request)


def test_a_block_has_its_own_seeds_and_keys_and_a_lost_one_is_repeated(in_process, monkeypatch):
    """Two rollouts in two blocks are those of two hosts of half the copies; the collector is lost in the second."""
    members, key = as_members([tiny()], [5]), jax.random.key(3)
    monkeypatch.setattr(InProcess, "losses", (3,))
    made, params = collectors(members)
    arrays = as_arrays(members[0].algorithm)
    hosts = [Host(PointMass(2), 5, False, block) for block in (0, 1)]
    for round in (0, 1):
        ((columns, carried),) = made.rollouts(round, params, [key], [None])
        assert carried is None
        expected = [
            host.rollout(arrays, params[0], jax.random.fold_in(key, block), round, 16)[0]
            for block, host in enumerate(hosts)
        ]
        whole = jax.tree.map(lambda *parts: np.concatenate(parts), *expected)
        jax.tree.map(np.testing.assert_array_equal, columns, whole)
        assert made.hosts[0].was_reset == (round == 0)
    assert not np.array_equal(columns["action"][:2], columns["action"][2:])
    assert made._transport.started == 3
    state = made.hosts[0].save()
    assert {name.split("/")[0] for name in state} == {"0", "1"}


def test_a_collector_that_is_always_lost_ends_the_run(monkeypatch):
    monkeypatch.setattr(driver, "Here", Gone)
    made, params = collectors(as_members([tiny()], [5]))
    with pytest.raises(
        EnvironmentFailure, match=r"collector 0 \(copies 0 to 1\) was lost 3 times .*: taken away\. fix: "
    ):
        made.rollouts(0, params, [jax.random.key(3)], [None])
    assert made._transport.sent <= 6


def test_what_cannot_be_cut_or_sent_is_refused(tmp_path, monkeypatch):
    def refused(words, env=HOST, **options):
        with pytest.raises(ConfigError, match=words):
            begin(env, tmp_path / "run", **options)
        assert not (tmp_path / "run").exists()

    refused(r"collectors = 3: the 4 copies .* expected a divisor of 4\. fix: use collectors=2", collectors=3)
    refused("collectors = 0: expected at least 1", collectors=0)
    refused("collectors = True: expected a whole number", collectors=True)
    refused("collectors = 2 needs a host environment; jax:CartPole-v1 already", "jax:CartPole-v1", collectors=2)
    refused("by its name, found an object, PointMass", PointMass(4), collectors=2)
    refused("on = 'ray': collectors run there, and collectors is not set", on="ray")
    refused("on = 'there': expected 'here'", collectors=2, on="there")
    refused("on begins with 'ray:': expected 'ray'", collectors=2, on="ray://me:secret@head:10001")
    refused("insecure is for clusters", collectors=2, insecure=True)
    monkeypatch.setitem(sys.modules, "ray", None)
    refused(r"on = 'ray' requires Ray, which is not installed\. fix: pip install .*ray", collectors=2, on="ray")


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """All that comes of a run with collectors in this process that is not stopped, by its options; computed once."""
    known = {}

    def of(env=HOST, **options):
        name = repr((env, sorted(options.items(), key=str)))
        if name not in known:
            folder = tmp_path_factory.mktemp("whole")
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(driver, "Here", InProcess)
                run = finish(begin(env, **{**OPTIONS, **options, "log_out": folder / "log"}))
            known[name] = all_of(run), tl.open_log(folder / "log").fingerprint()
        return known[name]

    return of


@pytest.mark.bits
@pytest.mark.full
@pytest.mark.parametrize(
    ("env", "options"),
    [
        (HOST, {}),
        ("CartPole-v1", {"ahead": True}),
        ("Pendulum-v1", {"algorithm": tiny(recurrent_size=4)}),
        (HOST, {"algorithm": replaying(), "collectors": 4}),
        ("vault", {"algorithm": [tiny(), tiny(entropy_bonus=0.5)], "seeds": 1}),
    ],
    ids=["point-mass", "vector ahead", "recurrent", "off-policy", "population of pictures"],
)
def test_processes_give_the_bits_of_one_process(env, options, whole, tmp_path):
    run = finish(begin(env, tmp_path / "run", **{**OPTIONS, **options, "log_out": tmp_path / "log"}))
    assert (all_of(run), tl.open_log(tmp_path / "log").fingerprint()) == whole(env, **options)
    assert tl.load(tmp_path / "run").record.options.collectors == options.get("collectors", 2)
    assert not transport_of(run)._running, "at the end of a run its processes end"


@pytest.mark.full
def test_another_number_of_collectors_is_another_run(whole):
    states = [whole(collectors=number)[0][0] for number in (1, 2)]
    states.append(all_of(finish(begin(HOST, seeds=2)))[0])
    assert len({state[0] for state in states}) == 3


def at_request(number, monkeypatch, what, block=1):
    """Let something happen to the process of a block which has its request of this number, and is stopped."""
    real, sent = here.Here.send, []

    def send(self, to, message):
        if to != block or message is self._plans[to]:
            return real(self, to, message)
        sent.append(message)
        process = self._running[to].process
        if len(sent) - 1 == number:
            process.send_signal(signal.SIGSTOP)
        real(self, to, message)
        if len(sent) - 1 == number:
            what(process)

    monkeypatch.setattr(here.Here, "send", send)
    return sent


@pytest.mark.bits
@pytest.mark.full
@pytest.mark.parametrize("ahead", [False, True], ids=["at once", "ahead"])
def test_a_killed_and_a_frozen_process_change_nothing(ahead, whole, tmp_path, monkeypatch):
    run = begin(HOST, ahead=ahead, log_out=tmp_path / "log", **OPTIONS)
    made, stopped = run._engine._assignment.collectors, []

    def kill(process):
        process.send_signal(signal.SIGKILL)

    def freeze(process):
        stopped.append(process)
        made._heard[1] -= 2 * driver.STALL_SECONDS

    at_request(1, monkeypatch, kill)
    sent = at_request(4, monkeypatch, freeze)
    assert all_of(finish(run)) == all_of_whole(whole, ahead)
    assert tl.open_log(tmp_path / "log").fingerprint() == (whole(ahead=True) if ahead else whole())[1]
    assert len(sent) == 7  # five rounds, two of them twice
    assert [one.returncode for one in stopped] == [-signal.SIGKILL]


def all_of_whole(whole, ahead):
    return (whole(ahead=True) if ahead else whole())[0]


@pytest.mark.full
def test_a_slow_rollout_is_not_a_frozen_process(monkeypatch):
    """It takes about 6 seconds, and signs of its steps come every second."""
    monkeypatch.setenv("STEP_SECONDS", "0.2")
    run = begin(f"{HERE}Slow-v0", collectors=2, steps=64)
    monkeypatch.setattr(driver, "STALL_SECONDS", 4.0)
    sent = at_request(0, monkeypatch, lambda process: process.send_signal(signal.SIGCONT))
    finish(run)
    assert len(sent) == 1


@pytest.mark.bits
@pytest.mark.full
@pytest.mark.parametrize("ahead", [False, True], ids=["at once", "ahead"])
def test_a_stopped_run_goes_on_bit_equal(ahead, whole, tmp_path, monkeypatch):
    chunks_of(1, monkeypatch)
    options = {"save_seconds": 0.0, "log_out": tmp_path / "log", "ahead": ahead, **OPTIONS}
    stop_at(begin(HOST, tmp_path / "run", **options), 13)
    loaded = tl.load(tmp_path / "run")
    assert not transport_of(loaded)._running, "whoever only looks at a run starts no process"
    assert all_of(finish(loaded)) == all_of_whole(whole, ahead)


@pytest.mark.full
def test_environments_that_cannot_be_saved_begin_anew_and_say_so(tmp_path, monkeypatch):
    at_request(2, monkeypatch, lambda process: process.send_signal(signal.SIGKILL))
    run = begin(f"{HERE}Walk-v0", tmp_path / "run", collectors=2, log_out=tmp_path / "log")
    assert any("cannot be saved" in note for note in run.notes())
    finish(run)
    log = tl.open_log(tmp_path / "log")
    assert log.steps == STEPS
    lengths = np.bincount(log.episode)
    assert sorted(lengths) == [8, 8, 8, 8, 12, 12, 12, 12, *[20] * 12]  # of each copy, 12 steps were cut off
    assert {row["collect/length"] for row in run.metrics} == {20.0}


@pytest.mark.full
def test_an_environment_that_breaks_is_named_with_its_copy(tmp_path, monkeypatch):
    at_request(2, monkeypatch, lambda _: None, block=0)  # only the other block breaks
    said = []
    for number in (None, 2):
        run = begin(f"{HERE}Breaking-v0", tmp_path / f"{number}", collectors=number, save_seconds=1e9)
        with pytest.raises(EnvironmentFailure, match=r"copy \d, step 40: .*it broke \(seed 0\); .* saved in") as raised:
            finish(run)
        said.append(str(raised.value).split(";")[0])
        shutil.rmtree(tmp_path / f"{number}")
    text = f"{HERE}Breaking-v0, copy {{}}, step 40: step raised RuntimeError: it broke (seed 0)"
    assert said == [text.format(0), text.format(2)]


@pytest.mark.full
def test_an_environment_that_a_process_cannot_make_ends_with_its_message(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    words = ["train", "ppo", "--env", f"{HERE}Unbuildable-v0", "--steps", "64", "--environments", "4", "--out", "run"]
    words += ["--rollout-steps", "16", "--minibatches", "2", "--preset", "none"]
    assert main([*words, "--collectors", "2"]) == 2
    shown = " ".join(capsys.readouterr().err.split())
    assert "collector" in shown
    assert "no display" in shown
    assert not (tmp_path / "run").exists()


@pytest.mark.full
def test_the_command_line_collects_in_processes_and_resumes(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(here.os, "sched_getaffinity", lambda _: {0}, raising=False)
    monkeypatch.setattr(driver, "Here", InProcess)
    words = ["train", "ppo", "--env", HOST, "--environments", "4", "--rollout-steps", "16", "--preset", "none"]
    words += ["--minibatches", "2"]
    assert main([*words, "--steps", "128", "--collectors", "2", "--out", "run"]) == 0
    assert "note: 2 collectors share 1 processor core(s)" in " ".join(capsys.readouterr().err.split())
    assert tl.load("run").record.options.collectors == 2
    assert main(["resume", "run", "--workers", "2"]) == 2
    assert main(["resume", "run"]) == 0
    assert main([*words, "--steps", "128", "--out", "other", "--quiet"]) == 0
    assert main(["resume", "other", "--on", "ray"]) == 2
    assert "collectors run there, and collectors is not set" in capsys.readouterr().err


def children(process):
    """The living processes below a process."""
    found = subprocess.run(["ps", "-o", "pid=", "--ppid", str(process)], capture_output=True, text=True, check=False)
    return [int(one) for one in found.stdout.split()]


def alive(process):
    try:
        with open(f"/proc/{process}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.full
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_processes_end_with_the_run(number, tmp_path):
    command = ["train", "ppo", "--env", f"{HERE}Slow-v0", "--environments", "4", "--rollout-steps", "8"]
    command += ["--steps", "100000", "--preset", "none", "--collectors", "2", "--out", str(tmp_path / "run")]
    command += ["--minibatches", "2"]
    paths = os.pathsep.join(path for path in sys.path if path)
    run = subprocess.Popen(
        [sys.executable, "-m", "tidelog", *command, "--save-seconds", "0"],
        env={**os.environ, "PYTHONPATH": paths, "STEP_SECONDS": "0.3"},  # five seconds a rollout
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    threading.Timer(120, run.kill).start()
    checkpoints = tmp_path / "run" / "checkpoints"
    while run.poll() is None and not (checkpoints.is_dir() and list(checkpoints.iterdir())):
        time.sleep(0.1)
    time.sleep(1.0)  # and the first rollout has begun
    processes = children(run.pid)
    assert len(processes) == 2, run.communicate()[0] if run.poll() is not None else ""
    run.send_signal(number)
    out, _ = run.communicate(timeout=60)
    assert run.returncode == {signal.SIGKILL: -9, signal.SIGTERM: 143, signal.SIGINT: 130}[number], out
    until = time.monotonic() + 2.5
    while any(map(alive, processes)) and time.monotonic() < until:
        time.sleep(0.05)
    assert not any(map(alive, processes))


@pytest.mark.full
def test_processes_end_with_the_last_user_of_a_run():
    run = begin(HOST, collectors=2)
    processes = [one.process.pid for one in transport_of(run)._running.values()]
    assert all(map(alive, processes))
    assert [os.sched_getaffinity(one) for one in processes] == [
        {sorted(os.sched_getaffinity(0))[block % len(os.sched_getaffinity(0))]} for block in (0, 1)
    ]
    fingerprint(run.learners()[0])
    del run
    import gc

    gc.collect()
    assert not any(map(alive, processes))
