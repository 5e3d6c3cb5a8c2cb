"""Playing one round ahead: who plays what, that bits depend on no clock, and what becomes of failures and signals."""

import shutil
import threading
import time

import pytest

import tidelog as tl
from tests.algorithms.players import replaying
from tests.training.runs import chunks_of, finish, stop_at
from tests.training.test_learn import EVERY, HOST, STEPS, TINY_FLAGS, Breaking, Forgetful, all_of, begin
from tidelog.cli import main
from tidelog.envs.tabular import PointMass
from tidelog.errors import EnvironmentFailure
from tidelog.policies.policy import fingerprint
from tidelog.training import collect
from tidelog.training.loop import Position


class Held(PointMass):
    """A point mass that a thread plays only once it is let go."""

    def __init__(self, count):
        super().__init__(count)
        self.gate = threading.Event()

    def step(self, action):
        if threading.current_thread().name.startswith("tidelog-play"):
            assert self.gate.wait(60)
        return super().step(action)


class Slow(PointMass):
    """A point mass that takes its time."""

    def step(self, action):
        time.sleep(0.002)
        return super().step(action)


def playing():
    return [thread for thread in threading.enumerate() if thread.name.startswith("tidelog-play")]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """All that comes of a run that is not stopped, and its log."""
    folder = tmp_path_factory.mktemp("whole")
    run = finish(begin(HOST, seeds=2, ahead=True, log_out=folder / "log"))
    return all_of(run), tl.Log.load(folder / "log").fingerprint()


@pytest.mark.full
def test_a_rollout_is_by_the_policy_of_exactly_one_round_before(monkeypatch):
    by, after, playing_threads = {}, {}, {}
    real = collect.Host.rollout

    def told(self, algorithm, params, key, round, *rest):
        by[round], playing_threads[round] = fingerprint(params), threading.current_thread().name
        return real(self, algorithm, params, key, round, *rest)

    monkeypatch.setattr(collect.Host, "rollout", told)
    run = begin(HOST, ahead=True)
    after[-1] = fingerprint(run.learners()[0].state.network)
    for _ in run.stream():
        position = run._engine.position
        if position == Position(position.round):
            after[position.round - 1] = fingerprint(run.learners()[0].state.network)
    assert sorted(by) == [0, 1, 2, 3, 4]
    assert [by[r] for r in range(5)] == [after[max(r - 2, -1)] for r in range(5)]
    assert len(set(after.values())) == 6
    assert not playing_threads[0].startswith("tidelog-play")
    assert all(playing_threads[r].startswith("tidelog-play") for r in range(1, 5))


@pytest.mark.bits
@pytest.mark.full
def test_bits_depend_on_no_clock():
    slow, quick, off = (
        finish(begin(env, ahead=ahead)) for env, ahead in ((Slow(4), True), (HOST, True), (HOST, False))
    )
    assert all_of(slow) == all_of(quick)
    assert all_of(slow)[0] != all_of(off)[0]
    note = "rollouts are collected one round ahead, with the policy of one round before"
    assert note in slow.notes()


@pytest.mark.bits
@pytest.mark.full
@pytest.mark.parametrize("stop", [3, 4, 13], ids=["first round", "between rounds", "auxiliary phase"])
def test_a_stopped_run_goes_on_bit_equal(whole, stop, tmp_path, monkeypatch):
    chunks_of(1, monkeypatch)
    options = {"seeds": 2, "save_seconds": 0.0, "log_out": tmp_path / "log", "ahead": True}
    run = stop_at(begin(HOST, tmp_path / "run", **options), stop)
    run._engine.wait()
    assert not playing()
    loaded = tl.load_run(tmp_path / "run")
    assert loaded._engine.position == run._engine.position
    assert not playing(), "whoever only looks at a run does not play"
    assert all_of(finish(loaded)) == whole[0]
    assert tl.Log.load(tmp_path / "log").fingerprint() == whole[1]


