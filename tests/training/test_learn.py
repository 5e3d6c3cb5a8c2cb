"""`learn` from its door to its folder: reports, logs of what was collected, resuming, and environments that break."""

import json
import shutil
from dataclasses import replace

import jax
import numpy as np
import pytest

import tidelog as tl
from tests.algorithms.players import tiny
from tests.training.runs import chunks_of, finish, learnt_of, stop_at
from tidelog import Log
from tidelog.cli import main
from tidelog.envs import registry
from tidelog.envs.tabular import PointMass
from tidelog.errors import CheckpointError, DivergenceError, EnvironmentFailure
from tidelog.training.engine import Engine
from tidelog.training.learn import learn
from tidelog.training.loop import Position
from tidelog.training.record import Checkpoints

STEPS, EVERY = 320, 128  # five rounds of 64; reports after the second and fourth
FUNCTION, HOST = "jax:CartPole-v1", "point-mass"


def begin(env, out=None, algorithm=None, **options):
    return learn(algorithm or tiny(), env, **{"steps": STEPS, "eval_every": EVERY, "out": out, **options}, train=False)


@pytest.fixture(scope="module", params=[FUNCTION, HOST])
def whole(request, tmp_path_factory):
    """An environment, and all that comes of a run in it that is not stopped."""
    folder = tmp_path_factory.mktemp("whole")
    run = finish(begin(request.param, folder / "run", seeds=2, log_out=folder / "log"))
    return request.param, learnt_of(run), run, folder


@pytest.mark.full
@pytest.mark.sample("jax:CartPole-v1")
def test_reports_come_after_whole_rounds(whole):
    _, _, run, folder = whole
    assert [row["decisions"] for row in run.metrics if row["member"] == 1] == [128, 256, 320]
    assert run.done == STEPS
    assert run.finished
    assert run.unit == "decisions"
    assert json.loads((folder / "run" / "run.json").read_text())["data"]["environment"] == run.record.environment
    assert len((folder / "run" / "metrics.jsonl").read_text().splitlines()) == 6


def test_rounds_in_a_host_environment_do_not_repeat_their_noise(tmp_path):
    still = tiny(learning_rate=1e-9, auxiliary_learning_rate=1e-9)
    run = finish(begin(HOST, tmp_path / "run", still, steps=192, eval_every=64, log_out=tmp_path / "log"))
    log = tl.Log.load(tmp_path / "log")
    likeliest = run.policy().with_acting("mode").act(log.transitions.observation)[0]
    free = (log.action > log.spec.action.low) & (log.action < log.spec.action.high)  # not cut at a bound
    noise = (log.action - likeliest)[free]
    assert len(noise) > 80
    assert len(np.unique(noise.round(3))) > 0.8 * len(noise), "of three rounds"


@pytest.mark.bits
@pytest.mark.sample("jax:CartPole-v1-second round")
@pytest.mark.parametrize("stop", [3, 6, 13], ids=["first round", "second round", "auxiliary phase"])
def test_a_stopped_run_goes_on_bit_equal(whole, stop, tmp_path, monkeypatch):
    env, expected, _, folder = whole
    chunks_of(3, monkeypatch)
    options = {"seeds": 2, "save_seconds": 0.0, "log_out": tmp_path / "log"}
    run = stop_at(begin(env, tmp_path / "run", **options), stop)
    assert stop <= run.update < stop + 4
    loaded = tl.load_run(tmp_path / "run")
    assert loaded._engine.position == run._engine.position
    assert learnt_of(finish(loaded)) == expected
    ours, theirs = (tl.Log.load(place / "log") for place in (tmp_path, folder))
    assert ours.fingerprint() == theirs.fingerprint()


@pytest.mark.sample("jax:CartPole-v1")
def test_the_log_holds_every_decision_with_its_propensity(whole):
    env, _, run, folder = whole
    log = tl.Log.load(folder / "log")
    assert log.steps == 2 * STEPS
    assert not list(folder.glob("*.pieces"))
    ends = np.append(log.episode[1:] != log.episode[:-1], True)
    np.testing.assert_array_equal(log.terminated | log.truncated, ends)
    policy = tl.Policy(tiny(), run.record.spec, run.record.scaler, tiny().policy_params(fresh_state(run)))
    first = np.flatnonzero(np.arange(log.steps) < 8)  # of the first copy's first rollout, by the fresh policy
    rows = log.transitions
    seen = {name: leaf[first] for name, leaf in rows.observation.items()}
    likely = policy.log_probability(seen, log.action[first])
    np.testing.assert_allclose(log.propensity[first], np.exp(likely), rtol=1e-4)
    if env == HOST:
        cut = np.asarray(log.extra["cut"], bool)
        assert 0.1 < cut.mean() < 0.6  # a standard normal leaves [-1, 1] in 32%: below 1 in 10^20 seeds
        np.testing.assert_array_equal(np.abs(log.action[cut]), 1.0)
        assert (np.abs(log.action) <= 1.0).all()


