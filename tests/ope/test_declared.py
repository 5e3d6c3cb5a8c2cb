"""Verdicts on randomised logs: declared propensities, a log that only looks randomised, and what is shown by design."""

from typing import Any

import numpy as np
import pytest

import tidelog as tl
from tests.ope.cases import Always
from tidelog.data.log import declare
from tidelog.errors import ConfigError, SpecError
from tidelog.ope.evidence import episode_folds
from tidelog.ope.policy_evidence import behavior_model, choose_model
from tidelog.ope.propensities import declared_propensities

pytestmark = pytest.mark.usefixtures("few_updates")

QUICK: dict[str, Any] = {
    "ledger": False,
    "learnt_from": "other data",
    "progress": False,
    "limits": tl.Limits(replicates=1000),
}
FORMS: dict[str, Any] = {
    "recorded": np.full(500, 0.5, np.float32),
    "declared": 0.5,
    "each": {"0": 0.5, "1": 0.5},
    "shares": "shares",
}


NUMBERS = np.random.default_rng(6).normal(size=(500, 2)).astype(np.float32)
SECOND, FIRST, EVEN = Always(0.0, 1.0), Always(1.0, 0.0), Always(0.5, 0.5)


def trial(
    propensity: Any = None, gain: float = 0.25, seed: int = 0, rows: int = 500, often: Any = 0.5, **columns: Any
) -> tl.Log:
    """An A/B test with a label of no use; `often` is the probability of the second action."""
    generator = np.random.default_rng(seed)
    action = (generator.random(rows) < often).astype(int)
    reward = (generator.random(rows) < 0.3 + gain * action).astype(np.float32)
    content = {"observation": generator.integers(0, 3, rows), "action": action, "reward": reward}
    return tl.Log.from_arrays(**{**content, **columns}, terminated=True, propensity=propensity)


@pytest.mark.parametrize("form", FORMS)
def test_a_small_randomised_log_is_decided(form: str) -> None:
    """One of them with numbers, whose networks would not show the actions of so few rows."""
    numbers = {"observation": NUMBERS} if form == "shares" else {}
    verdict = tl.judge(SECOND, trial(FORMS[form], **numbers), **QUICK)
    assert verdict.decision == "better"
    assert verdict.context["propensities"] == ("recorded" if form == "recorded" else "declared")
    assert tl.judge(FIRST, trial(FORMS[form]), **QUICK).decision == "worse"
    if form != "recorded":
        assert "were declared" in verdict.paragraph
        assert "the declared propensities are right" in verdict.paragraph


def test_a_call_may_declare_what_the_mapping_did_not() -> None:
    log = trial()
    for form in (0.5, "shares"):
        called, mapped = tl.judge(SECOND, log, propensities=form, **QUICK), tl.judge(SECOND, trial(form), **QUICK)
        assert called.decision == mapped.decision == "better"
        assert called.difference == mapped.difference
        assert called.context["log"]["fingerprint"] == log.fingerprint()
    assert tl.judge(SECOND, trial("shares"), propensities="logged", **QUICK).decision == "better"
    found = tl.estimate(SECOND, log, ["snips"], propensities="shares")
    assert found["snips"].estimate == pytest.approx(
        np.asarray(log.reward)[np.asarray(log.action) == 1].mean(), abs=0.01
    )


def test_a_log_without_propensities_that_looks_randomised_is_better_if_it_was() -> None:
    # an effect that no cause of odds 1.5 explains; a network shows no action of so few rows
    assert tl.judge(SECOND, trial(gain=0.3, observation=NUMBERS), **QUICK).decision == "better"
    verdict = tl.judge(SECOND, trial(gain=0.15), **QUICK)
    assert verdict.decision == "better if randomised"
    assert verdict.reasons[0].startswith("the policy is better if nothing unrecorded decided who got what")
    assert "percentage points" in verdict.reasons[0]  # what could not have been seen
    assert "--randomised" in verdict.next_step
    assert verdict.blocks_gate == ("the verdict is 'better if randomised'",)
    assert verdict.advice.startswith("Use it only if nothing unrecorded decided who got what:")
    assert verdict.to_json()["decision"] == "better if randomised"
    together = tl.judge({"first": FIRST, "second": SECOND}, trial(gain=0.15), **QUICK)
    assert together["second"].decision == "better if randomised"
    assert together.recommended is None
    assert together.advice.startswith("Use second only if nothing unrecorded decided who got what: then it is better")
    assert tl.judge(SECOND, trial(gain=0.0), **QUICK).decision == "no difference shown"
    ignored = tl.judge(SECOND, trial(0.5, gain=0.15), propensities="estimated", **QUICK)  # there is no need to guess
    assert ignored.decision == "no difference shown"


def test_a_log_without_propensities_that_observations_predict_is_no_randomised_one() -> None:
    seen = np.random.default_rng(1).integers(0, 3, 500)
    log = trial(often=np.array([0.2, 0.5, 0.8])[seen], observation=seen, gain=0.15)
    assert tl.judge(SECOND, log, **QUICK).decision in ("no difference shown", "unsupported")
    plan = choose_model(log, None, None, 0)
    assert behavior_model(log, plan, None, 0).shares is None
    assert behavior_model(trial(), plan, None, 0).shares is not None


