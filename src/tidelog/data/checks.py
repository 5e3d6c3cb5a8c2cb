"""Errors, which make a log unusable: one function per check; all checks run and give one report."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import cached_property
from statistics import NormalDist
from typing import Any, Literal, NamedTuple, TypeAlias
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from tidelog.data.columns import (
    SHARES_BY,
    Declaration,
    DeclarationError,
    check_strata,
    known_probabilities,
    probabilities_of,
    share_counts,
    strata_of,
)
from tidelog.data.raw import Column, Finding, LogColumns, RawLog, Values, check, side_by_side
from tidelog.types import Discrete

# Checks for dependent episodes and copies of rows.

# Find columns that look like clusters of episodes: by names of persons, stores or days, and by correlated returns.
#
# Episodes of one cluster are dependent, and intervals that resample them as independent are too narrow. The test is the
# one-way analysis of variance. Its statistic is the sum of squares between clusters; under the null hypothesis, the
# same returns are assigned to the clusters at random. The mean and variance over all assignments are exact (Pitman
# 1938); the distribution is approximated by a gamma distribution, or sampled (Besag and Clifford 1991) if few returns
# differ.
#
# Letters: `N` rows, `E` episodes, `C` clusters.

Kind: TypeAlias = Literal["group", "period", "identity"]
LEAST_VALUES = 5
LEAST_REPEATS = 1.5  # mean number of episodes per value
SIGNIFICANT = 0.01  # level for all tested columns of a log together
_FEW = 5_000  # the null distribution is sampled if at most this many returns differ from the median
_DRAWS, _ENOUGH_ABOVE = 499, 10
_MEASURED = 100_000  # least number of measured episodes; longer logs are sampled
_MOST_KURTOSIS = 20.0  # returns with heavier tails are replaced by ranks
_SECONDS, _MILLISECONDS = (5e8, 5e9), (5e11, 5e12)  # ranges of times since 1970

_PERSONS = {
    "user", "person", "customer", "client", "patient", "subject", "participant", "respondent", "individual", "member",
    "account", "visitor", "viewer", "listener", "subscriber", "buyer", "shopper", "seller", "player", "student",
    "pupil", "teacher", "driver", "rider", "worker", "employee", "household", "family", "reviewer",
}  # fmt: skip
_SITES = {"session", "conversation", "store", "shop", "outlet", "hospital", "clinic", "school", "classroom", "village"}
_MARKED_SITES = _SITES | {
    "dialog", "dialogue", "device", "cookie", "machine", "vehicle", "branch", "site", "practice", "plant", "facility",
    "admission", "stay", "encounter", "visit",
}  # fmt: skip
_PERIODS = {"day", "date", "week", "month"}
_IDENTITY = {"id", "ids", "uid", "uuid", "guid", "key", "code", "hash"}
_NUMBER = {"no", "nr", "nbr", "num", "number", "idx"}  # an identifier of a person, but often a count of a session
_JOINED = {"uid", "userid", "customerid", "visitorid", "patientid", "subjectid", "sessionid", "storeid"}


class ClusterCandidate(NamedTuple):
    """A column without the cluster role whose values look like clusters of episodes."""

    name: str
    values: int  # different values over the episodes
    correlation: float  # intraclass correlation of the episode returns; NaN without rewards
    p_value: float  # for no correlation; NaN without rewards
    named: bool  # whether the name alone suggests a person, session, store or similar
    fix: str

    @property
    def found(self) -> str:
        """The measured values as text."""
        text = f"{self.values:,} different values over the episodes"
        if math.isnan(self.correlation):
            return text
        return f"{text}; returns correlate within a value: {self.correlation:.3g} (p = {self.p_value:.2g})"


class Labels(NamedTuple):
    """A possible cluster column: the integer code of each episode [E] from 0, -1 if not known."""

    name: str
    kind: Kind
    codes: Values
    fix: str


def cluster_candidates(log: LogColumns) -> list[ClusterCandidate]:
    """Find extra columns of a log, and the calendar day of its `time`, that look like clusters of episodes.

    A column named like a person, a session or a store qualifies if it repeats (at least 5 values, 1.5 episodes per
    value) and never changes within an episode. A day, another identifier or a column of text qualifies if also the
    returns correlate within its values more than by chance, at 1% over all columns. Columns that the action
    determines are excluded. The list is empty if the log has clusters. Logs of 200,000 episodes or more are sampled.
    """
    if log.cluster is not None:
        return []
    firsts = log.starts[:-1]
    used = {name for leaf in log.spec.observation.values() for name in getattr(leaf, "names", ())}
    used |= {*log.spec.observation, "action", *getattr(log.spec.action, "names", ())}
    columns = []
    for name, values in log.extra.items():
        kind = kind_of(name, is_text=values.dtype.kind == "U")
        if kind is not None and name not in used and constant(values, log.episode, firsts):
            columns.append(Labels(name, kind, codes_of(values[firsts]), fix_of(name)))
    if log.time is not None:
        columns += day_labels("time", np.asarray(log.time[firsts]))
    returns = None  # [E, K] float64: undiscounted sums of the rewards of each episode
    if log.reward is not None:
        wide = np.asarray(log.reward, np.float64).reshape(len(log.reward), -1)
        returns = wide if len(firsts) == len(wide) else np.add.reduceat(wide, firsts, axis=0)
    action = log.action if isinstance(log.spec.action, Discrete) and len(firsts) == log.steps else None
    return candidates(columns, returns, action)


def candidates(columns: Iterable[Labels], returns: Values | None, action: Values | None) -> list[ClusterCandidate]:
    """Select the columns that look like clusters; `returns` [E, K] of episodes, `action` [E] of one-step logs."""
    repeated = [(one, count) for one in columns if (count := _repeats(one.codes))]
    measured = []
    for one, count in repeated:
        if _repeats_action(one.codes, action):
            continue
        part = _part(one.codes, count)
        correlation, p_value = math.nan, math.nan
        if returns is not None:  # of the component with the smallest p-value, times the number of components
            each = [intraclass_correlation(one.codes[part], column) for column in returns[part].T]
            correlation, p_value = min(each, key=lambda pair: pair[1])
            p_value = min(1.0, p_value * len(each))
        measured.append(ClusterCandidate(one.name, count, correlation, p_value, one.kind == "group", one.fix))
    tests = sum(not one.named for one in measured)
    return [one for one in measured if one.named or one.p_value * tests < SIGNIFICANT]


def intraclass_correlation(groups: Values, values: Values) -> tuple[float, float]:
    """The ANOVA estimate of the correlation within groups, and the one-sided p-value for no correlation.

    `groups` [E] int from 0 (negative: unknown, ignored), `values` [E]. If more than 5,000 values differ from their
    median and the tails are heavy, the p-value is that of the ranks (Kruskal and Wallis 1952).
    """
    x, known = np.asarray(values, np.float64), groups >= 0
    if not known.all():
        groups, x = groups[known], x[known]
    if len(groups) and groups.max() > 4 * len(groups):
        groups = np.unique(groups, return_inverse=True)[1].reshape(-1)
    present = np.bincount(groups) > 0
    groups = groups if present.all() else (np.cumsum(present) - 1)[groups]
    sizes = np.bincount(groups).astype(np.float64)
    count, clusters = len(x), len(sizes)
    centred = x - x.mean() if count else x
    total = float(centred @ centred)
    if clusters < 2 or count <= clusters or total <= 1e-12 * float(x @ x):
        return 0.0, 1.0
    between = _between(groups, centred, sizes)
    mean_between, mean_within = between / (clusters - 1), max(total - between, 0.0) / (count - clusters)
    usual = (count - float(sizes @ sizes) / count) / (clusters - 1)
    correlation = (mean_between - mean_within) / (mean_between + (usual - 1.0) * mean_within)
    shifted = x - np.median(x)
    if np.count_nonzero(shifted != 0) <= _FEW:
        return correlation, _drawn(groups, shifted, sizes)
    squares = centred * centred
    if count * float(squares @ squares) > _MOST_KURTOSIS * total**2:
        centred = _ranks(x)
        between = _between(groups, centred, sizes)
    from scipy.special import gammaincc

    mean, variance = permutation_moments(centred, sizes)
    return correlation, float(gammaincc(mean**2 / variance, between * mean / variance))


def permutation_moments(values: Values, sizes: Values) -> tuple[float, float]:
    """Mean and variance of the sum of squares between groups of these sizes [C] over all assignments of the values [E].

    Values are centred. The sum is a quadratic form in a projection; its moments depend only on the sums of the second
    and the fourth powers.
    """
    n, c = float(len(values)), float(len(sizes))
    squares = values * values
    second, fourth = float(squares.sum()), float(squares @ squares)
    inverse = float(np.sum(1.0 / sizes))
    expected = second * (c - 1.0) / (n - 1.0)
    pairs = n * (n - 1.0)
    square = inverse * fourth / n - 4.0 * (c - inverse) * fourth / pairs
    square += (c * c - inverse + 2.0 * (c - inverse)) * (second**2 - fourth) / pairs
    triples = 2.0 * (c * (n - c - 2.0) + 2.0 * inverse) + 4.0 * (n - 3.0 * c + 2.0 * inverse)
    square += triples * (2.0 * fourth - second**2) / (pairs * (n - 2.0))
    others = n * n - inverse - 4.0 * (c - inverse) - (c * c - inverse + 2.0 * (c - inverse)) - triples
    square += others * (3.0 * second**2 - 6.0 * fourth) / (pairs * (n - 2.0) * (n - 3.0))
    return expected, square - expected**2


def kind_of(name: str, is_text: bool = False) -> Kind | None:
    """The kind of a column by its name; columns of text count as identifiers whatever their name."""
    parts = name_words(name)
    rest = [part.removesuffix("s") for part in parts if part not in _IDENTITY | _NUMBER]
    last, marked = rest[-1] if rest else "", len(rest) < len(parts)
    bare = len(parts) == 1 and last in _PERSONS | _SITES
    person = marked and last in _PERSONS
    site = last in _MARKED_SITES and not _IDENTITY.isdisjoint(parts)
    if bare or person or site or "_".join(parts) in _JOINED:
        return "group"
    if last in _PERIODS and len(parts) <= 2:
        return "period"
    return "identity" if marked or is_text else None


def name_words(name: str) -> list[str]:
    """Split user-item_affinity_3 into [user, item, affinity, 3], CustomerID into [customer, id]."""
    split = re.sub(r"([a-z])([A-Z])|([A-Za-z])(\d)", r"\1\3_\2\4", name)
    return [word for word in re.split(r"[^a-z0-9]+", split.lower()) if word]


def fix_of(name: str) -> str:
    """How to use the column as clusters."""
    return f'add cluster = "{name}" to the mapping if its episodes are dependent; for arrays, pass cluster='


def constant(values: Values, episode: Values, firsts: Values) -> bool:
    """Whether a column [N] in episode order has one value in each episode."""
    return len(firsts) == len(values) or bool((values == values[firsts][episode]).all())


def codes_of(values: Values) -> Values:
    """Integers [E] from 0 for identifiers; -1 for NaN, and for all if some number is not whole."""
    if values.dtype.kind == "U":
        import polars as pl

        return (pl.Series(values.tolist(), dtype=pl.String).hash().to_numpy() >> np.uint64(2)).astype(np.int64)
    if values.dtype.kind == "M":
        values = values.astype("datetime64[D]").astype(np.int64)
    if values.dtype.kind == "f":
        known = np.isfinite(values)
        whole = bool((values[known] % 1 == 0).all()) and bool((np.abs(values[known]) < 2.0**62).all())
        codes = np.full(len(values), -1, np.int64)
        if whole and known.any():
            codes[known] = _compact(values[known].astype(np.int64))
        return codes
    return _compact(values.astype(np.int64))


def day_labels(name: str, times: Values) -> list[Labels]:
    """The calendar days (UTC) of the first times [E] of episodes, if these are dates or seconds since 1970."""
    if times.dtype.kind != "M":
        typical = float(np.median(times)) if len(times) else math.nan
        unit = (
            1.0 if _SECONDS[0] < typical < _SECONDS[1] else 1e3 if _MILLISECONDS[0] < typical < _MILLISECONDS[1] else 0
        )
        if not unit or not np.isfinite(times).all():
            return []
        days = np.floor(times / (86_400.0 * unit)).astype(np.int64)
    else:
        days = times.astype("datetime64[D]").astype(np.int64)
    fix = "add a column with the day of each episode and set cluster= to it, if episodes of one day are dependent"
    return [Labels(f"{name} (calendar day)", "period", _compact(days), fix)]


def _compact(values: Values) -> Values:
    """Integers minus the smallest if their range is small, else hashes of 62 bits."""
    low, high = (int(values.min()), int(values.max())) if len(values) else (0, -1)
    return np.asarray(values - low) if high - low <= 2 * len(values) else _hashed(values)


def _hashed(values: Values) -> Values:
    """Hash integers to evenly spread integers from 0; different values stay different."""
    mixed = values.view(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    mixed ^= mixed >> np.uint64(32)
    mixed *= np.uint64(0xD6E8FEB86659FD93)
    return np.asarray((mixed >> np.uint64(2)).view(np.int64))


def _repeats(codes: Values) -> int:
    """The number of values of a column; 0 if there are too few, or they repeat too rarely."""
    known = codes[codes >= 0] if len(codes) and codes.min() < 0 else codes
    if not len(known):
        return 0
    if known.max() <= 4 * len(known):
        values = int(np.count_nonzero(np.bincount(known)))
    else:
        import polars as pl

        values = pl.Series(known).n_unique()
    return values if values >= LEAST_VALUES and len(known) >= LEAST_REPEATS * values else 0


def _part(codes: Values, count: int) -> Values | slice:
    """The episodes to measure: in a long log some clusters, or some episodes of each if there are few clusters."""
    thin = len(codes) // _MEASURED
    if thin < 2:
        return slice(None)
    if count < 1_000 * thin:
        return slice(None, None, thin)
    return np.flatnonzero(codes % thin == 0)


def _repeats_action(codes: Values, action: Values | None) -> bool:
    """Whether the action [E] determines the value of a column: returns then differ because actions do."""
    if action is None or not len(action) or action.min() < 0 or action.max() >= len(action):
        return False
    for part in (slice(1_000), slice(None)):  # the first rows decide for most columns
        value_of = np.full(int(action.max()) + 1, -1, np.int64)
        value_of[action[part]] = codes[part]
        if not (value_of[action[part]] == codes[part]).all():
            return False
    return True


def _between(groups: Values, values: Values, sizes: Values) -> float:
    sums = np.bincount(groups, values, minlength=len(sizes))
    return float(np.sum(sums * sums / sizes))


def _drawn(groups: Values, shifted: Values, sizes: Values) -> float:
    """The share of random assignments of nonzero values with at least the observed difference between groups.

    Sampling ends early after enough of them.
    """
    where = np.flatnonzero(shifted)
    values, generator, above = shifted[where], np.random.default_rng(0), 0
    observed = _squares(groups[where], values, sizes) * (1.0 - 1e-9)
    for draw in range(1, _DRAWS + 1):
        slots = generator.choice(len(groups), len(values), replace=False)
        above += _squares(groups[slots], values, sizes) >= observed
        if above == _ENOUGH_ABOVE:
            return above / draw
    return (above + 1) / (_DRAWS + 1)


def _squares(groups: Values, values: Values, sizes: Values) -> float:
    """The sum of squares between groups, up to a constant, from the nonzero values."""
    if len(sizes) > 4 * len(groups):
        present, groups = np.unique(groups, return_inverse=True)
        sizes = sizes[present]
    return _between(groups, values, sizes)


def _ranks(values: Values) -> Values:
    """Centred ranks; equal values get their mean rank."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    middle = np.cumsum(counts) - 0.5 * (counts - 1)
    ranks: Values = (middle - 0.5 * (len(values) + 1))[inverse.reshape(-1)]
    return ranks


