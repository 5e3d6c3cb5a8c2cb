"""Runs that learnt from a log, going on in an environment: from the door to the folder."""

import json
from dataclasses import replace

import equinox as eqx
import jax
import numpy as np
import pytest

import tidelog as tl
from tests.conformance.cases import differ, finite
from tests.training.runs import chunks_of, finish, learnt_of, stop_at
from tests.training.test_learn import Breaking
from tidelog.cli import main
from tidelog.data.statistics import Scaler
from tidelog.envs import registry
from tidelog.policies.policy import fingerprint
from tidelog.training import stores
from tidelog.training.learn import check_same_spaces, finetune
from tidelog.types import Codes, Continuous, Discrete, Spec, Vector

SMALL = {"hidden": (8,), "batch_size": 8}
STEPS, EVERY = 60, 30
HOST, FUNCTION = "point-mass", "jax:CartPole-v1"
ALGORITHMS = {
    "iql": (tl.IQL(**SMALL, n_step=2), HOST),
    "discrete-bcq": (tl.DiscreteBCQ(**SMALL, epsilon=0.5, threshold=0.01), FUNCTION),
}


@pytest.fixture(scope="module", params=ALGORITHMS)
def offline(request, tmp_path_factory):
    """A run that learnt from a log, in its folder, the log on disk beside it; and an environment."""
    algorithm, env = ALGORITHMS[request.param]
    folder = tmp_path_factory.mktemp("offline")
    tl.collect(env.removeprefix("jax:"), episodes=12, seed=0).save(folder / "log")
    log = tl.Log.load(folder / "log")
    run = tl.fit(algorithm, log, 20, seeds=2, out=folder / "run", held_out=0.2, scale="standard")
    return run, env


def begin(run, env, out=None, **options):
    return finetune(run, env, **{"steps": STEPS, "eval_every": EVERY, "out": out, **options}, train=False)


@pytest.fixture(scope="module")
def whole(offline, tmp_path_factory):
    """All of a fine-tuning that is not stopped."""
    run, env = offline
    folder = tmp_path_factory.mktemp("whole")
    return finish(begin(run, env, folder / "run", log_out=folder / "log")), folder


@pytest.mark.sample("discrete-bcq")
def test_it_goes_on_where_the_run_stood(offline, whole):
    (run, env), (tuned, folder) = offline, whole
    fresh = begin(run, env)
    for before, after in zip(run.learners(), fresh.learners(), strict=True):
        kept = ("step", "updates")
        assert all(
            not differ(getattr(before.state, name), getattr(after.state, name), by=0.0)
            for name in before.state._fields
            if name not in kept
        )
        assert int(after.state.step) == 0
        assert int(after.state.updates) == STEPS
    moved = tuned.learners()[0].state
    acted = [run.members[0].algorithm.policy_params(state) for state in (run.learners()[0].state, moved)]
    assert differ(*acted, by=1e-4)
    assert [row["decisions"] for row in tuned.metrics if row["member"] == 0] == [30, 60]
    assert any(name.startswith("held_out/") for name in tuned.metrics[-1])
    content = json.loads((folder / "run" / "run.json").read_text())
    data, options = content["data"], content["options"]
    mix = {"offline": 0.5, "updates": 1.0, "collect_every": 10, "restart_schedules": False}
    assert {name: options[name] for name in mix} == mix
    assert data["fingerprint"] == run.record.data.fingerprint
    assert data["finetuned_from"] == str(run.folder.resolve())
    assert tuned.record.held_out == run.record.held_out


