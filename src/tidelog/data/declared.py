"""Declared propensities: how an experiment drew its decisions, where no column recorded their probabilities.

A mapping declares one probability of every action, one of each action, or that each action was drawn with its own share
of the log, or of a stratum of it: the rows with equal values of some columns. Shares are estimates of constants that
the experiment knew; a verdict estimates them again, cross-fitted.

Letters: `N` rows, `A` actions, `S` strata.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tidelog.errors import ConfigError, nearest
from tidelog.types import Discrete

SHARES, SHARES_BY = "shares", "shares_by"
CLOSE = 0.01  # distance of the sum of declared probabilities from 1 that rounding explains
FEWEST = 10  # rows of a stratum
_LISTED = 6
_FORMS = (
    'the name of a column, a probability such as 0.5, one for each action such as { A = 0.5, B = 0.5 }, "shares", or '
    '{ shares_by = ["village"] }'
)


class Declaration(NamedTuple):
    """Propensities as a mapping declares them, before the actions are known; one of the fields is set."""

    every: float | None = None  # the probability of every action
    each: tuple[tuple[str, float], ...] = ()  # label of an action -> its probability
    by: tuple[str, ...] | None = None  # each action's share, in strata by these columns; (): of the whole log


@dataclass(frozen=True)
class DeclaredPropensities:
    """How the decisions of a log were drawn, as it was declared."""

    probabilities: tuple[float, ...] | None = None  # [A] in the order of the codes; None: each action's own share
    by: tuple[str, ...] = ()  # columns whose values form strata, each with shares of its own

    @property
    def text(self) -> str:
        """The declaration in words."""
        if self.probabilities is not None:
            shown = ", ".join(f"{one:.4g}" for one in self.probabilities[:_LISTED])
            more = ", ..." if len(self.probabilities) > _LISTED else ""
            return f"declared with probabilities {shown}{more}"
        among = "" if not self.by else f" among rows with the same {' and '.join(map(repr, self.by))}"
        return f"declared as drawn with each action's own share{among}"

    def to_json(self) -> dict[str, Any]:
        """Plain values that `DeclaredPropensities(**...)` reads back as lists."""
        return asdict(self)


class DeclarationError(ValueError):
    """A declaration does not fit the actions or the rows: what was found, what was expected, and what to do."""

    def __init__(self, found: str, expected: str, fix: str) -> None:
        super().__init__(f"{found}: expected {expected}. fix: {fix}")
        self.found, self.expected, self.fix = found, expected, fix


def declaration_of(value: Any) -> Declaration | None:
    """Return what `propensity` declares, None for the name of a column or nothing; ConfigError for anything else."""
    if value is None or (isinstance(value, str) and value != SHARES):
        return None
    if isinstance(value, str):
        return Declaration(by=())
    if _is_probability(value):
        return Declaration(every=float(value))
    pairs = tuple(value.items()) if isinstance(value, Mapping) else value
    if not isinstance(pairs, tuple) or not pairs or not all(isinstance(one, tuple) and len(one) == 2 for one in pairs):
        raise ConfigError(f"propensity = {value!r}", _FORMS, "write one of these")
    if len(pairs) == 1 and pairs[0][0] == SHARES_BY and not isinstance(pairs[0][1], int | float):
        by = (pairs[0][1],) if isinstance(pairs[0][1], str) else tuple(pairs[0][1])
        if not all(isinstance(name, str) for name in by):
            raise ConfigError(
                f"propensity = {{ {SHARES_BY} = {list(by)!r} }}",
                "names of columns",
                f'write them as in {{ {SHARES_BY} = ["village"] }}',
            )
        return Declaration(by=by)
    for action, probability in pairs:
        if not _is_probability(probability):
            raise ConfigError(
                f"propensity of action '{action}' = {probability!r}",
                "a probability above 0 and at most 1",
                "write the probability with which it was drawn",
            )
    return Declaration(each=tuple((str(action), float(one)) for action, one in pairs))


def _is_probability(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value <= 1


def probabilities_of(declaration: Declaration, labels: Sequence[str]) -> tuple[tuple[float, ...] | None, float]:
    """Probabilities [A] of the actions with these labels, which sum to 1, and their sum as it was declared.

    None for shares; DeclarationError if they do not fit the actions.
    """
    count = len(labels)
    if declaration.by is not None:
        return None, 1.0
    if declaration.every is not None:
        chances = [declaration.every] * count
        found = f"{declaration.every:g} for each of {count:,} actions, {math.fsum(chances):.4g} in all"
        fix = f'write {1 / count:.4g} if all were drawn alike, the probability of each, or "{SHARES}"'
    else:
        named = dict(declaration.each)
        unknown = [label for label in named if label not in labels]
        if unknown:
            listed = ", ".join(map(repr, labels[:_LISTED])) + (", ..." if count > _LISTED else "")
            found = f"a probability of '{unknown[0]}', which is no action; the actions are {listed}"
            fix = f"{nearest(unknown[0], labels)}; list an action that was never drawn in `vocabularies`"
            raise DeclarationError(found, "the labels of actions", fix)
        without = [label for label in labels if label not in named]
        if without:
            found = f"no probability of {', '.join(map(repr, without[:_LISTED]))}"
            raise DeclarationError(found, "one for each action", "add what is missing")
        chances = [named[label] for label in labels]
        found, fix = f"probabilities that sum to {math.fsum(chances):.4g}", "correct the probabilities"
    total = math.fsum(chances)
    if abs(total - 1.0) > CLOSE:
        raise DeclarationError(found, "a sum of 1", fix)
    return tuple(one / total for one in chances), total


def labels_of(space: Discrete) -> tuple[str, ...]:
    """The labels of discrete actions; of numbered ones the numbers."""
    return space.names or tuple(map(str, range(space.n)))


def strata_of(columns: Sequence[NDArray[Any]]) -> NDArray[np.int32]:
    """[N]: number of the stratum of each row, equal where all columns [N] are."""
    codes = np.zeros(len(columns[0]), np.int64)
    for values in columns:
        own = np.unique(values, return_inverse=True)[1]
        codes = np.unique(codes * (int(own.max(initial=0)) + 1) + own, return_inverse=True)[1]
    return np.asarray(codes, np.int32)


def check_strata(stratum: NDArray[Any], by: Sequence[str]) -> None:
    """Raise DeclarationError if a stratum has so few rows that its shares say nothing."""
    sizes = np.bincount(stratum)
    few = int((sizes < FEWEST).sum())
    if few:
        found = f"{few:,} of {len(sizes):,} strata by {', '.join(map(repr, by))} with fewer than {FEWEST} rows"
        fix = f"use fewer or coarser columns in {SHARES_BY}, or declare the probability of each action"
        raise DeclarationError(found, f"at least {FEWEST} rows in each, from which its shares are counted", fix)


def share_counts(action: NDArray[Any], stratum: NDArray[Any] | None, actions: int) -> NDArray[np.float64]:
    """[S, A]: how often each action was drawn in each stratum; one stratum without `stratum` [N]."""
    codes = np.asarray(action, np.int64)
    strata = 1 if stratum is None else int(np.max(stratum, initial=0)) + 1
    places = codes if stratum is None else np.asarray(stratum, np.int64) * actions + codes
    return np.bincount(places, minlength=strata * actions).reshape(strata, actions).astype(np.float64)


def propensity_column(
    declared: DeclaredPropensities, action: NDArray[Any], stratum: NDArray[Any] | None, actions: int
) -> NDArray[np.float32]:
    """[N]: the declared probability of each logged action, or its share among the rows of its stratum."""
    codes = np.asarray(action, np.int64)
    if declared.probabilities is not None:
        return np.asarray(declared.probabilities, np.float32)[codes]
    counts = share_counts(codes, stratum, actions)
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1.0)
    return np.asarray(shares[0 if stratum is None else np.asarray(stratum, np.int64), codes], np.float32)


# What recorded propensities say about the actions that were not logged.
#
# A log has the probability of the logged action only. Those of all actions follow from it where there are two actions,
# or where each action always had the same probability: in the whole log, or among rows with the same words.
#
# Letters: `N` rows, `A` actions.

EQUAL = 1e-4  # difference of recorded probabilities that counts as rounding


def known_probabilities(
    action: NDArray[Any], recorded: NDArray[Any], actions: int, words: Sequence[NDArray[Any]] = ()
) -> NDArray[np.float64] | None:
    """[N, A]: the logger's probabilities of all actions, None if the recorded ones [N] do not determine them.

    `words` are columns [N] of codes. In each group of rows, every logged action must have one probability, and these
    must sum to 1: an action that is not in the group then has the probability 0.
    """
    action, recorded = np.asarray(action, np.int64), np.asarray(recorded, np.float64)
    rows = len(action)
    if actions < 2 or not rows or not ((recorded > 0) & (recorded <= 1)).all():
        return None
    if actions == 2:
        known = np.empty((rows, 2))
        known[np.arange(rows), action] = recorded
        known[np.arange(rows), 1 - action] = 1.0 - recorded
        return known
    together = [strata_of(words)] if len(words) > 1 else []
    for group in [np.zeros(rows, np.int32), *(strata_of([one]) for one in words), *together]:
        table = _constant_in(group, action, recorded, actions)
        if table is not None:
            return np.asarray(table[group])
    return None


def _constant_in(group: NDArray[Any], action: NDArray[Any], recorded: NDArray[Any], actions: int) -> Any:
    """[G, A]: probabilities of the actions in each group, None unless they are constant and sum to 1."""
    groups = int(group.max()) + 1
    if groups * actions > max(len(action), actions):  # too few rows of each action in a group
        return None
    place = group.astype(np.int64) * actions + action
    low, high = np.full(groups * actions, np.inf), np.zeros(groups * actions)
    np.minimum.at(low, place, recorded)
    np.maximum.at(high, place, recorded)
    logged = high > 0
    if (high[logged] - low[logged] > EQUAL).any():
        return None
    table = np.where(logged, high, 0.0).reshape(groups, actions)
    total = table.sum(axis=1, keepdims=True)
    return None if (np.abs(total - 1.0) > CLOSE).any() else table / total