def unused_names(names: Iterable[str], used: Iterable[str]) -> Iterator[str]:
    """Column names without a role that look like clusters."""
    roles = set(used)
    return (name for name in names if name not in roles and kind_of(name) is not None)


# Detect rows and episodes that are exact copies of others more often than by chance.
#
# Rows of a small discrete log repeat by chance. Let f_j be the number of different rows that occur j times. For
# independent rows of any distribution these counts are mixtures of Poisson counts, and in expectation
# f_(j+1) >= j / (j + 1) * f_j^2 / f_(j-1) (the inequality behind Chao 1984). Copies violate it: if every row occurs
# five times, no row occurs four or six times. If rewards or times almost never repeat, a few repeated whole rows are
# enough evidence.
#
# Rows are compared by 64-bit hashes; large logs are sampled by hash. Copies are then verified column by column.
# Letters: `N` rows, `U` units: rows of one-step logs, else episodes.

LEAST_UNITS = 10
_HASHED_AT_ONCE = 1 << 20  # rows hashed at once
_UNITS = 50_000  # approximate number of units compared
_PREFIX, _DISTINCT = 2_000, 200  # first rows examined, and how many distinct rows the chosen columns must give
_IMPROBABLE = 1e-3
_LEAST_PAIRS, _EXCESS = 5, 10.0
_PIXELS = 64  # hashed pixels per image


class Copies(NamedTuple):
    """Copies of earlier rows: `rows` in file order, in `units` (rows or episodes) out of `total`."""

    rows: Values
    units: int
    total: int
    often: int  # most common number of occurrences of a repeated unit


