"""What an answer takes for granted, in the verdict's own words: no test on the log can rule these out.

Letters: `E` episodes, `N` steps, `A` actions.
"""

from __future__ import annotations

from tidelog.ope.assumptions.action_counts import new_habit
from tidelog.ope.assumptions.assumptions import ENDS, NEXT, REWARDS, failing
from tidelog.ope.assumptions.partial_identification import extreme_returns
from tidelog.ope.estimators.sequential import returns
from tidelog.ope.verdict.decide import Case, Outcome

FEWEST = 0.001  # share of a policy's actions from which it is said that the log does not show them
RULE_OF_THREE = 3.0  # an event that n cases did not show has odds below 3 / n, at 95 %


def caveats(case: Case, outcome: Outcome) -> tuple[str, ...]:
    """Sentences without a full stop, the most important first; what does not touch this answer is left out."""
    if outcome.decision == "unsupported":
        return ()
    found = [*_unshown(case, outcome), *_markov(case), *_drift(case)]
    found += [] if outcome.decision == "no difference shown" else [_rare_outcome(case, outcome)]
    return (*found, _taken_for_granted(case))


def _unshown(case: Case, outcome: Outcome) -> list[str]:
    """How much of what the policy does the log never shows, and what the answer assumes about it."""
    share = outcome.unshown or 0.0
    if outcome.bound is None or share < FEWEST:
        return []
    limits, unclear = case.limits, "are missing from"
    if case.policy.supported is None or share == 1.0:
        unclear = "cannot be seen in"
    assumed = []
    if outcome.decision != "worse":
        assumed.append(_extreme("less than", case, limits.lowest_return, "worst", "lowest_return"))
    if outcome.decision != "better":
        assumed.append(_extreme("more than", case, limits.highest_return, "best", "highest_return"))
    fields = ", ".join(f"{field}=..." for _, field in assumed)
    return [
        f"{share:.1%} of the policy's decisions {unclear} the log, and the answer assumes that none of them returns "
        f"{' or '.join(text for text, _ in assumed)}; if one can, set Limits({fields})"
    ]


def _extreme(than: str, case: Case, known: float | None, end: str, field: str) -> tuple[str, str]:
    """One end of the returns that unshown decisions may have, and the limit that states it."""
    limit = float(extreme_returns(case.policy, end == "best")[0]) if known is None else known
    source = f"the {end} in the log" if known is None else f"the stated {field}"
    return f"{than} {limit:.3g} ({source})", field


def _markov(case: Case) -> list[str]:
    """Whether an observation is a state: what the tests found, and how far the policy goes beyond the log."""
    past = failing(case.history, (REWARDS, NEXT, ENDS))
    if case.deciding != "drl":
        names = "'fqe', 'mwl' and 'drl'"
        return [f"the observation is no Markov state, so do not rely on {names}: {past[0].sentence}"] if past else []
    found = [
        "the answer assumes that the observation tells all that matters to what follows (a Markov state); the tests on "
        "this log found no effect of the history of an episode, and weak effects escape them"
    ]
    habit = new_habit(case.policy)
    if habit.outside:
        found.append(
            f"the policy takes action {habit.action} about {habit.mean:.3g} times an episode, logged episodes "
            f"{habit.low:.0f} to {habit.high:.0f} times: what that leads to is assumed, not seen"
        )
    return found


def _drift(case: Case) -> list[str]:
    """Rewards that changed over the time of the log."""
    changed = failing(case.drift, (REWARDS,))
    if not changed:
        return []
    return [
        f"rewards changed over the time of the log ({changed[0].sentence}): the answer is an average over that time"
    ]


def _rare_outcome(case: Case, outcome: Outcome) -> str:
    """What a log of this size cannot exclude: outcomes that are too rare to have come up."""
    earned = returns(case.policy)
    effective = max(min(outcome.support.effective_sample_size, float(case.policy.units)), 1.0)
    harm, gain = f"less than {earned.min():.3g}; rare harm", f"more than {earned.max():.3g}; rare gain"
    beyond = harm if outcome.decision == "better" else gain
    return (
        f"no recorded episode returned {beyond} beyond that, with odds of up to "
        f"{min(RULE_OF_THREE / effective, 1.0):.2g} an episode (3 over the effective sample size), cannot be excluded"
    )


def _taken_for_granted(case: Case) -> str:
    """What nobody can see in any log."""
    units = "episodes" if case.policy.clusters is None else "clusters"
    propensities = "" if case.policy.estimated else "the recorded propensities are right, "
    return (
        f"no log can show these, so the answer assumes them: {propensities}nothing unrecorded sways both decisions and "
        f"rewards, observations were recorded before the decision, {units} are independent and do not affect one "
        "another, and no episodes are missing or cut off because of their outcome"
    )
