"""Fitted Q evaluation: fixed points by hand, values near exact ones, and what it promises about ends and constants."""

from dataclasses import replace

import equinox as eqx
import jax
import numpy as np
import pytest

import tidelog as tl
from tests.ope.played import better, policy_of, treated
from tidelog.data.statistics import Scaler
from tidelog.envs import play
from tidelog.envs.tabular import PointMass
from tidelog.envs.treatment import clinician, treatment
from tidelog.errors import DivergenceError
from tidelog.ope import networks
from tidelog.ope.evidence import Target, episode_folds
from tidelog.ope.networks import (
    FQE,
    POLICY_ACTIONS,
    evaluation_log,
    network_values,
    returns_to_go,
    step,
    train_critic,
)
from tidelog.ope.policies import target_of
from tidelog.training.stores import stores_of

QUICK = {"hidden": (32, 32), "embedding": 4}


def chain(copies: int = 60) -> tl.Log:
    """State 0 goes on to 1 and earns 1; there action 0 earns 1 and action 1 earns 3, and the episode ends."""
    last = np.arange(copies) % 2
    return tl.Log.from_arrays(
        observation=np.tile([0, 1], copies), action=np.stack([last, last], 1).ravel(), actions=2,
        reward=np.stack([np.ones(copies), 1.0 + 2.0 * last], 1).ravel(), episode=np.repeat(np.arange(copies), 2),
        terminated=np.tile([False, True], copies), next_observation=np.tile([1, 0], copies),
    )  # fmt: skip


def chances(log: tl.Log, table) -> Target:
    """Probabilities [S, A] as a target along a log of codes."""
    found = np.asarray(table, np.float64)[log.observation["observation"][:, 0]]
    return Target(found[log.position, log.action], found)


@pytest.mark.full
def test_fixed_points_by_hand_for_two_policies_at_once():
    """At discount 1/2: V(1) = 1/4 + 9/4 = 2.5 or 1, Q(0, .) = 1 + 2.5 / 2 or 1 + 1 / 2."""
    log = chain()
    one, two = chances(log, [[0.5, 0.5], [0.25, 0.75]]), chances(log, [[0.5, 0.5], [1.0, 0.0]])
    found = network_values(log, episode_folds(log, 2, 0), [[one] * 2, [two] * 2], 0.5)
    for values, first, later in zip(found, (2.25, 1.5), (2.5, 1.0), strict=True):
        assert values.all_actions[::2] == pytest.approx(first, abs=0.02)  # 0 of 7 other seeds fail, here and below
        assert values.all_actions[1::2, 0] == pytest.approx(1.0, abs=0.02)
        assert values.all_actions[1::2, 1] == pytest.approx(3.0, abs=0.02)
        assert values.target[1::2] == pytest.approx(later, abs=0.02)
        assert (values.logged == values.all_actions[np.arange(len(log)), log.action]).all()


@pytest.mark.full
def test_one_step_logs_are_a_regression_of_the_reward():
    rng = np.random.default_rng(0)
    seen, action = rng.integers(0, 3, 3_000), rng.integers(0, 2, 3_000)
    mean = np.asarray([[0.0, 1.0], [2.0, -1.0], [0.5, 0.5]])
    log = tl.Log.from_arrays(
        observation=seen, action=action, reward=mean[seen, action] + 0.1 * rng.standard_normal(3_000), terminated=True
    )
    (values,) = network_values(log, episode_folds(log, 2, 0), [[chances(log, np.full((3, 2), 0.5))] * 2])
    assert values.all_actions == pytest.approx(mean[seen], abs=0.06)  # 0 of 7 other seeds fail


@pytest.fixture(scope="module")
def valued():
    """The clinician and a better policy, rated on logged treatments."""
    log = treated()
    targets = [target_of(policy_of(treatment(), each), log, sample=True) for each in (better(), clinician())]
    return log, targets, network_values(log, episode_folds(log, 2, 0), [[target] * 2 for target in targets])


@pytest.mark.full
def test_logged_treatments_give_nearly_the_exact_values(valued):
    log, _, found = valued
    for values, policy in zip(found, (better(), clinician()), strict=True):
        exact = treatment().value_of(policy)
        # 1 of 7 other seeds fails
        assert values.target[log.starts[:-1]].mean() == pytest.approx(exact, abs=0.03)


@pytest.fixture
def short(monkeypatch):
    """Fewer updates, where it is not about how near values come."""
    monkeypatch.setattr(networks, "FEWEST", 300)
    monkeypatch.setattr(networks, "MOST", 300)


@pytest.mark.full
def test_a_constant_on_every_return_is_a_constant_on_every_value(short):
    """Trained on rewards of other size, so equal but for rounding, which training magnifies a little."""
    some = treated().take_episodes(range(60))
    target = target_of(policy_of(treatment(), better()), some, sample=True)
    reward = np.array(some.reward)
    reward[some.starts[1:] - 1] += 5.0
    folds = episode_folds(some, 2, 0)
    (one,), (two,) = (network_values(x, folds, [[target] * 2]) for x in (some, replace(some, reward=reward)))
    assert two.all_actions == pytest.approx(one.all_actions + 5.0, abs=0.02)  # 0 of 7 other seeds fail


