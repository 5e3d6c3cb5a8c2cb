"""Each decision on logs and evidence with known answers, each limit and veto, and answers where there is no number."""

import dataclasses
import json
from types import SimpleNamespace

import numpy as np
import pytest

from tests.ope.cases import (
    QUICK,
    Always,
    Told,
    assessed,
    bandit,
    best_treatments,
    episodes,
    mostly,
    outcome,
    rules,
    said,
    treated,
)
from tests.training.runs import LOSS, bc, begin, finish
from tidelog import ConfigError, Log, LogError, SpecError, estimate, judge
from tidelog.data.statistics import Overlap
from tidelog.envs.treatment import clinician, exact_value
from tidelog.ope import decide, policy_evidence, text
from tidelog.ope import judge as comparison
from tidelog.ope.decide import Limits, Reuse, worst_case
from tidelog.ope.decide import decide as decided
from tidelog.ope.estimators import Supports, logged_return, pareto_k
from tidelog.ope.evidence import Values
from tidelog.ope.text import dominating, no_risk
from tidelog.ope.verdict import Verdicts, read_verdict, write
from tidelog.policies.statistics import Interval
from tidelog.runtime import way_of_acting

# Decisions from evidence made by hand.


@pytest.mark.parametrize(
    ("gain", "decision"),
    [(0.5, "better"), (-0.5, "worse"), (0.0, "no difference shown"), (0.05, "no difference shown")],
)
@pytest.mark.parametrize("evidence", [bandit, episodes])
def test_the_sign_of_the_truth_decides(gain, decision, evidence):
    found = outcome(evidence(gain))
    assert found.decision == decision  # 0 of 37 other seeds fail, here and below
    assert found.findings == []
    gained = gain * (0.8 - 0.5) if evidence is bandit else 3 * gain * (0.6 - 0.5)
    assert found.difference.low < gained < found.difference.high
    own = logged_return(evidence(gain)).estimate
    assert found.behavior_policy.estimate == pytest.approx(own)


def test_the_difference_is_bootstrapped_jointly():
    """What the policy shares with the behaviour policy cancels: the interval is narrower than either mean's."""
    found = outcome(bandit(0.5, chance=0.55))
    wide = found.estimates["wdr"]
    assert found.difference.high - found.difference.low < 0.6 * (wide.high - wide.low)  # 0 of 37 other seeds fail


@pytest.mark.parametrize(("changes", "rule", "number"), [
    ({"effective_episodes": 500}, "effective_sample_size", "at least 500"),
    ({"effective_share": 0.9}, "effective_sample_size", "at least 540"),
    ({"largest_weight": 0.002}, "largest_weight", "at most 0.2%"),
    ({"pareto_k": -9.0}, "pareto_k", "limit -9"),
])  # fmt: skip
def test_every_limit_on_support_can_be_broken(changes, rule, number):
    found = outcome(bandit(), dataclasses.replace(QUICK, **changes))
    assert found.decision == "unsupported"
    assert rules(found) == [rule]
    assert number in said(found)[0].sentence
    assert said(found)[0].advice


def test_wrong_propensities_show_in_the_mean_weight():
    wrong = bandit(behaviour=np.full(600, 0.4))
    found = outcome(wrong)
    assert (found.decision, rules(found)) == ("unsupported", ["mean_weight"])
    assert "mean weight is 1.25 (expected 1.00)" in said(found)[0].sentence
    assert outcome(wrong, dataclasses.replace(QUICK, mean_weight_errors=50.0)).decision == "better"


def test_actions_that_the_behavior_hardly_took_are_unsupported():
    rare = np.tile([0.96, 0.04], (600, 1))
    found = outcome(bandit(behaviour_all=rare))
    assert rules(found) == ["unsupported_mass"]
    assert "80.0% of the policy's actions" in said(found)[0].sentence
    assert outcome(bandit(behaviour_all=rare), dataclasses.replace(QUICK, unsupported_mass=0.81)).decision == "better"


def test_weight_that_went_where_the_log_never_is_is_no_error_of_estimates():
    """A quarter of what the policy does was never tried; the mean weight lacks that quarter, within odds of 1.5."""
    lost = bandit(2.0, target=0.75 * bandit().target, estimated=True, behaviour_all=np.full((600, 2), 0.5))
    assert outcome(lost).decision == "better", "wrong propensities, as far as these can say"
    rare = np.tile([0.02, 0.5], (600, 1))
    asked = dataclasses.replace(QUICK, unsupported_mass=0.3)
    found = outcome(dataclasses.replace(lost, behaviour_all=rare, target_all=np.tile([0.25, 0.75], (600, 1))), asked)
    assert (found.decision, rules(found)) == ("unsupported", ["mean_weight"])
    assert "25.0% of the policy's actions are hardly in the log" in said(found)[0].sentence


