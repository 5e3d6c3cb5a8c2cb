"""Whether to use a policy's lists: beside the best rule that only counts, on the same held-out cases.

Letters: `C` cases.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import NamedTuple

from tidelog.number_text import three_digits
from tidelog.policies.statistics import Interval
from tidelog.recommend.interactions.held_out import held_out_cases
from tidelog.recommend.interactions.log import Interactions
from tidelog.recommend.metrics.baselines import ItemKNN, Markov, OwnFrequency, Popularity, Ranker, TifuKNN
from tidelog.recommend.metrics.ranked_lists import Comparison, compare

LEADING = "hit rate"  # the measure of the sentence
MOST_CASES, K = 1_000, 10  # held-out cases that are compared, and the length of their lists
POPULAR, NEXT, NEIGHBOURS, OWN, TIFU = "popularity", "last-item Markov", "item-kNN", "own frequency", "TIFU-kNN"
NEXT_BY_EVENT = "last-event Markov"
RULES = {
    POPULAR: "the most frequent items of the log", NEXT: "what followed the last item",
    NEXT_BY_EVENT: "what followed the last item with its kind of event", NEIGHBOURS: "items of the same users",
    OWN: "the most frequent items of the user", TIFU: "frequent items of the user and of similar users",
}  # fmt: skip
SUBJECTS = {
    "events": ("the item that was taken", "whose item is"),
    "baskets": ("an item of the basket", "with an item"),
}  # for each unit: what a list contains, and which of them have it


MAKERS: Mapping[str, Callable[[Interactions], Ranker]] = {
    POPULAR: Popularity.of,
    NEXT: Markov.of,
    NEXT_BY_EVENT: partial(Markov.of, by_event=True),
    NEIGHBOURS: ItemKNN.of,
    OWN: partial(OwnFrequency.of, filled=True),
    TIFU: TifuKNN.of,
}
QUICK_FIRST = (POPULAR, OWN, NEXT, NEXT_BY_EVENT, NEIGHBOURS, TIFU)


class Advice(NamedTuple):
    """A policy's lists beside those of the best counting rule."""

    rule: str  # the name of the rule
    difference: Interval  # of the hit rates, policy minus rule
    sentence: str  # both, and their difference
    decision: str  # what to do
    use_policy: bool  # whether to use the policy's lists, else those of the rule
    left_out: tuple[str, ...] = ()  # rules that were not compared, for lack of time


def rules_for(log: Interactions) -> list[str]:
    """Return the names of the rules that fit a log.

    The two Markov rules are left out in a log of baskets, and the one by events where all events are of one kind.
    """
    left_out = [NEXT, NEXT_BY_EVENT] if log.has_baskets else [NEXT_BY_EVENT] if log.event.max(initial=0) <= 1 else []
    return [name for name in MAKERS if name not in left_out]


def counting_rule(log: Interactions, name: str) -> Ranker:
    """Return the rule of this name over the events of a log."""
    return MAKERS[name](log)


def counting_rules(train: Interactions) -> dict[str, Ranker]:
    """Return the rules that fit a log, over its events, by name."""
    return {name: counting_rule(train, name) for name in rules_for(train)}


def best_rule(compared: Comparison, names: Iterable[str] = RULES) -> str:
    """Return the compared rule with the highest hit rate over all cases."""
    rates = {row.ranker: row.scores[LEADING].estimate for row in compared.rows if row.kind == "all"}
    return max((name for name in names if name in rates), key=lambda name: (rates[name], name))


def advise_lists(
    ranker: Ranker,
    train: Interactions,
    test: Interactions,
    name: str = "this policy",
    *,
    seconds: float = math.inf,
    progress: Callable[[str, float], None] | None = None,
) -> Advice:
    """Return whether to use the lists of a ranker, beside those of the rules that count the events of `train`.

    `test` has the held-out events, as in `interactions.split()`; at most 1,000 of them, or of its users' first baskets,
    are compared, in lists of 10 items. They must not have chosen the policy. Quick rules come first; none but the first
    begins after so many `seconds`. `progress` gets the name of whose lists are made, and the share of the rules that is
    done. ConfigError without held-out events.

    Example:
        >>> from tidelog.recommend.metrics.advice import advise_lists
        >>> from tidelog.recommend.metrics.baselines import Popularity
        >>> users, items = np.repeat(range(40), 25), np.mod(7 * np.arange(1_000), 12)
        >>> table = pl.DataFrame({"user": users, "item": items, "time": np.tile(range(25), 40)})
        >>> split = tl.read_interactions(table, user="user", item="item", time="time").split()
        >>> advise_lists(Popularity.of(split.train), split.train, split.test).decision
        'Do not use these lists: the counting rule last-item Markov is better than this policy. Use that rule.'
    """
    cases = held_out_cases(test, MOST_CASES)
    began, left_out = time.monotonic(), list[str]()
    rules = sorted(rules_for(train), key=QUICK_FIRST.index)

    def rankers() -> Iterator[tuple[str, Ranker]]:
        yield name, ranker
        for number, rule in enumerate(rules):
            if number and time.monotonic() - began > seconds:
                left_out.append(rule)
                continue
            if progress is not None:
                progress(rule, number / len(rules))
            yield rule, counting_rule(train, rule)

    compared = compare(rankers(), cases, train.counts, min(K, len(train.items) - 1))
    return advise(compared, name, "baskets" if test.has_baskets else "events")._replace(left_out=tuple(left_out))


def advise(compared: Comparison, name: str, unit: str) -> Advice:
    """Return the advice on the lists of the policy `name`; `unit` is "events" or "baskets"."""
    rule, thing = best_rule(compared), SUBJECTS[unit][0]
    mine, rules = (compared.row(one).scores[LEADING].estimate for one in (name, rule))
    gain = compared.difference(name, rule, LEADING)
    low, high = (f"{three_digits(100 * end, sign=True)}" for end in gain[1:])
    sentence = (
        f"In {three_digits(100 * mine)}% of {compared.row(name).cases:,} held-out {unit} the list of {compared.k} "
        f"items by {name} contains {thing}, and in {three_digits(100 * rules)}% that of the best counting rule, {rule} "
        f"({RULES[rule]}): a difference of {three_digits(100 * gain.estimate, sign=True)} percentage points ({low} to "
        f"{high})."
    )
    if gain.high < 0:
        decision = f"Do not use these lists: the counting rule {rule} is better than {name}. Use that rule."
    elif gain.low > 0:
        decision = (
            f"Use these lists: they contain {SUBJECTS[unit][0]} more often than those of the counting rule {rule}."
        )
    else:
        decision = (
            f"Do not use these lists yet: no gain over the counting rule {rule} is shown. Use that rule: it is simpler."
        )
    return Advice(rule, gain, sentence, decision, gain.low > 0)
