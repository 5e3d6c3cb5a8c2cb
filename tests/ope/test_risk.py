"""The distribution of returns: estimates by hand, what its bands must obey, and how often they hold."""

import json
from dataclasses import replace

import numpy as np
import pytest

from tests.ope.made import evidence_of
from tidelog import ConfigError, SpecError
from tidelog.ope.intervals import Confidence
from tidelog.ope.risk import Comparison, Risk, Sample, bands_of, risk_of, tail_refusal
from tidelog.ope.text import tail_sentence
from tidelog.policies.statistics import Interval

QUICK = Confidence(replicates=500)


def one_step(episodes=1000, seed=0, target=0.8, behavior_policy=0.5):
    """Two actions; the first one earns 0.4 more and has twice the noise."""
    generator = np.random.default_rng(seed)
    first = generator.random(episodes) < behavior_policy
    return evidence_of(
        [1] * episodes,
        reward=np.where(first, 0.4, 0.0) + np.where(first, 2.0, 1.0) * generator.standard_normal(episodes),
        target=np.where(first, target, 1 - target),
        behaviour=np.where(first, behavior_policy, 1 - behavior_policy),
    )


def by_hand():
    """Returns -4, 0, 0, 1, 2, weights 1/2, 2, 1, 1, 1/2: shares 0.1, 0.4, 0.2, 0.2, 0.1."""
    weight = [0.5, 2.0, 1.0, 1.0, 0.5]
    return evidence_of(
        [1] * 5, reward=[-4.0, 0.0, 0.0, 1.0, 2.0], target=np.multiply(weight, 0.25), behaviour=[0.25] * 5
    )


def test_estimates_by_hand():
    risk = risk_of(by_hand(), alpha=0.3, bad_outcome=0.0, confidence=QUICK)
    assert risk.points.tolist() == [-4.0, 0.0, 1.0, 2.0]
    assert risk.policy.estimate == pytest.approx([0.1, 0.7, 0.9, 1.0])
    assert risk.behavior_policy.estimate == pytest.approx([0.2, 0.6, 0.8, 1.0])
    assert risk.difference.estimate == pytest.approx([-0.1, 0.1, 0.1, 0.0])
    # the worst 0.3: 0.1 at -4 and 0.2 at 0; of the behaviour policy 0.2 at -4 and 0.1 at 0
    assert risk.cvar.policy.estimate == pytest.approx(-4 * 0.1 / 0.3)
    assert risk.cvar.behavior_policy.estimate == pytest.approx(-4 * 0.2 / 0.3)
    assert risk.cvar.difference.estimate == pytest.approx(4 * 0.1 / 0.3)
    assert [c.policy.estimate for c in risk.quantiles] == [-4.0, 0.0, 0.0, 1.0, 2.0]  # 5, 25, 50, 75, 95%
    assert [c.behavior_policy.estimate for c in risk.quantiles] == [-4.0, 0.0, 0.0, 1.0, 2.0]
    assert risk.probability.policy.estimate == pytest.approx(0.7)
    assert risk.probability.difference.estimate == pytest.approx(0.1)
    assert (risk.lowest, risk.highest, risk.episodes) == (-4.0, 2.0, 5)
    assert risk.effective_sample_size == pytest.approx(25 / (0.25 + 4 + 1 + 1 + 0.25))


def test_returns_are_whole_and_discounted():
    evidence = evidence_of([2, 1], reward=[1.0, 4.0, 2.0], target=[0.5] * 3, behaviour=[0.5] * 3, discount=0.5)
    assert risk_of(evidence, confidence=QUICK).points.tolist() == [2.0, 3.0]  # 2, and 1 + 0.5 * 4


def test_everything_follows_from_bands_that_rise():
    for seed in range(5):
        risk = risk_of(one_step(400, seed), bad_outcome=-1.5, confidence=QUICK)
        for band in (risk.policy, risk.behavior_policy):
            for part in band:
                assert (np.diff(part) >= 0).all()
                assert part.min() >= 0
                assert part.max() <= 1
            assert (band.low <= band.estimate).all()
            assert (band.estimate <= band.high).all()
        assert (risk.difference.low <= risk.difference.estimate).all()
        compared = [risk.cvar, risk.probability, *(one[1:] for one in risk.quantiles)]
        for interval in (interval for one in compared for interval in one):
            assert interval.low <= interval.estimate <= interval.high
        place = int(np.searchsorted(risk.points, -1.5, side="right")) - 1
        assert risk.probability.policy.high >= risk.policy.high[place] - 1e-12


def test_the_behaviors_own_policy_differs_nowhere():
    same = one_step(500, target=0.5)
    risk = risk_of(same, bad_outcome=-1.0, confidence=QUICK)
    assert not np.any(risk.difference)
    for one in (risk.cvar, risk.probability, *risk.quantiles):
        assert one.difference == (0.0, 0.0, 0.0)
        assert one.policy == pytest.approx(one.behavior_policy)
    assert "are the same as the behaviour policy's" in " ".join(risk.sentences)