def fresh_state(run):
    member = run.members[0]
    return member.algorithm.init(run.record.spec, jax.random.key(member.seed), 1)


def test_play_is_deterministic_or_sampled_and_named_so():
    run = finish(begin(HOST, evaluate={HOST: 2, f"sampled:{HOST}": 2}, steps=64, eval_every=64))
    found = run.metrics[-1]
    assert {f"play/{HOST}", f"play/sampled:{HOST}"} < set(found)
    policy = run.policy()
    assert found[f"play/{HOST}"] == pytest.approx(tl.rollout(policy, HOST, 2, seed=0).mean())
    assert found[f"play/sampled:{HOST}"] == pytest.approx(tl.rollout(policy, HOST, 2, seed=0, sample=True).mean())
    assert found[f"play/{HOST}"] != found[f"play/sampled:{HOST}"]


class Breaking(PointMass):
    """A point mass that breaks at one step of its life, and can be repaired."""

    broken_at = 40

    def __init__(self, count):
        super().__init__(count)
        self.lived = 0

    def step(self, action):
        self.lived += 1
        if self.lived == self.broken_at:
            raise EnvironmentFailure(f"{self.name}, copy 2, step {self.lived}: it broke")
        return super().step(action)


def test_a_run_whose_environment_breaks_is_saved_and_goes_on(tmp_path):
    run = begin(Breaking(4), tmp_path / "run", save_seconds=1e9)
    with pytest.raises(EnvironmentFailure, match=r"copy 2, step 40: it broke \(seed 0\); .* saved in .*resume"):
        finish(run)
    shutil.copytree(tmp_path / "run", tmp_path / "copy")
    loaded = tl.load_run(tmp_path / "copy", env=PointMass(4))
    assert loaded._engine.position == Position(2)
    assert loaded.done == 128
    through = finish(begin(PointMass(4)))
    assert learnt_of(finish(loaded))[0] == learnt_of(through)[0]
    assert learnt_of(finish(run))[0] == learnt_of(through)[0]  # in the same process, the environment repaired


@pytest.mark.full
def test_where_one_members_environment_breaks_the_others_go_on_from_where_they_stood(tmp_path, monkeypatch):
    """One thread plays member after member: where the first breaks, the second has not begun its rollout."""
    made = []

    def breaking_first(count):
        made.append(Breaking(count) if not made else PointMass(count))
        return made[-1]

    monkeypatch.setattr("os.cpu_count", lambda: 1)
    monkeypatch.setitem(registry._BUILT_IN, "breaking", breaking_first)
    run = begin("breaking", tmp_path / "run", seeds=2)
    with pytest.raises(EnvironmentFailure, match=r"it broke \(seed 0\)"):
        finish(run)
    assert learnt_of(finish(tl.load_run(tmp_path / "run")))[0] == learnt_of(finish(begin(HOST, seeds=2)))[0]


