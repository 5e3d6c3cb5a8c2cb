"""The advice of an unsupported verdict can be followed, and does not ask for what is there already."""

import dataclasses
from types import SimpleNamespace

import numpy as np
import pytest

import tidelog as tl
from tests.ope.cases import QUICK, Told, assessed, bandit, best_treatments, outcome, said, treated
from tests.ope.test_verdict import clicked
from tidelog.ope.assumptions import ActionCount
from tidelog.ope.decide import RuleFinding
from tidelog.ope.judge import judge
from tidelog.ope.text import closer_advice, words
from tidelog.policies.policy import has_density

ASKED = "record the probability"


@pytest.mark.parametrize("recorded", [True, False], ids=["recorded", "estimated"])
def test_only_unrecorded_probabilities_are_asked_for(recorded):
    """A policy that the log hardly shows: varied decisions help, and probabilities only if they are missing."""
    chances = np.full(best_treatments().shape, 0.002)
    chances[:, 0] = 1.0 - 5 * 0.002
    log = treated(chances, 300, **({} if recorded else {"propensity": None}))
    found = judge(Told(best_treatments()), log, model="tabular", limits=QUICK, ledger=False)
    assert found.decision == "unsupported"
    assert "let the behaviour policy vary its decisions more" in found.paragraph
    assert (ASKED in found.paragraph) is not recorded


def dial(seed):
    """A log of one continuous action, with its densities."""
    rng = np.random.default_rng(seed)
    action = rng.uniform(-0.9, 0.9, (600, 1)).astype(np.float32)
    return tl.Log.from_arrays(
        observation=rng.standard_normal((600, 2)), action=action, reward=-np.square(action[:, 0]), terminated=True,
        bounds=(-1.0, 1.0), propensity=np.full(600, 1 / 1.8),
    )  # fmt: skip


@pytest.mark.full
@pytest.mark.parametrize("head", ["deterministic", "gaussian"])
def test_sampling_is_only_advised_where_it_can_be_followed(head):
    box = dial(1)
    policy = tl.fit(tl.BC(hidden=(8,), actor_head=head), dial(0), 5, progress=False).policy()
    assert has_density(policy, box.spec) is (head == "gaussian")
    judged = {"limits": QUICK, "ledger": False, "progress": False}
    plain = judge(policy, box, **judged)
    assert plain.decision == "unsupported"
    assert "--bandwidth 0.2" in plain.paragraph
    assert ("--sample" in plain.paragraph) is (head == "gaussian")
    narrow = dataclasses.replace(QUICK, effective_episodes=590.0)
    followed = judge(policy, box, bandwidth=0.2, **{**judged, "limits": narrow})
    assert all("has no probability" not in reason for reason in followed.reasons)
    assert followed.decision == "unsupported"
    assert ("--sample" in followed.paragraph) is (head == "gaussian")


@pytest.mark.parametrize(
    ("algorithm", "advice"),
    [
        (tl.IQL(temperature=3.0), "lower temperature, now 3 (--temperature 1)"),
        (tl.DiscreteBCQ(threshold=0.3), "raise threshold, now 0.3 (--threshold 0.53)"),
        (tl.IQL(temperature=0.0), "stays closer to the behaviour policy's decisions"),
        (tl.BC(), "stays closer to the behaviour policy's decisions"),
        (None, "stays closer to the behaviour policy's decisions"),
    ],
)
def test_the_policys_own_algorithm_says_how_to_stay_closer_to_the_behavior(algorithm, advice):
    assert advice in closer_advice(SimpleNamespace(algorithm=algorithm))


def advised(cloning):
    """The advice to a policy with too small an effective sample size."""
    policy = SimpleNamespace(algorithm=tl.DiscreteBCQ(threshold=0.1))
    narrow = dataclasses.replace(QUICK, effective_episodes=590.0)
    findings = said(outcome(bandit(), narrow, cloning=cloning, policy=policy))
    (advice,) = (one.advice for one in findings if one.rule == "effective_sample_size")
    return advice


def test_what_even_a_copy_of_the_behavior_fails_is_not_answered_by_a_closer_policy():
    advice = advised(bandit(chance=0.6))
    assert "raise threshold" not in advice
    assert "Judge on more episodes, of one behaviour policy" in advice


def test_actions_outside_the_log_are_not_answered_by_a_check_of_the_propensities():
    behaviour, target = np.asarray([0.5, 0.4996, 0.0004]), np.asarray([0.35, 0.35, 0.3])
    action = np.arange(600) % 2
    left = bandit(
        action=action, target=target[action], behaviour=behaviour[action], target_all=np.tile(target, (600, 1)),
        behaviour_all=np.tile(behaviour, (600, 1)), model_all=None, supported=None,
    )  # fmt: skip
    (finding,) = (one for one in said(outcome(left)) if one.rule == "mean_weight")
    assert "30.0% of the policy's actions are hardly in the log" in finding.sentence
    assert finding.advice == "judge a policy that stays closer to the behaviour policy's decisions"


def test_rare_rewards_are_named_only_where_rewards_are_rare():
    few = assessed(clicked(np.arange(210, 600, 45)))
    made = (RuleFinding("earning_episodes", episodes=1.0, least=4.0, rare=one) for one in (True, False))
    rare, common = ("; ".join(words(one, few).advice) for one in made)
    assert "rare rewards" in rare
    assert "rare rewards" not in common
    assert "closer to the behaviour policy" in common
    assert few.rare_rewards
    assert not assessed(clicked(np.arange(0, 600, 3))).rare_rewards


def test_advice_to_discount_says_what_it_costs():
    habit = ActionCount(0, 20.0, 1.0, 9.0, outside=True, beyond=True)
    advice = words(RuleFinding("habit", habit=habit), assessed(bandit())).advice
    assert "this asks another question, the value of early rewards, and is another look at these" in advice[-1]
