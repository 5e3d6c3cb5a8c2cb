"""Runs in an environment that begin as a policy: what is distilled, from whom, and from whom it cannot be."""

import json
from dataclasses import replace
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tidelog as tl
from tests.algorithms.players import Dials, Doors, replaying, tiny
from tests.conformance.cases import differ, same
from tests.training.runs import chunks_of, finish, stop_at
from tidelog.algorithms.contract import DistillationTarget
from tidelog.algorithms.ppg_common import clone_loss
from tidelog.cli import main
from tidelog.envs import registry
from tidelog.envs.functional import Hosted
from tidelog.envs.protocol import play
from tidelog.envs.registry import make
from tidelog.errors import DivergenceError
from tidelog.networks.actors import Categorical
from tidelog.policies.policy import fingerprint
from tidelog.policies.rollout import MappedPolicy, distillation_target, log_of
from tidelog.training import learn as learn_module
from tidelog.training.learn import learn
from tidelog.types import Continuous, MultiDiscrete

CART, HOST, SEEN = "CartPole-v1", "point-mass", ("position", "speed", "angle", "turning")
BRIEF = {"start_decisions": 512, "start_updates": 400}
SMALL = {"hidden": (8,), "batch_size": 32}


def upright(observed, generator):
    """A controller that holds the pole, with some noise."""
    x, speed, angle, turning = observed.observation["observation"].T
    wanted = angle + 0.4 * turning + 0.05 * x + 0.1 * speed > 0
    return np.where(generator.random(len(x)) < 0.1, ~wanted, wanted).astype(np.int32), None


@pytest.fixture(scope="module")
def held(tmp_path_factory):
    """A log of a controller that holds the pole, and a run of a clone of it, in its folder."""
    environment = make(CART, 16)
    log = log_of(environment.spec, play(environment, upright, steps=1_500))
    folder = tmp_path_factory.mktemp("held") / "run"
    return log, tl.fit(tl.BC(hidden=(16,), learning_rate=1e-2), log, 300, out=folder, scale="standard", held_out=0.2)


def begin(algorithm, env, start, **options):
    return learn(algorithm, env, **{"steps": 320, "start": start, **BRIEF, **options}, train=False)


@pytest.mark.sample("ppg")
@pytest.mark.parametrize(
    ("algorithm", "env"), [(tiny(hidden=(32,)), f"jax:{CART}"), (replaying(hidden=(32,)), CART)], ids=["ppg", "off"]
)
@pytest.mark.full
def test_before_its_first_update_it_plays_like_its_teacher(held, algorithm, env):
    _, teacher = held
    run = begin(algorithm, env, teacher, seeds=2)
    told = run.record.data.start
    assert max(told.divergence) < 0.05
    assert told.decisions >= 512
    assert run.notes()[-1].startswith("distilled from the BC start policy: mean divergence 0.0")
    one, two = (tl.rollout(policy, CART, 8, seed=3) for policy in (run.policy(), teacher.policy()))
    assert two.mean() > 150
    # 3 of 13 other seeds fail, with either algorithm: the clone earns 255 to 375 of its teacher's 500
    assert abs(one.mean() - two.mean()) < 0.25 * two.mean()
    state, other = (learner.state for learner in run.learners())
    assert int(state.step) == 0
    assert differ(state.network, other.network, by=0.01)
    if isinstance(algorithm, tl.OffPolicyPPG):
        same(state.proximal.network, state.network)


@pytest.mark.full
def test_a_member_begins_alone_as_it_does_among_others(held):
    _, teacher = held
    both, alone = (begin(tiny(), f"jax:{CART}", teacher, seeds=seeds) for seeds in (2, [1]))
    same(both.learners()[1].state, alone.learners()[0].state)


