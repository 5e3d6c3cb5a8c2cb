"""Judging policies whose actions have parts: probabilities and densities multiply, and propensities are recorded."""

from dataclasses import replace

import numpy as np
import pytest

import tidelog as tl
from tests.ope.cases import QUICK
from tidelog.ope.decide import broken, preconditions_of
from tidelog.ope.policies import imitation_of, target_of
from tidelog.ope.policy_evidence import evidence_of

SPREAD = 0.3


def log_of(rows=300, seed=0, continuous=True):
    """Random decisions: a gear is worth 1 where it fits the observation, steering costs its distance to 0.1."""
    rng = np.random.default_rng(seed)
    seen = rng.standard_normal((rows, 2)).astype(np.float32)
    gear, horn = rng.integers(0, 3, rows), np.where(rng.random(rows) < 0.5, "on", "off")
    action, chance, bounds = {"gear": gear, "horn": horn}, np.full(rows, 1 / 6), None
    reward = (gear == 2 * (seen[:, 0] > 0)).astype(np.float32)
    if continuous:
        steer = SPREAD * rng.standard_normal((rows, 1)).astype(np.float32)
        action = {"steer": {"angle": steer}, **action}
        chance = chance * np.exp(-0.5 * (steer[:, 0] / SPREAD) ** 2) / (SPREAD * np.sqrt(2 * np.pi))
        reward, bounds = reward - np.abs(steer[:, 0] - 0.1), {"steer/angle": (-2.0, 2.0)}
    return tl.Log.from_arrays(
        observation=seen, action=action, reward=reward, terminated=True, propensity=chance, bounds=bounds
    )


@pytest.fixture(scope="module", params=[True, False], ids=["hybrid", "choices"])
def case(request):
    log = log_of(continuous=request.param)
    rates = dict.fromkeys(("actor_learning_rate", "critic_learning_rate", "value_learning_rate"), 0.01)
    learner = tl.IQL(hidden=(16,), temperature=2.0, reward_scaling="none", **rates)
    return tl.fit(learner, log_of(2000, 7, request.param), steps=600, progress=False).policy(), log


def test_a_sampled_policy_has_the_product_of_its_parts(case):
    policy, log = case
    target = target_of(policy, log, sample=True)
    logged = log.spec.action.unpack(log.action)
    np.testing.assert_allclose(
        target.logged, np.exp(policy.log_probability(log.observation["observation"], logged)), rtol=1e-4
    )
    assert target.actions.shape == (log.steps, 8, log.action.shape[1])
    assert 0.7 < (target.logged / log.propensity).mean() < 1.3  # weights average 1


def test_the_most_likely_action_has_a_probability_where_nothing_is_continuous(case):
    policy, log = case
    target = target_of(policy, log)
    expected = (log.spec.action.pack(policy.act(log.observation["observation"])[0]) == log.action).all(axis=1)
    np.testing.assert_array_equal(target.logged, np.zeros(log.steps) if "steer" in str(log.spec) else expected)
    findings = broken(preconditions_of(policy, log, np.arange(300.0), sample=False, bandwidth=None, propensities=None))
    assert [one.rule for one in findings] == (["density"] if "steer" in str(log.spec) else [])


def test_a_policy_without_a_density_and_a_log_without_propensities_are_refused_with_what_can_be_judged(case):
    policy, log = case
    asked = {"sample": True, "bandwidth": None, "propensities": None}
    unknown = broken(preconditions_of(policy, replace(log, propensity=None), np.arange(300.0), **asked))
    assert [one.rule for one in unknown] == ["propensities"]
    if "steer" in str(log.spec):
        verdict = tl.judge(policy, log, sample=False, limits=QUICK, progress=False)
        assert any("no logged action is exactly equal" in reason for reason in verdict.reasons)
        assert "sample=True" in str(verdict)
        assert "bandwidth" not in str(verdict)
        point = tl.fit(tl.BC(hidden=(8,), actor_head="deterministic"), log, steps=2, progress=False).policy()
        assert not target_of(point, log, sample=True).logged.any()
        assert "judge a policy whose continuous parts have a density" in str(
            tl.judge(point, log, sample=True, limits=QUICK, progress=False)
        )


@pytest.mark.full
def test_values_of_actions_with_parts_are_learnt_and_the_better_policy_is_found(case):
    policy, _ = case
    log = log_of(1500, 3, continuous="steer" in str(policy.spec))
    verdict = tl.judge(policy, log, sample=True, limits=QUICK, progress=False)
    assert verdict.decision == "better"
    weight = target_of(policy, log, sample=True).logged / log.propensity
    low, high = verdict.difference.low, verdict.difference.high
    assert low < (weight * log.reward).mean() - log.reward.mean() < high
    assert evidence_of(policy, log, sample=True, model="none").cloning is None


def test_noise_for_some_parts_of_an_action_is_not_advised():
    log = log_of()
    angle = np.array(log.action)
    angle[:30, 0] = 2.0  # clipped at its bound
    spec = {"actor_head": "deterministic", "hidden": (8,)}
    policy = tl.fit(tl.BC(**spec), log, steps=1, progress=False).policy()
    verdict = tl.judge(policy, replace(log, action=angle), sample=False, limits=QUICK, progress=False, ledger=False)
    assert any("exactly on a bound" in reason for reason in verdict.reasons)
    assert "bandwidth" not in " ".join([*verdict.reasons, verdict.next_step, verdict.paragraph])
    assert "actor_head='gaussian'" in verdict.next_step


def test_a_policy_of_other_parts_is_refused(case):
    policy, log = case
    other = log_of(continuous="steer" not in str(log.spec))
    with pytest.raises(tl.SpecError, match=r"this log's actions are Hybrid.*the policy's are Hybrid"):
        target_of(policy, other)
    wider = {"bounds": {"steer/angle": (-3.0, 3.0)}} if "steer" in str(log.spec) else {}
    again = tl.Log.from_arrays(**(log.to_arrays() | {"action": log.spec.action.unpack(log.action)} | wider))
    with pytest.raises(tl.SpecError, match="the policy's are Hybrid"):
        target_of(policy, again)  # without the labels of the horn


def test_the_distance_to_logged_actions_counts_other_choices_as_one(case):
    policy, log = case
    sentence = imitation_of(policy, log).sentence
    assert ("a mean distance to the logged actions" in sentence) == ("steer" in str(log.spec))