def find_copies(raw: RawLog) -> Copies | None:
    """Find exact copies of rows (one-step logs) or episodes; None if there are none, or chance explains them."""
    units = len(raw.order.ids)
    if units < LEAST_UNITS:
        return None
    columns = _columns(raw)
    few = _distinctive(raw, columns)
    hashes = _unit_hashes(raw, few)
    thin = max(1, units // _UNITS) if len(few) < len(columns) else 1
    chosen = np.flatnonzero(hashes % np.uint64(thin) == 0) if thin > 1 else np.arange(units)
    groups = _groups(raw, columns, few, hashes, chosen)
    if groups is None or not (_underdispersed(groups.times) or _beyond_chance(raw, chosen, groups.times, thin)):
        return None
    if thin > 1:
        groups = _groups(raw, columns, few, hashes, np.arange(units))
    return None if groups is None else _verified(raw, columns, groups)


class _Groups(NamedTuple):
    """Equal units: the number of `times` of each different unit, the `later` copies, and the `first` unit of each."""

    times: Values
    later: Values
    first: Values


def _columns(raw: RawLog) -> list[Values]:
    """The compared columns: observations, actions, rewards, times, propensities, ends, mask; [N, ...] in file order."""
    arrays = [column.values for feature in raw.observation.values() for column in feature.columns]
    arrays += [column.values for column in (raw.action.columns if raw.action else ())]
    arrays += [column.values for column in raw.reward or ()]
    single = (raw.time, raw.propensity, raw.terminated, raw.truncated, raw.action_mask)
    arrays += [column.values for column in single if column is not None]
    return [values for values in arrays if values.size]


def _distinctive(raw: RawLog, columns: list[Values]) -> list[Values]:
    """The fewest columns, most distinctive first, that give 200 distinct rows among the first 2,000; else all."""
    heads = [_hash_rows([values[:_PREFIX]], np.arange(len(values[:_PREFIX]))) for values in columns]
    order = sorted(range(len(columns)), key=lambda place: -len(np.unique(heads[place])))
    chosen: list[int] = []
    total: Values = np.zeros(len(heads[0]) if heads else 0, np.uint64)
    for place in order:
        chosen.append(place)
        total = total + heads[place] * _odd_number(place)
        if len(np.unique(total)) >= _DISTINCT:
            break
    return [columns[place] for place in chosen]


def _odd_number(place: int) -> np.uint64:
    """An odd number for a column index, the same in every process (SplitMix64, Steele, Lea and Flood 2014)."""
    value = (place + 2) * 0x9E3779B97F4A7C15 % 2**64
    value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
    value = (value ^ (value >> 27)) * 0x94D049BB133111EB % 2**64
    return np.uint64((value ^ (value >> 31)) | 1)


def _unit_hashes(raw: RawLog, columns: list[Values], units: Values | None = None) -> Values:
    """[U] hashes over the columns, of all units or of these; equal for equal units."""
    order = raw.order
    if len(order.ids) == raw.rows:
        rows = order.rows if units is None else order.rows[units]
        return _hash_rows(columns, rows, whole=units is None and not order.moved)
    starts = np.append(np.flatnonzero(np.append(True, order.last[:-1])), raw.rows)
    lengths = np.diff(starts)
    if units is None:
        places, sizes = np.arange(raw.rows), lengths
    else:
        sizes = lengths[units]
        places = np.arange(int(sizes.sum())) + np.repeat(starts[units] - (np.cumsum(sizes) - sizes), sizes)
    hashes = _hash_rows(columns, order.rows[places], whole=units is None and not order.moved)
    hashes += order.step[places].astype(np.uint64) * _odd_number(-1)
    return np.add.reduceat(_mixed(hashes), np.cumsum(sizes) - sizes)


def _hash_rows(columns: list[Values], rows: Values, whole: bool = False) -> Values:
    """[n] hashes of rows of columns; `whole`: the rows are all rows in order."""
    total = np.zeros(len(rows), np.uint64)
    for start in range(0, len(rows), _HASHED_AT_ONCE):
        part = slice(start, start + _HASHED_AT_ONCE)
        place = 0
        for values in columns:
            block = values[part] if whole else values[rows[part]]
            wide = block.reshape(len(block), -1)
            step = max(1, wide.shape[1] // _PIXELS) if block.ndim == 4 else 1
            for column in range(0, wide.shape[1], step):
                bits = _bits(wide[:, column])
                bits ^= bits >> np.uint64(15)
                bits *= _odd_number(place)
                total[part] += bits
                place += 1
    return _mixed(total)


def _bits(values: Values) -> Values:
    """Numbers as new 64-bit integers; equal numbers of one type give equal integers."""
    if values.dtype.kind == "f" and values.dtype.itemsize == 4:
        return np.ascontiguousarray(values).view(np.uint32).astype(np.uint64)
    if values.dtype.kind == "f":
        return np.array(values, np.float64).view(np.uint64)
    return (values.view(np.int64) if values.dtype.kind == "M" else values).astype(np.int64).view(np.uint64)


def _mixed(values: Values) -> Values:
    """Mix the upper and the lower half of the bits of each number, in place."""
    values ^= values >> np.uint64(32)
    values *= np.uint64(0xD6E8FEB86659FD93)
    values ^= values >> np.uint64(32)
    return values


def _groups(raw: RawLog, columns: list[Values], few: list[Values], hashes: Values, chosen: Values) -> _Groups | None:
    """Find chosen units that are equal in all columns, one of each cluster; None if there are none."""
    keys = hashes[chosen]
    _, inverse, counts = np.unique(keys, return_inverse=True, return_counts=True)
    again = counts[inverse.reshape(-1)] > 1
    candidates = chosen[again]
    if not len(candidates):
        return None
    whole = hashes[candidates] if len(few) == len(columns) else _unit_hashes(raw, columns, candidates)
    alone = len(chosen) - len(candidates)
    if raw.cluster is not None:
        firsts = np.flatnonzero(np.append(True, raw.order.last[:-1]))
        codes = np.unique(raw.order.sort(raw.cluster.values)[firsts], return_inverse=True)[1].reshape(-1)[candidates]
        own = np.unique(whole + _mixed(codes.astype(np.uint64) + np.uint64(1)), return_index=True)[1]
        candidates, whole = candidates[np.sort(own)], whole[np.sort(own)]
    _, first, inverse, counts = np.unique(whole, return_index=True, return_inverse=True, return_counts=True)
    inverse = inverse.reshape(-1)
    later = np.flatnonzero(first[inverse] != np.arange(len(candidates)))
    if not len(later):
        return None
    times = np.concatenate([counts, np.ones(alone, counts.dtype)])
    return _Groups(times, candidates[later], candidates[first[inverse[later]]])


def _underdispersed(times: Values) -> bool:
    """Whether one multiplicity is too common, compared with its neighbours, for independent rows of any distribution.

    Each count gets a margin of three standard deviations; then a Chernoff bound of the Poisson tail applies.
    """
    counts = np.bincount(times)
    counts = np.append(counts, 0)
    for often in np.flatnonzero(counts[2:-1] >= 10) + 2:
        here, below, above = float(counts[often]), float(counts[often - 1]), float(counts[often + 1])
        low, high = max(here - 3.0 * math.sqrt(here), 0.0), below + 3.0 * math.sqrt(below) + 3.0
        expected = often / (often + 1.0) * low**2 / high
        if above < expected and _lower_tail(above, expected) < _IMPROBABLE:
            return True
    return False


def _lower_tail(count: float, mean: float) -> float:
    """An upper bound of the probability that a Poisson variable of this mean is at most `count` (below the mean)."""
    return math.exp(count - mean - (count * math.log(count / mean) if count else 0.0))


def _beyond_chance(raw: RawLog, chosen: Values, times: Values, thin: int) -> bool:
    """Whether whole units repeat although rewards or times almost never do.

    Values are assumed uniform over their range, in steps of their smallest difference if all differences are multiples
    of it, else of their type's precision; the limit is three times larger because they are not uniform.
    """
    pairs = float(np.sum(times.astype(np.float64) * (times - 1.0))) / 2.0 * thin
    if pairs < _LEAST_PAIRS:
        return False
    units = len(raw.order.ids)
    firsts = raw.order.rows[np.append(True, raw.order.last[:-1])][chosen]
    columns = [column for column in (*(raw.reward or ()), *([raw.time] if raw.time else ())) if column.values.ndim == 1]
    for column in columns:
        values = column.values[firsts]
        values = values.astype(np.int64) if values.dtype.kind == "M" else values
        different = np.unique(values)
        if len(different) < 0.5 * len(values) or not np.isfinite(different).all():
            continue
        gaps = np.diff(different).astype(np.float64)
        reach, smallest = float(gaps.sum()), float(gaps.min())
        steps = gaps[gaps < 1e4 * smallest] / smallest
        even = len(steps) >= 0.5 * len(gaps) and float(np.mean(np.abs(steps - np.round(steps)) > 0.1)) < 0.05
        kind = values.dtype.type if values.dtype.kind == "f" else np.float64
        precise = max(float(np.spacing(kind(reach))), 1.0 if values.dtype.kind in "iu" else 0.0)
        if pairs > _EXCESS * 3.0 * 0.5 * units**2 * (smallest if even else precise) / reach:
            return True
    return False


def _verified(raw: RawLog, columns: list[Values], groups: _Groups) -> Copies | None:
    """Copies that equal their first unit in every column."""
    order = raw.order
    starts = np.append(np.flatnonzero(np.append(True, order.last[:-1])), raw.rows)
    sizes = np.diff(starts)
    same = sizes[groups.later] == sizes[groups.first]
    later, first = groups.later[same], groups.first[same]
    lengths = sizes[later]
    inside = np.arange(int(lengths.sum())) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    rows, others = (order.rows[np.repeat(starts[units], lengths) + inside] for units in (later, first))
    equal = np.ones(len(rows), bool)
    for values in columns:
        for start in range(0, len(rows), _HASHED_AT_ONCE // 16):
            part = slice(start, start + _HASHED_AT_ONCE // 16)
            differs = values[rows[part]] != values[others[part]]
            equal[part] &= ~differs.reshape(len(differs), -1).any(axis=1)
    if not len(rows):
        return None
    whole = np.logical_and.reduceat(equal, np.cumsum(lengths) - lengths)
    repeated = groups.times[groups.times > 1]
    often = int(np.bincount(repeated).argmax())
    return (
        Copies(np.sort(rows[np.repeat(whole, lengths)]), int(whole.sum()), len(order.ids), often)
        if whole.any()
        else None
    )


# Observation columns that tell the reward, which a column that is known before the decision rarely does.
#
# A column tells the reward where one of these holds in every row:
#
# - one value of the column goes with one reward, and one reward with one value;
# - one value of the column goes with one reward (logs of single decisions);
# - larger numbers go with larger rewards, or with smaller ones, but for rounding (in episodes also the reverse);
# - rewards other than the usual one occur only where the column has its usual value, or only where it has not (logs of
#   single decisions).
#
# In an episode of several decisions a reward may be earned by being in a state, so that less counts there.
# Chance and merely predictive columns make the same pattern in few rows. It counts where a column whose odds ratio with
# the reward is `STRONG` would make it with a probability below `CHANCE`. Odds are those within each action, so that an
# observation that decides the action, which decides the reward, tells nothing.
#
# Letters: `N` rows, `L` values of a column.

STRONG = 20.0  # odds ratio between the reward and a column that merely predicts it
CHANCE = 1e-4  # of the pattern, for a column with that odds ratio
FEWEST_DIVIDED = 20  # rows of both sides that a number divides without one error
MOST_INSIDE = 0.9  # share of the rows without a rare reward that may have the values with one
DISTINCT = 10  # different rewards in one order: chance gives it with 2 / 10!
ROUNDED_SHARE, FEW_RANKS = 1e-2, 2.0  # share of the rows, and smallest number, whose order rounding may change
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
        return np.unique(self.values, return_inverse=True)[1]

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
    values, rewarded = np.unique(column, return_inverse=True)[1], rewards.codes
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
    return rewards.single and bool(np.minimum(events, counts - events).sum() >= FEWEST_DIVIDED)


def _follows(y: Values, x: Values) -> bool:
    """Whether y [N] rises, or falls, with x [N]; numbers that rounding exchanges are close in rank."""
    codes = np.unique(y, return_inverse=True)[1]
    counts = np.bincount(codes)
    rank = (np.cumsum(counts) - 0.5 * (counts + 1.0))[codes]
    close = max(ROUNDED_SHARE * len(y), FEW_RANKS)
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


_LARGEST = float(np.finfo(np.float32).max)
_AT_ONCE = 1_000_000  # numbers compared at once
_PLAUSIBLE = 100_000
_PER_CODE = 100
CODES_FIX = "correct the code, or write the codes as text, which are numbered"


@check("empty log", "error")
def empty_log(raw: RawLog) -> Iterable[Finding]:
    """There is no row."""
    if raw.rows == 0:
        yield Finding(None, None, "no rows", "at least one decision", "check the path and how the log was exported")


@check("wrong length", "error")
def wrong_length(raw: RawLog) -> Iterable[Finding]:
    """An array, a mask or a list of bounds has a length that does not fit the log."""
    if raw.action is None or raw.rows == 0:
        return
    width = raw.action.values.shape[1]
    declared = len(raw.action.sizes or ()) or len((raw.action.bounds or ((),))[0])
    if declared and declared != width:
        found = f"{width} action columns, but {declared} were declared"
        yield Finding("action", None, found, "as many as declared", "correct actions= or bounds=")
    for name, mask in _masks(raw):
        allowed = mask.values.shape[1] if mask.values.ndim == 2 else 1
        count = action_count(raw) if raw.action.kind == "discrete" else allowed
        if raw.action.kind != "discrete" or allowed != count:
            found = f"{allowed} flags per row for a {raw.action.kind} action" + (
                f" of {count}" if count != allowed else ""
            )
            yield Finding(name, None, found, "one flag for each discrete action", "give one flag per action or no mask")


@check("changing shapes", "error")
def changing_shapes(raw: RawLog) -> Iterable[Finding]:
    """Rows of one column have different shapes, or too many axes."""
    for column in (*raw.columns(), *_next_columns(raw)):
        if len(column.odd):
            yield Finding(
                column.name, column.odd, "lists of another length", column.expects, "give every row the same shape"
            )
    for name, feature in raw.next_observation.items():
        for now, then in zip(raw.observation[name].columns, feature.columns, strict=True):
            if now.values.shape != then.values.shape and not len(then.odd):
                found = f"rows of shape {list(then.values.shape[1:])}"
                expected = f"rows of shape {list(now.values.shape[1:])}, as in '{now.name}'"
                yield Finding(then.name, None, found, expected, "give both the same shape")


@check("missing value", "error")
def missing_value(raw: RawLog) -> Iterable[Finding]:
    """A cell is empty, null, NA or none."""
    advice = "fill the cells, or remove these rows before reading"
    observed = [column for feature in raw.observation.values() for column in feature.columns]
    for column in raw.columns():
        if len(column.missing) and column is not raw.next_action_mask:
            drop = f"drop_rows_without = {json.dumps([column.name], ensure_ascii=False)} in the mapping"
            fix = f"fill the cells, or leave these rows out: {drop}" if raw.from_table else advice
            if any(column is one for one in raw.reward or ()):
                fix = (
                    'if they earn nothing, add "" = 0.0 to `reward_values`; else fill them; '
                    "to clone the decisions only (algorithm bc), leave reward out of the mapping"
                )
            if any(column is one for one in observed):
                name = json.dumps(column.name, ensure_ascii=False)
                fix = f'set missing = {{ {name} = "mean+flag" }} in the mapping, or "forward"; or {advice}'
            yield Finding(column.name, column.missing, "empty cells", "a value in every row", fix)
    for column in _next_columns(raw):
        partial = column.missing[raw.followed[column.missing]]
        if len(partial):
            expected = "a complete next observation, or none"
            yield Finding(column.name, partial, "empty cells in a partly filled next observation", expected, advice)


@check("non-numeric text", "error")
def non_numeric_text(raw: RawLog) -> Iterable[Finding]:
    """A column of numbers, flags or times holds other text."""
    acted = raw.action.columns if raw.action is not None else ()
    for column in (*raw.columns(), *_next_columns(raw)):
        if len(column.unreadable):
            found = ", ".join(map(repr, dict.fromkeys(column.texts[:3])))
            advice = "correct the cells"
            if column is raw.time:
                advice = 'set the format of the times in the mapping, as in date_format = "%d.%m.%Y %H:%M"'
            elif any(column is one for one in acted):
                advice = "correct the cells; if they are codes, some of them numbers, name it in `categorical`"
            elif any(column is one for one in raw.reward or ()):
                advice = "correct the cells; give words a reward in `reward_values`, as in { good = 1.0, bad = 0.0 }"
            elif column is not raw.propensity and column is not raw.weight:
                advice = "correct the cells; if the column holds categories, name it in `categorical`"
            yield Finding(column.name, column.unreadable, found, column.expects, advice)


@check("NaN or infinity", "error")
def not_finite(raw: RawLog) -> Iterable[Finding]:
    """A number is NaN, infinite, or too large for 32 bits."""
    for column in (*raw.columns(), *_next_columns(raw)):
        if column.values.dtype.kind not in "fM":
            continue
        values = column.values
        if values.dtype.kind == "M":
            finite = ~np.isnat(values)
        else:  # every finite number of 16 bits is one of 32 bits
            finite = np.isfinite(values) if values.itemsize == 2 else np.abs(values) <= _LARGEST
        bad = ~finite.reshape(raw.rows, -1).all(axis=1) & column.usable
        if bad.any():
            found = first_values(column.values[bad][~finite[bad]])
            advice = "correct the values or their export"
            yield Finding(column.name, np.flatnonzero(bad), found, "finite numbers", advice)


@check("flag neither true nor false", "error")
def bad_flag(raw: RawLog) -> Iterable[Finding]:
    """A flag of an end or of a mask is a number other than 0 and 1."""
    for column in (raw.terminated, raw.truncated, raw.action_mask, raw.next_action_mask):
        if column is None:
            continue
        values = column.values.reshape(len(column.values), -1)
        bad = ~np.isin(values, (0, 1)).all(axis=1) & np.isfinite(values.astype(np.float64)).all(axis=1) & column.usable
        if bad.any():
            odd = values[bad][~np.isin(values[bad], (0, 1))]
            yield Finding(column.name, np.flatnonzero(bad), first_values(odd), "0 or 1", "give flags, not counts")


@check("code out of range", "error")
def code_out_of_range(raw: RawLog) -> Iterable[Finding]:
    """A categorical code is negative, or not below the declared number of categories."""
    for feature in (*raw.observation.values(), *raw.next_observation.values()):
        if feature.kind == "codes":
            for column in feature.columns:
                values = column.values.reshape(len(column.values), -1)
                top = np.asarray(feature.sizes or (np.iinfo(np.int32).max,))
                bad = ((values < 0) | (values >= top)).any(axis=1)
                if bad.any():
                    found = first_values(values[bad].min(axis=1))
                    yield Finding(
                        column.name, np.flatnonzero(bad), found, "codes from 0", "recode, or categorical=False"
                    )


@check("sparse codes", "error")
def sparse_codes(raw: RawLog) -> Iterable[Finding]:
    """Codes without a declared number are far apart, as after a typing error: every code below the largest counts."""
    action = raw.action
    if action is not None and action.kind != "continuous" and action.sizes is None and raw.action_mask is None:
        for column in action.columns:
            yield from _sparse(column, "count actions from 0, write them as text, or declare actions=n")
    for feature in (*raw.observation.values(), *raw.next_observation.values()):
        if feature.kind == "codes" and feature.sizes is None:
            for column in feature.columns:
                yield from _sparse(column, CODES_FIX)


def _sparse(column: Column, advice: str) -> Iterable[Finding]:
    """A finding for each dimension of a column whose codes exceed what their number makes plausible."""
    if column.vocabulary is not None:
        return
    values = clip_finite(column.values).reshape(len(column.values), -1)
    for place in range(values.shape[1]):
        codes = values[:, place]
        most = most_codes(codes[column.usable])
        bad = (codes >= most) & column.usable
        if bad.any():
            found = f"codes such as {first_values(np.clip(codes[bad], 0, 2**62).astype(np.int64))}"
            yield Finding(column.name, np.flatnonzero(bad), found, f"codes below {most:,}", advice)


def most_codes(codes: Values) -> int:
    """The number of codes from 0 that is plausible for logged codes [N]: 100,000, or 100 times the different ones."""
    if not len(codes) or codes.max() < _PLAUSIBLE:
        return _PLAUSIBLE
    return max(_PLAUSIBLE, _PER_CODE * len(np.unique(codes)))


@check("action out of range", "error")
def action_out_of_range(raw: RawLog) -> Iterable[Finding]:
    """A discrete action is not a whole number, is negative, or is not below the number of actions."""
    if raw.action is None or raw.action.kind == "continuous" or raw.rows == 0:
        return
    values = clip_finite(raw.action.values)
    sizes = np.asarray([np.iinfo(np.int32).max])  # unlimited
    if raw.action.sizes is not None:
        sizes = np.asarray(raw.action.sizes)
    elif raw.action.kind == "discrete" and raw.action_mask is not None:
        sizes = np.asarray([action_count(raw)])
    if sizes.size not in (1, values.shape[1]):
        return
    bad = ((values % 1 != 0) | (values < 0) | (values >= sizes)).any(axis=1) & raw.action.usable
    if bad.any():
        declared = raw.action.sizes is not None or raw.action_mask is not None
        expected = f"whole numbers from 0 to {first_values(sizes - 1)}" if declared else "whole numbers from 0"
        advice = "count actions from 0 and declare actions=n; for continuous actions declare bounds=(low, high)"
        yield Finding(action_name(raw), np.flatnonzero(bad), first_values(values[bad]), expected, advice)


@check("action out of bounds", "error")
def action_out_of_bounds(raw: RawLog) -> Iterable[Finding]:
    """A continuous action lies outside the declared bounds."""
    if raw.action is None or raw.action.bounds is None or len(raw.action.bounds[0]) != raw.action.values.shape[1]:
        return
    low, high = (np.asarray(end, np.float32) for end in raw.action.bounds)
    values = np.clip(raw.action.values, -_LARGEST, _LARGEST).astype(np.float32)
    outside = (values < low) | (values > high)
    bad = outside.any(axis=1) & raw.action.usable
    if bad.any():
        found, expected = (
            first_values(values[bad][outside[bad]]),
            f"between {first_values(low)} and {first_values(high)}",
        )
        yield Finding(action_name(raw), np.flatnonzero(bad), found, expected, "widen bounds= or correct the actions")


@check("logged action masked out", "error")
def action_masked_out(raw: RawLog) -> Iterable[Finding]:
    """The mask forbids the logged action."""
    mask, action = raw.action_mask, raw.action
    if mask is None or action is None or action.kind != "discrete" or mask.values.ndim != 2 or not mask.values.size:
        return
    usable = action.usable & mask.usable
    within = usable & (action.values[:, 0] >= 0) & (action.values[:, 0] < mask.values.shape[1])
    chosen = np.where(within, action.values[:, 0], 0).astype(np.int64)
    bad = within & (mask.values[np.arange(raw.rows), chosen] == 0)
    if bad.any():
        found = f"actions {first_values(action.values[bad])} where the mask forbids them"
        yield Finding(
            mask.name, np.flatnonzero(bad), found, "a mask that allows the logged action", "align mask and actions"
        )


@check("mask allows nothing", "error")
def mask_allows_nothing(raw: RawLog) -> Iterable[Finding]:
    """A row's mask forbids every action."""
    for name, mask in _masks(raw):
        bad = (mask.values == 0).reshape(len(mask.values), -1).all(axis=1) & mask.usable
        if name == "next_action_mask":
            terminated = np.zeros(raw.rows, bool)
            terminated[raw.order.rows] = raw.flags.terminated
            bad &= ~terminated
        if bad.any():
            yield Finding(mask.name, np.flatnonzero(bad), "no action allowed", "at least one", "correct the mask")


@check("propensity out of range", "error")
def propensity_out_of_range(raw: RawLog) -> Iterable[Finding]:
    """A propensity is not positive, or above 1 where actions are discrete (a density may be)."""
    if raw.propensity is None:
        return
    values = raw.propensity.values
    discrete = raw.action is not None and raw.action.kind != "continuous"
    bad = ((values <= 0) | (discrete & (values > 1))) & raw.propensity.usable & np.isfinite(values)
    if bad.any():
        expected = "above 0 and at most 1" if discrete else "above 0"
        advice = "log the probability of the logged action under the logging policy"
        yield Finding(raw.propensity.name, np.flatnonzero(bad), first_values(values[bad]), expected, advice)


@check("declared propensities", "error")
def declared_propensities(raw: RawLog) -> Iterable[Finding]:
    """Declared propensities do not fit the actions, do not sum to 1, or are shares in strata of fewer than ten rows."""
    if raw.declared is None or raw.action is None or raw.rows == 0:
        return
    recorded = "record the probability of each decision in a column"
    if raw.action.kind != "discrete":
        found, fix = f"declared propensities of {raw.action.kind} actions", recorded
        if raw.action.kind == "multi":
            fix = f"join the columns of the action to one, or {recorded}"
        yield Finding("propensity", None, found, "one discrete action", fix)
    elif raw.action_mask is not None:
        found = "declared propensities and a mask, which changes the probabilities of a decision"
        yield Finding("propensity", None, found, "one of them", f"drop the mask, or {recorded}")
    elif raw.action.usable.all() and all(one.values.ndim == 1 and one.usable.all() for one in raw.strata):
        try:
            probabilities_of(raw.declared, action_labels(raw))
            if raw.strata:
                check_strata(strata_of([column.values for column in raw.strata]), raw.declared.by or ())
        except DeclarationError as error:
            yield Finding("propensity", None, error.found, error.expected, error.fix)


@check("atoms", "error")
def atoms(raw: RawLog) -> Iterable[Finding]:
    """Atoms are declared, and the action is not continuous."""
    if raw.atoms and raw.action is not None and raw.action.kind != "continuous":
        found = f"atoms {', '.join(f'{one:g}' for one in raw.atoms)} of {raw.action.kind} actions"
        yield Finding("action", None, found, "continuous actions", "set bounds=(low, high), or drop atoms")


@check("negative weight", "error")
def negative_weight(raw: RawLog) -> Iterable[Finding]:
    """A row's weight is below 0."""
    if raw.weight is not None:
        bad = (raw.weight.values < 0) & raw.weight.usable
        if bad.any():
            found = first_values(raw.weight.values[bad])
            yield Finding(raw.weight.name, np.flatnonzero(bad), found, "0 or more", "correct the weights")


@check("duplicate step", "error")
def duplicate_step(raw: RawLog) -> Iterable[Finding]:
    """Two rows of one episode have the same step."""
    if raw.step is not None and raw.order.tied.any():
        at = raw.order.rows[raw.order.tied]
        found = f"an earlier row has the same episode and step ({first_values(raw.step.values[at])})"
        advice = "remove copied rows, or set step= to a column that counts the rows of each episode"
        yield Finding(raw.step.name, at, found, "one row for each step of an episode", advice)


@check("steps cannot be ordered", "error")
def unorderable_steps(raw: RawLog) -> Iterable[Finding]:
    """Rows of one episode have the same time and no step, or an empty step or time."""
    key = raw.step or raw.time
    if key is None or raw.episode is None:
        return
    without = np.setdiff1d(np.flatnonzero(~key.usable), key.unreadable)  # unreadable cells have their own check
    cases = [(without, "rows without a step to sort by")]
    if raw.step is None:
        cases.append((raw.order.rows[raw.order.tied], "the same time as another row of the episode"))
    named = [(at, found) for at, found in cases if len(at)]
    if named:
        at, found = np.concatenate([at for at, _ in named]), "; ".join(found for _, found in named)
        copies = "remove copies, or " if len(at) > len(without) else ""
        fix = f"{copies}set step= to their numbers"
        yield Finding(key.name, at, found, "a unique order of the rows of each episode", fix)


@check("cluster changes within an episode", "error")
def cluster_changes(raw: RawLog) -> Iterable[Finding]:
    """Rows of one episode have different clusters."""
    if raw.cluster is None or raw.episode is None:
        return
    values, usable = raw.order.sort(raw.cluster.values), raw.order.sort(raw.cluster.usable)
    firsts = np.flatnonzero(np.append(True, raw.order.last[:-1]))[raw.order.episode]
    bad = (values != values[firsts]) & usable & usable[firsts]
    bad &= values == values  # NaN has its own check
    if bad.any():
        later, first = values[bad], values[firsts[bad]]
        if raw.cluster.vocabulary is not None:
            names = np.asarray(raw.cluster.vocabulary)
            later, first = names[later], names[first]
        found = f"{first_values(later)} in episodes whose first row has {first_values(first)}"
        advice = "correct the cells, or use a column that is constant within an episode"
        yield Finding(raw.cluster.name, raw.order.rows[bad], found, "one cluster for all rows of an episode", advice)


@check("terminated before the last row", "error")
def terminated_early(raw: RawLog) -> Iterable[Finding]:
    """An episode continues after a row that terminated it."""
    yield from _ended_early(raw, raw.terminated, raw.flags.terminated)


@check("truncated before the last row", "error")
def truncated_early(raw: RawLog) -> Iterable[Finding]:
    """An episode continues after a row that truncated it."""
    yield from _ended_early(raw, raw.truncated, raw.flags.truncated)


@check("next observation contradicts the following row", "error")
def next_observation_contradicts(raw: RawLog) -> Iterable[Finding]:
    """A row's next observation is not the observation of the row that follows it in the episode."""
    for name, feature in raw.next_observation.items():
        for now, following in zip(raw.observation[name].columns, feature.columns, strict=True):
            if now.values.shape == following.values.shape:
                yield from _contradictions(raw, now, following, following.usable & raw.followed)


@check("next mask contradicts the following row", "error")
def next_mask_contradicts(raw: RawLog) -> Iterable[Finding]:
    """A row's next mask is not the mask of the row that follows it in the episode."""
    now, following = raw.action_mask, raw.next_action_mask
    if now is not None and following is not None and now.values.shape == following.values.shape:
        yield from _contradictions(raw, now, following, following.usable)


def action_count(raw: RawLog) -> int:
    """The number of discrete actions: declared, or the width of the mask, or one more than the largest logged."""
    action = raw.action
    if action is None or action.kind != "discrete":
        return 0
    if action.sizes is not None:
        return action.sizes[0]
    if raw.action_mask is not None and raw.action_mask.values.ndim == 2:
        return int(raw.action_mask.values.shape[1])
    words = action.columns[0].vocabulary
    return len(words) if words is not None else int(clip_finite(action.values).max(initial=0)) + 1


def action_labels(raw: RawLog) -> tuple[str, ...]:
    """The labels of discrete actions; of numbered ones the numbers."""
    words = None if raw.action is None else raw.action.columns[0].vocabulary
    return words or tuple(map(str, range(action_count(raw))))


def _ended_early(raw: RawLog, column: Column | None, flags: Values) -> Iterable[Finding]:
    early = flags & ~raw.order.last
    if column is not None and early.any():
        found = "more rows of the same episode after it"
        advice = "split the episode there, or correct the flag or the order of the rows"
        yield Finding(column.name, raw.order.rows[early], found, "an end only at the last row", advice)


def _contradictions(raw: RawLog, now: Column, following: Column, known: Values) -> Iterable[Finding]:
    inner = np.flatnonzero(~raw.order.last)
    if not len(inner):
        return
    rows, after = raw.order.rows[inner], raw.order.rows[inner + 1]
    known = known[rows] & now.usable[after] & ~_interrupted(raw, rows, after)
    chunk = max(1, _AT_ONCE // max(1, now.values[0:1].size))
    differing = [
        differences(following.values[rows[at : at + chunk]], now.values[after[at : at + chunk]])
        for at in range(0, len(rows), chunk)
    ]
    bad = np.concatenate(differing) & known
    bad[bad] &= _finite(following.values[rows[bad]]) & _finite(now.values[after[bad]])
    if bad.any():
        shown = np.flatnonzero(bad)[:10]
        stated, actual = clip_finite(following.values[rows[shown]]), clip_finite(now.values[after[shown]])
        differs = stated != actual
        found = f"{first_values(stated[differs])}, but the following row has {first_values(actual[differs])}"
        advice = "correct step=, episode= or the columns; or drop next_observation="
        yield Finding(following.name, rows[bad], found, "the following row's value", advice)


def _interrupted(raw: RawLog, rows: Values, after: Values) -> Values:
    """[B] bool: pairs of rows between which a row may be missing: one that cannot be placed (`RawLog.unplaced`)."""
    if not raw.unplaced.any() or raw.episode is None:
        return np.zeros(len(rows), bool)
    incomplete = raw.episode.values[raw.unplaced & raw.episode.usable]
    interrupted: Values = np.isin(raw.episode.values[rows], incomplete)
    key = raw.step or raw.time
    if key is None:  # the row may belong between its neighbours in the file
        before = np.cumsum(raw.unplaced)
        between = before[after] - before[rows]
        interrupted |= (between > 0) & (after - rows == between + 1)
        return interrupted
    keys = np.sort(key.values[raw.unplaced & key.usable])  # the row may belong to any episode with a gap at its step
    interrupted |= np.searchsorted(keys, key.values[after]) > np.searchsorted(keys, key.values[rows], side="right")
    return interrupted


def _finite(values: Values) -> Values:
    """[B] bool: rows whose numbers are all finite."""
    return np.asarray(np.isfinite(values).all(axis=tuple(range(1, values.ndim))))


def differences(stated: Values, actual: Values) -> Values:
    """[B] bool: rows whose numbers differ by more than rounding errors."""
    stated, actual = clip_finite(stated), clip_finite(actual)
    differs = np.abs(stated - actual) > 1e-6 * np.maximum(1.0, np.abs(actual))
    rows: Values = differs.reshape(len(stated), -1).any(axis=1)
    return rows


def _masks(raw: RawLog) -> Iterable[tuple[str, Column]]:
    both = (("action_mask", raw.action_mask), ("next_action_mask", raw.next_action_mask))
    return [(name, mask) for name, mask in both if mask is not None]


def _next_columns(raw: RawLog) -> Iterable[Column]:
    return [column for feature in raw.next_observation.values() for column in feature.columns]


def action_name(raw: RawLog) -> str:
    """The names of the action's columns as text."""
    return ", ".join(column.name for column in raw.action.columns) if raw.action else "action"


def clip_finite(values: Values) -> Values:
    """Clip to finite float64 numbers; avoids overflow warnings for values that another check reports."""
    return np.clip(np.nan_to_num(values.astype(np.float64), posinf=0.0, neginf=0.0), -_LARGEST, _LARGEST)


def first_values(values: Values) -> str:
    """The first three different values as text."""
    flat = np.asarray(values).reshape(-1)
    distinct = list(dict.fromkeys(flat[:1000].tolist()))
    return ", ".join(f"{value:g}" if isinstance(value, float) else str(value) for value in distinct[:3])


# Tests of randomised decisions: balance, and recorded probabilities.

# Balance: can the observations predict the logged action beyond the probabilities that it was drawn with?
#
# If decisions were drawn with known probabilities `P`, nothing that was recorded before them predicts their residuals.
# Each action has one residual: with actions in a fixed order, `q_k = P_k / S_k` and `S_k = sum_{j >= k} P_j`,
#
#     z_k = (1{a = k} - q_k 1{a >= k}) / sqrt(S_k q_k (1 - q_k)),   k < A,
#
# has mean 0, variance 1, and no correlation with the others, whatever the probabilities of the row. A column of
# observations gives features `X`: its levels, or the rank of its numbers and the square of it. Under balance
# `tr(s' (X'X)^+ s)` with `s = X'z` is chi-squared with `rank(X) (A - 1)` degrees of freedom. Where shares of actions
# stand for unknown probabilities, residuals and features are centred in each stratum, as in the generalised test of
# Cochran, Mantel and Haenszel (Landis, Heyman & Koch 1978, "Average partial association in three-way contingency
# tables"). Dependent rows divide it by their design effect (Rao & Scott 1981, "The analysis of categorical data from
# complex sample surveys"). All columns together are one more candidate, and one p-value holds for all candidates
# (Bonferroni).
#
# How much better the action is predicted than by its probabilities is cross-fitted, leaving one row out: the share of
# the residuals' squares that a linear regression on the features explains in rows that it did not see.
#
# Letters: `N` rows, `A` actions, `D` features, `C` clusters.

Floats = NDArray[np.float64]
SURE, DOUBTFUL = 0.001, 0.05  # p-values below which actions are predicted for certain, and perhaps
MATERIAL = 0.01  # smallest explained share of the residuals' squares that matters
MOST_ROWS = 50_000
MOST_ACTIONS, MOST_LEVELS, MOST_TOGETHER, MOST_COLUMNS = 12, 60, 120, 60
FEWEST = 20  # rows of an action, or of a level, below which it is joined to others
EXPECTED, INFLATED = 5.0, 0.15  # rows of the rarest action in a level; larger variance than that of chi-squared
FEW_VALUES = 10  # different numbers that count as levels
POWER = 0.8  # chance to find the imbalance that is named
EXACT = 1e-9
BEFORE = "the decision before"
EVERYTHING = "all columns together"
TOTALS = "the shares of the actions"


class Observed(NamedTuple):
    """One column of observations: codes of words, or numbers."""

    name: str
    values: NDArray[Any]  # [N]
    is_words: bool


class Predictor(NamedTuple):
    """How well one column predicts the action."""

    name: str
    p_value: float  # of this column alone
    explained: float  # cross-fitted share of the residuals' squares


class Balance(NamedTuple):
    """Whether observations predict the logged action beyond its probabilities."""

    p_value: float  # one for all columns
    predictors: tuple[Predictor, ...]  # all candidates, the smallest p-value first
    detectable: float  # difference of an action's share between two halves of the rows that would have been found
    rows: int
    candidates: int

    @property
    def named(self) -> tuple[Predictor, ...]:
        """The columns that predict the action; without any, the candidate with the smallest p-value."""
        sure = [one for one in self.predictors if one.p_value * self.candidates < DOUBTFUL]
        columns = [one for one in sure if one.name not in (EVERYTHING, TOTALS)]
        return tuple(columns or sure or self.predictors[:1])

    @property
    def explained(self) -> float:
        """The largest cross-fitted share of the residuals' squares that a named candidate explains."""
        sure = [one for one in self.predictors if one.p_value * self.candidates < DOUBTFUL]
        return max((one.explained for one in sure), default=0.0)

    @property
    def is_broken(self) -> bool:
        """Whether the action is predicted for certain, and materially better than by its probabilities."""
        return self.p_value < SURE and self.explained >= MATERIAL

    def to_json(self) -> dict[str, Any]:
        """Plain values: the p-value, the named predictors, and the imbalance that could have been found."""
        named = [one._asdict() for one in self.named]
        return {"p_value": self.p_value, "named": named, "explained": self.explained, "detectable": self.detectable}

    @property
    def points(self) -> str:
        """The difference of shares that would have been found, as text."""
        return f"{max(100.0 * self.detectable, 1.0):.0f} percentage points"

    @property
    def p_text(self) -> str:
        """The p-value as text."""
        return "p < 0.001" if self.p_value < 0.001 else f"p = {self.p_value:.2g}"


def balance_of(
    columns: Sequence[Observed],
    action: NDArray[Any],
    actions: int,
    *,
    chances: NDArray[Any] | None = None,
    stratum: NDArray[Any] | None = None,
    clusters: NDArray[Any] | None = None,
    before: NDArray[Any] | None = None,
) -> Balance | None:
    """Test whether columns predict the action [N]; None if one action was logged, or there is nothing to test.

    `chances` are known probabilities [A] or [N, A], None: shares, in each `stratum` [N] if there are some. `clusters`
    [N] number dependent rows. `before` [N] is the decision before in the episode, -1 for none.
    """
    rows = len(action)
    if rows > MOST_ROWS:  # random rows, the same ones for equal logs
        chosen = np.sort(np.random.default_rng(0).choice(rows, MOST_ROWS, replace=False))
        columns = [one._replace(values=one.values[chosen]) for one in columns]
        action = np.asarray(action)[chosen]
        stratum, clusters, before = (
            None if one is None else np.asarray(one)[chosen] for one in (stratum, clusters, before)
        )
        chances = chances if chances is None or np.ndim(chances) == 1 else chances[chosen]
        rows = MOST_ROWS
    action = np.asarray(action, np.int64)
    counts = np.bincount(action, minlength=actions)
    if (counts > 0).sum() < 2 or rows < FEWEST:
        return None
    stratum = np.zeros(rows, np.int64) if stratum is None else np.unique(stratum, return_inverse=True)[1]
    if chances is None:
        table = share_counts(action, stratum, actions)
        probabilities = (table / table.sum(1, keepdims=True))[stratum]
    else:
        probabilities = np.broadcast_to(np.asarray(chances, np.float64), (rows, actions))
    codes, probabilities = _common_actions(action, probabilities)
    residuals, kurtosis = _residuals(codes, probabilities)
    shares = chances is None
    units = None if clusters is None else np.unique(clusters, return_inverse=True)[1]
    if units is not None and int(units.max()) + 1 == rows:
        units = None
    free = 1.0 - (int(stratum.max()) + 1) / rows if shares else 1.0
    if before is not None and (before >= 0).any():
        columns = [*columns, Observed(BEFORE, np.asarray(before, np.int64) + 1, True)]
    within = stratum if shares else np.zeros(rows, np.int64)
    rarest = max(float(probabilities.mean(axis=0).min()), EXPECTED / rows)
    least = max(FEWEST, int(np.ceil(EXPECTED / rarest)))
    bases, parts = list[tuple[str, Floats]](), list[Floats]()
    for one in columns[:MOST_COLUMNS]:
        for features in _features(one, MOST_LEVELS, least):
            basis = _basis(_centred(features, within)) if features.shape[1] else None
            if basis is not None and _inflation(basis, kurtosis) <= INFLATED:
                bases.append((one.name, basis))
                parts.append(basis[:, : MOST_TOGETHER // 10])
                break
    if len(parts) > 1:
        together = _basis(np.concatenate(parts, axis=1)[:, :MOST_TOGETHER])
        if together is not None and _inflation(together, kurtosis) <= INFLATED:
            bases.append((EVERYTHING, together))
    if not shares:
        bases.append((TOTALS, np.full((rows, 1), 1.0 / np.sqrt(rows))))
    tested = [_predictor(name, basis, residuals, units, free) for name, basis in bases]
    predictors = sorted(tested, key=lambda one: (one.p_value, -one.explained))
    if not predictors:
        return None
    effect = max(1.0, _design_effect(residuals, units))
    count = len(predictors)
    return Balance(
        min(1.0, count * predictors[0].p_value),
        tuple(predictors),
        _detectable(probabilities, rows / effect, count),
        rows,
        count,
    )


def _common_actions(action: NDArray[Any], probabilities: Floats) -> tuple[NDArray[Any], Floats]:
    """Codes of the probable actions in order, the most probable first, and one last code for all others.

    Probabilities decide, not counts: the most frequent ones are those that chance favoured.
    """
    expected = probabilities.sum(axis=0)
    order = np.argsort(-expected, kind="stable")
    common = order[: MOST_ACTIONS - 1][expected[order[: MOST_ACTIONS - 1]] >= FEWEST]
    while len(common) > 1 and expected.sum() - expected[common].sum() < FEWEST:
        common = common[:-1]  # all others together would be too rare
    common = common if len(common) else order[:1]
    place = np.full(len(expected), len(common))
    place[common] = np.arange(len(common))
    known = probabilities[:, common]
    return place[action], np.concatenate([known, np.maximum(1.0 - known.sum(1, keepdims=True), 0.0)], axis=1)


def _residuals(action: NDArray[Any], probabilities: Floats) -> tuple[Floats, float]:
    """[N, A - 1]: residuals with variance 1 and no correlation, 0 where nothing was to be drawn; their kurtosis."""
    left = np.cumsum(probabilities[:, ::-1], axis=1)[:, ::-1]
    parts, fourth = [], []
    for one in range(probabilities.shape[1] - 1):
        share = probabilities[:, one] / np.maximum(left[:, one], EXACT)
        variance = left[:, one] * share * (1.0 - share)
        raw = (action == one) - share * (action >= one)
        drawn = variance > EXACT
        parts.append(np.where(drawn, raw / np.sqrt(np.maximum(variance, EXACT)), 0.0))
        moment = variance * ((1.0 - share) ** 3 + share**3)
        fourth.append(float((moment[drawn] / np.square(variance[drawn])).mean()) if drawn.any() else 0.0)
    return np.stack(parts, axis=1), float(np.mean(fourth))


def _features(column: Observed, most: int, least: int) -> Iterator[Floats]:
    """[N, D]: the levels of words; of numbers the rank and its square, else whether they are the most frequent one.

    Levels of fewer rows than `least` are joined to one, and left out if they are still too few.
    """
    distinct, codes, count = np.unique(column.values, return_inverse=True, return_counts=True)
    if column.is_words or len(distinct) <= FEW_VALUES:
        order = np.argsort(-count, kind="stable")[: most - 1]
        common = order[count[order] >= least]
        place = np.full(len(distinct), len(common))
        place[common] = np.arange(len(common))
        levels = np.eye(len(common) + 1)[place[codes]]
        yield np.asarray(levels if levels[:, -1].sum() >= least else levels[:, :-1])
        return
    rank = (np.cumsum(count) - 0.5 * (count + 1.0)) / max(len(codes) - 1, 1) * 2.0 - 1.0
    yield np.stack([rank, np.square(rank)], axis=1)[codes]
    usual = codes == count.argmax()
    if min(int(usual.sum()), int((~usual).sum())) >= least:
        yield usual[:, None].astype(np.float64)


def _centred(x: Floats, stratum: NDArray[Any]) -> Floats:
    """Features minus their means in each stratum."""
    sizes = np.bincount(stratum)
    means = np.stack([np.bincount(stratum, column) for column in x.T], axis=1) / np.maximum(sizes, 1)[:, None]
    return np.asarray(x - means[stratum])


def _basis(x: Floats) -> Floats | None:
    """[N, rank]: orthonormal columns that span features; None if they are constant, or as many as the rows."""
    values, vectors = np.linalg.eigh(x.T @ x)
    used = values > EXACT * max(float(values.max(initial=0.0)), 1.0)
    if not used.any() or int(used.sum()) >= len(x) - 1:
        return None
    return np.asarray(x @ (vectors[:, used] / np.sqrt(values[used])))


def _inflation(basis: Floats, kurtosis: float) -> float:
    """How much larger the variance of the statistic is than that of chi-squared, because few rows carry features."""
    leverage = np.square(basis).sum(axis=1)
    return float(np.square(leverage).sum() * max(kurtosis - 3.0, 0.0) / (2.0 * basis.shape[1]))


def _predictor(name: str, basis: Floats, residuals: Floats, units: NDArray[Any] | None, free: float) -> Predictor:
    """The test of one group of features; `free` is the share of free rows."""
    from scipy.special import fdtrc  # reading a log without propensities needs no SciPy

    rows, weights = len(basis), basis.T @ residuals
    size = weights.size
    statistic, left = float(np.square(weights).sum()) * free, rows - 1
    if units is not None:
        products = [np.bincount(units, b * r) for b in basis.T for r in residuals.T]  # [C] each
        statistic /= max(1.0, float(np.square(products).sum()) / size)
        left = max(len(products[0]) - 1, 1)
    p_value = float(fdtrc(size, left, statistic / size))
    leverage = np.square(basis).sum(axis=1, keepdims=True)
    misses = np.square((residuals - basis @ weights) / np.maximum(1.0 - leverage, EXACT)).sum()
    alone = np.square(residuals * rows / (rows - 1)).sum()
    return Predictor(name, p_value, float(1.0 - misses / alone) if alone > 0 else 0.0)


def _design_effect(residuals: Floats, units: NDArray[Any] | None) -> float:
    """Variance of sums over clusters, in units of that of independent rows."""
    if units is None:
        return 1.0
    sums = np.stack([np.bincount(units, column) for column in residuals.T], axis=1)
    return float(np.square(sums).sum() / max(np.square(residuals).sum(), EXACT))


def _detectable(probabilities: Floats, rows: float, count: int) -> float:
    """Difference of an action's share between two halves of the rows that is found with a chance of `POWER`."""
    share = probabilities.mean(axis=0)
    largest = float(np.sqrt(share * (1.0 - share)).max())
    normal = NormalDist()
    reach = -normal.inv_cdf(0.5 * DOUBTFUL / count) + normal.inv_cdf(POWER)
    return min(1.0, reach * 2.0 * largest / float(np.sqrt(rows)))


# Checks of propensities: whether the logged actions look as if they were drawn with them.
#
# Declared propensities, and recorded ones that determine the probabilities of all actions, are tested as in `balance`.
# Other recorded ones say only that each action has a mean weight of at most 1, whatever the observation.
#
# Letters: `N` rows, `A` actions.

DOUBTFUL_PROPENSITIES = 0.01  # p-value below which propensities are said to be doubtful
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
    if found is not None and not found.is_broken and found.p_value < DOUBTFUL_PROPENSITIES:
        yield _finding(raw, found)
    fit = _recorded_fit(raw)
    if raw.propensity is not None and fit is not None and fit.p_value < DOUBTFUL_PROPENSITIES:
        advice = "record the probability that the logged action had when it was drawn"
        if [one.name for one in fit.named] not in ([TOTALS], [EVERYTHING], [STATED]):
            advice = f"if an outcome is among the observations, drop it; else {advice}"
        said = balance_sentence(fit, "recorded")
        yield Finding(raw.propensity.name, None, said, "actions as often as they say", advice)


def _finding(raw: RawLog, found: Balance) -> Finding:
    expected = "decisions that nothing recorded before them predicts"
    return Finding("propensity", None, balance_sentence(found, "declared"), expected, _advice(raw, found))


def balance_sentence(balance: Balance, what: str) -> str:
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
    codes, count = _action_codes(raw), action_count(raw)
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
        _balance_observed(raw, raw.strata),
        codes,
        count,
        chances=None if chances is None else np.asarray(chances),
        stratum=stratum,
        clusters=_clusters(raw),
        before=before,
    )


def _action_codes(raw: RawLog) -> NDArray[np.int64] | None:
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
    codes, count = _action_codes(raw), action_count(raw)
    if codes is None:
        return None
    return fit_of(
        _balance_observed(raw),
        codes,
        np.asarray(values, np.float64),
        count,
        _clusters(raw),
        masked=raw.action_mask is not None,
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


def _balance_observed(raw: RawLog, without: Sequence[Column] = ()) -> list[Observed]:
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


# Warnings and notes, which do not make a log unusable: one function per check.

_FEW_EPISODES = 10
_LARGE = 1e4
_SMALL = 1e-4
_MANY_CATEGORIES = 100
_MANY_ACTIONS = 20
_MOST_ACTIONS = 2**31
_RARE_ROWS = 10
_RARE_SHARE = 0.001
_LONG = 10.0
_ENOUGH = 10
_SAMPLE = 1_000
_ROUNDING = 1e-9
_MOST_CODES = 100_000


@check("duplicated rows", "warning")
def duplicated_rows(raw: RawLog) -> Iterable[Finding]:
    """Rows of a one-step log, or whole episodes, are exact copies of others more often than by chance."""
    copies = find_copies(raw)
    if copies is None:
        return
    units = "rows" if copies.total == raw.rows else "episodes"
    often = f"most repeated {units} occur {copies.often} times"
    found = f"{copies.units:,} of {copies.total:,} {units} are exact copies of earlier ones; {often}"
    advice = f"remove the copies; if such {units} are dependent, set cluster= to the column of their group"
    yield Finding(None, copies.rows, found, f"independent {units}", advice)


@check("possible cluster column", "warning")
def possible_cluster(raw: RawLog) -> Iterable[Finding]:
    """A column looks like clusters of episodes (persons, sessions, stores or days), but is not named as cluster."""
    if raw.cluster is not None or not (raw.unused or raw.extra or raw.time):
        return
    firsts = np.flatnonzero(np.append(True, raw.order.last[:-1]))
    used = {column.name for feature in raw.observation.values() for column in feature.columns}
    used |= {column.name for column in (*(raw.action.columns if raw.action else ()), *(raw.reward or ()))}
    labels = []
    for column in (*raw.unused, *raw.extra):
        kind = kind_of(column.name, is_text=column.vocabulary is not None)
        if kind is None or column.name in used or column.values.ndim != 1 or column.values.dtype.kind not in "iufM":
            continue
        values = raw.order.sort(column.values)
        if constant(values, raw.order.episode, firsts):
            codes, usable = codes_of(values[firsts]), raw.order.sort(column.usable)[firsts]
            codes = codes if usable.all() else np.where(usable, codes, -1)
            labels.append(Labels(column.name, kind, codes, fix_of(column.name)))
    if raw.time is not None and raw.time.usable.all():
        labels += day_labels(raw.time.name, raw.time.values[raw.order.rows[firsts]])
    returns = None  # [E, K] sums of the rewards of each episode; unusable rewards count as 0
    if raw.reward:
        rewards = side_by_side(raw.reward)
        rewards = raw.order.sort(rewards.astype(np.float64) if np.isfinite(rewards).all() else clip_finite(rewards))
        returns = rewards if len(firsts) == raw.rows else np.add.reduceat(rewards, firsts, axis=0)
    actions = None  # [E] discrete actions of a one-step log
    if raw.action is not None and raw.action.kind == "discrete" and len(raw.order.ids) == raw.rows:
        action = raw.action.values[:, 0]
        ordered = raw.order.sort(action if action.dtype.kind in "iu" else np.clip(clip_finite(action), -1, 2**53))
        actions = np.asarray(ordered.astype(np.int64))
    for one in candidates(labels, returns, actions):
        yield Finding(one.name, None, one.found, "independent episodes, or a cluster column", one.fix)


@check("both flags set", "warning")
def both_flags(raw: RawLog) -> Iterable[Finding]:
    """A row is terminated and truncated; terminated wins."""
    if raw.flags.both.any():
        at = raw.order.rows[raw.flags.both]
        advice = "nothing, if the episode terminated there; terminated wins, and there is no bootstrapping"
        yield Finding(None, at, "terminated and truncated on one row", "one of them", advice)


@check("unordered rows", "warning")
def unordered_rows(raw: RawLog) -> Iterable[Finding]:
    """Rows were sorted by episode and step."""
    moved = raw.order.rows != np.arange(raw.rows)
    if moved.any():
        found, expected = "rows out of order, now sorted", "episodes one after another, with increasing steps"
        yield Finding(None, np.flatnonzero(moved), found, expected, "nothing, if episode= and step= are right")


@check("episode in several files", "warning")
def crossed_files(raw: RawLog) -> Iterable[Finding]:
    """Rows of one episode are in several files, and no step or time orders them: the order of the files does."""
    if raw.files is None or raw.episode is None or raw.step is not None or raw.time is not None:
        return
    crossed = raw.files.crossed(raw.order.episode, raw.order.rows)
    if crossed.any():
        found = "episodes that go on in another file"
        expected = "each episode in one file, or a step or time that orders its rows"
        advice = "name the column of the step; if files count their episodes anew, make the identifiers different"
        yield Finding(raw.episode.name, raw.order.rows[crossed], found, expected, advice)


@check("no end flag", "warning")
def no_end_flag(raw: RawLog) -> Iterable[Finding]:
    """An episode ends without either flag; it counts as truncated at its last row."""
    placed = ~raw.unplaced[raw.order.rows]  # a row that cannot be ordered has an error of its own
    if (raw.flags.assumed & placed).any():
        at = raw.order.rows[raw.flags.assumed & placed]
        episodes = len(raw.order.ids) - int(raw.unplaced.sum())
        found = f"{len(at):,} of {_amount(episodes, 'episode')} without a flag at the end; truncated is assumed"
        advice = "set terminated= or truncated=; terminated=True if every episode terminated"
        yield Finding(None, at, found, "terminated or truncated on each last row", advice)


@check("ends without episodes", "warning")
def ends_without_episodes(raw: RawLog) -> Iterable[Finding]:
    """Some rows have an end flag, but no column says which rows form an episode: each is an episode of one step."""
    # transitions with their next observations are no such log
    named = [column for column in (raw.terminated, raw.truncated) if column is not None]
    ended = raw.flags.terminated | (raw.flags.truncated & ~raw.flags.assumed)
    if raw.episode is None and not raw.followed.any() and ended.any() and not ended.all():
        flags = " and ".join(f"'{column.name}'" for column in named)
        found = f"{flags} end {_amount(int(ended.sum()), 'row')} of {raw.rows:,}; each row is an episode of one step"
        fix = f"number the episodes in a column, as the count of earlier rows with {flags} 1, and name it in `episode`"
        yield Finding(None, None, found, "a column of episodes", fix)


@check("no bootstrap target", "warning")
def no_bootstrap_target(raw: RawLog) -> Iterable[Finding]:
    """A truncated last row has no next observation: it is used for cloning and statistics, not for value learning."""
    followed = raw.order.sort(raw.followed)
    unknown = raw.order.last & ~raw.flags.terminated & ~followed & ~raw.unplaced[raw.order.rows]
    if unknown.any():
        found = f"{_amount(int(unknown.sum()), 'row')} for cloning and statistics only, not for value learning"
        advice = "add a next_observation column, or the following row"
        rewards = raw.order.sort(clip_finite(side_by_side(raw.reward))) if raw.reward else np.zeros((raw.rows, 1))
        rewarded = (rewards != 0).any(axis=1)
        if rewarded.any() and not (rewarded & ~unknown).any():
            found += "; every reward other than 0 is in one of them, so value learning sees none"
            advice = f"if nothing followed, name that flag as terminated= (or terminated=True); else {advice}"
        yield Finding(None, raw.order.rows[unknown], found, "the observation after a truncated row", advice)


@check("terminations ignored", "warning")
def terminations_ignored(raw: RawLog) -> Iterable[Finding]:
    """The mapping counts terminated rows as truncated."""
    if raw.terminations == "ignore" and raw.terminated is not None:
        at = np.flatnonzero((raw.terminated.values == 1) & raw.terminated.usable)
        found = f"terminations='ignore': {len(at):,} terminated flags do not stop bootstrapping"
        yield Finding(
            raw.terminated.name, at, found, "a task of fixed length", "terminations='stop' if terminations are real"
        )


@check("no reward", "note")
def no_reward(raw: RawLog) -> Iterable[Finding]:
    """The mapping names no reward: only behaviour cloning can learn from the log."""
    if raw.reward is None and all(finding.column != "reward" for _, finding in raw.found):
        yield Finding(None, None, "no reward", "a reward, except for cloning", "set reward= if there is one")


@check("constant reward", "warning")
def constant_reward(raw: RawLog) -> Iterable[Finding]:
    """Every reward is the same number."""
    for name, values in _numbers(raw.reward or ()):
        if _constant(values):
            yield Finding(
                name, None, f"every reward is {values[0]:g}", "different rewards", "check the column of reward="
            )


@check("equal episode returns", "warning")
def equal_returns(raw: RawLog) -> Iterable[Finding]:
    """DecisionRewards differ, but every episode of several steps has the same return."""
    count = len(raw.order.ids)
    if raw.episode is None or count < 2:
        return
    starts = np.flatnonzero(np.append(True, raw.order.last[:-1]))
    for column in raw.reward or ():
        rewards = clip_finite(raw.order.sort(column.values)).reshape(raw.rows, -1)
        returns = np.add.reduceat(rewards, starts, axis=0)
        sizes = np.add.reduceat(np.abs(rewards), starts, axis=0).max(axis=0)
        same = np.ptp(returns, axis=0) <= 1e-9 * sizes
        if (same & (np.ptp(rewards, axis=0) > 0)).any():
            found = f"all {count:,} episodes have the return {first_values(returns[0])}"
            advice = "check the reward: with equal returns, only the timing of rewards carries information"
            yield Finding(column.name, None, found, "different returns", advice)


@check("one action only", "warning")
def one_action_only(raw: RawLog) -> Iterable[Finding]:
    """Every action, or every value of one action dimension, is the same."""
    labels = {one.name: one.vocabulary for one in raw.action.columns} if raw.action else {}
    for name, values in _numbers(raw.action.columns if raw.action else ()):
        if _constant(values):
            label = labels.get(name)
            shown = f"{values[0]:g}" if label is None else f"'{label[int(values[0])]}'"
            advice = "check the column of action=; a log with one action cannot show which action is better"
            yield Finding(name, None, f"every action is {shown}", "different actions", advice)


@check("constant observation column", "warning")
def constant_column(raw: RawLog) -> Iterable[Finding]:
    """An observation column is constant."""
    columns = [(name, _constant(values)) for name, values in _numbers(_observed_columns(raw))]
    constant = [name for name, is_constant in columns if is_constant]
    if constant:
        found = f"{len(constant)} of {len(columns)} columns are constant: {_named(constant)}"
        yield Finding(_named(constant), None, found, "columns that vary", "drop them, or check the export")


@check("duplicated observation columns", "warning")
def duplicated_columns(raw: RawLog) -> Iterable[Finding]:
    """Two observation columns hold the same values in every row."""
    groups: dict[bytes, list[tuple[str, Values]]] = {}
    for name, values in _numbers(_observed_columns(raw)):
        if not _constant(values):
            sample = values[:: max(1, len(values) // _SAMPLE)].astype(np.float64)  # equal for equal columns
            groups.setdefault(sample.tobytes(), []).append((name, values))
    for (original, first), *others in groups.values():
        copies = [name for name, values in others if np.array_equal(values, first)]
        if copies:
            found = f"the same values as in '{original}'"
            yield Finding(_named(copies), None, found, "different columns", "drop the copies")


@check("extreme scale", "warning")
def extreme_scale(raw: RawLog) -> Iterable[Finding]:
    """The largest magnitude of an observation column is above 10,000 or below 0.0001."""
    observed = _numbers(_observed_columns(raw, codes=False))
    reach = {name: max(-float(one.min()), float(one.max())) if len(one) else 0.0 for name, one in observed}
    large = [name for name, top in reach.items() if top > _LARGE]
    small = [name for name, top in reach.items() if 0 < top < _SMALL]
    for names, size in ((large, f"above {_LARGE:,.0f}"), (small, f"below {_SMALL:g}")):
        if names:
            found, advice = f"columns with magnitudes {size}", "standardise observations (scale=) or choose other units"
            yield Finding(_named(names), None, f"{len(names)} {found}", "magnitudes near 1", advice)


@check("suspicious leak", "warning")
def suspicious_leak(raw: RawLog) -> Iterable[Finding]:
    """An observation column equals the action of the same row, or the reward of the row before."""
    before = np.flatnonzero(~raw.order.last)
    for role, outcome, column in _outcomes(raw):
        for name, values in _whole(one for one in _observed_columns(raw) if one.vocabulary == column.vocabulary):
            if role == "action" and _equal(values, outcome, raw.order.rows, raw.order.rows):
                found = f"the same values as action '{column.name}' of the same row"
                yield Finding(name, None, found, KNOWN_BEFORE, "drop the column")
            elif role == "reward" and _equal(values, outcome, raw.order.rows[1:], raw.order.rows, before):
                found = f"reward '{column.name}' of the row before"
                advice = "drop the column, unless the policy has it in time"
                yield Finding(name, None, found, KNOWN_BEFORE, advice)


@check("outcome among observations", "warning")
def outcome_among_observations(raw: RawLog) -> Iterable[Finding]:
    """An observation column is the reward of the same row, tells it, or is named as from after the decision."""
    same = {}
    for role, outcome, column in _outcomes(raw):
        for name, values in _whole(one for one in _observed_columns(raw) if one.vocabulary == column.vocabulary):
            if role == "reward" and _equal(values, outcome, raw.order.rows, raw.order.rows):
                same[name] = f"the same values as reward '{column.name}' of the same row"
    rewards = {reward.name for reward in raw.reward or ()} if raw.from_table else set()
    same |= {one.name: "the column of the reward" for one in _observed_columns(raw) if one.name in rewards}
    for name, found in same.items():
        yield Finding(name, None, found, KNOWN_BEFORE, "drop the column")
    doubtful = {
        one.name: "named like what follows the decision" for one in _observed_columns(raw) if is_after(one.name)
    }
    doubtful |= dict(_tellers(raw))
    for name, found in doubtful.items():
        if name not in same:
            yield Finding(name, None, found, KNOWN_BEFORE, DROP_TELLER)


def _tellers(raw: RawLog) -> Iterator[tuple[str, str]]:
    """Names of the observation columns that tell a reward, and how."""
    columns = [(name, one, column) for column in _observed_columns(raw) for name, one in _whole((column,))]
    action, discrete = raw.action, raw.action is not None and raw.action.kind == "discrete"
    for reward in [one for one in raw.reward or () if one.values.ndim == 1]:
        usable = reward.usable & np.isfinite(reward.values)
        rows = slice(None) if usable.all() else np.flatnonzero(usable)
        codes = _codes_of(action.values[:, 0]) if action is not None and discrete else np.zeros(raw.rows, np.int64)
        rewards = DecisionRewards.of(reward.values[rows], codes[rows], single=len(raw.order.ids) == raw.rows)
        if (
            action is not None
            and not discrete
            and any(leak_of(one[rows], rewards) for _, one in _whole(action.columns))
        ):
            continue  # the action decides the reward, and an observation may decide the action
        for name, values, column in columns:
            how = leak_of(values[rows], rewards, words=column.vocabulary is not None)
            if how is not None:
                yield name, f"it tells the reward '{reward.name}': {how}"


KNOWN_BEFORE = "only information from before the action"
DROP_TELLER = "drop it if it is recorded after the decision; keep it if it is known before"


def _codes_of(values: Values) -> Values:
    """[N] int64: whole numbers from 0 for different values."""
    known = clip_finite(values)
    if not len(known) or (known.min() >= 0 and known.max() < _MOST_CODES):
        return known.astype(np.int64)
    return np.asarray(np.unique(known, return_inverse=True)[1], np.int64)


@check("unbalanced actions", "warning")
def unbalanced_actions(raw: RawLog) -> Iterable[Finding]:
    """An action is never taken, or is rare: in fewer than 10 rows or 0.1% of them."""
    if raw.action is None or raw.action.kind == "continuous":
        return
    sizes = raw.action.sizes if raw.action.kind == "multi" else (action_count(raw),)
    for place, (name, values) in enumerate(_numbers(raw.action.columns)):
        known = clip_finite(values)
        size = sizes[place] if sizes and place < len(sizes) else int(known.max(initial=0)) + 1
        codes = known[(known >= 0) & (known < min(size, _MOST_ACTIONS))].astype(np.int64)
        if len(codes) and codes.min() < codes.max():
            yield from _unbalanced(name, *np.unique(codes, return_counts=True), size, raw.action.columns[0].vocabulary)


@check("rounded propensities", "note")
def rounded_propensities(raw: RawLog) -> Iterable[Finding]:
    """Declared propensities sum to nearly 1, as rounded numbers do; they are divided by their sum."""
    if raw.declared is None or raw.action is None or raw.action.kind != "discrete" or not raw.action.usable.all():
        return
    try:
        total = probabilities_of(raw.declared, action_labels(raw))[1]
    except DeclarationError:
        return  # an error, which another check reports
    if abs(total - 1.0) > _ROUNDING:
        found = f"declared propensities that sum to {total:.6g} and are divided by this sum"
        yield Finding("propensity", None, found, "a sum of 1", "nothing, if they are rounded")


@check("few episodes", "warning")
def few_episodes(raw: RawLog) -> Iterable[Finding]:
    """There are fewer than ten episodes."""
    count = len(raw.order.ids)
    if 0 < count < _FEW_EPISODES:
        advice = "set episode= if rows form other episodes; intervals over so few episodes are wide"
        yield Finding(None, None, _amount(count, "episode"), f"at least {_FEW_EPISODES}", advice)


@check("gap in steps", "warning")
def gap_in_steps(raw: RawLog) -> Iterable[Finding]:
    """Steps within an episode jump by more than usual; rows may be missing."""
    if raw.step is None or raw.episode is None or raw.order.key is None or raw.rows < 2:
        return
    jump = np.diff(clip_finite(raw.order.key))
    inside = ~raw.order.last[:-1]
    usual = np.median(jump[inside]) if inside.any() else 0.0
    gap = inside & (jump > 1.5 * usual)
    if gap.any():
        found, expected = f"jumps of {first_values(jump[gap])}", f"steps of {usual:g}"
        advice = "add the missing rows; the row after a gap counts as the next observation"
        yield Finding(raw.step.name, raw.order.rows[1:][gap], found, expected, advice)


@check("gap in time", "warning")
def gap_in_time(raw: RawLog) -> Iterable[Finding]:
    """A step within an episode took ten times longer than the median step."""
    jump, inside = _elapsed(raw)
    usual = float(np.median(jump[inside & (jump > 0)])) if (inside & (jump > 0)).any() else 0.0
    long = inside & (jump > _LONG * usual) & (usual > 0)
    if raw.time is not None and long.any():
        found, expected = f"steps of up to {_spoken(raw, jump[long].max())}", f"about {_spoken(raw, usual)} as usual"
        advice = "add the missing rows, or split the episodes there; each decision is discounted as one step"
        yield Finding(raw.time.name, raw.order.rows[1:][long], found, expected, advice)


@check("time runs backwards", "warning")
def time_backwards(raw: RawLog) -> Iterable[Finding]:
    """A row has a later step but an earlier time than the row before."""
    jump, inside = _elapsed(raw)
    back = inside & (jump < 0)
    if raw.time is not None and back.any():
        advice = "correct step= or time=; rows are in the order of steps"
        yield Finding(raw.time.name, raw.order.rows[1:][back], "earlier than the row before", "rising times", advice)


@check("many categories", "warning")
def many_categories(raw: RawLog) -> Iterable[Finding]:
    """A categorical column has almost as many different values as rows."""
    for feature in raw.observation.values():
        for column in feature.columns:
            count = len(column.vocabulary or ())
            if count > _MANY_CATEGORIES and count > raw.rows / 2:
                found, expected = f"{count:,} different values in {raw.rows:,} rows", "values that repeat"
                yield Finding(column.name, None, found, expected, "drop identifiers, dates and free text")


@check("many actions", "warning")
def many_actions(raw: RawLog) -> Iterable[Finding]:
    """Almost every row has an action of its own, which no other row can tell anything about."""
    action = raw.action
    if action is None or action.kind != "discrete" or not raw.rows:
        return
    count = len(np.unique(action.values))
    if count > _MANY_ACTIONS and count > raw.rows / 2:
        found = f"{count:,} different actions in {raw.rows:,} rows"
        fix = (
            "name the column of decisions in `action`; a text that holds amounts is no action: make it numbers or lists"
        )
        yield Finding(action.columns[0].name, None, found, "actions that repeat", fix)


@check("actions inferred", "note")
def actions_inferred(raw: RawLog) -> Iterable[Finding]:
    """The number of actions was not declared; it is one more than the largest logged, or the number of labels."""
    if raw.action is None or raw.action.sizes is not None or raw.action.kind == "continuous" or raw.rows == 0:
        return
    values = clip_finite(raw.action.values)
    sizes = [action_count(raw)] if raw.action.kind == "discrete" else [int(top) + 1 for top in values.max(axis=0)]
    found = f"{', '.join(map(str, sizes))} {'action' if sizes == [1] else 'actions'}, inferred from the log"
    yield Finding(action_name(raw), None, found, "a declared number of actions", "declare actions= if there are more")


@check("bounds inferred", "note")
def bounds_inferred(raw: RawLog) -> Iterable[Finding]:
    """Bounds were not declared; they are the smallest and the largest logged action."""
    if raw.action is None or raw.action.bounds is not None or raw.action.kind != "continuous" or raw.rows == 0:
        return
    values = clip_finite(raw.action.values)
    found = f"actions from {first_values(values.min(axis=0))} to {first_values(values.max(axis=0))}, used as the bounds"
    yield Finding(action_name(raw), None, found, "declared bounds", "declare bounds=(low, high) if more is possible")


@check("rounded to 32 bits", "note")
def rounded(raw: RawLog) -> Iterable[Finding]:
    """Arrays of 64-bit numbers were rounded to 32 bits."""
    if raw.from_table:
        return
    columns = [column for feature in raw.observation.values() for column in feature.columns]
    columns += [*(raw.action.columns if raw.action is not None else ()), *(raw.reward or ())]
    wide = [column.name for column in columns if column.values.dtype == np.float64]
    if wide:
        found = "64-bit numbers, rounded to 32 bits"
        yield Finding(_named(wide), None, found, "32-bit numbers", "nothing, unless digits beyond the seventh matter")


def _unbalanced(
    name: str, present: Values, counts: Values, size: int, words: tuple[str, ...] | None
) -> Iterator[Finding]:
    """Find actions of one dimension (of `size`) that were never present, and those that are rare by `counts`."""
    label = (lambda action: words[action]) if words else str
    rows = int(counts.sum())
    rare = present[((counts < _RARE_ROWS) | (counts < _RARE_SHARE * rows)) & (counts < 0.1 * rows / size)]
    missing = size - len(present)
    if missing:
        first = np.setdiff1d(np.arange(min(size, len(present) + 6)), present)[:6].tolist()
        found = f"{missing:,} of {size:,} actions never present: {_named(list(map(label, first)), missing)}"
        advice = "declare only actions in the log, mask the others, or use an algorithm that stays near the log"
        yield Finding(name, None, found, "every action in the log", advice)
    if len(rare):
        found = f"{len(rare):,} of {size:,} actions in very few rows: {_named(list(map(label, rare.tolist())))}"
        yield Finding(name, None, found, "at least ten rows of each", "merge rare actions, or distrust their values")


def _outcomes(raw: RawLog) -> Iterator[tuple[str, Values, Column]]:
    """Role, numbers [N] and column of each reward and of a single action."""
    single = raw.action.columns if raw.action is not None and raw.action.values.shape[1] == 1 else ()
    for role, columns in (("reward", raw.reward or ()), ("action", single)):
        for column in columns:
            for _, values in _whole((column,)):
                yield role, values, column


def _equal(values: Values, outcome: Values, after: Values, before: Values, chosen: Values | None = None) -> bool:
    """Whether `values[after]` equal `outcome[before]`, in at least ten chosen rows, and are not constant."""
    if len(before if chosen is None else chosen) < _ENOUGH:
        return False
    for few in (slice(_SAMPLE), slice(None)):
        at = few if chosen is None else chosen[few]
        if not np.array_equal(values[after[at]], outcome[before[at]]):
            return False
    return not _constant(outcome[before[at]])


def _elapsed(raw: RawLog) -> tuple[Values, Values]:
    """[N - 1] time from each row to the next, in episode order, and whether both are known and of one episode."""
    if raw.time is None or raw.rows < 2:
        return np.zeros(0), np.zeros(0, bool)
    known = raw.order.sort(raw.time.usable)
    return np.diff(clip_finite(raw.order.sort(raw.time.values))), ~raw.order.last[:-1] & known[1:] & known[:-1]


def _spoken(raw: RawLog, elapsed: float) -> str:
    dates = raw.time is not None and raw.time.values.dtype.kind == "M"
    return str(timedelta(microseconds=elapsed)) if dates else f"{elapsed:g}"


def _observed_columns(raw: RawLog, codes: bool = True) -> Iterator[Column]:
    """Observation columns of numbers and codes, without images."""
    for feature in raw.observation.values():
        if feature.kind == "vector" or (codes and feature.kind == "codes"):
            yield from feature.columns


def _numbers(columns: Iterable[Column]) -> Iterator[tuple[str, Values]]:
    """Name and finite values of each column, or of each dimension of a wide one."""
    for column in columns:
        usable = None if column.usable.all() else column.usable
        for name, whole in _whole((column,)):
            values = whole if usable is None else whole[usable]
            finite = np.isfinite(values)
            yield name, values if finite.all() else values[finite]


def _whole(columns: Iterable[Column]) -> Iterator[tuple[str, Values]]:
    """Name and values [N] of each column, or of each dimension of a wide one."""
    for column in columns:
        wide = column.values.reshape(len(column.values), -1)
        for place in range(wide.shape[1]):
            yield f"{column.name}[{place}]" if wide.shape[1] > 1 else column.name, wide[:, place]


def _constant(values: Values) -> bool:
    return len(values) > 1 and bool(values.min() == values.max())


def _named(names: list[str], count: int | None = None) -> str:
    more = (count or len(names)) - 5
    return ", ".join(names[:5]) + (f" and {more:,} more" if more > 0 else "")


def _amount(count: int, unit: str) -> str:
    return f"{count:,} {unit}{'' if count == 1 else 's'}"