@pytest.mark.full
def test_a_gaussian_is_cloned_with_its_spread_and_in_the_environments_units():
    log = tl.collect(HOST, episodes=8, seed=0)
    policy = tl.fit(tl.IQL(**SMALL), log, 20).policy()
    run = begin(tiny(hidden=(16,)), HOST, policy, start_updates=1_000)
    assert run.record.data.start.divergence[0] < 0.01  # 0 of 13 other seeds fail
    space = policy.spec.action
    half = Continuous(tuple(0.5 * b for b in space.low), tuple(0.5 * b for b in space.high), space.names)
    timid = tl.Policy(policy.algorithm, replace(policy.spec, action=half), policy.scaler, policy.params)
    one, two = (distillation_target(p, make(HOST, 2), 8, 0).old for p in (policy, timid))
    np.testing.assert_allclose(two.mean[:2], 0.5 * one.mean[:2], rtol=1e-5)  # of the same first observations
    np.testing.assert_allclose(two.log_std[:2], one.log_std[:2] + np.log(0.5), rtol=1e-5)


@pytest.mark.full
@pytest.mark.parametrize("algorithm", [tl.DiscreteBCQ(**SMALL, epsilon=0.3), tl.BC(**SMALL, epsilon=0.5)])
def test_a_lesson_is_what_the_policy_would_do_in_the_words_of_the_environment(algorithm):
    log = tl.collect("treatment", episodes=6, seed=0)
    names = log.spec.action.names
    turned = tl.fit(algorithm, log, 5).policy()
    turned.spec = replace(log.spec, action=replace(log.spec.action, names=names[::-1]))
    environment = make("treatment", 2)
    target = distillation_target(turned, environment, 20, 0)
    assert target.mask is None
    assert len(target.old.logits) >= 20
    wanted = MappedPolicy(turned, environment.spec).probabilities(target.observation)
    np.testing.assert_allclose(jax.nn.softmax(target.old.logits), wanted, atol=1e-6)
    straight = turned.probabilities(target.observation)
    np.testing.assert_allclose(wanted, straight[:, ::-1], atol=1e-6)
    assert differ(wanted, straight, by=1e-3)


def test_the_divergence_is_from_the_teacher():
    # KL((0.9, 0.1), (0.5, 0.5)) = 0.9 log 1.8 + 0.1 log 0.2 = 0.3681; the other way round it is 0.5108
    old, new = (np.log([p], dtype=np.float32) for p in ([0.9, 0.1], [0.5, 0.5]))

    @jax.jit
    def divergence(old, new):
        network = SimpleNamespace(policy=lambda observation, mask: Categorical(new))
        return clone_loss(network, tiny(), DistillationTarget({}, None, Categorical(old)))[0]

    assert float(divergence(old, new)) == pytest.approx(0.3681, abs=1e-4)


@pytest.mark.full
def test_masks_are_part_of_a_lesson():
    policy = tl.fit(tl.BC(**SMALL), tl.collect(Doors(), episodes=8), 5).policy()
    target = distillation_target(policy, make(Doors(), 2), 20, 0)
    forbidden = ~target.mask
    assert forbidden.sum(axis=1).tolist() == [1] * len(forbidden)
    assert (jax.nn.softmax(target.old.logits)[forbidden] == 0).all()
    run = begin(tiny(), Doors(), policy)
    # rounding can make it negative, by 1e-8 at most
    assert -1e-7 <= run.record.data.start.divergence[0] < 1e-3


@pytest.mark.full
def test_a_policy_of_several_choices_plays_where_it_learnt_and_is_begun_as(monkeypatch):
    monkeypatch.setitem(registry._BUILT_IN, "dials", lambda count: Hosted(Dials(), count))
    policy = learn(tiny(), "dials", 64, evaluate={"dials": 1}, train=False).policy()
    assert tl.rollout(policy, "dials", 2).shape == (2,)
    drawn, _ = policy.sample_with_propensity(np.zeros((500, 2), np.float32))
    found, counts = np.unique(drawn, axis=0, return_counts=True)
    assert len(found) == 6
    likely = np.exp(policy.log_probability(np.zeros((6, 2), np.float32), found))
    assert likely.sum() == pytest.approx(1.0, abs=1e-5)
    np.testing.assert_allclose(counts / 500, likely, atol=0.1)  # right samples fail for 5 in 100 million seeds
    for wrong, said in (([[0, 3]], "action 1"), ([0], "actions have shape")):
        with pytest.raises(tl.SpecError, match=said):
            policy.log_probability(np.zeros((1, 2), np.float32), wrong)
    told = begin(tiny(), Dials(), policy, start_updates=200, start_decisions=64).record.data.start
    # rounding can make it negative, by 2e-8 at most
    assert -1e-7 <= told.divergence[0] < 1e-3
    wider = replace(policy.spec, action=MultiDiscrete((2, 4)))
    with pytest.raises(tl.SpecError, match=r"MultiDiscrete\(sizes=\(2, 4\)\), the policy MultiDiscrete"):
        MappedPolicy(policy, wider)