def test_the_command_line_exits_4_where_an_environment_breaks(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(registry._BUILT_IN, "breaking", Breaking)
    monkeypatch.chdir(tmp_path)
    flags = [f"--{name.replace('_', '-')}={value}" for name, value in TINY_FLAGS.items()]
    words = ["train", "ppg", "--env", "breaking", "--preset", "none", "--steps", "320", "--out", "run", *flags]
    assert main(words) == 4
    assert "point-mass, copy 2, step 40: it broke (seed 0)" in capsys.readouterr().err
    monkeypatch.setattr(Breaking, "broken_at", -1)
    assert main(["resume", "run"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("resuming run at decision 128 of 320\n")
    assert "tidelog evaluate run --env breaking" in " ".join(said.split())


TINY_FLAGS = {
    "num_envs": 4, "rollout_steps": 16, "policy_iterations": 2, "policy_epochs": 2, "value_epochs": 2,
    "auxiliary_epochs": 2, "minibatches": 2, "auxiliary_minibatch": 2, "learning_rate": 1e-2,
    "auxiliary_learning_rate": 1e-2, "discount": 0.9, "embedding": 2, "hidden": 8,
}  # fmt: skip


class Forgetful:
    """A point mass that cannot say where it stands."""

    def __init__(self, count):
        self._inner = PointMass(count)
        self.name, self.spec, self.count = self._inner.name, self._inner.spec, count
        self.reset, self.step, self.close = self._inner.reset, self._inner.step, self._inner.close


@pytest.mark.full
def test_a_run_in_an_environment_that_cannot_be_saved_says_so_and_goes_on(tmp_path):
    stop_at(begin(Forgetful(4), tmp_path / "run", save_seconds=0.0, log_out=tmp_path / "log"), 5)
    with pytest.raises(
        CheckpointError,
        match=r"point-mass has no registered name\. fix: pass it again, as in resume\(folder, env=",
    ):
        tl.load_run(tmp_path / "run")
    loaded = tl.load_run(tmp_path / "run", env=Forgetful(4))
    (learner,) = loaded.learners()
    assert not learner.collection_state.sums.any()
    assert not learner.state.rewards.sums.any()
    assert int(learner.state.rewards.returns.seen) > 0
    (note,) = loaded.notes()
    assert "point-mass cannot be saved: a resumed run starts new episodes" in note
    assert finish(loaded).finished
    log = tl.Log.load(tmp_path / "log")
    assert log.steps == STEPS


def test_what_is_rounded_or_never_comes_is_said():
    notes = begin(FUNCTION, steps=65).notes()
    assert notes == ["65 decisions are rounded up to 128, that is 2 rollouts"]
    (note,) = begin(FUNCTION, steps=64).notes()
    assert note.startswith("the auxiliary phase has no updates in 1 rounds")


def test_a_run_whose_loss_diverges_stops_and_keeps_the_last_good_checkpoint(tmp_path):
    run = begin(FUNCTION, tmp_path / "run", algorithm=tiny(learning_rate=1e30))
    with pytest.raises(DivergenceError, match="a loss of PPG with seed 0 became NaN or infinite at update"):
        finish(run)
    assert tl.load_run(tmp_path / "run").update == 0


def test_a_population_learns_side_by_side():
    algorithms = [tiny(), replace(tiny(), learning_rate=1e-3)]
    run = finish(begin(FUNCTION, algorithm=algorithms, steps=64))
    assert [row["policy/learning_rate"] for row in run.metrics] == pytest.approx([1e-2, 1e-3])


REFUSALS = {
    "no such environment": ({"env": "CartPole-v9"}, "CartPole-v"),
    "steps": ({"steps": 0}, "steps = 0"),
    "best_metric": ({"best_metric": "collect/retrun"}, "did you mean 'collect/return'"),
    "evaluate": ({"evaluate": {"nowhere": 1}}, "nowhere"),
    "evaluate as a list": ({"evaluate": [FUNCTION]}, r"evaluate = \['jax:.*expected \{environment: episodes\}"),
    "no place": ({"out": 3}, "out = 3: expected a path"),
    "no place for a log": ({"log_out": 3}, "log_out = 3: expected a path"),
    "vmap": ({"vmap": "yes"}, "vmap = 'yes': expected True, False or None"),
    "time": ({"save_seconds": float("nan")}, "save_seconds = nan: expected 0 or more"),
}


@pytest.mark.parametrize("wrong", REFUSALS)
def test_wrong_input_is_refused_and_nothing_is_written(wrong, tmp_path):
    options, said = REFUSALS[wrong]
    with pytest.raises(tl.ConfigError, match=said):
        begin(**({"env": FUNCTION, "out": tmp_path / "run"} | options))
    assert not (tmp_path / "run").exists()


def test_places_that_are_taken_are_refused(tmp_path):
    (tmp_path / "log").mkdir()
    with pytest.raises(
        tl.ConfigError, match=r"log exists already; nothing was written\. fix: choose another path for the log"
    ):
        begin(FUNCTION, tmp_path / "run", log_out=tmp_path / "log")
    with pytest.raises(tl.ConfigError, match="one point-mass object cannot serve 2 members"):
        begin(PointMass(4), seeds=2)
    with pytest.raises(tl.ConfigError, match="learn has no option 'held_out'"):
        tl.learn(tiny(), FUNCTION, 64, held_out=0.1)


def test_what_is_saved_already_is_not_saved_again_when_the_environment_breaks(tmp_path, monkeypatch):
    updates, save = [], Checkpoints.save
    monkeypatch.setattr(
        Checkpoints, "save", lambda self, update, checkpoint: updates.append(update) or save(self, update, checkpoint)
    )
    run = begin(Breaking(4), tmp_path / "run", save_seconds=0.0)
    with pytest.raises(EnvironmentFailure, match="it broke"):
        finish(run)
    assert updates == sorted(set(updates))
    assert updates[-1] == run.update


# A run whose process was killed between its last checkpoint and the writing of its collected log.


@pytest.mark.full
def test_resume_writes_the_collected_log_of_a_complete_run(tmp_path, monkeypatch, capsys):
    with monkeypatch.context() as killed:
        killed.setattr(Engine, "close", lambda self: None)
        learn(tiny(), "jax:CartPole-v1", 64, out=tmp_path / "run", log_out=tmp_path / "log", progress=False)
    assert not (tmp_path / "log").exists()
    piece = next((tmp_path / "log.pieces").glob("*.npz"))
    content = piece.read_bytes()
    piece.write_bytes(content[:-9])
    assert main(["resume", str(tmp_path / "run")]) == 2
    assert "npz is missing or damaged" in " ".join(capsys.readouterr().err.split())
    piece.write_bytes(content)
    (tmp_path / "log.pieces" / "mine.npz").write_bytes(b"")  # not one of its own
    assert main(["resume", str(tmp_path / "run")]) == 0
    assert "is complete" in capsys.readouterr().out
    assert Log.load(tmp_path / "log").steps == 64
    assert not (tmp_path / "log.pieces").exists()
