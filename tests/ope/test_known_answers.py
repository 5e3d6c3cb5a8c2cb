"""Where the answer is known it is said: the behaviour policy itself, weights alone, a model alone, differences of 0."""

from types import SimpleNamespace

import numpy as np
import pytest

import tidelog as tl
from tests.ope.cases import Always
from tidelog.ope import propensities
from tidelog.ope.text import tail_sentence

SHARES = np.array([0.2, 0.3, 0.5])
STEPS, EPISODES = 3, 400


def log(**arrays):
    random, rows = np.random.default_rng(0), STEPS * EPISODES
    action = random.choice(3, rows, p=SHARES)
    return tl.Log.from_arrays(
        action=action,
        reward=random.random(rows) + 0.1 * action,
        episode=np.arange(rows) // STEPS,
        terminated=np.arange(rows) % STEPS == STEPS - 1,
        actions=3,
        **({"observation": random.normal(size=(rows, 2)), "propensity": SHARES[action]} | arrays),
    )


JUDGE = {"sample": True, "ledger": False, "progress": False, "learnt_from": "other data", "model": "tabular"}


@pytest.mark.parametrize("declared", [False, True])
def test_the_behaviour_policy_itself_differs_by_exactly_nothing(declared):
    shares = {"propensity": {str(action): share for action, share in enumerate(SHARES.tolist())}} if declared else {}
    states = np.random.default_rng(1).integers(4, size=(STEPS * EPISODES, 1))  # so few that the model is not exact
    verdict = tl.judge(Always(*SHARES), log(observation=states, **shares), **JUDGE)
    assert (verdict.decision, verdict.difference) == ("no difference shown", (0.0, 0.0, 0.0))
    assert verdict.reasons[0] == "every weight is 1: the policy decides as the behaviour policy did"
    assert "By every measure the policy does what the behaviour policy did" in str(verdict)
    assert verdict.next_step == "Next: keep what you have: only a policy that decides otherwise can be better."


@pytest.mark.parametrize("shift", [1e-3, 0.05])
def test_another_policy_is_not_taken_for_it(shift):
    difference = tl.judge(Always(*np.add(SHARES, [shift, 0.0, -shift])), log(), **JUDGE).difference
    assert difference.low < difference.high


def test_estimated_propensities_never_make_it_known():
    assert tl.judge(Always(*SHARES), log(propensity=None), **JUDGE).difference != (0.0, 0.0, 0.0)


def test_weights_alone_learn_nothing(monkeypatch):
    def refuse(*arguments):
        raise AssertionError("a model was fitted")

    data, rule = log(), Always(0.5, 0.3, 0.2)
    with monkeypatch.context() as patch:
        patch.setattr(propensities, "_clones", refuse)
        row = tl.estimate(rule, data, ["wis"])["wis"]
        with pytest.raises(AssertionError, match="a model was fitted"):
            tl.estimate(rule, data, ["wdr"], model="tabular")
    weights = (rule.chances[data.action] / SHARES[data.action]).reshape(EPISODES, STEPS).prod(axis=1)
    returns = np.asarray(data.reward, np.float64).reshape(EPISODES, STEPS).sum(axis=1)
    assert row.estimate == pytest.approx((weights * returns).sum() / weights.sum(), rel=1e-6)


def test_the_rows_of_a_model_alone_say_what_their_intervals_lack():
    rows = tl.estimate(Always(0.5, 0.3, 0.2), log(), ["fqe", "wdr"], model="tabular")
    assert rows["fqe"].method.endswith("of the model's values alone")
    assert rows["fqe"].note == "its interval does not hold the model's own error"
    assert (rows["wdr"].method, rows["wdr"].note) == ("bca, 1,000 replicates", "")


def test_rounding_is_no_finding_about_bad_episodes():
    def risk(*difference):
        comparison = SimpleNamespace(difference=tl.policies.statistics.Interval(*difference))
        return SimpleNamespace(cvar=comparison, alpha=0.1, reward_unit=None, lowest=0.0, highest=1.0)

    assert tail_sentence("better", risk(-6.84e-10, -1e-9, 1e-9)) == ""
    assert tail_sentence("no difference shown", risk(-6.84e-10, -1e-9, -1e-10)) == ""
    assert "may be worse: the difference there is -0.01" in tail_sentence("better", risk(-0.01, -0.02, 0.01))