@pytest.mark.parametrize("form", ["recorded", "declared"])
def test_propensities_that_do_not_fit_the_log_are_refused_for_every_policy(form: str) -> None:
    propensity = np.full(500, 0.5, np.float32) if form == "recorded" else 0.5
    log = trial(None, often=0.65)
    verdicts = tl.judge(
        {"first": FIRST, "second": SECOND, "even": EVEN},
        trial(propensity, often=0.65) if form == "recorded" else log,
        propensities=None if form == "recorded" else 0.5,
        **QUICK,
    )
    for verdict in verdicts:
        assert verdict.decision == "unsupported"
        assert f"the {form} probabilities of the decisions do not fit the logged actions" in verdict.reasons[0]
    assert verdicts[0].context["balance"]["p_value"] < 0.01


def test_right_propensities_are_not_refused_at_the_level_of_every_policy() -> None:
    """Two standard errors of each policy's mean weight refused one right log in twenty."""
    refused = []
    for seed in range(40):
        generator = np.random.default_rng(seed)
        context = generator.integers(0, 3, 400)
        often = np.array([0.3, 0.5, 0.7])[context]
        action = (generator.random(400) < often).astype(int)
        log = tl.Log.from_arrays(
            observation=context,
            action=action,
            reward=generator.random(400).astype(np.float32),
            terminated=True,
            propensity=np.where(action == 1, often, 1.0 - often).astype(np.float32),
        )
        verdict = tl.judge(SECOND, log, **QUICK)
        error = abs(verdict.support.mean_weight - 1.0) / verdict.support.mean_weight_error
        refused.append((verdict.decision == "unsupported", error > 2.0))
    assert sum(far for _, far in refused) >= 1  # such logs are among them
    assert sum(one for one, _ in refused) <= 1


def test_shares_of_strata_weigh_as_the_strata_were_drawn() -> None:
    """Village decides the arm and the reward: the log's own shares call a useless arm better."""
    generator = np.random.default_rng(3)
    village = generator.integers(0, 2, 3_000)
    action = (generator.random(3_000) < np.array([0.2, 0.8])[village]).astype(int)
    reward = (generator.random(3_000) < np.array([0.2, 0.7])[village]).astype(np.float32)
    seen, extra = generator.integers(0, 3, 3_000), {"village": village}
    log = tl.Log.from_arrays(observation=seen, action=action, reward=reward, terminated=True, extra=extra)
    assert tl.judge(SECOND, log, propensities="shares", **QUICK).decision == "better"
    by_village = tl.judge(SECOND, log, propensities={"shares_by": ["village"]}, **QUICK)
    assert by_village.decision == "no difference shown"
    assert abs(by_village.difference.estimate) < 0.05


def test_shares_are_those_of_other_episodes() -> None:
    log = trial("shares", rows=100)
    folds = episode_folds(log, 5, 0)
    known = declared_propensities(log, folds)
    action = np.asarray(log.action)
    for fold in range(5):
        others = action[folds != fold]
        expected = (np.bincount(others, minlength=2) + 1.0) / (len(others) + 1.0)
        assert known.logged[folds == fold] == pytest.approx(expected[action[folds == fold]])
    assert not known.estimated


def test_an_action_is_shown_by_design_from_a_tenth_of_even_chances() -> None:
    for often, shown in ((0.06, True), (0.04, False)):
        log = trial({"0": 1.0 - often, "1": often}, often=often, rows=2_000)
        known = declared_propensities(log, episode_folds(log, 2, 0))
        supported = known.clones[0].supported
        assert supported is not None
        assert supported[:, 0].all()
        assert supported[:, 1].all() == shown


def test_a_region_that_no_decision_of_the_log_reached_stays_closed() -> None:
    """Recorded probabilities of 1 in a half of the log say that the other action has 0 there."""
    generator = np.random.default_rng(4)
    context = generator.integers(0, 2, 1_000)
    often = np.where(context == 1, 0.5, 0.0)
    action = (generator.random(1_000) < often).astype(int)
    log = tl.Log.from_arrays(
        observation=np.stack([context, generator.normal(size=1_000)], axis=1).astype(np.float32),
        action=action,
        reward=(generator.random(1_000) < 0.3 + 0.4 * action).astype(np.float32),
        terminated=True,
        propensity=np.where(action == 1, often, 1.0 - often).astype(np.float32),
    )
    verdict = tl.judge(SECOND, log, **QUICK)
    assert verdict.decision == "unsupported"


def test_a_declaration_that_does_not_fit_the_log_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match=r"0\.4 for each of 2 actions, 0\.8 in all"):
        tl.judge(SECOND, trial(), propensities=0.4, **QUICK)
    with pytest.raises(ConfigError, match="no column 'village'"):
        declare(trial(), {"shares_by": ["village"]})
    with pytest.raises(ConfigError, match="fewer than 10 rows"):
        declare(trial(extra={"village": np.arange(500)}), {"shares_by": ["village"]})
    masked = trial(action_mask=np.ones((500, 2), bool))
    with pytest.raises(SpecError, match="a mask of actions"):
        declare(masked, "shares")
    drawn = tl.Log.from_arrays(observation=np.zeros((9, 1)), action=np.linspace(0.0, 1.0, 9), reward=np.zeros(9))
    with pytest.raises(SpecError, match="Continuous actions"):
        declare(drawn, "shares")
