"""How far intervals must reach to hold for several policies, and after several looks."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import t

from tests.ope.noise import differences
from tidelog import ConfigError
from tidelog.ope.estimators.intervals import Confidence, interval, replicates
from tidelog.ope.estimators.ratios import Ratios, means
from tidelog.ope.estimators.simultaneous import critical_values, normal_deviate, spent_error


def correlated(correlation, policies=6, rows=4000, seed=0):
    """Means of correlated normal values, one a policy, with very different spreads."""
    generator = np.random.default_rng(seed)
    shared, own = generator.standard_normal((rows, 1)), generator.standard_normal((rows, policies))
    values = np.sqrt(correlation) * shared + np.sqrt(1 - correlation) * own
    return [means(column * 10.0**at) for at, column in enumerate(values.T)]


@pytest.mark.parametrize("correlation", [0.0, 0.5, 0.95])
def test_the_critical_value_is_that_of_brute_force(correlation):
    """The quantile of the largest of six correlated normal errors, found with a million draws."""
    generator = np.random.default_rng(7)
    shared, own = generator.standard_normal((1_000_000, 1)), generator.standard_normal((1_000_000, 6))
    errors = np.abs(np.sqrt(correlation) * shared + np.sqrt(1 - correlation) * own).max(1)
    found = critical_values(correlated(correlation), Confidence(0.95, 5000, 1), 0.05)
    assert found == pytest.approx(np.quantile(errors, 0.95), abs=0.06)
    assert len(set(found)) == 1


def test_one_policy_is_no_family():
    assert critical_values(correlated(0.0, 1), Confidence(0.95, 1000, 0), 0.05) == pytest.approx([1.959964])


def test_policies_without_a_number_keep_their_share_of_the_error():
    """Three of six have no number, no spread, or lost their weight: Bonferroni; the others share what is left."""
    known = correlated(0.0)
    lost = np.zeros((4000, 1))
    lost[0] = 1.0
    several = [*known[:3], None, means(np.zeros(4000)), Ratios(lost, lost)]
    found = critical_values(several, Confidence(0.95, 4000, 0), 0.05)
    assert found[3:] == pytest.approx(normal_deviate(0.05 / 6))
    three = critical_values(known[:3], Confidence(0.95, 4000, 0), 0.025)
    assert found[:3] == pytest.approx(three)


def test_errors_beyond_the_replicates_are_shared_evenly():
    found = critical_values(correlated(0.9), Confidence(0.95, 2000, 0), 0.001)
    assert found == pytest.approx(normal_deviate(0.001 / 6))


def test_looks_spend_the_error_twice_at_most():
    """The first has what was asked for, all others together as much again."""
    spent = [spent_error(0.95, number) for number in range(1, 2001)]
    assert spent[:4] == pytest.approx([0.05, 0.025, 0.05 / 6, 0.05 / 12])
    assert sum(spent) < 2 * 0.05
    assert sum(spent) == pytest.approx(0.1, abs=1e-4)
    assert (np.diff(spent) < 0).all()
    assert spent_error(0.95, 0) == pytest.approx(0.05), "a look that showed no number"


def test_a_widened_interval_has_longer_arms():
    """As many times as long, and no shorter than so many standard errors."""
    one = correlated(0.0)[1]
    plain, wide = (interval(one, "bca", Confidence(0.95, 1000, 0, widening=w)) for w in (1.0, 2.5))
    error = replicates(one, Confidence(0.95, 1000, 0)).std()
    assert wide.estimate == plain.estimate
    normal = t.ppf(0.975, len(one) - 1) * np.sqrt(len(one) / (len(one) - 1))  # expanded for few rows
    arms = plain.estimate - plain.low, plain.high - plain.estimate
    longer = wide.estimate - wide.low, wide.high - wide.estimate
    assert longer == pytest.approx([2.5 * max(arm, normal * error) for arm in arms])
    skewed = means(np.random.default_rng(0).lognormal(size=100))
    plain, wide = (interval(skewed, "bca", Confidence(0.95, 1000, 0, widening=w)) for w in (1.0, 1.5))
    error = replicates(skewed, Confidence(0.95, 1000, 0)).std()
    assert wide.estimate - wide.low == pytest.approx(1.5 * (t.ppf(0.975, 99) * np.sqrt(100 / 99)) * error), (
        "the short arm of a skewed estimate"
    )
    assert wide.high - wide.estimate == pytest.approx(1.5 * (plain.high - plain.estimate))
    with pytest.raises(ConfigError, match=r"widening = 0\.5: expected at least 1"):
        Confidence(widening=0.5)


def test_weight_that_is_lost_widens_without_end():
    lost = np.zeros((50, 1))
    lost[0] = 1.0
    found = interval(Ratios(lost, lost), "bca", Confidence(0.95, 1000, 0, widening=2.0))
    assert found[1:] == (-np.inf, np.inf)


def test_twenty_policies_on_noise_are_hardly_ever_better():
    """200 logs of noise: at once, and one after the other, some policy is called better in at most 5 % of them.

    At once some policy is said to differ in about 10 logs, to either side; each by itself in several times as many.
    """
    alone = together = in_turn = 0
    confidence, looks = Confidence(0.95, 1000, 0), range(1, 21)
    in_turns = [normal_deviate(spent_error(0.95, number)) / normal_deviate(1.0 - 0.95) for number in looks]
    for seed in range(200):
        several = differences(150, 20, seed)
        at_once = critical_values(several, confidence, 0.05) / normal_deviate(0.05)
        found = [interval(one, "bca", confidence) for one in several]
        alone += any(one.low > 0 or one.high < 0 for one in found)
        different = [at for at, one in enumerate(found) if one.low > 0 or one.high < 0]  # no other is when widened
        wide = [interval(several[at], "bca", replace(confidence, widening=at_once[at])) for at in different]
        together += any(one.low > 0 or one.high < 0 for one in wide)
        wide = [interval(several[at], "bca", replace(confidence, widening=in_turns[at])) for at in different]
        in_turn += any(one.low > 0 for one in wide)
    assert alone > 40
    assert together <= 19, "99 of 100 studies with an error of 5 % have at most 17; 2 for the bootstrap's own"
    assert in_turn <= 19


def test_a_real_difference_is_found_among_policies_at_once():
    confidence = Confidence(0.95, 1000, 0)
    several = differences(400, 10, effect=0.5)
    reach = critical_values(several, confidence, 0.05) / normal_deviate(0.05)
    assert 1.0 < reach[0] < normal_deviate(0.05 / 10) / normal_deviate(0.05), "correlated: less than Bonferroni"
    assert all(interval(one, "bca", Confidence(0.95, 1000, 0, widening=reach[0])).low > 0 for one in several)
