"""Plans: textbook sample sizes, the designed logging, effects that are imposed, and logs that can never answer."""

import dataclasses
import math
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import norm

import tidelog as tl
from benchmarks import plan as study
from benchmarks.adversarial_worlds import plain, quarter
from benchmarks.keep import kept
from tests.ope.cases import Always, assessed, bandit, episodes
from tidelog.errors import ConfigError
from tidelog.ope import plan as planning
from tidelog.ope.decide import decide, explored, least_share, plan_of, support_findings
from tidelog.ope.judge import question_of
from tidelog.ope.plan import PowerCurve, designed_share, pilot_of, simulated
from tidelog.ope.text import plan_sentence, round_up

ROOT = Path(__file__).resolve().parents[2]
KNOWN = {"learnt_from": "other data", "ledger": False, "progress": False, "model": "tabular"}
QUICK = {"progress": False, "model": "tabular", "simulations": 20}


def pilot(world, count=2_000, propensities=None, seed=0):
    drawn = world.draw(np.random.default_rng(seed), count)
    question = question_of(drawn.policies[0], drawn.log, True, propensities, **KNOWN)
    return pilot_of(question, lambda part, share: None), question


@pytest.fixture(scope="module")
def test_log():
    """An A/B test at even odds; the policy always takes the second arm, worth .2 more, with noise of deviation 1."""
    return plain(0.2, 1.0).draw(np.random.default_rng(1), 4_000)


def planned(drawn, **settings):
    return tl.plan(drawn.policies[0], drawn.log, **{**QUICK, "explore": (), **settings})


def test_the_plan_of_an_even_test_is_the_textbook_sample_size(test_log):
    """Two arms differ by .2, twice the effect: 4 (1.96 + z)^2 / .2^2 episodes in all.

    The tolerance is 1.8 standard errors of 100 simulations and of the deviation in the pilot.
    """
    found = planned(test_log, effect=0.1, probability=0.8, simulations=100).loggings[0]
    size = 4.0 * (norm.ppf(0.975) + norm.ppf(0.8)) ** 2 / 0.2**2
    assert found.episodes == pytest.approx(size, rel=0.2)
    assert found.low < found.episodes < found.high
    assert found.probability_low < 0.8 < found.probability_high


def test_a_larger_effect_is_shown_more_often_and_the_same_seed_gives_the_same_plan(test_log):
    asked = {"episodes": 600}
    small, large = (planned(test_log, effect=effect, **asked).loggings[0].probability for effect in (0.07, 0.15))
    assert small + 0.3 < large  # 0.4 and 0.96
    one, same, other = (planned(test_log, effect=0.1, seed=seed, **asked).to_json() for seed in (3, 3, 4))
    assert one == same != other


@pytest.mark.full
def test_a_number_of_episodes_has_its_probability(test_log):
    found = planned(test_log, effect=0.1, episodes=600, simulations=300).loggings[0]
    power = norm.cdf(0.2 * np.sqrt(600 / 4.0) - norm.ppf(0.975))
    assert found.probability == pytest.approx(power, abs=0.09)  # 3 standard errors
    assert found.probability_low < found.probability < found.probability_high


def test_only_shares_below_the_first_that_is_enough_are_asked_about(test_log):
    drawn = quarter().draw(np.random.default_rng(0), 600)
    found = tl.plan(drawn.policies[0], drawn.log, 0.3, episodes=2_000, explore=(0.5, 0.9, 0.01), **QUICK)
    assert [one.share for one in found.loggings if one.logging == "share"] == [0.01, 0.5]
    assert "likely 2,000 new episodes" in found.sentences[0]


@pytest.mark.parametrize(("variance", "share"), [((1.0, 1.0), 0.5), ((1.0, 9.0), 0.75), ((1.0, 1e6), 0.9)])
def test_the_designed_logging_of_two_arms_is_neymans_allocation(variance, share):
    """Shares as the arms' deviations, within the bounds."""
    target, practice = np.tile([0.0, 1.0], (5, 1)), np.tile([1.0, 0.0], (5, 1))
    assert designed_share(target, practice, np.tile(variance, (5, 1)), np.zeros((5, 2))) == pytest.approx(
        share, abs=1e-4
    )


def test_an_effect_below_what_a_hidden_cause_could_make_is_never_shown_and_recorded_exploration_shows_it(
    test_log, monkeypatch
):
    monkeypatch.setattr(planning, "FARTHEST", 8.0)  # 20 times the episodes of the pilot in place of 160
    found = tl.plan(test_log.policies[0], test_log.log, 0.1, propensities="estimated", explore=(0.2,), **QUICK)
    assert found.loggings[0].episodes is None
    assert "record the probability" in found.loggings[0].sentence(None)
    assert [one.episodes is not None for one in found.loggings] == [False, True, True]


