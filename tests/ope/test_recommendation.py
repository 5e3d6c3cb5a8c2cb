"""Which of several judged policies is recommended: a learnt one that beats the simple rules, else a rule."""

import json

import numpy as np
import pytest

import tidelog as tl
from tidelog import Limits, Log
from tidelog.ope import policy_evidence
from tidelog.ope.verdict import Contrast, Row, recommend
from tidelog.policies.statistics import Interval

BETTER, SAME = "better", "no difference shown"
QUICK = Limits(replicates=1000)


def against(low, high, policy="sampled", rule="tree"):
    return Contrast(policy, rule, Interval((low + high) / 2, low, high))


@pytest.mark.parametrize(
    ("decisions", "contrasts", "expected"),
    [
        ((SAME, SAME, SAME, SAME), [], (None, "nothing is better")),
        ((BETTER, SAME, SAME, SAME), [], ("mode", "the only kind")),
        ((BETTER, BETTER, SAME, SAME), [], ("sampled", "the only kind")),
        ((SAME, SAME, SAME, BETTER), [], ("tree", "no learnt policy is better")),
        ((SAME, SAME, BETTER, BETTER), [], ("constant", "no learnt policy is better")),
        ((BETTER, BETTER, SAME, BETTER), [against(0.01, 0.2)], ("sampled", "beats the rule")),
        ((BETTER, BETTER, SAME, BETTER), [against(-0.01, 0.2)], ("tree", "simpler")),
        ((BETTER, BETTER, SAME, BETTER), [against(0.01, 0.2, "mode")], ("tree", "simpler")),
        ((BETTER, BETTER, BETTER, BETTER), [against(0.01, 0.2)], ("constant", "simpler")),
        ((BETTER, BETTER, SAME, BETTER), [], ("tree", "simpler")),
        ((BETTER, "unsupported", "worse", SAME), [], ("mode", "the only kind")),
    ],
)
def test_the_rule_of_the_recommendation(decisions, contrasts, expected):
    lows = (0.1, 0.2, 0.4, 0.3)
    kinds = (("mode", False), ("sampled", False), ("constant", True), ("tree", True))
    candidates = [
        Row(name, decision, Interval(low, low, 9.0), rule="a rule" if is_rule else None)
        for (name, is_rule), decision, low in zip(kinds, decisions, lows, strict=True)
    ]
    found = recommend(candidates, contrasts, 0.05)
    assert (found.name, found.ground) == expected


def test_a_rule_is_no_worse_only_below_the_margin():
    candidates = [
        Row("sampled", BETTER, Interval(0.3, 0.2, 0.4)),
        Row("tree", BETTER, Interval(0.3, 0.1, 0.4), rule="a tree"),
    ]
    assert recommend(candidates, [against(-0.1, 0.04)], 0.05).no_worse
    assert not recommend(candidates, [against(-0.1, 0.06)], 0.05).no_worse
    assert not recommend(candidates, [], 0.05).no_worse
    assert recommend(candidates[1:], [], 0.05).ground == "the only kind", "there is no learnt policy"


class Learnt:
    """A policy of no make of ours: probabilities of two actions by a function of the observation."""

    def __init__(self, chance):
        self.chance = chance  # of action 1, [B]

    def probabilities(self, observation, mask=None):
        chance = self.chance(next(iter(observation.values())))
        return np.stack([1.0 - chance, chance], axis=1)


def world(effect, count=12_000, seed=0):
    """One decision an episode, five bits and two actions at even odds; `effect` [N] is what action 1 adds."""
    generator = np.random.default_rng(seed)
    bits = generator.integers(0, 2, (count, 5)).astype(np.float32)
    action = generator.integers(0, 2, count)
    reward = generator.standard_normal(count) + effect(bits) * action
    log = Log.from_arrays(
        observation=bits, action=action, reward=reward.astype(np.float32), terminated=np.ones(count, bool),
        propensity=np.full(count, 0.5), actions=2,
    )  # fmt: skip
    return log.split(0.5, seed=0)


def judged(effect, learnt, **settings):
    train, held_out = world(effect)
    rules = tl.simple_rules(train)
    policies = {"learnt": Learnt(learnt), **rules}
    return tl.judge(policies, held_out, learnt_from="other data", limits=QUICK, ledger=False, **settings), rules


def test_a_rule_that_is_right_is_recommended_where_the_learnt_policy_adds_nothing():
    found, rules = judged(lambda x: np.where(x[:, 0] > x[:, 1], 1.0, -0.5), lambda x: 0.9 * (x[:, 0] > x[:, 1]) + 0.05)
    assert found["learnt"].decision == found["small rule"].decision == BETTER
    assert (found.recommended, found.recommendation.ground) == ("small rule", "simpler")
    sentence = rules["small rule"].sentence
    assert found.advice.startswith(
        f"Use small rule ({sentence}): it is better than the logged decisions. It is simpler"
    )
    assert found["small rule"].advice == "Use it: it is better than the logged decisions."
    (contrast,) = [one for one in found.contrasts if one.rule == "small rule"]
    assert contrast.difference.high < 0.0, "it loses what it plays at random"
    assert "and shown to be better than the learnt policy (learnt) by +" in found.advice
    content = json.loads(json.dumps(found.to_json(), allow_nan=False))
    assert (content["recommended"], content["ground"]) == ("small rule", "simpler")
    assert content["contrasts"][-1]["rule"] == "small rule"
    assert content["verdicts"]["small rule"]["context"]["policy"]["rule"] == sentence
    assert content["margin"] == pytest.approx(0.05 * world(lambda x: 0.0 * x[:, 0])[1].reward.std(), rel=0.2)


