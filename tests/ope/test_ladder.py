"""Parts of a policy: their evidence, the ladder that a judged log climbs, and the policy that acts so."""

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.adversarial_worlds import unsupported_step
from benchmarks.parts import hidden, hidden_step
from tests.ope.cases import Always, assessed, bandit, episodes, outcome
from tidelog import DiscreteBCQ, Log, collect, fit, judge, load_policy, runtime
from tidelog.algorithms.part import PRACTICE
from tidelog.data.statistics import Scaler
from tidelog.errors import MemoryLimitError, SpecError
from tidelog.ope import ladder
from tidelog.ope.assumptions import excess_unshown, extreme_values, factor_bounds, unshown_share
from tidelog.ope.decide import Limits, support_findings, worst_case
from tidelog.ope.judge import gather, question_of
from tidelog.ope.ladder import carriers, part_of, promise, rescaling, training_practice
from tidelog.ope.verdict import Interval, LadderStep, part_summary, read_verdict, write
from tidelog.types import Discrete

SEGMENTS, OFFERS = 20, 6


def shop(seed, gain=0.3, count=4_000, low=0.02):
    """Offers by segment: drawn evenly in the first six segments, nearly always the usual one in all others.

    The offer after the usual one is bought more often by `gain`, in every segment.
    """
    random = np.random.default_rng(seed)
    segment = random.integers(SEGMENTS, size=count)
    usual = segment % OFFERS
    chances = np.full((count, OFFERS), low)
    chances[np.arange(count), usual] = 1.0 - low * (OFFERS - 1)
    chances[segment < 6] = 1.0 / OFFERS
    offer = (chances.cumsum(axis=1) > random.random((count, 1))).argmax(axis=1)
    bought = random.random(count) < 0.3 + gain * (offer == (usual + 1) % OFFERS)
    return Log.from_arrays(
        observation=np.eye(SEGMENTS, dtype=np.float32)[segment], action=offer, reward=bought.astype(np.float32),
        terminated=True, propensity=chances[np.arange(count), offer],
    )  # fmt: skip


class Next:
    """Always makes the offer after the usual one."""

    def probabilities(self, observation, mask):
        segment = np.argmax(observation["observation"], axis=1)
        return np.eye(OFFERS)[(segment % OFFERS + 1) % OFFERS]


@pytest.fixture(scope="module")
def parts():
    return shop(0).split(0.5, seed=0)


@pytest.fixture(scope="module")
def verdict(parts):
    train, held_out = parts
    return judge(Next(), held_out, sample=True, train=train, learnt_from="other data", ledger=False)


def test_a_part_that_decides_nothing_differs_by_exactly_nothing():
    for evidence in (bandit(), episodes(), replace(bandit(), estimated=True)):
        nothing = assessed(evidence.part_of(np.zeros(len(evidence.reward))))
        assert nothing.interval == (0.0, 0.0, 0.0)
        assert worst_case(nothing) == 0.0


def test_a_part_that_decides_everything_is_the_policy():
    for evidence in (bandit(), episodes()):
        whole, part = outcome(evidence), outcome(evidence.part_of(np.ones(len(evidence.reward))))
        assert whole.interval == part.interval
        assert whole.unshown == part.unshown


def test_a_part_of_single_decisions_gains_what_its_decisions_gain():
    evidence = bandit(gain=0.5, chance=0.8)  # by .3 - 0 of .5: a gain of .15 in every decision
    half = np.float64(np.arange(600) < 300)
    assert outcome(evidence).interval.estimate == pytest.approx(0.15, abs=0.01)
    assert outcome(evidence.part_of(half)).interval.estimate == pytest.approx(0.075, abs=0.03)
    assert outcome(evidence.part_of(np.full(600, 0.5))).interval.estimate == pytest.approx(0.075, abs=0.005)


def test_weights_of_a_small_share_are_even_in_long_episodes():
    evidence = episodes(count=512, length=8, chance=0.99, occupancy=None)
    assert outcome(evidence).decision == "unsupported"
    part = part_of(assessed(evidence), np.full(4096, 0.1))
    assert part.has_support
    assert part.interval.low > 0.0


