"""Why a verdict decides as it does: the checks in the order in which they were asked, with their numbers."""

import dataclasses
import json
import math

import numpy as np
import pytest

import tidelog as tl
from tests.ope.cases import QUICK, Always, assessed, bandit, episodes, outcome
from tests.report.crafted import verdict
from tidelog.errors import CheckpointError
from tidelog.ope import decide
from tidelog.ope.decide import AGAINST, INTERVAL, UNSUPPORTED, compare
from tidelog.ope.verdict import NO_CHECKS, RuleCheck, read_judgement, read_verdict, write

CASES = {
    "one step": assessed(bandit()),
    "a sequence": assessed(episodes()),
    "worse": assessed(bandit(gain=-0.5)),
    "no difference": assessed(bandit(gain=0.0)),
    "ratios of visits": assessed(episodes(), limits=dataclasses.replace(QUICK, horizon=2)),
    "propensities estimated": assessed(bandit(estimated=True)),
}


@pytest.mark.parametrize("case", CASES)
def test_a_rule_has_the_checks_that_stand_in_its_list(case):
    """So that a rule that is not asked is named like one that is."""
    for rule in (*UNSUPPORTED, *INTERVAL, *AGAINST):
        names = {one.check.rule for one in rule.findings(CASES[case])}
        assert names <= set(rule.checks)
        assert names or "contradiction" in rule.checks


@pytest.mark.parametrize("case", CASES)
def test_the_decision_follows_from_the_checks(case):
    found = decide.decide(CASES[case])
    failed = [one.rule for one in found.checks if one.outcome == "failed"]
    assert (found.decision in ("better", "worse")) == (not failed)
    order = [one.rule for one in found.checks]
    assert (
        order.index("overlap") < order.index("effective_sample_size") < order.index("interval") < order.index("unshown")
    )
    assert len(set(zip(order, [one.subject for one in found.checks], strict=True))) == len(order)


def test_a_check_that_passes_has_its_number_and_its_limit():
    found = outcome(bandit())
    assert found.decision == "better"
    (size,) = (one for one in found.checks if one.rule == "effective_sample_size")
    assert (size.outcome, size.limit, size.limit_name) == ("passed", 50.0, "effective_episodes")
    assert size.number == found.support.effective_sample_size
    assert size.line() == "effective sample size: 441 episodes, at least 50 (effective_episodes): passed"


def test_where_a_check_fails_those_after_the_interval_are_not_asked():
    found = outcome(bandit(), limits=dataclasses.replace(QUICK, effective_episodes=500.0))
    later = [one for one in found.checks if one.rule in ("interval", "contradiction", "sensitivity", "heavy_tail")]
    assert {one.outcome for one in later} == {"not asked"}
    assert {one.why for one in later} == {"a check before fails"}
    (size,) = (one for one in found.checks if one.outcome == "failed")
    assert size.times == pytest.approx(500.0 / found.support.effective_sample_size)
    equal = outcome(bandit(gain=0.0))
    assert {one.why for one in equal.checks if one.rule == "contradiction"} == {"the interval lies on both sides of 0"}


@pytest.mark.parametrize(("compared", "passes"), [("at least", (2, 3)), ("at most", (1, 2)), ("above", (3,)),
                                                  ("below", (1,))])  # fmt: skip
def test_a_number_is_compared_with_its_limit(compared, passes):
    passed = tuple(n for n in (1, 2, 3) if compare("range", n, compared, 2.0).outcome == "passed")
    assert passed == passes
    assert compare("range", math.nan, compared, 2.0).outcome == "failed"


OFTEN = Always(0.2, 0.8)


def log_of(gain=0.5, count=400):
    generator, action = np.random.default_rng(0), np.arange(count) % 2
    return tl.Log.from_arrays(
        observation=np.zeros((count, 1), np.float32), action=action,
        reward=gain * action + generator.normal(0.0, 0.5, count), terminated=True, episode=np.arange(count),
        propensity=np.full(count, 0.5), actions=2,
    )  # fmt: skip


def judged(policy=OFTEN, gain=0.5, limits=QUICK, count=400):
    settings = {"model": "tabular", "ledger": False, "learnt_from": "other data", "progress": False}
    return tl.judge(policy, log_of(gain, count), sample=True, limits=limits, **settings)


def test_the_saved_file_alone_says_the_same(tmp_path):
    found = judged(gain=0.02)
    write(found, tmp_path / "verdict.json")
    again = read_verdict(tmp_path / "verdict.json").verdict
    assert again.checks == found.checks or str(again.checks) == str(found.checks)  # NaN
    assert again.explain() == found.explain()
    lines = found.explain().splitlines()
    assert lines[0].startswith("Decision: no difference shown. ")
    (interval,) = (one for one in found.checks if one.rule == "interval")
    half = (found.difference.high - found.difference.low) / 2
    assert interval.times == pytest.approx(1.5 * (half / abs(found.difference.estimate)) ** 2)
    (change,) = (one for one in lines if one.startswith("What would have had to differ: "))
    assert "above 0; it is -0.0" in change
    assert "a half-width of " in change
    assert found.plan.kind == "episodes"
    assert lines[-1] == found.next_step


def test_what_fails_first_is_said_with_its_reason_and_the_others_by_name():
    found = judged(limits=dataclasses.replace(QUICK, effective_episodes=300.0, largest_weight=0.001))
    text = found.explain()
    assert f"The first that failed: effective sample size. T{found.reasons[0][1:]}." in text
    assert "effective sample size at least 300; it is 294 episodes: about 1.1 times as many episodes of this" in text
    assert "Also failed: largest share of the weight on one episode." in text
    few = judged(count=12)
    assert "number of episodes, or of clusters at least 50; it is 12: about 4.2 times as many" in few.explain()
    assert {one.outcome for one in few.checks if one.rule == "pareto_k"} == {"not asked"}
    assert "No check failed: the 95% interval of the difference lies above 0." in judged().explain()


def test_a_file_of_an_earlier_version_is_explained_as_far_as_it_goes(tmp_path):
    write(verdict("unsupported"), tmp_path / "old.json")
    content = json.loads((tmp_path / "old.json").read_text())
    del content["checks"]
    (tmp_path / "old.json").write_text(json.dumps(content))
    old = read_verdict(tmp_path / "old.json").verdict
    assert old.checks == ()
    assert NO_CHECKS in old.explain()
    assert "The first reason for unsupported." in old.explain()


def test_a_check_of_another_version_has_its_name_in_words():
    assert RuleCheck("some_rule", "passed", 2.0, "at most", 3.0).line() == "some rule: 2, at most 3: passed"


def test_a_table_of_several_is_read_by_names(tmp_path):
    table = judged({"even": Always(0.5, 0.5), "second": Always(0.1, 0.9)})
    write(table, tmp_path / "table.json")
    assert {name: one.verdict.decision for name, one in read_judgement(tmp_path / "table.json").items()} == {
        name: one.decision for name, one in table.items()
    }
    with pytest.raises(CheckpointError, match="is not a verdict"):
        read_verdict(tmp_path / "table.json")
