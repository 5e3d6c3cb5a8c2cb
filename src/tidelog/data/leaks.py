"""Observation columns that tell the reward, which a column that is known before the decision rarely does.

A column tells the reward where one of these holds in every row:

- one value of the column goes with one reward, and one reward with one value;
- one value of the column goes with one reward (logs of single decisions);
- larger numbers go with larger rewards, or with smaller ones, but for rounding (in episodes also the reverse);
- rewards other than the usual one occur only where the column has its usual value, or only where it has not (logs of
  single decisions).

In an episode of several decisions a reward may be earned by being in a state, so that less counts there.
Chance and merely predictive columns make the same pattern in few rows. It counts where a column whose odds ratio with
the reward is `STRONG` would make it with a probability below `CHANCE`. Odds are those within each action, so that an
observation that decides the action, which decides the reward, tells nothing.

Letters: `N` rows, `L` values of a column.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from tidelog.data.dependence import name_words
from tidelog.data.raw import Values

STRONG = 20.0  # odds ratio between the reward and a column that merely predicts it
CHANCE = 1e-4  # of the pattern, for a column with that odds ratio
FEWEST = 20  # rows of both sides that a number divides without one error
MOST_INSIDE = 0.9  # share of the rows without a rare reward that may have the values with one
DISTINCT = 10  # different rewards in one order: chance gives it with 2 / 10!
ROUNDED, FEW_RANKS = 1e-2, 2.0  # share of the rows, and smallest number, whose order rounding may change
SCREEN = 20_000  # rows in which most columns are seen to tell nothing
AFTER = {"after", "afterwards", "followup"}  # last words of names


@dataclass(frozen=True, eq=False)
class DecisionRewards:
    """The rewards of rows, and the actions that may explain them."""

    values: Values  # [N]
    usual: float  # the most frequent one
    action: Values  # [N] int64: codes; zeros where actions are not discrete
    single: bool  # every row is an episode

    @classmethod
    def of(cls, values: Values, action: Values, single: bool) -> DecisionRewards:
        """DecisionRewards [N] with the actions [N] of their rows."""
        return cls(values, _usual(values), action, single)

    @cached_property
    def rare(self) -> Values:
        """[N] bool: another reward than the usual one."""
        return np.asarray(self.values != self.usual)

    @cached_property
    def is_of_actions(self) -> bool:
        """Whether each action has one reward."""
        return _is_function(self.codes, self.action)

    @cached_property
    def codes(self) -> Values:
        """[N]: numbers of the different rewards."""
        return _codes(self.values)

    @cached_property
    def few(self) -> Values:
        """Rows of the first test of a column: half of them with an unusual reward, if there are so many."""
        parts = [_sample(np.flatnonzero(part), SCREEN // 2) for part in (self.rare, ~self.rare)]
        return np.unique(np.concatenate(parts)) if len(self.values) > SCREEN else np.arange(len(self.values))

    @cached_property
    def some(self) -> DecisionRewards:
        """The rewards of these few rows."""
        return replace(self, values=self.values[self.few], action=self.action[self.few])


def leak_of(column: Values, rewards: DecisionRewards, *, words: bool = False) -> str | None:
    """How a column [N] tells the rewards, as a sentence without a subject; None if it does not, or chance may do so.

    `words`: the column has codes, whose order means nothing.
    """
    if not len(column) or rewards.is_of_actions:
        return None
    usual, few = _usual(column), rewards.few
    if len(few) < len(column) and _pattern(column[few], usual, rewards.some, words, np.inf) is None:
        return None
    return _pattern(column, usual, rewards, words, float(np.log(CHANCE)))


def is_after(name: str) -> bool:
    """Whether the name of a column says that it is from after the decision, such as `weight_after`."""
    words = name_words(name)
    return len(words) > 1 and (words[-1] in AFTER or words[-2:] == ["follow", "up"])


def _usual(values: Values) -> float:
    """The most frequent value, in a sample of many."""
    distinct, counts = np.unique(_sample(values, SCREEN), return_counts=True)
    return float(distinct[counts.argmax()]) if len(distinct) else 0.0


def _sample(rows: Values, most: int) -> Values:
    return rows if len(rows) <= most else rows[np.random.default_rng(0).integers(len(rows), size=most)]


def _pattern(column: Values, usual: float, rewards: DecisionRewards, words: bool, limit: float) -> str | None:
    """The pattern with a log-probability by chance below a limit; any pattern where the limit is infinite."""
    values, rewarded = _codes(column), rewards.codes
    if values.max() == 0 or rewarded.max() == 0:
        return None
    function = _is_function(rewarded, values) and _function_chance(values, rewards) < min(limit, 0.0)
    if function and _is_function(values, rewarded):
        return "each of its values goes with one reward, and each reward with one value"
    one_sided = _one_sided(column == usual, rewards, limit) if rewards.single else None
    if one_sided is None and function and rewards.single:
        return "each of its values goes with one reward"
    if one_sided is None and not words and _is_ordered(column, rewards, certain=limit < np.inf):
        return "rewards rise, or fall, with it without an exception beyond rounding"
    return one_sided


def _codes(values: Values) -> Values:
    """[N]: numbers of the different values, from 0 in rising order."""
    return np.asarray(np.unique(values, return_inverse=True)[1])


def _is_function(result: Values, argument: Values) -> bool:
    """Whether each code of the argument has one code of the result."""
    first = np.zeros(int(argument.max()) + 1, np.int64)
    first[argument] = result
    return bool((first[argument] == result).all())


def _odds(rare: Values, action: Values) -> tuple[Values, Values]:
    """[A]: odds of an unusual reward for each action; 0 without both kinds. [A] bool: whether it has both."""
    counts, events = np.bincount(action), np.bincount(action, rare)
    both = (events > 0) & (events < counts)
    return np.where(both, events / np.maximum(counts - events, 1.0), 0.0), both


def _function_chance(values: Values, rewards: DecisionRewards) -> float:
    """The log-probability that values have one reward each by chance: of rows that repeat a value with an action."""
    levels = int(values.max()) + 1
    odds, both = _odds(rewards.rare, rewards.action)
    _, first = np.unique(rewards.action * levels + values, return_index=True)
    again = both[rewards.action]
    again[first] = False
    row = odds[rewards.action[again]]
    chance = np.where(rewards.rare[again], np.log1p(-1.0 / (1.0 + row * STRONG)), -np.log1p(row / STRONG))
    return float(chance.sum())


def _is_ordered(column: Values, rewards: DecisionRewards, *, certain: bool) -> bool:
    """Whether rewards rise, or fall, with the numbers of a column, but for rounding.

    In episodes the numbers also rise, or fall, with the rewards. `certain`: in so many rows that it is no chance.
    """
    distinct = int(rewards.codes.max()) + 1
    if not _follows(rewards.values, column) or (not rewards.single and not _follows(column, rewards.values)):
        return False
    if distinct >= DISTINCT or not certain:
        return distinct >= DISTINCT or rewards.single
    counts, events = np.bincount(rewards.action), np.bincount(rewards.action, rewards.rare)
    return rewards.single and bool(np.minimum(events, counts - events).sum() >= FEWEST)


def _follows(y: Values, x: Values) -> bool:
    """Whether y [N] rises, or falls, with x [N]; numbers that rounding exchanges are close in rank."""
    codes = _codes(y)
    counts = np.bincount(codes)
    rank = (np.cumsum(counts) - 0.5 * (counts + 1.0))[codes]
    close = max(ROUNDED * len(y), FEW_RANKS)
    for one in (rank, -rank):
        sorted_by_x = one[np.lexsort((-one, x))]
        if (np.maximum.accumulate(sorted_by_x) - sorted_by_x).max() <= close:
            return True
    return False


def _one_sided(usual: Values, rewards: DecisionRewards, limit: float) -> str | None:
    """Whether unusual rewards occur only with the usual value of a column [N] bool, or only with others."""
    rare = rewards.rare
    events = [(rare, f"other than {rewards.usual:g}")] if rare.mean() <= 0.5 else []
    if rewards.codes.max() == 1:
        events.append((~rare, f"of {rewards.usual:g}"))
    for event, which in events:
        for inside, where in ((~usual, "another value than its usual one"), (usual, "its usual value")):
            holds = not (event & ~inside).any() and inside[~event].mean() <= MOST_INSIDE
            if holds and _log_chance(event, inside, rewards.action) < limit:
                if (event == inside).all():
                    return f"{where} is in exactly the {int(event.sum()):,} rows with rewards {which}"
                share = f"{inside.mean():.1%}" if inside.mean() < 0.999 else f"{inside.mean():.3%}"
                return f"all {int(event.sum()):,} rewards {which} are among the {share} of the rows with {where}"
    return None


def _log_chance(event: Values, inside: Values, action: Values) -> float:
    """The log-probability that no event is outside, with the odds ratio `STRONG`, within each action."""
    events = np.bincount(action, event)
    others = np.bincount(action, ~event)
    share = (np.bincount(action, inside & ~event) + 1.0) / (others + 2.0)  # of the rows without an event
    outside = (1.0 - share) / (1.0 - share + STRONG * share)
    return float((events * np.log1p(-outside))[others > 0].sum())