def test_shift_and_scale():
    first, bad = one_step(300), -1.0
    moved = evidence_of([1] * 300, reward=3.0 * first.reward + 7.0, target=first.target, behaviour=first.behaviour)
    one = risk_of(first, bad_outcome=bad, confidence=QUICK)
    other = risk_of(moved, bad_outcome=3 * bad + 7, confidence=QUICK)
    assert other.cvar.difference == pytest.approx([3 * end for end in one.cvar.difference], abs=1e-6)
    assert other.cvar.policy == pytest.approx([3 * end + 7 for end in one.cvar.policy], abs=1e-6)
    assert other.probability.difference == pytest.approx(one.probability.difference, abs=1e-9)


def test_what_was_never_seen_is_said():
    risk = risk_of(one_step(1000), confidence=QUICK)
    said = " ".join(risk.sentences)
    assert f"No return below {risk.lowest:.6g} was seen in 1,000 episodes" in said
    # by chance the mean weight is 1.96 standard errors below 1, and this more, for 1 in 37 seeds of any log
    assert risk.unseen == pytest.approx(3 / risk.effective_sample_size)
    assert f"up to {100 * risk.unseen:.2g}%" in said
    none = risk_of(one_step(1000), bad_outcome=-99.0, confidence=QUICK).probability
    assert none.policy.estimate == 0.0
    assert none.policy.high > 3 / 1000, "an outcome that was not seen is not excluded"


def test_a_tail_of_few_episodes_has_no_lower_end():
    """Ten percent of 60 effective episodes: a return lower than all of the log would change their mean."""
    few, many = (risk_of(one_step(episodes), confidence=QUICK) for episodes in (80, 400))
    assert few.effective_sample_size < 100 < many.effective_sample_size
    assert few.cvar.policy.low == few.cvar.difference.low == -np.inf
    assert np.isfinite(few.cvar.policy.high)
    assert any("show no tail" in sentence for sentence in few.sentences)
    assert np.isfinite(many.cvar).all()
    assert not any("show no tail" in sentence for sentence in many.sentences)
    known = risk_of(one_step(80), confidence=QUICK, lowest=-20.0)
    assert known.cvar.policy.low == -20.0
    assert known.cvar.difference.low == -20.0 - known.cvar.behavior_policy.high
    again = Risk.from_json(json.loads(json.dumps(few.to_json())))
    assert again.sentences == few.sentences


def test_missing_weight_may_lie_anywhere():
    """A fifth of what the policy does never happens in the log: it could be the worst of all."""
    whole = one_step(2000)
    lost = evidence_of([1] * 2000, reward=whole.reward, target=0.8 * whole.target, behaviour=whole.behaviour)
    one, two = (risk_of(log, bad_outcome=-1.0, confidence=QUICK) for log in (whole, lost))
    assert one.missing == 0.0
    assert two.missing == pytest.approx(0.2, abs=0.03)
    assert two.probability.policy.estimate == pytest.approx(one.probability.policy.estimate)
    # 2 of 40 other seeds fail, here and below: by chance the whole log lacks weight, too
    assert two.probability.policy.high >= two.missing + (1.0 - two.missing) * one.probability.policy.high - 1e-9
    assert two.cvar.policy.low == pytest.approx(two.lowest), "the worst tenth may be all missing"
    assert two.probability.difference.high >= one.probability.difference.high + 0.9 * two.missing
    assert f"lacks {100 * two.missing:.2g}%" in " ".join(two.sentences)


def test_clusters_are_resampled_whole():
    """Every episode twice is no more evidence than once."""
    once = one_step(300, seed=1)
    twice = evidence_of(
        [1] * 600,
        reward=np.repeat(once.reward, 2),
        target=np.repeat(once.target, 2),
        behaviour=np.repeat(once.behaviour, 2),
    )
    whole = risk_of(once, confidence=QUICK)
    paired = risk_of(replace(twice, clusters=np.repeat(np.arange(300), 2)), confidence=QUICK)
    assert paired.clusters == 300
    assert paired.effective_sample_size == pytest.approx(whole.effective_sample_size)
    for name in ("policy", "behavior_policy", "difference"):
        for part, known in zip(getattr(paired, name), getattr(whole, name), strict=True):
            np.testing.assert_allclose(part, known, atol=1e-9)
    assert paired.cvar.difference == pytest.approx(whole.cvar.difference)
    alone = risk_of(twice, confidence=QUICK)
    # 13 of 138 other seeds fail, and 2 of 60 logs 10 times as long
    assert alone.cvar.difference.high - alone.cvar.difference.low < 0.9 * (
        whole.cvar.difference.high - whole.cvar.difference.low
    )