@pytest.mark.full
def test_what_taught_the_teacher_is_known_of_the_run(held):
    _, teacher = held
    run = begin(tiny(), f"jax:{CART}", teacher.policy(), start_updates=1)
    assert run.policy().origin["learnt_from"] == teacher.policy().origin["learnt_from"]
    chosen = teacher.policy()
    chosen.origin["chosen_by"] = "held_out/imitation_loss"
    through = begin(tiny(), f"jax:{CART}", chosen, start_updates=1)
    assert through.policy().origin["learnt_from"] != teacher.policy().origin["learnt_from"]
    assert "learnt_from" not in begin(tiny(), HOST, None, start_decisions=None, start_updates=None).policy().origin


@pytest.mark.bits
@pytest.mark.full
@pytest.mark.parametrize("env", [f"jax:{CART}", CART])
def test_a_stopped_run_goes_on_bit_equal(held, env, tmp_path, monkeypatch):
    _, teacher = held
    chunks_of(3, monkeypatch)
    options = {"start_updates": 20, "steps": 192, "every": 64, "seeds": 2, "save_seconds": 0.0}
    whole = finish(begin(tiny(), env, teacher, **options))
    stop_at(begin(tiny(), env, teacher, out=tmp_path / "run", **options), 5)
    loaded = finish(tl.load_run(tmp_path / "run"))
    assert [fingerprint(learner) for learner in loaded.learners()] == [fingerprint(one) for one in whole.learners()]
    assert loaded.notes()[-1].startswith("distilled from the BC start policy")


@pytest.mark.full
def test_the_command_line_begins_as_a_run_or_a_saved_policy(held, tmp_path, monkeypatch, capsys):
    _, teacher = held
    monkeypatch.chdir(tmp_path)
    teacher.policy().save("policy")
    few = ["--num-envs", "2", "--rollout-steps", "8", "--minibatches", "2", "--hidden", "8"]
    few += ["--auxiliary-epochs", "0", "--steps", "16", "--start-updates", "5", "--start-decisions", "16"]
    for start in (str(teacher.folder), "policy"):
        assert main(["train", "ppg", "--env", CART, *few, "--start", start, "--out", "run"]) == 0
        assert "note: distilled from the BC start policy" in capsys.readouterr().err
        told = json.loads((tmp_path / "run" / "run.json").read_text())["data"]["start"]
        assert (told["updates"], told["decisions"]) == (5, 16)
        (tmp_path / "run").rename(tmp_path / f"run {len(list(tmp_path.iterdir()))}")
    assert (
        main(["train", "ppg", "--env", "Pendulum-v1", "--preset", "none", *few, "--start", "policy", "--out", "other"])
        == 2
    )
    assert "expected Vector of width 4 of the policy" in capsys.readouterr().err
    assert not (tmp_path / "other").exists()


# What is refused.


@pytest.fixture(scope="module")
def unfit():
    """Policies that cannot teach, by what is wrong with them."""
    log = tl.collect(HOST, episodes=4, seed=0)
    tiny_bcq = {"generator_hidden": (8,), "perturbation_hidden": (8,), "target_samples": 2, "samples": 2}
    algorithms = {
        "BCQ policy has no density": tl.BCQ(**SMALL, **tiny_bcq),
        "IQL policy has no density": tl.IQL(**SMALL, actor_head="deterministic"),
        "BC policy has no density": tl.BC(**SMALL, epsilon=0.5),  # its mode carries mass
        "IQL policy is recurrent": tl.IQL(**SMALL, recurrent_size=4, window=2),
    }
    return {said: tl.fit(algorithm, log, 1, train=False).policy() for said, algorithm in algorithms.items()}


