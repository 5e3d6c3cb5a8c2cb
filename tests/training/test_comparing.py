"""Policies out of run folders, and how their actions compare with those of a log."""

from dataclasses import replace

import numpy as np
import pytest

from tests.policies.permuted import permuted
from tests.training.runs import LOSS, bc, begin
from tidelog import Log, SpecError, collect
from tidelog.training.run import agreement, policy_of_run


def test_before_any_report_the_last_checkpoint_acts(log, tmp_path):
    run = begin(bc(), log, tmp_path / "run", best_metric=LOSS)
    next(run.stream())
    assert policy_of_run(tmp_path / "run").origin["update"] == 0


def test_agreement_counts_equal_actions_and_means_log_probabilities(log):
    policy = begin(bc(), log).policy()
    seen, chosen = log.transitions.observation, None
    found = agreement(policy, log)
    chosen = policy(seen).codes
    assert found == {
        "share of equal actions": pytest.approx((chosen == log.action).mean()),
        "mean log-probability of logged actions": pytest.approx(policy.log_probability(seen, log.action).mean()),
    }
    assert agreement(policy, replace(log, action=chosen))["share of equal actions"] == 1.0


def test_agreement_with_continuous_actions_is_a_distance():
    log = collect("point-mass", episodes=2)
    policy = begin(bc(actor_head="deterministic"), log, held_out=0.0).policy()
    found = agreement(policy, log)
    distance = np.abs(policy(log.transitions.observation) - log.action).mean()
    assert found == {"mean distance to logged actions": pytest.approx(distance)}


def test_logs_that_count_otherwise_are_refused(log):
    policy = begin(bc(), log).policy()
    other = permuted(log)
    same_features = replace(log, spec=replace(log.spec, action=other.spec.action), action=other.action)
    fewer = replace(log.spec.action, n=5, names=log.spec.action.names[:5])
    for strange in (other, same_features, replace(log, spec=replace(log.spec, action=fewer))):
        with pytest.raises(SpecError, match="expected the policy's Spec"):
            agreement(policy, strange)
    rng = np.random.default_rng(0)
    arrays = {"observation": rng.random((5, 1)), "reward": None, "terminated": True}
    one = Log.from_arrays(action=rng.random((5, 1)), bounds=(0, 1), **arrays)
    wider = Log.from_arrays(action=rng.random((5, 1)), bounds=(0, 9), **arrays)
    two = Log.from_arrays(action=rng.random((5, 2)), bounds=(0, 1), **arrays)
    steering = begin(bc(), one, held_out=0.0).policy()
    assert agreement(steering, wider)["mean distance to logged actions"] > 0
    with pytest.raises(SpecError, match="expected the policy's"):
        agreement(steering, two)