@pytest.mark.full
def test_an_episodes_rewards_do_not_change_its_own_values(short):
    some = treated().take_episodes(range(60))
    target = target_of(policy_of(treatment(), better()), some, sample=True)
    reward = np.array(some.reward)
    reward[: some.starts[1]] += 3.0
    folds = episode_folds(some, 2, 0)
    (one,), (two,) = (network_values(x, folds, [[target] * 2]) for x in (some, replace(some, reward=reward)))
    own = folds[some.episode] == folds[0]
    assert (one.all_actions[own] == two.all_actions[own]).all()
    assert np.abs(one.all_actions[~own] - two.all_actions[~own]).max() > 0.01


@pytest.mark.full
def test_truncated_continuous_episodes_are_worth_what_is_left_of_them():
    """A point that goes home under a clock of 20 steps, logged by a noisy one: known returns, and less left later."""
    env, rng = PointMass(100), np.random.default_rng(0)

    def act(seen, _):
        noisy = PointMass.best(seen.observation["observation"]) + 0.7 * rng.standard_normal((100, 1))
        return np.clip(noisy, -1, 1).astype(np.float32), None

    log = tl.Log.from_arrays(**play(env, act, 300).columns(), bounds=(-1.0, 1.0))
    home = Target(np.zeros(log.steps), actions=PointMass.best(log.observation["observation"])[:, None])
    (values,) = network_values(log, episode_folds(log, 2, 0), [[home] * 2])
    first = log.starts[:-1]
    exact = PointMass.best_return(log.observation["observation"][log.position[first]])
    # 0 of 7 other seeds fail, here and below
    assert np.abs(values.target[first] - exact).mean() < 0.15 * np.abs(exact).mean() + 0.05
    assert np.corrcoef(values.target[first], exact)[0, 1] > 0.95
    assert np.abs(values.target[log.starts[1:] - 1]).mean() < 0.1
    assert values.all_actions is None


def test_what_the_derived_log_holds():
    log = treated().take_episodes(range(50))
    target = target_of(policy_of(treatment(), better()), log, sample=True)
    ended = evaluation_log(log, [target, target], 1.0, np.arange(20))
    assert ended.log.observation[POLICY_ACTIONS].shape == (len(log.observation["numeric"]), 12)
    assert set(ended.log.observation) == {"numeric", "categorical", POLICY_ACTIONS}
    learnt = returns_to_go(np.asarray(log.reward, float), log.starts, 1.0)[: log.starts[20]]
    assert (ended.scale, ended.centre) == (pytest.approx(learnt.std()), pytest.approx(learnt.mean() / learnt.std()))
    cut = replace(log, terminated=np.zeros(log.steps, bool), truncated=np.asarray(log.terminated))
    made = evaluation_log(cut, [target], 1.0, np.arange(20)).log
    assert "time passed" in made.observation
    assert (made.terminated == log.terminated).all()
    assert made.has_target.all()


# The algorithm on the loop.


@pytest.fixture(scope="module")
def small():
    log = treated().take_episodes(range(40))
    target = target_of(policy_of(treatment(), better()), log, sample=True)
    return evaluation_log(log, [target, target], 1.0, np.arange(40)).log


@pytest.mark.full
def test_the_target_critic_is_read_and_moves(small):
    h = FQE(policies=2, tau=0.5, **QUICK)
    state = h.init(small.spec, jax.random.key(0), 10)
    draw = h.phases()[0].samplers
    batch, _ = draw.batch(stores_of(h, small, Scaler())["log"], None, jax.random.key(1), 0.0)
    moved, _ = eqx.filter_jit(step)(h, state, batch)
    w = [np.asarray(s.critic.body.layers[0].weight) for s in (state, moved)]
    assert np.asarray(moved.target_critic.body.layers[0].weight) == pytest.approx((w[0] + w[1]) / 2, abs=1e-6)
    assert (w[0] != w[1]).any()
    other = state._replace(target_critic=jax.tree.map(lambda x: 2 * x if eqx.is_array(x) else x, state.target_critic))
    assert (eqx.filter_jit(step)(h, other, batch)[0].critic.body.layers[0].weight != w[1]).any()


def test_seeds_differ_and_repeat(small):
    h = FQE(policies=2, **QUICK)
    one, again, other = (train_critic(h, small, 10, seed).body.layers[0].weight for seed in (0, 0, 1))
    assert (one == again).all()
    assert (one != other).any()


def test_divergence_is_told(small):
    with pytest.raises(DivergenceError, match="fitted Q evaluation became NaN or infinite"):
        train_critic(FQE(policies=2, learning_rate=1e30, **QUICK), small, 20, 0)