def test_many_episodes_are_grouped_and_many_returns_rounded():
    many = one_step(25_000)
    found = risk_of(many, confidence=QUICK, groups=500)
    fine = risk_of(many, confidence=QUICK)
    assert found.clusters == fine.clusters == 25_000
    assert found.critical == pytest.approx(fine.critical, rel=0.15)  # 0 of 138 other seeds fail
    exact = many.reward[np.argsort(many.reward)]
    weight = (many.target / many.behaviour)[np.argsort(many.reward)]
    mass = np.diff(np.minimum(np.cumsum(weight) / weight.sum(), 0.1), prepend=0.0)
    assert fine.cvar.policy.estimate == pytest.approx(mass @ exact / 0.1, abs=2e-3)


@pytest.mark.full
def test_bands_hold_over_all_returns_at_once():
    """A short form of `benchmarks/risk_bands.py`: 95% of logs, here at least 108 of 120.

    A coverage of 95% fails for 1 in 140 seeds, the measured one (96% and 98%) for 1 in 1,000.
    """
    from benchmarks.risk_bands import ALPHA, PROBLEMS, log_of, whole_band

    for name, episodes in (("one step, normal", 300), ("five steps, rare disaster", 300)):
        problem, kept = PROBLEMS[name], 0
        for seed in range(120):
            sample = Sample.of(log_of(problem, episodes, np.random.default_rng([seed, 99])))
            kept += all(whole_band(problem, sample, bands_of(sample, ALPHA, Confidence(replicates=500))).values())
        assert kept >= 108, name


@pytest.mark.parametrize("episodes", [10, 25])
def test_few_episodes_and_equal_returns_have_wide_bands(episodes):
    risk = risk_of(one_step(episodes), confidence=QUICK)
    assert risk.policy.high[0] > 0.2  # 0 of 138 other seeds fail, here and below
    flat = evidence_of([1] * episodes, reward=np.ones(episodes), target=[0.5] * episodes, behaviour=[0.5] * episodes)
    same = risk_of(flat, bad_outcome=0.0, confidence=QUICK)
    assert same.cvar.policy == (1.0, 1.0, 1.0)
    assert same.probability.policy.high > 2 / episodes


def test_one_episode_alone_says_nothing():
    lone = evidence_of([1, 1], reward=[1.0, 2.0], target=[0.0, 0.5], behaviour=[0.5, 0.5])
    risk = risk_of(lone, confidence=QUICK)
    assert risk.cvar.policy == (2.0, -np.inf, 2.0)


def test_refusals():
    evidence = one_step(20)
    for alpha in (0.0, 1.0, -0.1, float("nan"), True, "0.1"):
        with pytest.raises(ConfigError, match=r"cvar = .*fix: use cvar=0\.1"):
            risk_of(evidence, alpha=alpha)
    for bad in (float("nan"), float("inf"), "bad", True):
        with pytest.raises(ConfigError, match="bad_outcome = "):
            risk_of(evidence, bad_outcome=bad)

    none = evidence_of([1, 1], reward=[0.0, 1.0], target=[0.0, 0.0], behaviour=[0.5, 0.5])
    with pytest.raises(SpecError, match="all episodes of the log have probability 0 under the policy"):
        risk_of(none)


def test_json_there_and_back():
    risk = risk_of(one_step(200), bad_outcome=-2.0, confidence=QUICK)
    content = json.loads(json.dumps(risk.to_json(), allow_nan=False))
    again = Risk.from_json(content)
    assert again.to_json() == risk.to_json()
    assert len(content["points"]) <= 120
    for damage in ({"alpha": "x"}, {"policy": {}}, {"points": 3}, {"cvar": None}):
        with pytest.raises((KeyError, TypeError, ValueError)):
            Risk.from_json({**content, **damage})
    short = {**content, "policy": {**content["policy"], "low": content["policy"]["low"][1:]}}
    with pytest.raises((TypeError, ValueError)):
        Risk.from_json(short)


def with_difference(estimate, low, high):
    import dataclasses

    risk = risk_of(one_step(100), confidence=QUICK)
    return dataclasses.replace(risk, cvar=Comparison(*risk.cvar[:2], Interval(estimate, low, high)))


def test_a_gate_that_asks_for_the_tail():
    assert tail_refusal(with_difference(0.1, -0.5, 0.7), None) is None
    assert tail_refusal(with_difference(0.0, 0.0, 0.0), None) is None
    assert "shown to be worse" in tail_refusal(with_difference(-1.0, -2.0, -0.1), None)
    assert "the estimate is worse than the behaviour policy's. fix:" in tail_refusal(
        with_difference(-0.3, -1.0, 0.4), None
    )
    assert tail_refusal(None, "episodes are too long") == "the tail cannot be judged: episodes are too long"


def test_better_on_average_and_worse_in_the_tail_is_said():
    worse = with_difference(-1.0, -2.0, -0.1)
    assert "better on average, but its bad episodes are worse: its worst 10%" in tail_sentence("better", worse)
    assert "may be worse" in tail_sentence("better", with_difference(-0.3, -1.0, 0.4))
    assert tail_sentence("better", with_difference(0.3, 0.1, 0.4)) == ""
    assert "its bad episodes are better" in tail_sentence("no difference shown", with_difference(0.3, 0.1, 0.4))
    assert tail_sentence("worse", worse) == tail_sentence("better", None) == ""