def test_an_unrecorded_cause_changes_only_what_the_policy_decides():
    evidence = replace(bandit(), estimated=True)
    low, high = factor_bounds(evidence, 1.5)
    follows = np.float64(np.arange(600) < 300)
    some_low, some_high = factor_bounds(evidence.part_of(follows), 1.5)
    np.testing.assert_allclose(some_low, np.where(follows == 1.0, low, 1.0))
    np.testing.assert_allclose(some_high, np.where(follows == 1.0, high, 1.0))
    # (s w f + 1 - s) / (s w + 1 - s) for the policy's share s of a weight w and a factor f
    weight, share = evidence.target / evidence.behaviour, 0.25
    wanted = (share * weight * high + 1.0 - share) / (share * weight + 1.0 - share)
    np.testing.assert_allclose(factor_bounds(evidence.part_of(np.full(600, share)), 1.5)[1], wanted)


def test_what_is_left_to_the_practice_is_shown():
    supported = np.ones((600, 2), bool)
    supported[300:, 1] = False  # the policy takes it with probability .8
    evidence = bandit(supported=supported)
    assert unshown_share(evidence) == pytest.approx(0.4)
    follows = np.float64(np.arange(600) < 300)
    assert unshown_share(evidence.part_of(follows)) == 0.0
    assert excess_unshown(evidence.part_of(follows)) == 0.0
    half = evidence.part_of(np.full(600, 0.5))
    assert unshown_share(half) == pytest.approx(0.2)
    worst = extreme_values(half)
    own = 0.5 * (np.asarray([0.2, 0.8]) * worst.model_all).sum(axis=1)
    np.testing.assert_allclose(worst.model_target, own + 0.5 * worst.model)
    one = bandit(supported=supported[:, 1:], model_all=None)
    worst = extreme_values(one.part_of(np.full(600, 0.5)))
    np.testing.assert_allclose(worst.model_target[300:], 0.5 * one.reward.min() + 0.5 * worst.model[300:])


def test_the_largest_part_with_support_is_better_where_the_whole_has_none(verdict):
    assert verdict.decision in ("unsupported", "no difference shown")
    assert verdict.safe is not None
    assert verdict.safe.by == "support"
    assert 0.2 < verdict.safe.share < 0.6  # the segments that were explored are .3 of all
    truth = 0.3 * (1.0 - 1.0 / OFFERS) * 0.3  # of those alone
    assert verdict.safe.difference.low < truth + 0.05
    assert [one.decision for one in verdict.ladder[:-1]] == ["better"] * (len(verdict.ladder) - 1)
    assert f"where the log shows its actions ({verdict.safe.share:.0%} of decisions)" in verdict.advice
    assert "in the other decisions the log cannot tell" in verdict.paragraph
    assert verdict.safe_policy is None  # another package's policy cannot be saved
    assert "deploy that part on a small share" in verdict.next_step


def test_a_verdict_with_parts_is_read_back(verdict, tmp_path):
    write(verdict, tmp_path / "verdict.json")
    again = read_verdict(tmp_path / "verdict.json").verdict
    assert again.ladder == verdict.ladder
    assert again.safe == verdict.safe
    assert again.advice == verdict.advice


def test_the_advice_on_a_part_keeps_what_it_holds_under(verdict):
    unknown = replace(verdict, context={**verdict.context, "overlap_unknown": True})
    assert unknown.advice.startswith("If it did not learn from the judged episodes, use it only where")


def test_nothing_else_of_the_verdict_changes(parts, verdict):
    alone = judge(Next(), parts[1], sample=True, learnt_from="other data", ledger=False)
    assert alone.ladder == ()
    assert "that needs the episodes that it learnt from (train=)" in alone.paragraph
    assert (alone.decision, alone.difference, alone.support) == (verdict.decision, verdict.difference, verdict.support)


def test_no_outcome_is_read_before_the_ladder_is_climbed(parts, verdict):
    train, held_out = parts
    reward = np.random.default_rng(1).permutation(np.asarray(held_out.reward))
    others = judge(
        Next(), replace(held_out, reward=reward), sample=True, train=train, learnt_from="other data", ledger=False
    )
    first, other = verdict.ladder[0], others.ladder[0]
    assert (first.level, first.share) == (other.level, other.share)
    assert other.decision != "better"


