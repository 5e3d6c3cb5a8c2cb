from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import genpareto

from tests.ope.made import evidence_of, random_log
from tidelog.errors import SpecError
from tidelog.ope.estimators import (
    Supports,
    effective_sample_size,
    episode_weights,
    generalised_pareto_shape,
    largest_share,
    pareto_k,
    support_of,
    unsupported_mass,
)


def test_measures_by_hand():
    # weights 2 * 1/2 = 1, 3 and 0
    evidence = evidence_of([2, 1, 1], reward=[0, 0, 0, 0], target=[0.5, 0.2, 0.9, 0], behaviour=[0.25, 0.4, 0.3, 0.5])
    assert episode_weights(evidence) == pytest.approx([1.0, 3.0, 0.0])
    support = support_of(evidence)
    assert support.effective_sample_size == pytest.approx(16 / 10)
    assert support.largest_weight == pytest.approx(3 / 4)
    assert support.mean_weight == pytest.approx(4 / 3)
    assert support.mean_weight_error == pytest.approx(np.sqrt((1 / 9 + 25 / 9 + 16 / 9) / 2 / 3))
    larger = Supports(replace(evidence, target=3.2 * evidence.target))  # weights 10.24, 9.6 and 0, clipped at 10
    assert larger.of("clipped_ips").clipped_share == pytest.approx(1 / 3)
    assert (support.episodes, support.horizon, support.unsupported_mass) == (3, 2, None)
    assert support.pareto_k == np.inf  # three weights have no tail to fit


def test_the_behaviors_own_policy_is_wholly_supported():
    evidence = random_log([3, 1, 2] * 20)
    support = support_of(replace(evidence, target=evidence.behaviour))
    assert support.effective_sample_size == pytest.approx(60)
    assert support.largest_weight == pytest.approx(1 / 60)
    assert (support.mean_weight, support.mean_weight_error) == pytest.approx((1.0, 0.0))
    assert support.pareto_k == 0.0


def test_nothing_in_common_is_no_support():
    evidence = random_log([2] * 40)
    support = support_of(replace(evidence, target=np.zeros(80)))
    assert (support.effective_sample_size, support.largest_weight, support.mean_weight) == (0.0, 1.0, 0.0)
    assert support.pareto_k == np.inf


def test_a_tail_that_the_log_shows_whole_is_not_guessed():
    # four kinds of cases; the behaviour policy takes the second action in 2 to 5 of a hundred, the policy in 9
    rare = np.tile([0.02, 0.03, 0.04, 0.05], 200)
    behaviour = np.stack([1.0 - rare, rare], axis=1)
    action = (np.random.default_rng(0).random(800) < rare).astype(int)
    row = np.arange(800)
    evidence = evidence_of(
        [1] * 800, reward=np.zeros(800), target=np.array([0.91, 0.09])[action], behaviour=behaviour[row, action]
    )
    evidence = replace(evidence, target_all=np.tile([0.91, 0.09], (800, 1)), behaviour_all=behaviour)
    assert pareto_k(episode_weights(evidence)) > 1.0  # a few numbers above 1 have no tail that could be fitted
    assert support_of(evidence).pareto_k == 0.0
    rarer = np.array(behaviour)
    rarer[5] = [0.999, 0.001]  # not logged, and of a weight that no logged one comes near
    assert support_of(replace(evidence, behaviour_all=rarer)).pareto_k > 1.0
    assert support_of(replace(evidence, behaviour_all=None)).pareto_k > 1.0
    sizes = np.sort(np.random.default_rng(1).zipf(1.6, 300).clip(1, 200))
    clusters = np.repeat(np.arange(300), sizes)[-800:]
    clusters = clusters - clusters[0]  # of very different sizes: no decision's weight bounds a sum
    in_clusters = replace(evidence, clusters=clusters)
    assert support_of(in_clusters).pareto_k == pareto_k(np.bincount(clusters, episode_weights(evidence))) > 0.0