def test_actions_that_were_never_taken_need_exploration():
    drawn = quarter().draw(np.random.default_rng(0), 600)
    found = tl.plan(drawn.policies[0], drawn.log, 0.3, explore=(0.3,), **QUICK)
    assert found.loggings[0].episodes is None
    assert "hardly in the log" in found.loggings[0].obstacle
    assert found.loggings[1].episodes is not None
    assert "model's guess" in found.notes[0]


@pytest.mark.parametrize("world", [plain(0.3, 0.9), study.router()], ids=["normal", "clicks"])
@pytest.mark.parametrize("share", [0.0, 0.3])
def test_simulated_logs_have_the_effect(world, share):
    """The mean estimate of simulated logs is the effect, plus what the exploration costs; clicks stay 0 or 1."""
    a, question = pilot(world)
    effect = 0.01 if len(np.unique(a.evidence.reward)) == 2 else 0.25
    logs = simulated(a, question.log, effect, explored(a.evidence, share) if share else None)
    generator = np.random.default_rng(1)
    found = [logs.decided(2_000, generator) for _ in range(20)]
    estimates = np.array([one.interval.estimate for one in found])
    assert estimates.mean() == pytest.approx(effect + logs.cost, abs=4 * estimates.std() / np.sqrt(20))
    assert len(np.unique(found[0].evidence.reward)) == 2 or effect == 0.25
    assert found[0].evidence.reward.mean() == pytest.approx(a.evidence.reward.mean() - logs.cost, rel=0.2, abs=0.05)


def test_an_effect_that_two_rewards_do_not_allow_is_refused_in_words():
    world = study.router()
    drawn = world.draw(np.random.default_rng(0), 2_000)
    found = tl.plan(drawn.policies[0], drawn.log, 0.99, explore=(), **QUICK)
    assert "allow no effect of that size" in found.loggings[0].obstacle


def test_sequences_keep_whole_episodes_and_plan_no_exploration():
    here = study.world("chain of five decisions")
    found = tl.plan(here.policy, here.draw(800, 1, None), here.effect, sample=True, **QUICK)
    assert [one.logging for one in found.loggings] == ["present"]
    assert 150 < found.loggings[0].episodes < 800
    assert "states that are not in it" in found.sentences[-1]


def test_a_policy_that_is_the_practice_has_no_plan(test_log):
    found = tl.plan(Always(0.5, 0.5), test_log.log, 0.1, **QUICK)
    assert "no episodes show a difference" in found.loggings[0].obstacle


def test_one_share_may_stand_alone_and_several_policies_are_refused(test_log):
    always, log = test_log.policies[0], test_log.log
    few = {"effect": 0.2, "simulations": 20, "episodes": 500, "progress": False, "sample": True}
    alone, listed = (tl.plan(always, log, explore=one, **few).sentences for one in (0.2, (0.2,)))
    assert alone == listed
    with pytest.raises(ConfigError, match="2 policies"):
        tl.plan({"a": always, "b": always}, log, **few)


def test_no_number_of_episodes_is_enough_where_unknown_rewards_could_undo_the_effect():
    random = np.random.default_rng(0)
    x, arm = random.integers(0, 3, 1_000), (random.random(1_000) < 0.3).astype(int)
    reward = (random.random(1_000) < 0.3 + 0.15 * arm).astype(np.float32)
    reward[random.random(1_000) < np.where(arm == 1, 0.25, 0.05)] = np.nan
    stated = {}
    for rule in ("unknown", "at random"):
        log = tl.Log.from_arrays(
            observation=x, action=arm, reward=reward, terminated=True, actions=2,
            propensity=np.where(arm == 1, 0.3, 0.7), missing_reward=rule,
        )  # fmt: skip
        second = tl.simple_rules(log)["best single action"]
        stated[rule] = tl.plan(second, log, effect=0.1, simulations=20, progress=False)
    assert stated["unknown"].loggings[0].episodes is None
    assert "unknown" in stated["unknown"].loggings[0].obstacle
    assert stated["at random"].loggings[0].episodes is not None
    assert "Exploration is planned only where all rewards are known." in stated["unknown"].sentences
    few = {"episodes": 1_500, "simulations": 20, "progress": False}  # drawn anew from the pilot, moved to the effect
    small, large = (tl.plan(second, log, effect=effect, **few).loggings[0].probability for effect in (0.01, 0.25))
    assert small < 0.5 < 0.9 < large


@pytest.mark.parametrize("model", ["tabular", "neural"])
def test_simulated_logs_of_a_part_keep_what_it_leaves_to_the_practice(model):
    pilot = assessed(bandit().part_of(np.float64(np.arange(600) < 300)))
    pilot.policy_evidence = dataclasses.replace(pilot.basis, model=model)
    world = simulated(pilot, None, 0.1, None)
    drawn = world.draw(900, np.random.default_rng(0))
    assert drawn.follows.shape == drawn.reward.shape