@pytest.mark.full
def test_rates_are_constant_unless_schedules_are_to_begin_anew():
    log = tl.collect(HOST, episodes=4, seed=0)
    run = tl.fit(tl.IQL(**SMALL, critic_schedule="linear"), log, 2)
    names = ("actor_schedule", "critic_schedule", "value_schedule")

    def at_the_end(**options):
        begun = begin(run, HOST, **options)
        assert begun.members[0].algorithm == run.members[0].algorithm
        return [float(getattr(begun._engine._collectors[0].inner, name)(np.float32(1.0))) for name in names]

    assert at_the_end() == [1.0, 1.0, 1.0]
    assert at_the_end(restart_schedules=True) == [0.0, 0.0, 1.0]
    with pytest.raises(tl.ConfigError, match="restart_schedules = 'yes': expected True or False"):
        begin(run, HOST, restart_schedules="yes")


@pytest.mark.full
def test_a_resumed_run_keeps_its_schedules(tmp_path):
    run = tl.fit(tl.IQL(**SMALL), tl.collect(HOST, episodes=4, seed=0), 2, out=tmp_path / "run")
    log = tl.collect(HOST, episodes=4, seed=0)
    for restart, wanted in ((False, 1.0), (True, 0.0)):
        out = tmp_path / str(restart)
        stop_at(begin(run, HOST, out, save_seconds=0.0, restart_schedules=restart), 10)
        loaded = tl.load_run(out, log)
        assert float(loaded._engine._collectors[0].inner.actor_schedule(np.float32(1.0))) == wanted


@pytest.mark.bits
@pytest.mark.sample("discrete-bcq-23")
@pytest.mark.parametrize("stop", [4, 23])
def test_a_stopped_run_goes_on_bit_equal(offline, whole, stop, tmp_path, monkeypatch):
    (run, env), (tuned, folder) = offline, whole
    chunks_of(4, monkeypatch)
    stop_at(begin(run, env, tmp_path / "run", save_seconds=0.0, log_out=tmp_path / "log"), stop)
    loaded = tl.load_run(tmp_path / "run")
    assert 0 < loaded.update < STEPS
    assert learnt_of(finish(loaded)) == learnt_of(tuned)
    ours, theirs = (tl.Log.load(place / "log") for place in (tmp_path, folder))
    assert ours.fingerprint() == theirs.fingerprint()


def from_log(folder, algorithm, memory_map):
    """A run that learnt from a saved log, which is in memory or stays on disk."""
    log = tl.Log.load(folder, memory_map=memory_map)
    return tl.fit(algorithm, log, 20, held_out=0.2, scale="standard")


@pytest.mark.bits(across_programs=True)
@pytest.mark.parametrize("share", [0.5, 0.0, 1.0])
def test_a_log_that_stays_on_disk_makes_the_same_run(share, tmp_path):
    tl.collect(HOST, episodes=12, seed=0).save(tmp_path / "log")
    here, away = (from_log(tmp_path / "log", ALGORITHMS["iql"][0], memory_map) for memory_map in (False, True))
    assert any(isinstance(store, stores.Stream) for store in away._engine.stores.values())
    here, away = (finish(begin(run, HOST, steps=20, offline=share)).learners()[0] for run in (here, away))
    assert int(away.state.step) == 20
    assert fingerprint(away) == fingerprint(here)


@pytest.mark.sample("discrete-bcq")
def test_rounds_without_an_update_are_saved_too(offline, tmp_path, monkeypatch):
    run, env = offline
    if env == FUNCTION:
        return  # one is enough
    monkeypatch.setitem(registry._BUILT_IN, "breaking", Breaking)
    monkeypatch.setattr(Breaking, "broken_at", 15)
    out, log = tmp_path / "run", tmp_path / "log"
    broken = begin(run, "breaking", out, updates=0.04, save_seconds=1e9, log_out=log)  # updates in two of six rounds
    with pytest.raises(tl.errors.EnvironmentFailure, match="it broke"):
        finish(broken)
    again = tl.load_run(out)
    assert (again.update, again.done) == (0, 10)
    monkeypatch.setattr(Breaking, "broken_at", -1)
    ended = finish(again)
    assert (ended.update, ended.done) == (2, STEPS)
    loaded = tl.load_run(out)
    assert loaded.finished
    assert learnt_of(finish(loaded)) == learnt_of(ended)
    assert tl.Log.load(log).steps == 2 * STEPS
    with pytest.raises(tl.errors.CheckpointError, match=r"the finished log .*log, which cannot be extended"):
        finish(tl.load_run(out, checkpoint=0))


