"""Gathering: the right model for a log, the same folds for everything, and answers to what cannot be done."""

from dataclasses import replace

import numpy as np
import pytest

import tidelog as tl
from tests.algorithms.worlds import world
from tests.ope.played import better, policy_of, treated
from tidelog import SpecError
from tidelog.envs.treatment import clinician, treatment
from tidelog.ope.estimators import double_reinforcement
from tidelog.ope.policy_evidence import evidence_of
from tidelog.ope.text import evidence_notes


@pytest.fixture(scope="module")
def log():
    return treated()


@pytest.fixture(scope="module")
def policy():
    return policy_of(treatment(), better())


def even(log, episodes, steps):
    """As many episodes of one length, so that all folds share their programs; the last half of them is cut off."""
    rows = np.arange(episodes * steps)
    ends, late = rows % steps == steps - 1, rows >= len(rows) // 2
    seen = {name: leaf[log.position[rows % log.steps]] for name, leaf in log.observation.items()}
    return tl.Log.from_arrays(
        observation=seen, action=log.action[rows % log.steps], reward=log.reward[rows % log.steps],
        episode=rows // steps, terminated=ends & ~late, truncated=ends & late, bounds=([-2.0, -2.0], [2.0, 2.0]),
    )  # fmt: skip


def test_tables_are_chosen_where_the_log_is_one_and_double_reinforcement_finds_the_value(log, policy):
    told = []
    found = evidence_of(policy, log, sample=True, progress=lambda what, share: told.append(share))
    assert (found.model, found.folds.max(), found.bandwidth) == ("tabular", 4, None)
    assert evidence_notes(found, policy, log, True) == ()
    assert told == sorted(told)
    assert told[-1] == 1.0
    assert not found.policy.estimated
    estimate = double_reinforcement(found.policy)
    error = estimate.contributions.std() / np.sqrt(len(estimate))
    # 3 standard errors: a right estimate fails for 1 in 370 seeds; 0 of 33 others do, here and below
    assert estimate.estimate == pytest.approx(treatment().value_of(better()), abs=3 * error)
    cloned = double_reinforcement(found.cloning)
    assert cloned.estimate == pytest.approx(treatment().value_of(clinician()), abs=0.04)


def test_parts_fit_each_other(log, policy):
    evidence = evidence_of(policy, log, discount=0.9, propensities="estimated").policy
    rows = np.arange(log.steps)
    assert evidence.estimated
    assert evidence.discount == 0.9
    assert (evidence.target == evidence.target_all[rows, log.action]).all()
    # 0 of 33 other seeds fail
    assert np.corrcoef(evidence.behaviour, evidence.behaviour_all[rows, log.action])[0, 1] > 0.85
    assert (evidence.model == evidence.model_all[rows, log.action]).all()
    assert evidence.model_target == pytest.approx((evidence.target_all * evidence.model_all).sum(1))


def test_estimated_propensities_give_the_sampled_clone_weights_near_one(log, policy):
    found = evidence_of(policy, log, sample=True, propensities="estimated").cloning
    assert (found.target / found.behaviour).mean() == pytest.approx(1.0, abs=0.1)  # 0 of 33 other seeds fail, and below
    assert found.occupancy.mean() == pytest.approx(1.0, abs=0.1)


@pytest.mark.full
def test_networks_are_chosen_for_short_logs_and_asking_decides(log, policy, quick):
    some = log.take_episodes(range(60))
    neural = evidence_of(policy, some, sample=True)
    assert (neural.model, neural.folds.max()) == ("neural", 1)
    assert neural.policy.model_all.shape == (some.steps, 6)
    assert (neural.policy.occupancy >= 0).all()
    assert evidence_of(policy, some, model="tabular", folds=3).folds.max() == 2
    nothing = evidence_of(policy, log, model="none", cloning=False)
    assert nothing.cloning is None
    assert nothing.policy.model is nothing.policy.model_all is nothing.policy.occupancy is None


@pytest.mark.full
def test_the_same_seed_gathers_the_same(log, policy):
    one, again, other = (evidence_of(policy, log, seed=seed).policy.model for seed in (0, 0, 1))
    assert (one == again).all()
    assert (one != other).any()


def test_one_step_logs_need_nothing_else():
    rng = np.random.default_rng(0)
    seen, action = rng.integers(0, 3, 2_000), rng.integers(0, 2, 2_000)
    log = tl.Log.from_arrays(observation=seen, action=action, reward=1.0 * (seen == action), terminated=True)
    policy = tl.fit(tl.BC(hidden=(8,)), log, 5).policy()
    found = evidence_of(policy, log, sample=True).policy
    assert found.model_all == pytest.approx(np.eye(3)[seen][:, :2], abs=1e-6)
    assert found.occupancy == pytest.approx(found.target / found.behaviour)