def test_what_few_episodes_earned_is_no_basis():
    reward = np.zeros(600)
    reward[[3, 101, 333]] = 9.0
    flat = {"model": np.full(600, 0.045), "model_target": np.full(600, 0.045), "model_all": np.full((600, 2), 0.045)}
    rare = bandit(reward=reward, **flat)
    found = outcome(rare)
    assert (found.decision, rules(found)) == ("unsupported", ["earning_episodes"])
    assert "rests on about 3.1 episodes" in said(found)[0].sentence
    assert outcome(rare, dataclasses.replace(QUICK, earning_episodes=2.0)).decision != "unsupported"


def clicked(places, *, policy_rows=200, count=600):
    """Clicks at these rows; the policy takes what stands in the first rows only, with weight 3."""
    reward = np.zeros(count)
    reward[places] = 1.0
    target = np.where(np.arange(count) < policy_rows, 1.0, 0.0)
    flat = np.full(count, reward.mean())
    both = np.stack([flat, flat], axis=1)
    return bandit(
        reward=reward, behaviour=np.full(count, 1.0 / 3.0), target=target, model=flat, model_target=flat, model_all=both
    )


def test_no_click_is_no_harm_where_hardly_one_was_to_be_expected():
    """Nine clicks in 600 rows, none where the policy goes, whose 200 rows let expect three."""
    found = outcome(clicked(np.arange(210, 600, 45)))
    assert (found.decision, rules(found)) == ("unsupported", ["earning_episodes"])
    assert "rests on about 3.1 episodes" in said(found)[0].sentence
    assert outcome(clicked(np.arange(210, 600, 12))).decision == "worse"  # 33 clicks: eleven were to be expected
    assert outcome(clicked([*range(0, 180, 20), 400])).decision == "better"  # nine of ten are where the policy goes