@pytest.mark.full
def test_what_was_played_is_in_the_store_and_in_the_log_with_its_propensity(offline, whole):
    (run, _), (tuned, folder) = offline, whole
    log, own = tl.Log.load(folder / "log"), tuned.learners()[0].segments["own"]
    assert log.steps == 2 * STEPS
    assert int(own.filled) * 10 == STEPS
    np.testing.assert_allclose(np.ravel(own.columns["reward"]), log.reward[:STEPS], rtol=1e-6)
    seen = {name: leaf[log.position[:10]] for name, leaf in log.observation.items()}
    policy = run.policy(seed=0)
    likely = policy.log_probability(seen, log.action[:10])  # of the policy that the run ended with
    np.testing.assert_allclose(log.propensity[:10], np.exp(likely), rtol=1e-4)


@pytest.mark.sample("discrete-bcq")
def test_policies_of_the_run_take_raw_observations(offline, whole):
    (_, env), (tuned, folder) = offline, whole
    live, kept = tuned.policy(seed=1), tl.load_run(folder / "run").policy(seed=1)
    np.testing.assert_array_equal(tl.rollout(live, env, 2), tl.rollout(kept, env, 2))
    assert type(live.algorithm) is type(tuned.members[0].algorithm)


@pytest.mark.full
def test_a_policy_without_a_density_makes_a_log_without_propensities(tmp_path):
    log = tl.collect(HOST, episodes=8, seed=0)
    small = {"generator_hidden": (8,), "perturbation_hidden": (8,), "target_samples": 2, "samples": 2}
    run = tl.fit(tl.BCQ(**SMALL, **small), log, 10)
    tl.finetune(run, HOST, 20, log_out=tmp_path / "log", offline=0.25)
    played = tl.Log.load(tmp_path / "log")
    assert played.steps == 20
    assert played.propensity is None


@pytest.mark.full
def test_the_command_line_goes_on_resumes_and_evaluates(offline, tmp_path, monkeypatch, capsys):
    run, env = offline
    monkeypatch.chdir(tmp_path)
    words = ["train", "--from", str(run.folder), "--env", env, "--steps", "20", "--eval-every", "10"]
    assert main([*words, "--offline", "0.75", "--evaluate", f"{env.removeprefix('jax:')}=1", "--out", "tuned"]) == 0
    said = capsys.readouterr().out
    assert "last metrics" in said
    assert f"next: tidelog evaluate tuned --env {env}\nthen: tidelog judge tuned" in said
    assert main(["resume", "tuned"]) == 0
    assert "is complete at decision 20" in capsys.readouterr().out
    assert main(["evaluate", "tuned", "--env", env, "--episodes", "1"]) == 0
    assert main(["train", "--from", "tuned", "--env", env, "--steps", "20"]) == 2
    assert "already: expected a run that learned from a log. fix: resume this run" in capsys.readouterr().err


# What is refused.


SEEN, UNIT = {"x": Vector(2)}, Continuous((-1.0,), (1.0,))
CHANGED = {
    "a leaf": (Spec({"y": Vector(2)}, UNIT), r"here has the observations \['y'\]: expected those of the log, \['x'\]"),
    "its width": (
        Spec({"x": Vector(3)}, UNIT),
        r"observation 'x' of the log is Vector\(size=2.* but that of here is Vector\(size=3",
    ),
    "bounds": (Spec(SEEN, Continuous((-1.0,), (2.0,))), "the action of the log is Continuous"),
    "kind": (Spec(SEEN, Discrete(2)), r"the action of the log is Continuous.* but that of here is Discrete\(n=2"),
    "mask": (Spec(SEEN, UNIT, masked=True), "the log has no action masks, but here has action masks"),
}


