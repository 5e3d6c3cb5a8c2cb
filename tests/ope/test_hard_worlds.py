"""Worlds in which a careless judge is wrong: each was seen failing on the judge before, on these seeds.

Other logs are the 200 of each world in benchmarks/results/adversarial.json.
"""

import numpy as np
import pytest

from benchmarks.adversarial_worlds import Cell
from tidelog import Limits, judge
from tidelog.ope.verdict.results import OVERLAP_UNKNOWN

QUICK = Limits(replicates=1000)


def verdicts(world, variant, episodes, seeds=6):
    for seed in range(seeds):
        drawn = Cell(world, variant, episodes).draw(seed)
        for policy in drawn.policies:
            yield judge(policy, drawn.log, seed=seed, limits=QUICK, **drawn.arguments)


def decisions(*cell, **more):
    return [verdict.decision for verdict in verdicts(*cell, **more)]


@pytest.mark.sample("recorded-better-110", "mirrored-worse-110")
@pytest.mark.parametrize("episodes", [110, 250, 600])
@pytest.mark.parametrize(
    ("variant", "wrong"),
    [
        ("recorded", "better"),
        ("estimated", "better"),
        ("frequent elsewhere", "better"),
        ("without noise", "better"),
        ("mirrored", "worse"),
    ],
)
def test_what_was_never_logged_decides_nothing(variant, wrong, episodes):
    assert wrong not in decisions("unsupported quarter", variant, episodes)  # 0 of 200 other logs


@pytest.mark.sample("by hour, hidden")
@pytest.mark.parametrize("variant", ["count hidden", "count hidden, milder", "last action only", "by hour, hidden"])
def test_effects_of_history_are_found_or_refused(variant):
    found = list(verdicts("history", variant, 100, seeds=4))
    # 5 of 200 other logs are not, but of "last action only" 0: 1 in 10 seeds fails
    assert all(verdict.decision == "unsupported" for verdict in found)


def test_a_failed_test_of_the_state_names_the_column():
    (verdict,) = verdicts("history", "last action only", 400, seeds=1)
    assert "last" in verdict.reasons[0]
    assert "add the last" in verdict.paragraph
    assert any(one["fails"] for one in verdict.context["history"])


@pytest.mark.sample("by user, named")
@pytest.mark.parametrize("variant", ["by user, named", "rows five times, named", "rows five times, unnamed"])
def test_dependent_episodes_are_resampled_together(variant):
    """Of 12 null logs at most one is called different; of the old judge's verdicts about four were."""
    said = decisions("dependent episodes", variant, 1000, seeds=12)
    # 0, 17 and 10 of 200 other logs: 2 of 12 or more for no seed, 1 in 4 and 1 in 8
    assert sum(one in ("better", "worse") for one in said) <= 1


def test_a_policy_of_unknown_origin_says_so_and_does_not_pass_the_gate():
    drawn = Cell("learnt from this log", "of no tidelog run", 400).draw(0)
    (policy,) = drawn.policies
    verdict = judge(policy, drawn.log, limits=QUICK)
    # 17 of 200 other logs are not
    assert verdict.decision == "better", "nothing in the log tells that the policy learnt from it"
    assert OVERLAP_UNKNOWN in verdict.reasons
    assert OVERLAP_UNKNOWN[1:] in verdict.paragraph
    assert verdict.blocks_gate == (OVERLAP_UNKNOWN,)
    stated = judge(policy, drawn.log, limits=QUICK, learnt_from="other data")
    assert stated.blocks_gate == ()
    assert OVERLAP_UNKNOWN not in stated.reasons


@pytest.mark.full
def test_a_logger_who_changes_with_the_rewards_is_modelled_in_time_or_refused():
    said = decisions("drift", "both", 1000)
    assert "better" not in said  # 0 of 200 other logs


def test_rare_harm_is_said():
    for verdict in verdicts("rare harm", "recorded", 300, seeds=4):
        if verdict.decision == "better":
            assert "rare harm" in verdict.paragraph
            assert np.isfinite(verdict.logger.estimate)


@pytest.mark.parametrize(("variant", "said"), [("better", "rare harm"), ("worse", "rare gain")])
def test_either_answer_says_which_rare_outcomes_it_cannot_exclude(variant, said):
    (verdict,) = verdicts("ordinary", variant, 300, seeds=1)
    assert verdict.decision == variant  # 12 of 200 other logs fail, of either variant
    assert f"; {said} beyond that, with a probability of up to" in verdict.paragraph


def test_cut_actions_are_refused():
    (verdict, *_) = verdicts("clipped actions", "density as drawn", 300, seeds=1)
    assert verdict.decision == "unsupported"
    assert "exactly on a bound" in verdict.reasons[0]