def test_a_learnt_policy_is_recommended_where_no_rule_of_two_questions_does():
    """What is best depends on three bits at once: every rule of two of them earns what the single action does."""

    def parity(x):
        return x[:, :3].sum(axis=1) % 2

    found, _ = judged(lambda x: 0.3 + parity(x) - 0.5, lambda x: parity(x))
    assert found["best single action"].decision == BETTER
    assert (found.recommended, found.recommendation.ground) == ("learnt", "beats the rule")
    (contrast,) = [one for one in found.contrasts if one.rule == found.recommendation.contrast.rule]
    assert 0.0 < contrast.difference.low < 0.1 < contrast.difference.high
    assert f"It is shown to beat the simple rule ({contrast.rule}): the difference is +" in found.advice


def test_a_rule_that_is_as_good_as_the_learnt_policy_is_no_worse():
    found, _ = judged(lambda x: np.where(x[:, 0] > x[:, 1], 1.0, -0.5), lambda x: 1.0 * (x[:, 0] > x[:, 1]))
    assert (found.recommended, found.recommendation.no_worse) == ("small rule", True)
    assert "It is simpler; the log does not show that the learnt policy (learnt) is better: the diff" in found.advice
    assert "and the rule loses less than 0.05" in found.advice


def test_nothing_is_recommended_where_no_action_matters():
    found, _ = judged(lambda x: 0.0 * x[:, 0], lambda x: x[:, 2])
    assert found.recommended is None
    assert found.advice.startswith("Keep what you have: none of them is shown to be better")


def test_contrasts_are_part_of_the_simultaneous_family():
    """Each interval is at least as long as without the contrasts, and a contrast as long as its own bootstrap asks."""
    effect = lambda x: np.where(x[:, 0] > x[:, 1], 1.0, -0.5)  # noqa: E731
    train, held_out = world(effect)
    rule = tl.simple_rules(train)["small rule"]
    learnt = Learnt(lambda x: 0.9 * (x[:, 0] > x[:, 1]) + 0.05)
    both = tl.judge({"learnt": learnt, "rule": rule}, held_out, limits=QUICK, ledger=False, model="tabular")
    alone = tl.judge({"learnt": learnt, "other": Learnt(lambda x: x[:, 0] > x[:, 1])}, held_out, limits=QUICK,
                     ledger=False, model="tabular")  # fmt: skip
    assert alone.contrasts == ()
    lengths = [one["learnt"].difference.high - one["learnt"].difference.low for one in (both, alone)]
    assert lengths[0] > lengths[1]
    (contrast,) = both.contrasts
    difference = both["learnt"].difference.estimate - both["rule"].difference.estimate
    assert contrast.difference.estimate == pytest.approx(difference, abs=1e-9)
    assert rule.verdict["decision"] == both["rule"].decision, "a rule carries its verdict, as a policy does"


@pytest.mark.usefixtures("quick")
def test_networks_regress_the_reward_of_single_decisions_once_for_all(monkeypatch):
    _, held_out = world(lambda x: 0.5 + 0.0 * x[:, 0], count=600)
    calls = []
    fitted = policy_evidence.network_values

    def counted(*how):
        calls.append(len(how[2]))
        return fitted(*how)

    monkeypatch.setattr(policy_evidence, "network_values", counted)
    policies = {"one": Learnt(lambda x: 0.2 + 0.6 * x[:, 0]), "two": Learnt(lambda x: 0.2 + 0.6 * x[:, 1])}
    found = tl.judge(policies, held_out, limits=QUICK, ledger=False, model="neural")
    assert calls == [2], "the policy and the clone, for the first policy alone"
    alone = tl.judge(policies["two"], held_out, limits=QUICK, ledger=False, model="neural")
    assert alone.difference.estimate == found["two"].difference.estimate
    assert [row.estimate for row in alone.estimates] == [row.estimate for row in found["two"].estimates]


def test_a_part_of_a_look_is_the_same_look_in_another_way(tmp_path):
    train, held_out = world(lambda x: 0.5 + 0.0 * x[:, 0], count=3_000)
    policy = tl.fit(tl.BC(hidden=(8,)), train, 100, progress=False).policy()
    ways = {way: policy.with_acting(way) for way in ("mode", "sample")}
    settings = {"limits": QUICK, "ledger": tmp_path / "looks.jsonl", "model": "tabular"}
    both = tl.judge({**ways, **tl.simple_rules(train)}, held_out, **settings)
    again = tl.judge(policy, held_out, True, **settings)
    assert again.looks == 0
    assert again.difference == both["sample"].difference
    other = tl.judge(policy, held_out, True, seed=1, **settings)
    assert other.looks == 1