@pytest.mark.parametrize(
    ("places", "clusters", "earning"),
    [
        (np.arange(0, 600, 40), None, 5.0),  # fifteen clicks, of which a third is to be expected
        (np.arange(0, 600, 40), np.arange(600) // 2, 5.5),  # about as many in 300 people of two rows
        (np.sort(np.r_[np.arange(0, 600, 40), np.arange(1, 600, 40)]), np.arange(600) // 2, 5.5),  # two of a person
        ([], None, np.inf),  # returns that are all the same need no episode
    ],
    ids=["alone", "people", "people who click twice", "no click"],
)
def test_earning_clusters_are_those_that_were_to_be_expected(places, clusters, earning):
    evidence = dataclasses.replace(clicked(places), clusters=clusters)
    assert assessed(evidence).earning(200.0 if clusters is None else 100.0) == pytest.approx(earning, rel=0.1)


def test_long_products_contradict_where_they_have_support():
    """Nearly no weight on what was earned: ratios of visits say what the model says, which is far too high."""
    high = {"model": np.full(1200, 9.0), "model_target": np.full(1200, 9.0), "model_all": None}
    lied = episodes(-1.0, occupancy=0.01 + 1e-4 * (np.arange(1200) % 7), **high)
    limits = dataclasses.replace(QUICK, horizon=2, mean_weight_errors=1e9, highest_return=20.0)
    found = outcome(lied, limits)
    assert found.difference.low > 0
    assert (found.decision, set(rules(found))) == ("no difference shown", {"contradiction"})
    assert any("'drl' finds the policy better, 'wis' finds it worse" in one.sentence for one in said(found))
    few, supports = assessed(lied, limits), Supports(lied)
    few.supports = SimpleNamespace(
        of=lambda name: dataclasses.replace(supports.of(name), effective_sample_size=3.0 if name == "wis" else 400.0)
    )
    assert decided(few).decision == "better", "products of long episodes are mostly noise"


def test_long_episodes_are_judged_by_visits_or_not_at_all():
    short = dataclasses.replace(QUICK, horizon=2)
    assert outcome(episodes(), short).decision == "better"
    assert assessed(episodes(), short).deciding == "drl"
    assert assessed(episodes()).deciding == "wdr"
    blind = outcome(episodes(occupancy=None), short)
    assert (blind.decision, rules(blind)) == ("unsupported", ["horizon"])
    assert "up to 3 decisions: products of probabilities carry no information beyond 2" in said(blind)[0].sentence
    assert not np.isfinite(blind.difference.estimate)


def test_visits_have_support_of_their_own():
    short = dataclasses.replace(QUICK, horizon=2)
    weights = episodes().occupancy.copy()
    weights[:3] = 500.0
    found = outcome(episodes(occupancy=weights), short)
    assert found.decision == "unsupported"
    assert "largest_weight" in rules(found)
    assert outcome(episodes(occupancy=weights)).decision == "better", "products of probabilities have theirs"
    halved = outcome(episodes(occupancy=0.5 * episodes().occupancy), short)
    assert rules(halved) == ["mean_weight"]
    assert "occupancy-weighted terminations average 0.5 (expected 1.00)" in said(halved)[0].sentence
    assert "--discount 0.9" in said(halved)[0].advice


def test_visits_that_five_episodes_carry_are_no_basis():
    """Ratios of 60 at five first steps, which the model rates too low: most of the difference is theirs."""
    short = dataclasses.replace(QUICK, horizon=2)
    plain = episodes()
    first = 3 * np.arange(20, 400, 80)
    weights, rated = plain.occupancy.copy(), plain.model.copy()
    weights[first], rated[first] = 60.0, plain.model[first] - 1.5
    evidence = episodes(occupancy=weights, model=rated)
    found = outcome(evidence, short)
    assert found.difference.low > 0.15, "the true difference"
    assert (found.decision, rules(found)) == ("unsupported", ["carrying_episodes"])
    assert "rests on about 3.5 episodes" in said(found)[0].sentence  # other seeds: 3.3 to 4.9
    assert outcome(evidence, dataclasses.replace(short, carrying_episodes=3.0)).decision == "better"
    assert outcome(evidence, dataclasses.replace(QUICK, carrying_episodes=1e9)).decision == "better", "products decide"


@pytest.mark.parametrize(("sign", "side"), [(1.0, "highest"), (-1.0, "lowest")])
def test_a_mean_return_that_no_episode_had_is_not_credible(sign, side):
    """Nearly no weight on what was earned, and a model that promises 9 where the log has at most 3."""
    wrong = {"model": np.full(1200, sign * 9.0), "model_target": np.full(1200, sign * 9.0), "model_all": None}
    evidence = episodes(occupancy=0.01 + 1e-4 * (np.arange(1200) % 7), **wrong)
    limits = dataclasses.replace(QUICK, horizon=2, mean_weight_errors=1e9)
    found = outcome(evidence, limits)
    assert found.decision == "unsupported"
    assert "range" in rules(found)
    assert f"the {side} return of any episode in the log" in said(found)[0].sentence
    possible = dataclasses.replace(limits, **{f"{side}_return": sign * 20.0})
    assert "range" not in rules(outcome(evidence, possible))


def test_a_step_without_any_weight_is_no_number():
    target = np.where(np.arange(1200) % 3 == 2, 0.0, 0.5)
    found = outcome(episodes(target=target))
    assert found.decision == "unsupported"
    assert "weight" in rules(found)


@pytest.mark.parametrize(("changes", "attribute"), [
    ({"level": 0.8}, "difference"), ({"replicates": 1500}, "difference"), ({"groups": 100}, "difference"),
])  # fmt: skip
def test_how_intervals_are_made_counts(changes, attribute):
    one, two = outcome(bandit()), outcome(bandit(), dataclasses.replace(QUICK, **changes))
    assert getattr(one, attribute) != getattr(two, attribute)
    assert one.estimates["wdr"].low != two.estimates["wdr"].low
    if "level" in changes:
        assert two.difference.low > one.difference.low
        assert two.estimates["wdr"].level == 0.8


def test_a_contradiction_shows_no_difference():
    """The model rates everything far too low: weighted residuals mend that, the model alone does not."""
    low = {"model": np.full(600, -5.0), "model_target": np.full(600, -5.0)}
    found = outcome(bandit(**low))
    assert found.difference.low > 0
    assert (found.decision, rules(found)) == ("no difference shown", ["contradiction"])
    assert "'wdr' finds the policy better, 'dm' finds it worse" in said(found)[0].sentence
    high = {"model": np.full(600, 5.0), "model_target": np.full(600, 5.0)}
    found = outcome(bandit(-0.5, **high))
    assert found.difference.high < 0
    assert (found.decision, rules(found)) == ("no difference shown", ["contradiction"])
    long = {"model": np.full(1200, -9.0), "model_target": np.full(1200, -9.0)}
    assert "'fqe'" in said(outcome(episodes(1.0, **long)))[0].sentence


def test_what_cannot_be_earned_is_said(varied, monkeypatch):
    """Networks on a tiny log may rate beginnings at what no episode can earn."""
    wild = Values(*(np.full(shape, 99.0) for shape in (varied.steps, varied.steps, (varied.steps, 6))))
    monkeypatch.setattr(policy_evidence, "tabular_values", lambda *rest: wild)
    found = judge(Told(mostly(best_treatments(), 0.8)), varied, limits=QUICK)
    assert found.estimates["fqe"].note.startswith("outside the range that an episode can earn (")
    assert "'fqe'" in found.paragraph
    assert "outside the range that an episode can earn: do not use it" in found.paragraph
    assert "wis" not in found.paragraph


def dominated():
    """200 episodes, of which one is long and always does what the policy does."""
    rng = np.random.default_rng(0)
    lengths = np.where(np.arange(200) == 17, 20, 1 + (np.arange(200) % 3 > 0))
    steps, long = int(lengths.sum()), np.repeat(np.arange(200) == 17, lengths)
    seen = rng.integers(0, 2, steps)
    action = np.where(long, seen, rng.integers(0, 2, steps))
    return Log.from_arrays(
        observation=seen[:, None], action=action, reward=1.0 * (action == seen), propensity=np.full(steps, 0.5),
        episode=np.repeat([f"p{one}" for one in range(200)], lengths),
    )  # fmt: skip


def test_episodes_that_dominate_are_named_with_their_length():
    found = judge(Copies(0.95), dominated(), limits=QUICK, model="tabular")
    assert found.decision == "unsupported"
    named = "he episode 'p17' with 99.9% of the weight and 20 decisions dominates; half of all episodes have at most 2"
    assert named in found.paragraph
    assert "the weight of an episode is a product over its decisions" in found.paragraph


@pytest.mark.parametrize(
    ("weights", "sentence"),
    [([1.0] * 10, None), ([0.0] * 10, None), ([1e9] + [1.0] * 9, "the episode '0' with 100.0%"),
     ([5.0, 5.0] + [1.0] * 8, "the episodes '0' with 27.8% of the weight and 1 decision, '1' with 27.8%"),
     ([1e300] * 2 + [1e290] * 8, "the episodes '0' with 50.0%")],
)  # fmt: skip
def test_only_few_episodes_dominate(weights, sentence):
    (*found,) = dominating(np.arange(10), np.ones(10, np.int64), np.asarray(weights))
    assert found == [] if sentence is None else found[0].startswith(sentence)
    assert not any("product" in one for one in found), "they are not longer than the others"


def test_ratios_of_visits_that_a_constant_moves_do_not_contradict():
    """Visits a tenth too rare and 5 more for each of three steps: 'mwl' finds a loss, and decides nothing."""
    more = 5.0 * np.tile([3.0, 2.0, 1.0], 400)
    plain = episodes(2.0)
    rated = {"model": plain.model + more, "model_target": plain.model_target + more}
    evidence = episodes(2.0, reward=plain.reward + 5.0, occupancy=0.9 * plain.occupancy, model_all=None, **rated)
    found = outcome(evidence, dataclasses.replace(QUICK, mean_weight_errors=1e6))
    assert found.estimates["mwl"].high < found.behavior_policy.low
    assert found.estimates["drl"].low > found.behavior_policy.high
    assert (found.decision, found.findings) == ("better", [])


def test_estimated_propensities_may_be_off_by_what_the_odds_allow():
    """Weights of 1.25 on average: far from 1 in standard errors, and within odds of 1.5."""
    wrong = bandit(2.0, behaviour=np.full(600, 0.4), estimated=True)
    assert outcome(wrong).decision == "better"
    found = outcome(wrong, dataclasses.replace(QUICK, odds_ratio=1.2))
    assert (found.decision, rules(found)) == ("unsupported", ["mean_weight"])
    assert "a factor of 1.2 where propensities are estimated" in said(found)[0].sentence
    assert said(found)[0].advice.startswith("record the probability")
    assert said(outcome(bandit(behaviour=np.full(600, 0.4))))[0].advice.startswith("check the propensity column")


def test_with_estimated_propensities_better_must_survive_a_hidden_cause():
    strong, weak = outcome(bandit(2.0, estimated=True)), outcome(bandit(0.2, estimated=True))
    assert strong.decision == "better"
    assert (weak.decision, rules(weak)) == ("no difference shown", ["sensitivity"])
    assert "odds of 1.5" in said(weak)[0].sentence
    holds = weak.findings[0].numbers["holds"]
    assert 1.0 < holds < 1.5
    assert worst_case(weak, holds) > 0.0 > worst_case(weak, holds + 0.02)
    assert f"it is up to odds of {holds:.2f}" in said(weak)[0].sentence
    assert outcome(bandit(0.2)).decision == "better"
    assert outcome(bandit(0.2, estimated=True), dataclasses.replace(QUICK, odds_ratio=1.0)).decision == "better"
    assert outcome(bandit(2.0, estimated=True), dataclasses.replace(QUICK, odds_ratio=40.0)).decision != "better"
    assert outcome(bandit(-0.3, estimated=True)).decision == "worse"


@pytest.mark.parametrize("limits", [QUICK, dataclasses.replace(QUICK, horizon=2)])
def test_a_hidden_cause_can_sway_products_and_visits(limits):
    def worst(odds):
        changed = dataclasses.replace(limits, odds_ratio=odds)
        return worst_case(assessed(episodes(estimated=True), changed))

    low = outcome(episodes(estimated=True), limits).difference.low
    assert worst(1.0) == pytest.approx(low)
    assert worst(1.5) < worst(1.1) < low


def test_of_a_cluster_all_episodes_are_drawn_or_none(monkeypatch):
    whole = bandit(clusters=np.arange(600) // 3)
    monkeypatch.setattr(decide, "CELLS", 100)
    part = decide._at_most(whole, 0)
    assert 90 < part.episodes <= 100
    assert set(np.bincount(part.clusters)) == {3}
    assert decide._at_most(bandit(), 0).episodes == 100


def test_what_picked_the_checkpoint_cannot_show_that_it_is_better():
    these, others = Overlap(600, 600, True), Overlap(600, 0, True)
    picked = Reuse(Overlap(600, 0, True), LOSS, these)
    found = outcome(bandit(), reuse=picked)
    assert (found.decision, rules(found)) == ("no difference shown", ["chosen"])
    assert LOSS in said(found)[0].sentence
    assert outcome(bandit(), reuse=Reuse(None, LOSS, others)).decision == "better"
    assert outcome(bandit(), reuse=Reuse(None, None, these)).decision == "better"
    assert outcome(bandit(-0.5), reuse=picked).decision == "worse"


def test_what_was_learnt_from_cannot_judge():
    found = outcome(bandit(), reuse=Reuse(Overlap(600, 7, True), None, None))
    assert (found.decision, rules(found)) == ("unsupported", ["overlap"])
    assert "1.2% of the episodes" in said(found)[0].sentence
    assert outcome(bandit(), reuse=Reuse(Overlap(600, 6, True), None, None)).decision == "better"
    lenient = dataclasses.replace(QUICK, overlap=0.02)
    assert outcome(bandit(), lenient, Reuse(Overlap(600, 7, True), None, None)).decision == "better"


def test_the_clone_is_compared_on_the_same_episodes():
    found = outcome(bandit(), cloning=bandit(chance=0.5))
    assert found.from_cloning.low < 0.15 < found.from_cloning.high
    assert outcome(bandit(), cloning=bandit()).from_cloning == pytest.approx((0, 0, 0))
    assert outcome(bandit()).from_cloning is None


@pytest.mark.parametrize(("name", "value"), [
    ("effective_share", 1.5), ("level", 0.0), ("replicates", 999), ("replicates", 1000.0), ("odds_ratio", 0.5),
    ("horizon", 0), ("pareto_k", "a"), ("overlap", True), ("largest_weight", float("nan")),
    ("groups", 10_001),
])  # fmt: skip
def test_limits_that_cannot_be_meant_are_refused(name, value):
    with pytest.raises(ConfigError, match=name):
        Limits(**{name: value})


def test_weights_that_are_equal_up_to_rounding_have_no_heavy_tail():
    weights = np.repeat([0.2, 1.0, 3.0], 200)
    rounded = weights * (1 + 1e-7 * np.random.default_rng(0).random(600))
    assert pareto_k(rounded) == pytest.approx(pareto_k(weights), abs=1e-3)
    assert pareto_k(rounded) < 0.7


# Verdicts on logs.


@pytest.fixture(scope="module")
def varied():
    """The optimal treatments in half of the decisions, any by chance in the others."""
    return treated(mostly(best_treatments(), 0.5), 1500)


@pytest.fixture(scope="module")
def better(varied):
    return judge(Told(mostly(best_treatments(), 0.8)), varied, limits=QUICK, context={"name": "told"})


def test_a_better_policy_is_found_better(better):
    assert better.decision == "better"
    gained = exact_value(mostly(best_treatments(), 0.8)) - exact_value(mostly(best_treatments(), 0.5))
    # an interval of 95% misses it for 1 in 20 seeds
    assert better.difference.low < gained < better.difference.high
    assert "The policy would earn about" in better.paragraph
    assert "try it on a small share" in better.paragraph
    assert better.reasons[0].endswith("lies above 0")
    assert better.advice.startswith("Use it only if it did not learn from the judged episodes: then it is better than")
    known = dataclasses.replace(better, context={**better.context, "overlap_unknown": False, "sample": True})
    assert known.advice == "Use it: it is better than the logged decisions if it samples its actions."
    assert known.summary["advice"] == known.to_json()["advice"] == known.advice
    assert way_of_acting.read_verdict(known.summary)["advice"] == known.advice
    older = {name: value for name, value in known.summary.items() if name != "advice"}
    assert way_of_acting.read_verdict(older)["advice"] == known.advice
    assert not any(reason.lower() in better.outcome.lower() for reason in better.reasons)
    assert better.next_step.startswith("Next: try it on a small share")
    assert better.deciding == "wdr"
    assert better.difference_from_bc.low > 0
    assert "up to its recorded end (5 steps at most)" in better.estimand


def test_a_worse_policy_is_found_worse(varied):
    found = judge(Told(mostly(best_treatments(), 0.1)), varied, limits=QUICK)
    assert found.decision == "worse"  # 2 of 21 other seeds fail: no difference is shown
    assert found.advice == "Do not use it: it is worse than the logged decisions if it samples its actions."
    assert found.difference.high < 0


def test_a_verdict_is_a_json_file(better, varied):
    content = json.loads(json.dumps(better.to_json(), allow_nan=False))
    assert content["decision"] == "better"
    context = content["context"]
    size = {"steps": varied.steps, "episodes": 1500}
    assert context["log"] == {"fingerprint": varied.fingerprint(), "source": "arrays", **size}
    assert context["policy"] == {"algorithm": None, "kind": "Told"}
    assert context["propensities"] == "recorded"
    assert context["model"] == "tabular"
    assert context["limits"]["replicates"] == 1000
    assert context["name"] == "told"
    assert context["seed"] == 0
    assert set(context["versions"]) >= {"tidelog", "jax", "numpy"}


@pytest.mark.parametrize("steps", [1, 3])
def test_doing_what_the_behavior_did_is_no_difference(steps):
    """A rule made the log; the same rule as a policy differs by what rounding leaves, and by nothing else."""
    generator = np.random.default_rng(0)
    seen = generator.integers(0, 3, 600).astype(float)
    ends = np.arange(600) % steps == steps - 1
    log = Log.from_arrays(
        observation=seen[:, None], action=(seen > 0).astype(int), reward=0.7 * seen + generator.normal(size=600),
        terminated=ends, propensity=np.ones(600), actions=2,
    )  # fmt: skip

    class Rule:
        def probabilities(self, observation, mask=None):
            return np.eye(2)[(next(iter(observation.values()))[:, 0] > 0).astype(int)]

    for propensities in (None, "estimated"):
        found = judge(Rule(), log, propensities=propensities, limits=QUICK)
        assert (found.decision, tuple(found.difference)) == ("no difference shown", (0.0, 0.0, 0.0))
        assert "the policy does what the behaviour policy did" in found.paragraph
        assert json.dumps(found.to_json())


@pytest.mark.parametrize("seed", [-1, 1.5, None, True, "a"])
def test_a_seed_that_is_none_is_refused(seed, varied):
    for ask in (judge, estimate):
        with pytest.raises(ConfigError, match="expected a whole number of at least 0"):
            ask(Told(best_treatments()), varied, seed=seed)


def test_without_a_model_a_log_of_single_decisions_is_unsupported_too():
    log = Log.from_arrays(
        observation=np.arange(80.0)[:, None] % 2, action=np.arange(80) // 2 % 2, reward=np.arange(80.0) % 7,
        terminated=np.ones(80, bool), propensity=np.full(80, 0.5),
    )  # fmt: skip
    found = judge(Copies(0.75), log, model="none", limits=QUICK)
    assert found.decision == "unsupported"
    assert "There is no model of action values" in found.paragraph


def test_a_blur_of_discrete_actions_is_refused_and_odds_without_end(varied):
    with pytest.raises(ConfigError, match=r"bandwidth = 0\.2: expected continuous actions"):
        judge(Told(best_treatments()), varied, bandwidth=0.2)
    with pytest.raises(ConfigError, match="odds_ratio = inf: expected 1 to 1e"):
        Limits(odds_ratio=np.inf)


class Copies:
    """Does what is seen, with some probability."""

    def __init__(self, share):
        self.share = share

    def probabilities(self, observation, mask=None):
        seen = next(iter(observation.values()))[:, 0]
        return np.where(seen[:, None] == np.arange(2), self.share, 1 - self.share)


# Answers where there is no number.


def continuous(count=40, **changes):
    seen = np.random.default_rng(0).random((count, 1))
    arrays = {
        "observation": seen,
        "action": seen - 0.5,
        "reward": seen[:, 0],
        "terminated": True,
        "bounds": [[-1.0], [1.0]],
    }
    return Log.from_arrays(**{**arrays, **changes})


@pytest.fixture(scope="module")
def gaussian():
    """A policy for continuous actions."""
    return finish(begin(bc(), continuous(), steps=2, eval_every=2, held_out=0.0)).policy()


@pytest.mark.parametrize(("count", "said"), [(1, "1 episode is too few"), (9, "9 episodes are too few")])
def test_too_few_episodes_are_no_basis(count, said, varied):
    found = judge(Told(clinician()), varied.take_episodes(range(count)), limits=QUICK)
    assert found.decision == "unsupported"
    assert said in found.reasons[0]
    assert len(found.estimates) == 0
    assert found.behavior_policy.estimate == pytest.approx(varied.statistics().returns["mean"], abs=1)
    json.dumps(found.to_json(), allow_nan=False)


def test_too_few_clusters_are_no_lack_of_episodes(varied):
    few = dataclasses.replace(varied, cluster=np.zeros(varied.steps, np.int32))
    found = judge(Told(clinician()), few, limits=QUICK)
    assert found.reasons[0].startswith("1 cluster is too few")
    assert "a log with more of them" in found.paragraph
    assert "a larger log" not in found.paragraph


def test_equal_returns_tell_nothing(varied):
    found = judge(Told(clinician()), dataclasses.replace(varied, reward=np.zeros(varied.steps, np.float32)))
    assert found.decision == "unsupported"
    assert "every episode earned exactly 0" in found.reasons[0]


@pytest.mark.full
@pytest.mark.usefixtures("few_updates")
def test_a_blurred_policy_says_what_the_blur_costs(gaussian, monkeypatch):
    monkeypatch.setattr(comparison, "has_no_support", lambda *_: False)  # else values, and so this cost, are unknown
    small = dataclasses.replace(QUICK, effective_episodes=25.0)  # 40 episodes are enough to be tried
    found = judge(gaussian, continuous(reward=np.arange(40.0)), bandwidth=0.5, limits=small)
    assert len(found.estimates) > 0
    assert found.context["bandwidth"] == 0.5
    assert found.context["smoothing"] is not None
    assert "noise of 0.5" in found.estimand
    assert "which changes its value by" in found.paragraph


def test_a_behavior_who_never_varies_leaves_no_propensities(gaussian):
    log = continuous(action=np.zeros((40, 1)), reward=np.arange(40.0))
    found = judge(gaussian, log, sample=True, limits=QUICK)
    assert found.decision == "unsupported"
    assert "always chose the same value" in found.reasons[-1]


def test_a_policy_is_not_judged_on_what_it_learnt_from(log, varied):
    run = finish(begin(bc(), varied, held_out=0.5, steps=5, eval_every=5, best_metric=LOSS))
    train, held_out = varied.split(0.5, seed=0)
    on_train = judge(run.policy(), train, sample=True, limits=QUICK, model="tabular")
    assert on_train.decision == "unsupported"
    assert "learnt from 100.0% of the episodes" in on_train.reasons[0]
    assert on_train.context["overlap"]["learnt_from"]["share"] == 1.0
    on_held_out = judge(run.policy(), held_out, sample=True, limits=QUICK, model="tabular")
    assert not any("learnt from" in reason for reason in on_held_out.reasons)
    assert on_held_out.context["overlap"]["learnt_from"]["shared"] == 0
    assert on_held_out.context["policy"]["algorithm"] == "bc"
    assert "learnt_from" not in on_held_out.context["policy"]
    best = judge(run.best_policy(), held_out, sample=True, limits=QUICK, model="tabular")
    assert best.context["overlap"]["chosen_by"] == LOSS


def test_what_is_no_policy_or_does_not_fit_is_refused(varied, gaussian):
    with pytest.raises(SpecError, match="expected a policy, found str"):
        judge("runs/iql", varied)
    with pytest.raises(SpecError, match="expected a policy, found Told"):
        judge(Told, varied)
    with pytest.raises(SpecError, match="expected a policy, found SimpleNamespace"):
        judge(SimpleNamespace(probabilities=None), varied)
    with pytest.raises(LogError, match="expected a log, found str"):
        judge(Told(clinician()), "visits.csv")
    with pytest.raises(SpecError, match="this log"):
        judge(gaussian, varied)
    with pytest.raises(SpecError, match="no rewards"):
        judge(Told(clinician()), dataclasses.replace(varied, reward=None))
    with pytest.raises(ConfigError, match="discount"):
        judge(Told(clinician()), varied, discount=1.5)
    with pytest.raises(ConfigError, match="level"):
        judge(Told(clinician()), varied, level=2.0)
    with pytest.raises(ConfigError, match="did you mean 'tabular'"):
        judge(Told(clinician()), varied, model="tabullar")
    with pytest.raises(SpecError, match="add up to 1"):
        judge(Told(2 * clinician()), varied)
    with pytest.raises(SpecError, match="shape"):
        judge(Told(clinician()[:, :3]), varied)


# Risk beside the mean.


def gambles(rows=6000, seed=0):
    """The first of two actions earns 1.5 on average and loses 4 in a fifth of its cases; the second earns 1."""
    generator = np.random.default_rng(seed)
    action = generator.integers(0, 2, rows)
    lost = generator.random(rows) < 0.2
    reward = np.where(action == 0, np.where(lost, -4.0, 2.875), 1.0) + 0.1 * generator.standard_normal(rows)
    return Log.from_arrays(
        observation=generator.integers(0, 3, rows), action=action, reward=reward,
        terminated=np.ones(rows, bool), propensity=np.full(rows, 0.5),
    )  # fmt: skip


@pytest.mark.full
def test_better_on_average_and_worse_in_the_tail():
    found = judge(Always(0.85, 0.15), gambles(), bad_outcome=-3.0, limits=QUICK)
    assert found.decision == "better"  # 1 of 9 other seeds fails: 'unsupported'; 0 of 8 below
    assert "better on average, but its bad episodes are worse: its worst 10% of episodes earn" in found.paragraph
    assert found.risk.probability.policy.low < 0.85 * 0.2 < found.risk.probability.policy.high
    assert found.risk.probability.behavior_policy.low < 0.5 * 0.2 < found.risk.probability.behavior_policy.high
    assert found.risk_reason is None
    content = json.loads(json.dumps(found.to_json(), allow_nan=False))
    assert content["risk"]["alpha"] == 0.1
    wide = judge(Always(0.85, 0.15), gambles(), cvar=0.5, limits=QUICK)
    assert wide.risk.alpha == 0.5
    with pytest.raises(ConfigError, match="cvar = 2: expected a share"):
        judge(Always(0.85, 0.15), gambles(50), cvar=2)


def test_where_there_is_no_distribution_the_reason_is_said():
    few = judge(Always(0.85, 0.15), gambles(5))  # all have the same action, an error, for 1 in 16 seeds
    assert (few.decision, few.risk) == ("unsupported", None)
    assert "a log that cannot show the mean" in few.risk_reason
    assert "up to 3 decisions" in no_risk(outcome(episodes(0.5), dataclasses.replace(QUICK, horizon=2)))
    assert no_risk(outcome(episodes(0.5))) is None


@pytest.mark.full
def test_a_verdict_is_told_in_the_unit_of_rewards_and_without_one_as_before(tmp_path):
    log = treated(mostly(best_treatments(), 0.2), 900)
    judged = [
        judge(Told(mostly(best_treatments(), 0.7)), one, limits=QUICK, model="tabular", ledger=False)
        for one in (log, dataclasses.replace(log, reward_unit="EUR"))
    ]
    plain, named = judged
    assert (plain.reward_unit, named.reward_unit) == (None, "EUR")
    assert named.difference == plain.difference
    ends = [f"{end:+.3g}" for end in named.difference[1:]]
    assert f"between {ends[0]} and {ends[1]} EUR" in named.paragraph
    large = dataclasses.replace(named, difference=Interval(1500.0, 200.0, 2800.0))
    assert "about 1,500 EUR more per episode than" in text._outcome(large, [])[0]
    assert "between +200 and +2,800 EUR" in text._outcome(large, [])[0]
    assert f"about {named.difference.estimate:.3g} EUR more per episode" in named.paragraph
    assert f"the behaviour policy's mean is {named.behavior_policy.estimate:.3g} EUR)" in named.paragraph
    assert f"earns {named.risk.cvar.policy.estimate:.3g} EUR (" in named.risk.sentences[0]
    told = [" ".join((one.paragraph, *one.reasons, *one.risk.sentences)) for one in judged]
    assert told[1].replace(" EUR", "") == told[0]
    for one, path in ((plain, tmp_path / "plain.json"), (named, tmp_path / "named.json")):
        write(one, path)
        again = read_verdict(path).verdict
        assert (again.reward_unit, again.risk.reward_unit) == (one.reward_unit, one.reward_unit)
        assert again.risk.sentences == one.risk.sentences
    assert "reward_unit" not in (tmp_path / "plain.json").read_text()
    table = repr(Verdicts(("a",), (named,), 0.95))
    assert "differences from the behaviour policy in EUR, 95% simultaneous" in table


@pytest.mark.full
def test_a_verdict_names_the_file_of_its_episodes(varied):
    read = dataclasses.replace(varied, origin={"source": ["/data/a.csv", "/data/b.csv"], "columns": None})
    found = judge(Told(mostly(best_treatments(), 0.8)), read, limits=QUICK, model="tabular", ledger=False)
    assert found.context["log"]["source"] == "/data/a.csv and 1 more"
