"""Values that predict nothing are shrunk away, values that predict are kept, and no estimate is biased by it."""

from dataclasses import replace

import numpy as np
import pytest

import tidelog as tl
from tests.ope.cases import Always
from tests.ope.made import bandit, evidence_of, random_log
from tidelog.ope import networks
from tidelog.ope.estimators import direct_method, ips, logged_return, snips, weighted_dr
from tidelog.ope.policies import as_policy
from tidelog.ope.policy_evidence import evidence_of as evidence_for
from tidelog.ope.propensities import shrunk
from tidelog.ope.text import evidence_notes


def with_values(evidence, values):
    """The evidence with these values of all actions [N, A]."""
    row = np.arange(len(values))
    action = np.random.default_rng(1).integers(3, size=len(values))
    return replace(
        evidence, model_all=values, model=values[row, action], model_target=(evidence.target_all * values).sum(1)
    )


def precision(evidence):
    return 1 / weighted_dr(evidence).minus(logged_return(evidence)).contributions.var()


def test_noise_is_shrunk_to_importance_sampling_and_the_direct_method_is_left():
    noisy = bandit(2_000)
    noisy = with_values(noisy, 30.0 * noisy.model_all)
    found, share = shrunk(noisy)
    assert share < 0.01
    assert weighted_dr(found).estimate == pytest.approx(snips(found).estimate, abs=0.02)
    assert abs(weighted_dr(noisy).estimate - snips(noisy).estimate) > 0.5
    assert direct_method(found).estimate == pytest.approx(direct_method(noisy).estimate)
    assert precision(found) > 100 * precision(noisy)


def test_right_values_are_kept_for_a_policy_far_from_the_behavior():
    evidence = bandit(2_000)
    far = replace(evidence, target=np.where(evidence.target > 0.5, 0.95, 0.01))
    right = replace(far, reward=evidence.model + 0.1 * (evidence.reward - 1.0))
    found, share = shrunk(right)
    assert share > 0.8
    assert precision(found) >= precision(right)


@pytest.mark.parametrize("lengths", [[4] * 300, [1, 2, 5] * 100])
def test_episodes_of_several_steps_get_the_most_precise_share(lengths):
    evidence = random_log(lengths, discount=0.9)
    found, share = shrunk(evidence)
    assert 0.0 <= share <= 1.0
    mean = (evidence.model_target - found.model_target) / max(1.0 - share, 1e-9)  # (1 - share) (value - mean)
    for other in (max(share - 0.05, 0.0), min(share + 0.05, 1.0)):
        change = (share - other) / max(1.0 - share, 1e-9)
        moved = replace(
            found,
            model=found.model - change * (evidence.model - found.model) / max(1.0 - share, 1e-9) * (1.0 - share),
            model_target=found.model_target - change * mean * (1.0 - share),
        )
        assert precision(moved) <= precision(found) * (1 + 1e-9)


def test_where_values_must_be_able_to_repair_weights_they_are_kept():
    """Occupancy ratios, and estimated propensities over several steps, may be wrong: then right values are needed."""
    for kept in (random_log([60] * 50, occupancy=np.ones(3_000)), replace(random_log([3] * 200), estimated=True)):
        noisy = replace(kept, model=50 * kept.model, model_target=50 * kept.model_target)
        assert shrunk(noisy) == (noisy, 1.0)


def test_right_values_repair_wrong_estimated_propensities_and_noise_is_shrunk():
    evidence = replace(bandit(4_000), estimated=True)
    wrong = replace(evidence, behaviour=np.full(4_000, 1 / 3), reward=evidence.model + 0.2 * (evidence.reward - 1.0))
    found, share = shrunk(wrong)
    assert share > 0.98
    assert weighted_dr(found).estimate == pytest.approx(wrong.model_target.mean(), abs=0.02)
    assert shrunk(replace(evidence, model=50 * evidence.model))[1] < 0.02


def test_without_values_or_weight_nothing_changes():
    bare = evidence_of([1, 1], reward=[0, 1], target=[1, 1], behaviour=[1, 1])
    assert shrunk(bare) == (bare, 1.0)
    unsupported = bandit(50, target=np.zeros(50))
    assert shrunk(unsupported) == (unsupported, 1.0)
    assert ips(unsupported).estimate == 0.0


def test_one_number_chosen_on_the_log_biases_no_estimate():
    """400 logs of 60 decisions, with values that are half noise: the mean error is within 4 standard errors of 0."""
    errors = []
    for seed in range(400):
        generator = np.random.default_rng(seed)
        target = np.broadcast_to([0.7, 0.2, 0.1], (60, 3))
        worth = generator.normal(size=(60, 3))
        values, action = worth + generator.normal(size=(60, 3)), generator.integers(3, size=60)
        row = np.arange(60)
        found, _ = shrunk(
            evidence_of(
                [1] * 60,
                reward=worth[row, action] + generator.normal(size=60),
                target=target[row, action],
                behaviour=np.full(60, 1 / 3),
                model=values[row, action],
                model_target=(target * values).sum(1),
            )
        )
        errors.append(weighted_dr(found).estimate)
    assert abs(np.mean(errors)) < 4 * np.std(errors) / 20


@pytest.mark.full
def test_rare_rewards_give_one_estimate_with_every_seed_and_the_reader_is_told(monkeypatch):
    """Networks that were trained for long on 24 rewards: their own seed moves the estimate by 0.0014 without it."""
    monkeypatch.setattr(networks, "FEWEST", 300)
    monkeypatch.setattr(networks, "EPOCHS", 1)
    generator, rows = np.random.default_rng(5), 1_200
    log = tl.Log.from_arrays(
        observation=generator.standard_normal((rows, 4)), action=generator.integers(0, 4, rows),
        reward=generator.random(rows) < 0.02, terminated=np.ones(rows, bool), propensity=np.full(rows, 0.25),
    )  # fmt: skip
    policy = as_policy(Always(0.4, 0.2, 0.2, 0.2), log.spec)
    found = [evidence_for(policy, log, sample=True, seed=seed, cloning=False, tests=False) for seed in (0, 1)]
    estimates = [weighted_dr(one.policy).estimate for one in found]
    assert estimates[0] == pytest.approx(estimates[1], abs=5e-4)
    notes = [evidence_notes(one, policy, log, True) for one in found]
    assert all("the networks' values of actions are " in one[0] for one in notes)