@pytest.mark.parametrize("what", CHANGED)
def test_spaces_that_changed_are_refused_by_name(what):
    theirs, said = CHANGED[what]
    with pytest.raises(tl.SpecError, match=said):
        check_same_spaces(Spec(SEEN, UNIT), theirs, "here")


def test_words_that_only_one_of_them_has_are_no_change():
    ours = Spec({"x": Vector(2, ("a", "b")), "c": Codes((2,), ("w",), (("u", "v"),))}, Discrete(2, ("go", "stay")))
    check_same_spaces(ours, Spec({"x": Vector(2), "c": Codes((2,))}, Discrete(2)), "here")
    with pytest.raises(tl.SpecError, match="the action of the log is Discrete"):
        check_same_spaces(ours, replace(ours, action=Discrete(2, ("stay", "go"))), "here")
    nearly = Continuous((-0.1,), (0.1,))
    check_same_spaces(Spec(SEEN, nearly), Spec(SEEN, Continuous((float(np.float32(-0.1)),), (0.1,))), "here")


def test_what_cannot_go_on_is_refused(offline, tmp_path):
    run, env = offline
    other = {HOST: FUNCTION, FUNCTION: HOST}[env]
    with pytest.raises(tl.SpecError, match="of the log is"):
        begin(run, other, tmp_path / "run")
    with pytest.raises(tl.ConfigError, match="offline = 2"):
        begin(run, env, tmp_path / "run", offline=2)
    with pytest.raises(tl.ConfigError, match="this run has no such metric; did you mean 'collect/return'"):
        begin(run, env, tmp_path / "run", best_metric="collect/retrun")
    with pytest.raises(tl.ConfigError, match="finetune takes a run, found PPG"):
        begin(tl.PPG(), FUNCTION, tmp_path / "run", offline=0.5, updates=2)
    assert not (tmp_path / "run").exists()


@pytest.mark.sample("bc")
@pytest.mark.parametrize(
    "algorithm", [tl.BC(**SMALL), tl.IQL(**SMALL, recurrent_size=4, window=2)], ids=["bc", "memory"]
)
def test_what_reads_no_single_transitions_cannot_go_on(algorithm):
    run = tl.fit(algorithm, tl.collect(HOST, episodes=4, seed=0), 1)
    with pytest.raises(tl.SpecError, match=r"does not support fine-tuning: its phase '.*' does not read single"):
        begin(run, HOST)


@pytest.mark.sample("discrete-bcq")
def test_scales_are_the_logs(offline):
    run, env = offline
    player = begin(run, env)._engine._collectors[0]
    scaler: Scaler = run.record.scaler
    raw = {name: np.ones((3, leaf.size), np.float32) for name, leaf in run.record.spec.observation.items()}
    for name, leaf in player.scales.observation(raw).items():
        np.testing.assert_allclose(leaf, scaler.observation(raw)[name], rtol=1e-6)
    inner, params = run.members[0].algorithm, run.members[0].algorithm.policy_params(run.learners()[0].state)
    key = jax.random.key(0)
    one = eqx.filter_jit(player.act)(params, raw, key=key).action
    two = eqx.filter_jit(inner.act)(params, scaler.observation(raw), key=key).action
    np.testing.assert_allclose(one, two, rtol=1e-5)


@pytest.mark.full
def test_an_algorithm_that_reads_the_next_action_goes_on_with_its_own():
    run = tl.fit(tl.ReBRAC(**SMALL), tl.collect(HOST, episodes=12, seed=0), 20, progress=False)
    tuned = tl.finetune(run, HOST, STEPS, progress=False)
    assert tuned.finished
    assert finite(tuned.learners()[0].state)
    assert differ(run.learners()[0].state.critic, tuned.learners()[0].state.critic)