def test_a_whole_with_support_has_no_ladder():
    evidence = bandit()
    assert not assessed(evidence).lacks_support
    few = np.arange(600) < 20
    assert assessed(replace(evidence, target=np.where(few, evidence.target, 0.0))).lacks_support
    assert not assessed(replace(evidence, reward=-9.0 * evidence.reward)).lacks_support  # no reward has a part in it


def test_the_first_part_rests_on_enough_episodes(parts, verdict, monkeypatch):
    few = np.arange(600) < 9  # all that the part weighs otherwise than the practice
    evidence = bandit()
    part = assessed(replace(evidence, target=np.where(few, 0.0, evidence.behaviour)))
    assert carriers(part) == pytest.approx(9.0)
    assert verdict.ladder
    monkeypatch.setattr(ladder, "CARRIERS", 1e9)
    none = judge(Next(), parts[1], sample=True, train=parts[0], learnt_from="other data", ledger=False)
    assert none.ladder == ()
    assert "No part of it was judged" in none.paragraph


def test_a_small_share_of_a_deed_that_was_never_logged_is_no_part():
    # at the third of five steps, once in four times; whole episodes lack a quarter of their weight, a share hides it
    (found,) = hidden_step(0, "recorded")
    assert found["decision"] == "unsupported"
    assert not found["asked"]


@pytest.mark.parametrize(("unshown", "asked"), [(0.009, True), (0.011, False)])
def test_a_deed_in_a_hundredth_of_an_episode_s_decisions_is_in_no_part(unshown, asked, parts, monkeypatch):
    monkeypatch.setattr(ladder, "exposure", lambda part: unshown)
    verdict = judge(Next(), parts[1], sample=True, train=parts[0], learnt_from="other data", ledger=False)
    assert bool(verdict.ladder) == asked


def test_a_part_that_decides_as_the_practice_does_promises_nothing():
    evidence = episodes(count=512, length=3)
    follows = np.full(1536, 0.5)
    assert promise(part_of(assessed(evidence), follows)) > 0.0
    rounded = replace(evidence, target=evidence.behaviour * (1.0 + 1e-8 * np.arange(1536) % 3))
    assert promise(part_of(assessed(rounded), follows)) == -np.inf
    near = 0.98 * evidence.behaviour_all + 0.02 * evidence.target_all  # as an estimate of the practice may differ
    chosen = near[np.arange(1536), evidence.action]
    guessed = replace(evidence, estimated=True, target_all=near, target=chosen)
    assert promise(part_of(assessed(guessed), follows)) == -np.inf


def test_in_sequences_the_first_part_is_the_largest_share_that_promises_nearly_as_much(monkeypatch):
    monkeypatch.setattr(ladder, "exposure", lambda part: 0.0)
    monkeypatch.setattr(ladder, "carriers", lambda part: np.inf)
    monkeypatch.setattr(ladder, "promise", lambda part: 1.0 - 0.2 * part.evidence.policy_share)
    a, decisions = assessed(episodes()), 1_200
    shares = ladder.Ladder("share", ladder.SHARES)
    assert ladder.choose(a, [shares])
    assert a.ladder.levels[a.ladder.first] == 0.5  # 0.9, of at most 0.998
    cases = ladder.Ladder("support", (1.0, 2.0, 3.0), ratio=np.linspace(0.0, 3.0, decisions))
    assert ladder.choose(a, [cases])
    assert a.ladder.first == 0


def test_a_small_share_does_not_hide_weight_that_is_missing():
    support = replace(outcome(bandit()).support, mean_weight=0.994, mean_weight_error=0.001)
    broken = [
        [one.rule for one in support_findings(support, Limits(), policy_share=share) if one.check.outcome == "failed"]
        for share in (1.0, 0.5)
    ]
    assert broken == [[], ["mean_weight"]]
    evidence = bandit()
    for factor, rules in ((1.0, []), (0.8, ["mean_weight"])):  # a fifth of the policy's actions is not in the log
        part = part_of(assessed(replace(evidence, target=factor * evidence.target)), np.full(600, 0.02))
        assert [one.rule for one in part.broken_support] == rules


