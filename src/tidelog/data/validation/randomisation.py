"""Checks of propensities: whether the logged actions look as if they were drawn with them.

Declared propensities, and recorded ones that determine the probabilities of all actions, are tested as in `balance`.
Other recorded ones say only that each action has a mean weight of at most 1, whatever the observation.

Letters: `N` rows, `A` actions.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from tidelog.data.core.declared import (
    SHARES_BY,
    Declaration,
    DeclarationError,
    check_strata,
    probabilities_of,
    strata_of,
)
from tidelog.data.core.design import known_probabilities
from tidelog.data.core.raw import Column, Finding, RawLog
from tidelog.data.core.registry import check
from tidelog.data.validation.balance import (
    BEFORE,
    EVERYTHING,
    MOST_COLUMNS,
    MOST_ROWS,
    TOTALS,
    Balance,
    Observed,
    balance_of,
)
from tidelog.data.validation.errors import action_count, action_labels, action_name, clip_finite

DOUBTFUL = 0.01  # p-value below which propensities are said to be doubtful
BALANCED = 0.05  # p-value from which decisions look as if they had been drawn
MOST_BALANCED = 20  # actions of a log that looks so
MOST_STATED, STATED = 3, "the size of the probabilities"  # recorded probabilities of so many actions are tested
ROUNDED = 0.015  # difference of probabilities that rounding to two digits may make


@check("contradicted propensities", "error")
def contradicted_propensities(raw: RawLog) -> Iterable[Finding]:
    """Observations predict the action much better than declared propensities do (p < 0.001)."""
    found = _declared_balance(raw)
    if found is not None and found.is_broken:
        yield _finding(raw, found)


@check("doubtful propensities", "warning")
def doubtful_propensities(raw: RawLog) -> Iterable[Finding]:
    """Observations predict the action better than recorded, or declared, propensities do (p < 0.01)."""
    found = _declared_balance(raw)
    if found is not None and not found.is_broken and found.p_value < DOUBTFUL:
        yield _finding(raw, found)
    fit = _recorded_fit(raw)
    if raw.propensity is not None and fit is not None and fit.p_value < DOUBTFUL:
        advice = "record the probability that the logged action had when it was drawn"
        if [one.name for one in fit.named] not in ([TOTALS], [EVERYTHING], [STATED]):
            advice = f"if an outcome is among the observations, drop it; else {advice}"
        yield Finding(raw.propensity.name, None, sentence(fit, "recorded"), "actions as often as they say", advice)


def _finding(raw: RawLog, found: Balance) -> Finding:
    expected = "decisions that nothing recorded before them predicts"
    return Finding("propensity", None, sentence(found, "declared"), expected, _advice(raw, found))


def sentence(balance: Balance, what: str) -> str:
    """What predicts the action, how well and how surely; `what` the propensities are: declared or recorded."""
    names = [one.name for one in balance.named]
    if names == [TOTALS]:
        return f"actions are not logged as often as {what} propensities say ({balance.p_text})"
    listed = ", ".join(one if one in (BEFORE, EVERYTHING, STATED) else f"'{one}'" for one in dict.fromkeys(names[:5]))
    listed = listed.replace(STATED, f"the size of {what} probabilities")
    listed += f" and {len(names) - 5} more" if len(names) > 5 else ""
    verb = "predicts" if len(names) == 1 and names != [EVERYTHING] else "predict"
    return (
        f"{listed} {verb} the action beyond {what} propensities ({balance.p_text}; {max(balance.explained, 0.0):.1%} "
        "of what they leave open is explained in other rows)"
    )


def _advice(raw: RawLog, balance: Balance) -> str:
    named = [one.name for one in balance.named]
    if named == [TOTALS]:
        return 'correct the probabilities, or write propensity = "shares"'
    if BEFORE in named:
        return (
            "if one decision was drawn for a whole episode, keep one row for each episode, with the sum of its "
            "rewards; else leave propensity out"
        )
    words = {column.name for one in raw.observation.values() if one.kind == "codes" for column in one.columns}
    drawn = [name for name in named if name in words]
    by = f"propensity = {{ {SHARES_BY} = {json.dumps(drawn, ensure_ascii=False)} }}"
    first = f"if {action_name(raw)} was drawn within each {' and '.join(drawn)}, {by}; " if drawn else ""
    was, them = ("it was", "it") if len(named) == 1 else ("they were", "them")
    return (
        f"{first}if {was} recorded after the decision, drop {them} from `observation`; if decisions were not drawn at "
        "random, leave propensity out"
    )


def raw_balance(raw: RawLog, declaration: Declaration) -> Balance | None:
    """The balance of a raw log under a declaration; None if it does not fit, or there is nothing to test."""
    action = raw.action
    if action is None or action.kind != "discrete" or raw.action_mask is not None or not action.usable.all():
        return None
    if any(not column.usable.all() or column.values.ndim != 1 for column in raw.strata):
        return None
    codes, count = _codes(raw), action_count(raw)
    if codes is None:
        return None
    try:
        chances = probabilities_of(declaration, action_labels(raw))[0]
        stratum = strata_of([column.values for column in raw.strata]) if raw.strata else None
        if stratum is not None:
            check_strata(stratum, declaration.by or ())
    except DeclarationError:
        return None  # an error, which another check reports
    before = None
    if len(raw.order.ids) < raw.rows:
        before = np.full(raw.rows, -1)
        inside = np.flatnonzero(~raw.order.last)
        before[raw.order.rows[inside + 1]] = codes[raw.order.rows[inside]]
    return balance_of(
        _observed(raw, raw.strata),
        codes,
        count,
        chances=None if chances is None else np.asarray(chances),
        stratum=stratum,
        clusters=_clusters(raw),
        before=before,
    )


def _codes(raw: RawLog) -> NDArray[np.int64] | None:
    """[N]: the discrete actions, None if one of them is out of range."""
    values = clip_finite(raw.action.values[:, 0]) if raw.action is not None else np.zeros(0)
    inside = len(values) and values.min() >= 0 and values.max() < min(action_count(raw), 2**31)
    return values.astype(np.int64) if inside else None


_BALANCES = WeakKeyDictionary[RawLog, "Balance | None"]()  # two checks, an error and a warning, read one result


def _declared_balance(raw: RawLog) -> Balance | None:
    if raw.declared is None:
        return None
    if raw not in _BALANCES:
        _BALANCES[raw] = raw_balance(raw, raw.declared)
    return _BALANCES[raw]


def _recorded_fit(raw: RawLog) -> Balance | None:
    action, recorded = raw.action, raw.propensity
    if action is None or recorded is None or action.kind != "discrete" or not action.usable.all():
        return None
    values = recorded.values
    if not recorded.usable.all() or values.ndim != 1 or not ((values > 0) & (values <= 1)).all():
        return None
    codes, count = _codes(raw), action_count(raw)
    if codes is None:
        return None
    return fit_of(
        _observed(raw), codes, np.asarray(values, np.float64), count, _clusters(raw), masked=raw.action_mask is not None
    )


def fit_of(
    columns: Sequence[Observed],
    action: NDArray[Any],
    recorded: NDArray[Any],
    actions: int,
    clusters: NDArray[Any] | None = None,
    *,
    masked: bool = False,
) -> Balance | None:
    """Whether recorded propensities [N] fit the logged actions [N], in the whole log and in strata of each column.

    None where they do not tell the probabilities of all actions: mean weights alone have too heavy tails for a test,
    and each policy's own is limited (`checks._mean_weight`).
    """
    if len(action) > MOST_ROWS:
        chosen = np.sort(np.random.default_rng(0).choice(len(action), MOST_ROWS, replace=False))
        columns = [one._replace(values=one.values[chosen]) for one in columns]
        action, recorded = action[chosen], recorded[chosen]
        clusters = None if clusters is None else clusters[chosen]
    words = [one.values for one in columns if one.is_words]
    known = None if masked else known_probabilities(action, recorded, actions, words)
    if known is None:
        return None
    # where the probability of an action is high, it must be taken that often
    frequent = np.argsort(-known.mean(axis=0), kind="stable")[: min(actions - 1, MOST_STATED)]
    stated = [Observed(STATED, _without_rounding(known[:, one]), False) for one in frequent]
    return balance_of([*stated, *columns], action, actions, chances=known, clusters=clusters)


def _without_rounding(chances: NDArray[np.float64]) -> NDArray[np.float64]:
    """[N]: probabilities with one value for those that rounding may have made different.

    A probability comes from that of the logged action, and is one minus it in other rows: rounded, its digits would
    tell the action. Where values lie so close that rounding cannot be told from differences, they stay.
    """
    distinct, codes = np.unique(chances, return_inverse=True)
    group = np.concatenate([[0], np.cumsum(np.diff(distinct) > ROUNDED)])
    low, high = np.full(group[-1] + 1, np.inf), np.full(group[-1] + 1, -np.inf)
    np.minimum.at(low, group, distinct)
    np.maximum.at(high, group, distinct)
    return chances if (high - low > 2.0 * ROUNDED).any() else low[group][codes]


def _clusters(raw: RawLog) -> NDArray[Any] | None:
    usable = raw.cluster is not None and raw.cluster.usable.all() and raw.cluster.values.ndim == 1
    return raw.cluster.values if usable and raw.cluster is not None else None


def _observed(raw: RawLog, without: Sequence[Column] = ()) -> list[Observed]:
    """Observation columns without pictures and without unusable cells."""
    left_out = {column.name for column in without}
    columns = []
    for feature in raw.observation.values():
        for column in feature.columns if feature.kind != "image" else ():
            wide = column.values.reshape(len(column.values), -1)
            if column.name in left_out or not column.usable.all() or not np.isfinite(wide).all():
                continue
            for place in range(min(wide.shape[1], MOST_COLUMNS)):
                name = column.name if wide.shape[1] == 1 else f"{column.name}[{place}]"
                columns.append(Observed(name, wide[:, place], feature.kind == "codes"))
    if raw.time is not None and raw.time.usable.all():
        when = as_number(raw.time.values)
        columns += [Observed(raw.time.name, when, False)] * bool(np.isfinite(when).all())
    return columns[:MOST_COLUMNS]


def as_number(time: NDArray[Any]) -> NDArray[np.float64]:
    """Times [N] as numbers, NaN for those that are none."""
    if time.dtype.kind != "M":
        return np.asarray(time, np.float64)
    return np.where(np.isnat(time), np.nan, time.astype("datetime64[us]").astype(np.int64).astype(np.float64))