@pytest.mark.full
def test_off_policy_ppg_plays_ahead_too(tmp_path):
    one, two = (begin(HOST, out, algorithm=replaying(), ahead=True) for out in (None, tmp_path / "run"))
    stop_at(two, 5)
    assert all_of(finish(tl.load_run(tmp_path / "run")))[0] == all_of(finish(one))[0]


@pytest.mark.full
def test_a_thread_whose_environment_breaks_says_what_would_have_been_said_without_it(tmp_path):
    said = []
    for ahead in (False, True):
        run = begin(Breaking(4), tmp_path / f"{ahead}", save_seconds=1e9, ahead=ahead)
        with pytest.raises(EnvironmentFailure, match=r"copy 2, step 40: it broke \(seed 0\); .* saved in") as raised:
            finish(run)
        said.append(str(raised.value).replace(f"{ahead}", ""))
        shutil.copytree(tmp_path / f"{ahead}", tmp_path / f"{ahead} again")
        loaded = tl.load_run(tmp_path / f"{ahead} again", env=PointMass(4))
        assert loaded._engine.position == Position(2)
        through = all_of(finish(begin(PointMass(4), ahead=ahead)))[0]
        assert all_of(finish(loaded))[0] == through
        assert all_of(finish(run))[0] == through
    assert said[0] == said[1]


class Buggy(PointMass):
    """A point mass with a mistake in it."""

    def step(self, action):
        if threading.current_thread().name.startswith("tidelog-play"):
            raise ZeroDivisionError("by the user")
        return super().step(action)


@pytest.mark.full
def test_an_error_of_the_users_own_code_in_the_thread_comes_out():
    with pytest.raises(ZeroDivisionError, match="by the user"):
        finish(begin(Buggy(4), ahead=True))


@pytest.mark.full
def test_whoever_leaves_waits_for_the_thread(tmp_path, monkeypatch):
    chunks_of(1, monkeypatch)
    place = Held(4)
    run = begin(place, tmp_path / "run", ahead=True, save_seconds=0.0)
    stream = run.stream()
    while run.update < 2:
        next(stream)
    assert playing()
    threading.Timer(0.2, place.gate.set).start()
    stream.close()
    assert not playing()
    assert finish(run).finished  # and goes on where it was
    assert all_of(run)[0] == all_of(finish(begin(PointMass(4), ahead=True)))[0]


@pytest.mark.full
def test_an_environment_that_cannot_be_saved_starts_anew(tmp_path):
    stop_at(begin(Forgetful(4), tmp_path / "run", save_seconds=0.0, log_out=tmp_path / "log", ahead=True), 5)
    assert finish(tl.load_run(tmp_path / "run", env=Forgetful(4))).finished
    assert tl.Log.load(tmp_path / "log").steps == STEPS


def test_what_cannot_be_overlapped_is_refused(tmp_path):
    with pytest.raises(tl.ConfigError, match=r"ahead=True needs a host environment; jax:CartPole-v1 already runs"):
        begin("jax:CartPole-v1", tmp_path / "run", ahead=True)
    with pytest.raises(tl.ConfigError, match="ahead = 'yes': expected True or False"):
        begin(HOST, tmp_path / "run", ahead="yes")
    log = tl.collect(HOST, episodes=2)
    run = tl.fit(tl.IQL(hidden=(4,), batch_size=4), log, 1, train=False)
    with pytest.raises(tl.ConfigError, match="learn takes an algorithm, found a run"):
        begin(HOST, tmp_path / "run", algorithm=run, ahead=True)
    assert not (tmp_path / "run").exists()


def test_the_command_line_plays_ahead(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    flags = [f"--{name.replace('_', '-')}={value}" for name, value in TINY_FLAGS.items()]
    words = [
        "train",
        "ppg",
        "--env",
        HOST,
        "--preset",
        "none",
        "--steps",
        "128",
        "--every",
        str(EVERY),
        "--out",
        "run",
        *flags,
    ]
    assert main([*words, "--ahead"]) == 0
    assert "note: rollouts are collected one round ahead" in capsys.readouterr().err
    assert tl.load_run("run").record.options.ahead