def test_what_is_hardly_in_the_log_is_in_no_part(monkeypatch):
    # two of four contexts have one action in the log, and the policy takes the other one in a fifth of these cases
    (found,) = hidden(0, "half never varied", "estimated")
    assert found["part"][0] < 0.6
    monkeypatch.setattr(ladder, "MOST_RATIO", 1e9)
    levels = set()
    monkeypatch.setattr(ladder, "exposure", lambda part: levels.add(float(part.evidence.follows.mean())) or 0.0)
    hidden(0, "half never varied", "estimated")
    assert max(levels) > 0.6


@pytest.fixture(scope="module")
def of_treatments():
    """A policy that learnt from a part of a log of treatments, that part, and the other one."""
    train, held_out = collect("treatment", episodes=3_000, seed=0).split(0.5, seed=0)
    return fit(DiscreteBCQ(hidden=(16,), threshold=0.0), train, steps=400, progress=False).policy(), train, held_out


def test_sequences_have_parts_by_share_without_training_episodes(of_treatments):
    policy, _, held_out = of_treatments
    verdict = judge(policy, held_out, sample=False, model="tabular", ledger=False, learnt_from="other data")
    assert verdict.decision == "unsupported"
    assert verdict.ladder
    assert {one.by for one in verdict.ladder} == {"share"}
    assert [one.level for one in verdict.ladder] == sorted(one.level for one in verdict.ladder)


class Steps:
    """By context: the second action more often; in the last one always the third, which was never logged there."""

    def probabilities(self, observation, mask=None):
        context = np.asarray(observation["context"]).reshape(-1)
        return np.asarray([*[[0.35, 0.65, 0.0]] * 3, [0.0, 0.0, 1.0]])[context]


@pytest.fixture(scope="module")
def of_steps():
    """Training and judged episodes of five steps, and verdicts on `Steps` without and with the first ones."""
    generator = np.random.default_rng(5)
    train, held_out = (unsupported_step(generator, 600, "recorded").log for _ in range(2))
    asked = {"sample": True, "ledger": False, "learnt_from": "other data"}
    return train, held_out, judge(Steps(), held_out, **asked), judge(Steps(), held_out, train=train, **asked)


def test_sequences_have_parts_where_the_log_shows_their_actions(of_steps):
    _, held_out, alone, verdict = of_steps
    assert alone.decision == verdict.decision == "unsupported"
    assert alone.ladder == ()
    assert "need the episodes that it learnt from (train=)" in alone.paragraph
    safe = verdict.safe
    assert (safe.by, safe.level) == ("both", 1.0)
    shown = np.asarray(held_out.observation["context"]).reshape(-1)[np.asarray(held_out.position)] < 3
    assert safe.share == pytest.approx(shown.mean())
    assert safe.difference.low < 4.75 * 0.15 * 2 / 3 < safe.difference.high
    assert f"only where the log shows its actions ({safe.share:.0%} of decisions)" in verdict.advice
    assert "in the other decisions the log cannot tell" in verdict.paragraph
    assert safe.title == f"{safe.share:.0%} of decisions"


@pytest.mark.parametrize(
    ("step", "where", "rest"),
    [
        (("share", 0.5, 0.5, None), "with probability 0.5 in each decision", "with larger probabilities"),
        (
            ("both", 0.5, 0.2, 6.0),
            "with probability 0.5 in each decision where the log shows its actions (40% of decisions)",
            "in the other decisions and with larger probabilities",
        ),
        (("both", 1.0, 0.4, 6.0), "where the log shows its actions (40% of decisions)", "in the other decisions"),
        (("support", 6.0, 0.4, None), "where the log shows its actions (40% of decisions)", "in the other decisions"),
    ],
)
def test_a_step_says_which_decisions_are_the_policys(step, where, rest):
    by, level, share, most = step
    one = LadderStep(by, level, share, "better", (0.1, 0.0, 0.2), most)
    assert one.where == where
    assert one.rest == rest


def test_several_policies_ask_one_model_of_the_practice(of_steps, monkeypatch):
    train, held_out, _, verdict = of_steps
    asked, cloned = [], ladder.cloned
    monkeypatch.setattr(ladder, "cloned", lambda *about: asked.append(1) or cloned(*about))
    both = judge(
        {"one": Steps(), "two": Steps()}, held_out, sample=True, train=train, learnt_from="other data", ledger=False
    )
    assert asked == [1]
    assert [one.ladder[0].level for one in both] == [verdict.ladder[0].level] * 2