@pytest.mark.parametrize(
    "settings",
    [{"effect": 0.0}, {"effect": float("nan")}, {"probability": 1.0}, {"episodes": 3}, {"explore": (0.0,)},
     {"simulations": 1}],
    ids=str,
)  # fmt: skip
def test_numbers_out_of_range_are_refused(settings, test_log):
    with pytest.raises(ConfigError, match=next(iter(settings))):
        planned(test_log, **settings)


@pytest.mark.parametrize("slope", [2.5, 20.0])
def test_the_power_curve_finds_the_size_of_its_points_and_may_be_steep(slope):
    """A limit on support makes it steep."""
    roots = np.array([0.9, 0.97, 1.0, 1.1])
    every = np.full(4, 4_000.0)
    curve = PowerCurve.of(roots, every * norm.cdf(0.5 + slope * (roots - 1.0)), every, 1.96, 0.8)
    assert (curve.level, curve.slope) == (pytest.approx(0.5, abs=0.03), pytest.approx(slope, rel=0.1))
    assert norm.cdf(curve.level + curve.slope * (curve.root(0.8) - 1.0)) == pytest.approx(0.8)


def test_the_guide_says_how_often_plans_held():
    cells = kept("plan")["cells"]
    shares = [
        [cell["better"]["share"] for cell in cells if (cell["logging"] == "present") == one] for one in (True, False)
    ]
    *single, sequence = shares[0]
    text = " ".join((ROOT / "docs/judging.md").read_text(encoding="utf-8").split())
    assert f"{sum(cell['within'] for cell in cells)} of {len(cells)} shares of *better* are within 5 points" in text
    told = f"they are {min(single):.1%} to {max(single):.0%} for single decisions and {sequence:.0%} for sequences"
    assert told in text
    assert f"with exploration {min(shares[1]):.1%} to {max(shares[1]):.1%}" in text


# The closed form at the end of a verdict.


def test_a_difference_that_is_not_shown_says_how_many_episodes_would_show_it():
    a = decide(assessed(bandit(gain=0.08)))
    assert a.decision == "no difference shown"
    returns = a.evidence.reward
    found = plan_of(a, returns)
    half = (a.interval.high - a.interval.low) / 2.0
    times = ((norm.ppf(0.975) + norm.ppf(0.8)) / norm.ppf(0.975) * half / a.interval.estimate) ** 2
    assert (found.kind, found.probability) == ("episodes", 0.8)
    assert found.episodes == pytest.approx(600 * times, abs=1)
    assert found.effect == pytest.approx(a.interval.estimate)
    assert f"about {round_up(found.episodes):,} new episodes would show a gain" in plan_sentence(found, None)
    wide = assessed(bandit(gain=0.08))
    wide.widening = 2.0
    decide(wide)
    assert plan_of(wide, returns).episodes == pytest.approx(found.episodes, rel=0.1), "it is judged at a first look"


def test_a_gain_that_would_have_been_shown_is_said_to_be():
    found = plan_of(decide(assessed(bandit(gain=-0.01, count=4_000))), bandit(gain=-0.01, count=4_000).reward)
    assert found.kind == "enough"
    assert "these were enough" in plan_sentence(found, None)


def test_better_and_worse_have_no_plan():
    a = decide(assessed(bandit(gain=0.5)))
    assert a.decision == "better"
    assert plan_of(a, a.evidence.reward) is None


def test_unsupported_actions_ask_for_the_least_share_that_repairs_them():
    """The judge then has support on a log of that share, and none with a tenth of it."""
    drawn = quarter().draw(np.random.default_rng(0), 600)
    verdict = tl.judge(drawn.policies[0], drawn.log, True, **KNOWN)
    assert (verdict.decision, verdict.plan.kind) == ("unsupported", "exploration")
    assert verdict.next_step.endswith("`tidelog plan` simulates this.")
    assert verdict.to_json()["plan"]["share"] == verdict.plan.share
    world = quarter()
    for share, supported in ((verdict.plan.share, True), (verdict.plan.share / 10.0, False)):
        logging = (1.0 - share) * world.behavior_policy + share / 3.0
        other = dataclasses.replace(world, behavior_policy=logging)
        fresh = other.draw(np.random.default_rng(1), 600)
        assert (tl.judge(fresh.policies[0], fresh.log, True, **KNOWN).decision != "unsupported") == supported


def test_numbers_of_support_scale_with_the_number_of_episodes():
    support, limits = decide(assessed(bandit())).support, tl.Limits()

    def times(rule, **numbers):
        findings = support_findings(dataclasses.replace(support, **numbers), limits)
        return next(one.check.times for one in findings if one.rule == rule)

    assert times("effective_sample_size", effective_sample_size=25.0) == 2.0
    assert math.isnan(times("effective_sample_size", effective_sample_size=2.0))  # less than the limit on the share
    assert times("largest_weight", largest_weight=0.3) == pytest.approx(3.0)
    assert math.isnan(times("pareto_k"))


def test_exploration_is_not_planned_for_sequences():
    assert explored(episodes(), 0.1) is None
    assert least_share(assessed(episodes())) is None