@pytest.mark.sample("BCQ policy has no")
@pytest.mark.parametrize(
    "said", ["BCQ policy has no", "IQL policy has no", "BC policy has no", "IQL policy is recurrent"]
)
def test_a_policy_without_a_distribution_of_single_observations_is_refused(unfit, said, tmp_path):
    policy = next(policy for whole, policy in unfit.items() if whole.startswith(said))
    with pytest.raises(tl.SpecError, match=said):
        begin(tiny(), HOST, policy, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.full
def test_a_policy_of_other_spaces_is_refused(unfit, held):
    _, teacher = held
    with pytest.raises(tl.SpecError, match="width"):
        begin(tiny(), "jax:Pendulum-v1", teacher)
    masked = replace(teacher.policy().spec, action=replace(teacher.policy().spec.action, n=3, names=()))
    policy = teacher.policy()
    policy.spec = masked
    with pytest.raises(tl.SpecError, match=r"has the actions Discrete\(n=2.*, the policy Discrete\(n=3"):
        begin(tiny(), f"jax:{CART}", policy)


def test_a_log_in_transport_of_an_environment_is_refused_with_what_is_offered_instead(held, capsys):
    log, _ = held
    bare = replace(log, propensity=None)
    offered = r"fix: learn from the log with bc, bcq, discrete-bcq, iql .*start=run"
    for algorithm in (replaying(), tiny()):
        name = type(algorithm).__name__
        with pytest.raises(
            tl.SpecError, match=rf"{name} needs an environment.* steps without propensities\. {offered}"
        ):
            learn(algorithm, bare, 320, train=False)
    likely = replace(log, propensity=np.ones(log.steps))
    with pytest.raises(tl.SpecError, match=rf"a log of [\d,]+ steps\. {offered}"):
        learn(replaying(), likely, 320, train=False)
    assert main(["train", "off-policy-ppg", "--data", "log"]) == 2
    assert "`tidelog train off-policy-ppg --env NAME --start runs/iql`" in " ".join(capsys.readouterr().err.split())
    assert main(["train", "iql", "--env=CartPole-v1"]) == 2
    assert "iql learns from a log (--data LOG), not in an environment" in " ".join(capsys.readouterr().err.split())


def test_places_that_are_taken_are_refused_before_anybody_plays(held, tmp_path, monkeypatch):
    _, teacher = held
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "mine").write_text("")
    monkeypatch.setattr(learn_module, "begun_as", None)
    with pytest.raises(tl.ConfigError, match="exists and is not empty"):
        begin(tiny(), HOST, teacher, out=tmp_path / "run")


def test_a_start_that_diverges_is_refused(held, tmp_path, monkeypatch):
    _, teacher = held
    monkeypatch.setattr(tl.PPG, "distilled", lambda self, state, *rest: (state, jnp.nan))
    with pytest.raises(DivergenceError, match="the divergence of PPG with seed 0 from the start policy became NaN"):
        begin(tiny(), CART, teacher, out=tmp_path / "run")
    assert not list(tmp_path.iterdir())


def test_wrong_starts_are_refused_by_name(held):
    _, teacher = held
    with pytest.raises(tl.ConfigError, match=r"start: expected a policy or a run, found str\. fix: .*tl.load_policy"):
        begin(tiny(), CART, "runs/bc")
    with pytest.raises(tl.ConfigError, match="start_updates: has no effect without a start policy"):
        learn(tiny(), CART, 320, start_updates=5, train=False)
    with pytest.raises(tl.ConfigError, match="start_decisions = 0: expected at least 1"):
        begin(tiny(), CART, teacher, start_decisions=0)
    with pytest.raises(tl.ConfigError, match=r"start_updates = 2\.5: expected a whole number"):
        begin(tiny(), CART, teacher, start_updates=2.5)
    with pytest.raises(tl.ConfigError, match=r"learn takes an algorithm, found a run. fix: use tl\.finetune"):
        begin(teacher, CART, teacher)
