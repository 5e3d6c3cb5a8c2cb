import numpy as np
import pytest

from tidelog.errors import ConfigError
from tidelog.policies.statistics import (
    bootstrap_interval,
    iqm,
    mean,
    simultaneous_differences,
)


def test_iqm_leaves_out_the_lowest_and_highest_quarter():
    # 8 scores: two are cut on each side, (3 + 4 + 5 + 6) / 4 remains.
    assert iqm(np.array([100.0, 3, 4, 1, -50, 5, 6, 90])) == 4.5
    # 6 scores: floor(6 / 4) = 1 is cut on each side, as scipy.stats.trim_mean does: (2 + 3 + 4 + 9) / 4.
    assert iqm(np.array([1.0, 2, 3, 4, 9, 100])) == 4.5
    assert iqm(np.array([1.0, 2, 6])) == 3.0


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 7, 8, 10, 23])
def test_iqm_agrees_with_the_function_that_rliable_calls(size):
    trim_mean = pytest.importorskip("scipy.stats").trim_mean
    scores = np.random.default_rng(size).normal(size=(size, 3))
    assert iqm(scores) == pytest.approx(trim_mean(scores, 0.25, axis=None), abs=1e-12)


@pytest.mark.parametrize("bad", [np.zeros(0), np.zeros((1, 1, 1)), np.array([1.0, np.nan])])
def test_unusable_scores_are_refused(bad):
    with pytest.raises(ConfigError, match="scores"):
        iqm(bad)


@pytest.mark.parametrize("settings", [{"level": 1.5}, {"replicates": 0}])
def test_unusable_settings_are_refused(settings):
    with pytest.raises(ConfigError):
        bootstrap_interval(np.arange(5.0), **settings)


def test_intervals_hold_the_estimate_and_repeat_by_seed():
    scores = np.random.default_rng(0).normal(size=(12, 4))
    found = bootstrap_interval(scores, iqm, seed=3)
    assert found.low < found.estimate < found.high
    assert found == bootstrap_interval(scores, iqm, seed=3)
    assert found != bootstrap_interval(scores, iqm, seed=4)
    narrow = bootstrap_interval(scores, iqm, level=0.5, seed=3)
    assert found.low < narrow.low < narrow.high < found.high


def test_columns_are_strata():
    # Every run of a task scores the same, so no resampling within tasks can change anything.
    scores = np.tile([0.0, 10.0, 20.0], (5, 1))
    assert bootstrap_interval(scores, mean) == (10.0, 10.0, 10.0)


def test_whole_runs_keep_their_episodes_together():
    # All the variation is between runs: resampling columns apart would average it away.
    scores = np.tile(np.arange(6.0)[:, None], (1, 50))
    apart, together = bootstrap_interval(scores, mean), bootstrap_interval(scores, mean, whole_runs=True)
    # a factor of 7.1 expected; 0 of 42 other seeds fail
    assert together.high - together.low > 4 * (apart.high - apart.low)


@pytest.mark.full
def test_the_bootstrap_covers_at_about_its_level():
    generator, held = np.random.default_rng(1), 0
    for trial in range(350):
        found = bootstrap_interval(generator.exponential(size=40), mean, level=0.9, replicates=200, seed=trial)
        held += found.low <= 1.0 <= found.high
    assert 0.80 <= held / 350 <= 0.95  # 85.9% cover, of 6,000: 1 in 1,000 seeds fails


@pytest.mark.full
def test_differences_of_several_runs_hold_at_once():
    """Equal runs: in about 1 of 20 samples any of the six intervals misses 0; single intervals would in 1 of 5."""
    generator = np.random.default_rng(0)
    missed = 0
    for sample in range(200):
        episodes = generator.normal(size=60)  # shared by all runs: the pairs remove it
        scores = 10.0 * episodes + generator.normal(size=(4, 60))
        found = simultaneous_differences(scores, replicates=400, seed=sample)
        missed += any(not one.interval.low <= 0.0 <= one.interval.high for one in found)
        assert all(one.interval.high - one.interval.low < 2.0 for one in found), "the episodes' share is gone"
    assert 1 <= missed <= 22  # binomial, 200 samples at 5%: 22 or more for 1 in 2,000 seeds
    assert [(one.one, one.other) for one in found] == [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)]
    assert found[0].interval.estimate == pytest.approx((scores[0] - scores[1]).mean())
    fewer = simultaneous_differences(scores, replicates=400, other=2)
    assert [(one.one, one.other) for one in fewer] == [(0, 2), (1, 2), (3, 2)]
    assert fewer[2].interval.estimate == pytest.approx((scores[3] - scores[2]).mean())
    for wrong in (np.zeros((1, 5)), np.zeros((3, 1)), np.zeros(4)):
        with pytest.raises(ConfigError, match="expected at least"):
            simultaneous_differences(wrong)
