"""Caveats of a verdict: assumptions that no test on the log can rule out, as sentences.

Letters: `E` episodes, `N` steps, `A` actions.
"""

from __future__ import annotations

from tidelog.ope.assumptions.action_counts import unusual_action_count
from tidelog.ope.assumptions.assumptions import ENDS, NEXT, REWARDS, failing
from tidelog.ope.assumptions.partial_identification import extreme_returns
from tidelog.ope.estimators.sequential import returns
from tidelog.ope.verdict.decide import Case, Outcome

FEWEST = 0.001  # smallest share of unshown decisions that is reported
RULE_OF_THREE = 3.0  # an event that does not occur in n cases has a probability below 3 / n, at 95 %


def caveats(case: Case, outcome: Outcome) -> tuple[str, ...]:
    """Sentences without a full stop, the most important first; only those that concern this verdict."""
    if outcome.decision == "unsupported":
        return ()
    sentences = [*_unshown(case, outcome), *_markov(case), *_drift(case)]
    sentences += [] if outcome.decision == "no difference shown" else [_rare_outcome(case, outcome)]
    return (*sentences, _assumptions(case))


def _unshown(case: Case, outcome: Outcome) -> list[str]:
    """Share of the policy's decisions that the log does not show, and the assumption about them."""
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
    """One end of the assumed returns of unshown decisions, and the field of `Limits` that states it."""
    limit = float(extreme_returns(case.policy, end == "best")[0]) if known is None else known
    source = f"the {end} in the log" if known is None else f"the stated {field}"
    return f"{than} {limit:.3g} ({source})", field


def _markov(case: Case) -> list[str]:
    """Whether an observation is a Markov state: result of the tests, and how far the policy leaves the log."""
    past = failing(case.history, (REWARDS, NEXT, ENDS))
    if case.deciding != "drl":
        names = "'fqe', 'mwl' and 'drl'"
        return [f"the observation is not a Markov state, so do not rely on {names}: {past[0].sentence}"] if past else []
    sentences = [
        "the answer assumes that the observation contains everything that affects later events (a Markov state); the "
        "tests on this log found no effect of the history of an episode, but they can miss weak effects"
    ]
    habit = unusual_action_count(case.policy)
    if habit.outside:
        sentences.append(
            f"the policy takes action {habit.action} about {habit.mean:.3g} times per episode, logged episodes "
            f"{habit.low:.0f} to {habit.high:.0f} times: the effect of this is assumed, not observed"
        )
    return sentences


def _drift(case: Case) -> list[str]:
    """Rewards that changed during the time of the log."""
    changed = failing(case.drift, (REWARDS,))
    if not changed:
        return []
    return [
        f"rewards changed during the time of the log ({changed[0].sentence}): the answer is an average over that time"
    ]


def _rare_outcome(case: Case, outcome: Outcome) -> str:
    """Outcomes that are too rare for a log of this size to exclude them."""
    earned = returns(case.policy)
    effective = max(min(outcome.support.effective_sample_size, float(case.policy.units)), 1.0)
    harm, gain = f"less than {earned.min():.3g}; rare harm", f"more than {earned.max():.3g}; rare gain"
    beyond = harm if outcome.decision == "better" else gain
    return (
        f"no recorded episode returned {beyond} beyond that, with a probability of up to "
        f"{min(RULE_OF_THREE / effective, 1.0):.2g} per episode (3 / effective sample size), cannot be excluded"
    )


def _assumptions(case: Case) -> str:
    """Assumptions that no log can test."""
    units = "episodes" if case.policy.clusters is None else "clusters"
    propensities = "" if case.policy.estimated else "the recorded propensities are right, "
    return (
        f"no log can confirm these assumptions of the answer: {propensities}nothing unrecorded affects both decisions "
        f"and rewards, observations were recorded before the decision, {units} are independent and do not affect one "
        "another, and no episodes are missing or cut off because of their outcome"
    )
