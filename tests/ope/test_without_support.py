"""Where no weights have support, a verdict is given before networks of values are fitted, and says the same."""

import numpy as np
import pytest

import tidelog as tl
from tests.ope.cases import Always
from tidelog.ope import judge, policy_evidence
from tidelog.ope.decide import Limits, has_no_support
from tidelog.ope.evidence import Evidence

pytestmark = pytest.mark.usefixtures("quick")

RARE = 0.001


def habits(episodes=300, steps=2):
    """A log whose behaviour policy nearly always takes the first of three actions."""
    generator, rows = np.random.default_rng(0), episodes * steps
    action = generator.choice(3, rows, p=[1 - 2 * RARE, RARE, RARE])
    return tl.Log.from_arrays(
        observation=generator.standard_normal((rows, 3)).astype(np.float32), action=action,
        reward=generator.standard_normal(rows), terminated=True, episode=np.repeat(np.arange(episodes), steps),
        propensity=np.where(action == 0, 1 - 2 * RARE, RARE), actions=3,
    )  # fmt: skip


def judged(policy, log):
    return tl.judge(policy, log, sample=True, model="neural", ledger=False, learnt_from="other data", progress=False)


class Fitted(Exception): ...


def fits(*words, **named):
    raise Fitted


@pytest.mark.full
def test_without_support_no_network_is_fitted(monkeypatch):
    for name in ("network_values", "feature_ratios"):
        monkeypatch.setattr(policy_evidence, name, fits)
    verdict = judged(Always(0.0, 0.5, 0.5), habits())
    assert verdict.decision == "unsupported"
    assert "the weights alone show that the log cannot judge it" in verdict.paragraph
    assert "model='none'" not in verdict.paragraph
    assert verdict.next_step.startswith("Next: judge a policy that stays closer to the behaviour policy's decisions")
    with pytest.raises(Fitted):
        judged(Always(1 - 2 * RARE, RARE, RARE), habits())


@pytest.mark.full
def test_with_networks_the_verdict_and_its_support_are_the_same(monkeypatch):
    log, never = habits(), Always(0.0, 0.5, 0.5)
    verdict = judged(never, log)
    monkeypatch.setattr(judge, "has_no_support", lambda *_: False)
    whole = judged(never, log)
    assert verdict.decision == whole.decision == "unsupported"
    assert verdict.support.effective_sample_size == whole.support.effective_sample_size
    assert set(verdict.reasons) <= set(whole.reasons)


@pytest.mark.full
def test_a_policy_after_one_without_support_has_its_clone():
    """The differences from cloned behaviour do not depend on the order in which policies are judged."""
    never, even, log = Always(0.0, 0.5, 0.5), Always(1 - 2 * RARE, RARE, RARE), habits()
    first, last = (
        judged(dict(pair), log) for pair in ([("even", even), ("never", never)], [("never", never), ("even", even)])
    )
    assert first["even"].difference_from_bc is not None
    assert first["even"].difference_from_bc == last["even"].difference_from_bc


def weighed(target):
    """Evidence of 400 episodes of as many steps as `target` has, whose behaviour policy is even between two actions."""
    steps, episodes = len(target), 400
    return Evidence(
        np.arange(0, episodes * steps + 1, steps), np.ones(episodes * steps),
        np.tile(target, episodes), np.full(episodes * steps, 0.5),
    )  # fmt: skip


def test_support_of_the_first_steps_alone_keeps_the_case_open():
    later = weighed([0.5, 0.5])
    later.target[1::2] = np.where(np.arange(400) == 7, 0.9, 1e-6)
    assert not has_no_support(later, Limits())
    early = weighed([0.5, 0.5])
    early.target[::2] = np.where(np.arange(400) == 7, 0.9, 1e-6)
    assert has_no_support(early, Limits())
    assert not has_no_support(early, Limits(horizon=1)), "ratios of visits decide about longer episodes"
    assert not has_no_support(weighed([0.5, 0.5]), Limits())