@pytest.mark.full
def test_continuous_actions_with_and_without_a_bandwidth(quick):
    log = even(world("continuous"), 16, 4)
    policy = tl.fit(tl.BC(hidden=(8,), embedding=2), log, 5).policy()
    smooth = evidence_of(policy, log, bandwidth=0.3)
    assert smooth.bandwidth == 0.3
    (note,) = evidence_notes(smooth, policy, log, False)
    assert "noise of 0.3 half-ranges" in note
    assert f"{smooth.smoothing:+.3g} (model estimate)" in note
    assert smooth.policy.target_all is smooth.policy.behaviour_all is smooth.policy.model_all is None
    assert np.isfinite(smooth.policy.occupancy).all()
    assert smooth.cloning is not None
    exact = evidence_of(policy, log, cloning=False)
    assert not exact.policy.target.any()
    assert exact.policy.occupancy is None
    assert "has no density" in evidence_notes(exact, policy, log, False)[0]


@pytest.mark.full
@pytest.mark.usefixtures("few_updates")
def test_smoothing_is_reported_as_what_it_costs():
    """The reward is minus the squared action; noise of 0.2 half-ranges around 0 costs 0.04."""
    rng = np.random.default_rng(0)
    action = rng.uniform(-1, 1, (3_000, 1)).astype(np.float32)
    log = tl.Log.from_arrays(
        observation=np.zeros((3_000, 1)), action=action, reward=-np.square(action[:, 0]), terminated=True,
        bounds=(-1.0, 1.0), propensity=np.full(3_000, 0.5),
    )  # fmt: skip
    policy = tl.fit(tl.BC(hidden=(8,), learning_rate=0.0), log, 1).policy()
    assert np.abs(policy(np.zeros((1, 1)))).max() == 0.0
    found = evidence_of(policy, log, bandwidth=0.2, cloning=False)
    assert found.smoothing == pytest.approx(-0.04, abs=0.02)  # 0 of 3 other seeds fail
    weights = found.policy.target / found.policy.behaviour
    assert np.mean(weights * log.reward) == pytest.approx(-0.04, abs=0.01)  # 13 standard errors


def test_several_choices_at_once_need_recorded_propensities_and_a_probability():
    class Several:
        """Half of all choices, whatever is seen."""

        is_recurrent = False

        def __init__(self, spec):
            self.spec = spec

        def log_probability(self, seen, action, mask=None, recurrent_size=None):
            return np.full(len(action), np.log(0.25))

        def act(self, seen, seed=None, mask=None, state=None):
            return np.zeros((len(seen["observation"]), 2), int), None

    rng = np.random.default_rng(0)
    columns = {"observation": rng.random((50, 2)), "action": rng.integers(0, 2, (50, 2)), "reward": rng.random(50)}
    log = tl.Log.from_arrays(**columns, terminated=True, propensity=np.full(50, 0.5))
    found = evidence_of(Several(log.spec), log, sample=True, model="none")
    assert found.cloning is None
    assert found.policy.target == pytest.approx(0.25)
    assert found.policy.behaviour_all is None
    always = evidence_of(Several(log.spec), log, model="none").policy.target  # of the most likely action
    np.testing.assert_array_equal(always, (log.action == 0).all(axis=1))


def test_weights_of_the_log_are_not_used_and_that_is_said(log, policy):
    log = log.take_episodes(range(800))
    weighted = replace(log, weight=np.linspace(0, 1, log.steps, dtype=np.float32))
    settings = {"model": "tabular", "cloning": False, "tests": False}
    found = evidence_of(policy, weighted, **settings)
    assert "each episode counts once" in evidence_notes(found, policy, weighted, False)[0]
    assert (found.policy.model == evidence_of(policy, log, **settings).policy.model).all()


def test_what_cannot_be_judged_is_refused(log, policy):
    both = replace(log, reward=np.stack([log.reward] * 2, 1), spec=replace(log.spec, rewards=2))
    with pytest.raises(SpecError, match=r"2 rewards: expected one\. fix: name one column as reward"):
        evidence_of(policy, both)
    continuous = world("continuous")
    other = tl.fit(tl.BC(hidden=(8,), embedding=2), continuous, 1).policy()
    with pytest.raises(SpecError, match="model = 'tabular': expected discrete actions, found Continuous"):
        evidence_of(other, continuous, model="tabular")