def test_the_policy_of_a_share_of_what_is_shown_acts_so(of_treatments, tmp_path):
    policy, train, held_out = of_treatments
    question = question_of(policy, held_out, False, train=train, model="tabular", ledger=False)
    (a,) = gather(question)
    practice, reason = training_practice(question)
    assert reason == ""
    ratio = ladder.largest_ratios(a, held_out, practice)
    a.ladder = ladder.Ladder("both", (0.3,), practice, ratio, 6.0)
    share = float(0.3 * (ratio <= 6.0).mean())
    part = ladder.safe_policy(a, LadderStep("both", 0.3, share, "better", (0.1, 0.0, 0.2), 6.0))
    here = {name: np.asarray(leaf)[np.asarray(held_out.position)] for name, leaf in held_out.observation.items()}
    chances = part.probabilities(here)
    np.testing.assert_allclose(1.0 - chances[:, -1], 0.3 * (ratio <= 6.0), atol=1e-6)
    own = policy.act(here)[0]
    np.testing.assert_allclose(chances[np.arange(len(own)), own], 0.3 * (ratio <= 6.0), atol=1e-6)
    part.save(tmp_path / "part")
    np.testing.assert_allclose(runtime.load(tmp_path / "part").probabilities(here), chances, atol=1e-6)


@pytest.fixture(scope="module")
def of_policy():
    """A policy that learnt from the shop's log, its verdict, and the judged episodes."""
    train, held_out = shop(3, count=6_000).split(0.5, seed=0)
    policy = fit(DiscreteBCQ(hidden=(32,), threshold=0.0), train, steps=1_000, progress=False).policy()
    return policy, judge(policy, held_out, sample=False, train=train, ledger=False), held_out


def test_the_policy_of_a_part_acts_where_it_was_judged(of_policy, tmp_path):
    policy, verdict, held_out = of_policy
    part, step = verdict.safe_policy, verdict.safe
    assert step is not None
    here = np.asarray(held_out.observation["observation"])[np.asarray(held_out.position)]
    codes = part.act(here)[0]
    own = codes < OFFERS
    assert own.mean() == pytest.approx(step.share)
    np.testing.assert_array_equal(codes[own], policy.act(here)[0][own])
    assert set(part(here[~own]).labels) == {PRACTICE}
    action, chance = part.act(here, seed=0)
    np.testing.assert_array_equal(action, codes)
    np.testing.assert_allclose(chance, 1.0)
    assert "deploy that part (verdict.safe_policy)" in verdict.next_step
    assert part.verdict["decision"] == "better"
    assert part.verdict["low"] == step.difference.low
    assert f"({step.share:.0%} of decisions)" in part.verdict["caveat"]
    part.save(tmp_path / "part")
    for again in (load_policy(tmp_path / "part"), runtime.load(tmp_path / "part")):
        np.testing.assert_array_equal(again.act(here)[0], codes)
        np.testing.assert_allclose(again.probabilities(here), part.probabilities(here), atol=1e-6)
        assert again.verdict == part.verdict


@pytest.mark.parametrize(
    ("by", "level", "acting"),
    [("support", 3.0, "mode"), ("share", 0.3, "sample"), ("both", 0.3, "sample"), ("both", 1.0, "mode")],
)
def test_a_part_by_chance_samples(by, level, acting, of_policy):
    step = LadderStep(by, level, 0.3, "better", Interval(0.1, 0.05, 0.2), None if by == "share" else 3.0)
    assert part_summary(replace(of_policy[1], ladder=(step,)))["acting"] == acting


def test_a_part_is_judged_again_as_the_policy_that_it_is(of_policy):
    _, verdict, held_out = of_policy
    again = judge(verdict.safe_policy, held_out, ledger=False)
    assert again.decision == "better"
    np.testing.assert_allclose(again.difference, verdict.safe.difference, rtol=1e-6)
    other = judge(verdict.safe_policy, shop(4), ledger=False)
    assert other.difference.estimate == pytest.approx(verdict.safe.difference.estimate, abs=0.04)