def test_other_weights_than_products_along_episodes():
    evidence = random_log([2] * 4)
    support = support_of(evidence, weights=np.array([1.0, 3.0, 0.0, 4.0]))
    assert support.effective_sample_size == pytest.approx(64 / 26)
    assert support.mean_weight == pytest.approx(2.0)
    with pytest.raises(SpecError, match=r"found 8 weights: expected one per episode \(4\)"):
        support_of(evidence, weights=np.ones(8))
    with pytest.raises(SpecError, match="none below 0"):
        effective_sample_size(np.array([1.0, -1.0]))


def test_thousands_of_steps_keep_their_support():
    steps = 3000
    evidence = evidence_of(
        [steps] * 2, reward=np.zeros(2 * steps), target=np.full(2 * steps, 0.9), behaviour=np.full(2 * steps, 0.3)
    )
    support = support_of(evidence)  # both weights are 3^3000
    assert support.effective_sample_size == pytest.approx(2.0)
    assert np.isfinite(support.mean_weight)


@pytest.mark.parametrize("scale", [1.0, 1e200, 1e-200])
def test_measures_do_not_depend_on_the_weights_scale(scale):
    weights = np.random.default_rng(0).pareto(1.5, 1000)
    for measure in (effective_sample_size, largest_share, pareto_k):
        assert measure(scale * weights) == pytest.approx(measure(weights), rel=1e-9)


@pytest.mark.parametrize("shape", [0.3, 0.9])
def test_known_tails(shape):
    found = [pareto_k(1 + genpareto.rvs(shape, size=50_000, random_state=seed)) for seed in range(50)]
    # right indices fail for 3 in 100,000 seeds
    assert np.mean(found) == pytest.approx(shape, abs=0.05)  # each has a standard error of about (1 + k) / sqrt(670)
    exceeding = np.sort(genpareto.rvs(shape, size=100_000, random_state=0))
    # at least 5.1 standard errors: a right shape fails for 3 in 10 million seeds
    assert generalised_pareto_shape(exceeding) == pytest.approx(shape, abs=0.03)


def test_short_tails():
    generator = np.random.default_rng(0)
    assert pareto_k(generator.random(10_000)) < 0.0  # bounded: a uniform's is -1, 17 standard errors away
    # an exponential's is 0; a right index fails for 5 in a million seeds
    assert abs(pareto_k(generator.exponential(size=500_000))) < 0.1
    assert pareto_k(np.ones(1000)) == 0.0
    assert (
        pareto_k(np.repeat([0.0, 2.5], [700, 300])) == 0.0
    )  # a deterministic policy met by a uniform behaviour policy
    assert pareto_k(np.repeat([0.0, 2.5], [995, 5])) == 0.0
    assert pareto_k(np.repeat([1.0, 1.5, 1.6], [998, 1, 1])) < 0.0  # ties belong to the tail
    assert pareto_k(np.ones(24)) == 0.0
    assert pareto_k(np.ones(10)) == np.inf  # a fifth of ten are too few


def test_actions_that_the_behavior_nearly_never_took():
    # four actions: rare is below 0.1 / 4 = 0.025. Step 0: actions 2 and 3; step 1: none
    target_all = np.array([[0.1, 0.2, 0.3, 0.4], [0.0, 0.0, 0.0, 1.0]])
    behaviour_all = np.array([[0.5, 0.47, 0.02, 0.01], [0.25, 0.25, 0.25, 0.25]])
    evidence = evidence_of(
        [2], reward=[0, 0], target=[0.1, 1], behaviour=[0.5, 0.25], target_all=target_all, behaviour_all=behaviour_all
    )
    assert unsupported_mass(evidence) == pytest.approx((0.3 + 0.4) / 2)
    # two allowed actions at step 0: uniform is 1/2, rare below 0.05
    masked = replace(evidence, behaviour_all=np.array([[0.96, 0.04, 0, 0], [0.25] * 4]))
    assert unsupported_mass(masked) == pytest.approx((0.2 + 0.3 + 0.4) / 2)
    assert support_of(evidence).unsupported_mass == pytest.approx(0.35)


def test_the_tail_index_where_a_candidate_is_exactly_0():
    """There the distribution is exponential and the likelihood a limit; 0 / 0 made the index NaN."""
    weights = np.r_[np.zeros(800), np.ones(580), np.full(12, 2.0), np.full(108, 4.0)]
    assert np.isfinite(pareto_k(weights))
    assert pareto_k(weights) < 0.5