def test_observations_are_scaled_as_the_model_of_the_practice_reads_them():
    raw = np.random.default_rng(0).normal(size=(5, 2)).astype(np.float32)
    one = Scaler({"x": np.float32([1.0, -2.0])}, {"x": np.float32([2.0, 0.5])})
    two = Scaler({"x": np.float32([0.5, 3.0])}, {"x": np.float32([0.1, 4.0])})
    for own, other in ((one, two), (Scaler(), two), (one, Scaler())):
        scale, shift = rescaling(own, other)
        turned = own.observation({"x": raw})["x"] * scale["x"] + shift["x"]
        np.testing.assert_allclose(turned, other.observation({"x": raw})["x"], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("train", "problem"),
    [
        (lambda train, held_out: held_out, "100% of the judged episodes"),
        (lambda train, held_out: collect("treatment", episodes=20, seed=0), "other observations or actions"),
        (lambda train, held_out: "train.csv", "train = str"),
    ],
)
def test_training_episodes_are_other_episodes_of_the_same_kind(train, problem, of_policy):
    held_out = of_policy[2]
    with pytest.raises(SpecError, match=problem):
        judge(Next(), held_out, sample=True, train=train(None, held_out), ledger=False)


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (SpecError("shop.csv is no longer there"), "shop.csv is no longer there"),
        (MemoryLimitError("the log needs 9 GiB"), "the log needs 9 GiB"),
        (ModuleNotFoundError("No module named 'minari'"), "No module named 'minari'"),
    ],
)
def test_a_reason_is_said_where_the_training_episodes_are_gone(error, reason, parts, of_steps):
    asked = []

    def gone():
        asked.append(1)
        raise error

    both = {"one": Next(), "two": Next()}
    for verdict in judge(both, parts[1], sample=True, train=gone, learnt_from="other data", ledger=False):
        assert verdict.ladder == ()
        assert f"No part of it was judged: {reason}." in verdict.paragraph
    assert asked == [1]
    verdict = judge(Steps(), of_steps[1], sample=True, train=gone, learnt_from="other data", ledger=False)
    assert f"support that enough episodes carry; {reason}." in verdict.paragraph


def test_a_policy_of_actions_in_another_order_has_no_part():
    names = tuple("abcdef")
    train, held_out = shop(3).split(0.5, seed=0)

    def named(log, order):
        action = np.array([order.index(one) for one in names])[np.asarray(log.action)].astype(log.action.dtype)
        return replace(log, action=action, spec=replace(log.spec, action=Discrete(6, order)))

    algorithm = DiscreteBCQ(hidden=(16,), threshold=0.0)
    policy = fit(algorithm, named(train, names), steps=200, progress=False).policy()
    judged = {"sample": False, "ledger": False}
    other = judge(policy, named(held_out, names[::-1]), train=named(train, names[::-1]), **judged)
    assert "it learnt from actions or observations in another order" in other.paragraph
    assert other.ladder == ()
    assert judge(policy, named(held_out, names), train=named(train, names), **judged).ladder


def test_a_whole_that_is_better_if_randomised_has_no_part_that_is_better_without_that_condition():
    random = np.random.default_rng(0)
    x, arm = random.integers(0, 2, (1_120, 3)), (random.random(1_120) < 0.1).astype(int)
    reward = (random.random(1_120) < np.where(arm == 1, 0.5, 0.2)).astype(np.float32)
    log = Log.from_arrays(observation=x, action=arm, reward=reward, terminated=True, actions=2)
    train, held_out = log.split(0.5, seed=0)
    verdict = judge(Always(0.0, 1.0), held_out, sample=True, train=train, learnt_from="other data", ledger=False)
    assert verdict.decision == "better if randomised"
    assert verdict.ladder == ()
    assert verdict.safe is None


@pytest.mark.slow
def test_parts_of_no_worth_are_seldom_better():
    """200 logs in which no offer matters, and a policy of random offers: at most 2.5%, 97.5% binomial bound 10."""
    better = 0
    for seed in range(200):
        train, held_out = shop(seed, gain=0.0, count=1_200).split(0.3, seed=0)
        table = np.eye(OFFERS)[np.random.default_rng(seed).integers(OFFERS, size=SEGMENTS)]
        drawn = type("Drawn", (), {"probabilities": lambda self, seen, mask, t=table: t[seen["observation"].argmax(1)]})
        verdict = judge(drawn(), held_out, sample=True, train=train, learnt_from="other data", ledger=False)
        better += verdict.decision == "better" or verdict.safe is not None
    assert better <= 10
