"""Tests of dependence: clusters of episodes, copies of rows, columns that tell the reward, predicted actions."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import NormalDist
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tidelog._text import shorten
from tidelog.data.columns import known_probabilities, share_counts
from tidelog.data.log_columns import LogColumns
from tidelog.data.raw import Column, RawLog, Values
from tidelog.types import Discrete

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
_MEASURED = 100_000  # least number of measured episodes
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
    used = {name for leaf in log.spec.observation.values() for name in getattr(leaf, "names", ())}
    used |= {*log.spec.observation, "action", *getattr(log.spec.action, "names", ())}
    columns = [one for name, values in log.extra.items() if name not in used
               for one in labels_of(name, values, values.dtype.kind == "U", log.episode, log.starts[:-1])]  # fmt: skip
    if log.time is not None:
        columns += day_labels("time", np.asarray(log.time[log.starts[:-1]]))
    rewards = None if log.reward is None else np.asarray(log.reward, np.float64).reshape(len(log.reward), -1)
    action = log.action if isinstance(log.spec.action, Discrete) else None
    return candidates(columns, rewards, action, log.starts[:-1])


def candidates(
    columns: Iterable[Labels], rewards: Values | None, action: Values | None, firsts: Values
) -> list[ClusterCandidate]:
    """Select the columns that look like clusters, by rewards [N, K], discrete actions [N], and first rows [E]."""
    single = action is not None and len(action) == len(firsts)
    returns = rewards  # [E, K]: undiscounted sums over each episode
    if rewards is not None and len(firsts) < len(rewards):
        returns = np.add.reduceat(rewards, firsts, axis=0)
    measured = []
    for one in columns:
        count = _repeats(one.codes)
        if not count or (single and _repeats_action(one.codes, action)):
            continue
        part: Values | slice = slice(None)
        thin = len(one.codes) // _MEASURED
        if thin > 1:  # of a long log some clusters, or some episodes of each if there are few clusters
            few = count < 1_000 * thin
            part = slice(None, None, thin) if few else np.flatnonzero(one.codes % thin == 0)
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
        _, inverse, counts = np.unique(x, return_inverse=True, return_counts=True)
        middle = np.cumsum(counts) - 0.5 * (counts - 1)  # equal values get their mean rank
        centred = (middle - 0.5 * (count + 1))[inverse.reshape(-1)]
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


def labels_of(name: str, values: Values, is_text: bool, episode: Values, firsts: Values) -> list[Labels]:
    """The labels of a column [N] in episode order that may be clusters by its name and is constant in each episode."""
    kind = kind_of(name, is_text)
    if kind is None or not (len(firsts) == len(values) or (values == values[firsts][episode]).all()):
        return []
    fix = f'add cluster = "{name}" to the mapping if its episodes are dependent; for arrays, pass cluster='
    return [Labels(name, kind, codes_of(values[firsts]), fix)]


def codes_of(values: Values) -> Values:
    """Integers [E] from 0 for identifiers; -1 for NaN, and for all if some number is not whole."""
    if values.dtype.kind == "U":
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
    dense = known.max() <= 4 * len(known)
    values = int(np.count_nonzero(np.bincount(known))) if dense else pl.Series(known).n_unique()
    return values if values >= LEAST_VALUES and len(known) >= LEAST_REPEATS * values else 0


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


# Detect rows and episodes that are exact copies of others more often than by chance.
#
# Rows of a small discrete log repeat by chance. Let f_j be the number of different rows that occur j times. For
# independent rows of any distribution these counts are mixtures of Poisson counts, and in expectation
# f_(j+1) >= j / (j + 1) * f_j^2 / f_(j-1) (the inequality behind Chao 1984). Copies violate it: if every row occurs
# five times, no row occurs four or six times. If rewards or times almost never repeat, a few repeated whole rows are
# enough evidence.
#
# Rows are compared by 64-bit hashes: all of them by a few columns, and those that may be copies by all columns. Of a
# long log the units with some hashes are tested first.
#
# Letters: `N` rows, `U` units: rows of one-step logs, else episodes.

LEAST_UNITS = 10
_UNITS = 50_000  # approximate number of units tested first
_PREFIX, _DISTINCT = 2_000, 200  # first rows, and how many of them the few columns must tell apart
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
    compared: tuple[Column | None, ...] = (
        *raw.observed,
        *(raw.action.columns if raw.action else ()),
        *(raw.reward or ()),
    )
    compared += (raw.time, raw.propensity, raw.terminated, raw.truncated, raw.action_mask)
    columns = [one.values for one in compared if one is not None and one.values.size]
    order, total = raw.order, len(raw.order.ids)
    if total < LEAST_UNITS or not columns:
        return None
    starts = order.firsts
    hashes = _unit_hashes(_distinctive(columns), order.rows, order.step, starts)
    repeated = pl.Series(hashes).is_duplicated().to_numpy()
    clusters = None if raw.cluster is None else order.sort(raw.cluster.values)[starts]
    for thin in dict.fromkeys((max(1, total // _UNITS), 1)):
        among = hashes % np.uint64(thin) == 0
        units = np.flatnonzero(repeated & among)
        if not len(units):
            return None
        rows, lengths = np.isin(order.episode, units), np.diff(np.append(starts, raw.rows))[units]
        at = order.rows[rows]
        each = [_pictures(values[at]) for values in columns]
        exact = _unit_hashes(each, None, order.step[rows], np.cumsum(lengths) - lengths)
        if clusters is not None:  # equal units of one cluster count once
            codes = np.unique(clusters[units], return_inverse=True)[1].reshape(-1)
            one_each = np.sort(np.unique(_row_hashes([exact, codes]), return_index=True)[1])
            units, exact = units[one_each], exact[one_each]
        _, first, inverse, times = np.unique(exact, return_index=True, return_inverse=True, return_counts=True)
        copies = units[first[inverse.reshape(-1)] != np.arange(len(units))]
        times = np.concatenate([times, np.ones(int((among & ~repeated).sum()), times.dtype)])
        if not len(copies) or not (_underdispersed(times) or _beyond_chance(raw, starts[among], times, thin)):
            return None
    often = int(np.bincount(times[times > 1]).argmax())
    return Copies(np.sort(order.rows[np.isin(order.episode, copies)]), len(copies), total, often)


def _distinctive(columns: list[Values]) -> list[Values]:
    """The fewest columns, most distinctive first, that tell 200 of the first 2,000 rows apart; else all."""
    heads = [_row_hashes([values[:_PREFIX]]) for values in columns]
    if len(heads[0]) < _DISTINCT:
        return columns
    order = sorted(range(len(columns)), key=lambda index: -len(np.unique(heads[index])))
    together = heads[order[0]]
    for count in range(1, len(order)):
        if len(np.unique(together)) >= _DISTINCT:
            return [columns[index] for index in order[:count]]
        together = _row_hashes([together, heads[order[count]]])
    return columns


def _unit_hashes(columns: Sequence[Values], rows: Values | None, step: Values, starts: Values) -> Values:
    """[U] uint64: hashes of units that begin at `starts`; of an episode the sum over its rows with their places."""
    hashes = _row_hashes(columns) if rows is None else _row_hashes(columns)[rows]
    return hashes if len(starts) == len(hashes) else np.add.reduceat(_row_hashes([hashes, step]), starts)


def _pictures(values: Values) -> Values:
    """Values [N, ...], of pictures [N, H, W, C] hashes of all their pixels."""
    return np.array([hash(one.tobytes()) for one in values]) if values.ndim == 4 else values


GRIDS = (0.1, 0.03, 0.01, 0.003, 0.001)  # cells of numbers, in standard deviations
_MOST_STEPS = 2_000_000  # of a log that is looked at with every grid


class NearCopies(NamedTuple):
    """The group [U] of each unit among nearly equal ones, and how far their numbers differ at most."""

    groups: Values
    apart: float  # standard deviations


def find_near_copies(log: LogColumns) -> NearCopies | None:
    """Find episodes that are others up to small differences of their numbers; None if chance explains them.

    Whatever the distribution, cells of a grid make independent episodes equal by chance only, so that the inequality of
    `_underdispersed` tests each grid. Observations, actions and rewards count, neither times nor propensities.
    """
    from scipy.sparse import coo_matrix
    from scipy.sparse.csgraph import connected_components

    grids = GRIDS if log.steps <= _MOST_STEPS else (0.01,)
    best, most = None, 0
    for cell in grids:
        pair = [_in_cells(log, cell, offset) for offset in (0.0, 0.5)]  # what an edge divides, the other one joins
        if not any(_underdispersed(np.bincount(codes)) for codes in pair):
            continue
        first, second = pair
        ends = (first, first.max() + 1 + second)
        graph = coo_matrix((np.ones(len(first)), ends), (int(ends[1].max()) + 1,) * 2)
        groups = np.unique(connected_components(graph, directed=False)[1][first], return_inverse=True)[1].reshape(-1)
        sizes = np.bincount(np.bincount(groups))
        usual = np.where(sizes >= LEAST_UNITS, sizes, 0)  # a chain of cells that touch is a group of its own size
        repeated = int((usual * np.arange(len(sizes)))[2:].max(initial=0))
        if repeated > most:
            best, most = NearCopies(groups, cell), repeated
    return best


def _in_cells(log: LogColumns, cell: float, offset: float) -> Values:
    """[E] codes of episodes, equal where all numbers lie in the same cells and everything else is equal."""

    def hashed(values: Values) -> Values:
        if values.dtype.kind != "f":
            return _row_hashes([values])
        with np.errstate(all="ignore"):  # of a constant column
            return _row_hashes([np.floor(values / (cell * values.std(axis=0, dtype=np.float64)) + offset)])

    columns = [hashed(np.asarray(leaf))[np.asarray(log.position)] for _, leaf in sorted(log.observation.items())]
    columns += [hashed(np.asarray(values)) for values in (log.action, log.reward) if values is not None]
    rows, starts = _row_hashes(columns), np.asarray(log.starts)
    if len(starts) <= len(rows):  # episodes of several steps: a sum of hashes of rows with their places
        place = np.arange(len(rows)) - np.repeat(starts[:-1], np.diff(starts))
        rows = np.add.reduceat(_row_hashes([rows, place]), starts[:-1])
    return np.unique(rows, return_inverse=True)[1].reshape(-1)


def _row_hashes(columns: Sequence[Values]) -> Values:
    """[N] uint64: hashes of the rows of columns [N, ...]; of a picture some pixels count."""
    flat: list[Values] = []
    for values in columns:
        wide = values.reshape(len(values), -1)
        wide = wide[:, :: max(1, wide.shape[1] // _PIXELS)] if values.ndim == 4 else wide
        wide = wide.astype(np.float32) if wide.dtype == np.float16 else wide
        flat += list(wide.T)
    return pl.DataFrame(dict(zip(map(str, range(len(flat))), flat, strict=True))).hash_rows().to_numpy()


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
        if above < expected:  # the bound of the probability that a Poisson variable of this mean is so small
            tail = math.exp(above - expected - (above * math.log(above / expected) if above else 0.0))
            if tail < _IMPROBABLE:
                return True
    return False


def _beyond_chance(raw: RawLog, starts: Values, times: Values, thin: int) -> bool:
    """Whether whole units repeat although rewards or times almost never do.

    Values are assumed uniform over their range, in steps of their smallest difference if all differences are multiples
    of it, else of their type's precision; the limit is three times larger because they are not uniform.
    """
    pairs = float(np.sum(times.astype(np.float64) * (times - 1.0))) / 2.0 * thin
    if pairs < _LEAST_PAIRS:
        return False
    columns = [column for column in (*(raw.reward or ()), *([raw.time] if raw.time else ())) if column.values.ndim == 1]
    for column in columns:
        values = column.values[raw.order.rows[starts]]
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
        if pairs > _EXCESS * 3.0 * 0.5 * len(raw.order.ids) ** 2 * (smallest if even else precise) / reach:
            return True
    return False


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
    if not len(column) or _is_function(rewards.codes, rewards.action):  # each action has one reward
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


def _function_chance(values: Values, rewards: DecisionRewards) -> float:
    """The log-probability that values have one reward each by chance: of rows that repeat a value with an action."""
    levels = int(values.max()) + 1
    counts, events = np.bincount(rewards.action), np.bincount(rewards.action, rewards.rare)
    both = (events > 0) & (events < counts)  # [A]: actions with usual and unusual rewards
    odds = np.where(both, events / np.maximum(counts - events, 1.0), 0.0)
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
        counts, others = np.bincount(rewards.action, event), np.bincount(rewards.action, ~event)
        for inside, where in ((~usual, "another value than its usual one"), (usual, "its usual value")):
            if (event & ~inside).any() or inside[~event].mean() > MOST_INSIDE:
                continue
            share = (np.bincount(rewards.action, inside & ~event) + 1.0) / (others + 2.0)  # of rows without an event
            outside = (1.0 - share) / (1.0 - share + STRONG * share)  # by chance, with the odds ratio `STRONG`
            if (counts * np.log1p(-outside))[others > 0].sum() < limit:
                if (event == inside).all():
                    return f"{where} is in exactly the {int(event.sum()):,} rows with rewards {which}"
                part = f"{inside.mean():.1%}" if inside.mean() < 0.999 else f"{inside.mean():.3%}"
                return f"all {int(event.sum()):,} rewards {which} are among the {part} of the rows with {where}"
    return None


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
MOST_STATED, STATED = 3, "the size of the probabilities"  # recorded probabilities of so many actions are tested
ROUNDED = 0.015  # difference of probabilities that rounding to two digits may make
GRAINS = (1e-2, 2.0**-8, 1e-3, 2.0**-11, 1e-4, 1e-5, 1e-6)  # of which recorded probabilities may be multiples
MOST_ROUNDED = 0.99  # share of them that are
SINGLE = 1e-7  # difference of probabilities that 32 bits may make
FREQUENT = 0.02  # share of the rows with one probability: if it was rounded in two ways, these tell the action
BEFORE = "the decision before"
EVERYTHING = "all columns together"
TOTALS = "the shares of the actions"


class ObservedColumn(NamedTuple):
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


ACTION = "the action"
SHOWN = 6  # actions whose share of unknown rewards is named


def action_columns(action: NDArray[Any], *, is_words: bool) -> list[ObservedColumn]:
    """The columns of actions [N] or [N, D], as candidates that may predict which rewards are unknown."""
    wide = np.asarray(action).reshape(len(action), -1)
    return [ObservedColumn(ACTION, column, is_words) for column in wide.T]


def unknown_sentence(unknown: NDArray[np.bool_], action: NDArray[Any] | None, labels: Sequence[str]) -> str:
    """The share of unknown rewards [N], and that after each of few discrete actions [N] or [N, 1]; None: not said."""
    text = f"{int(unknown.sum()):,} of {len(unknown):,} rewards are unknown ({unknown.mean():.1%})"
    codes = None if action is None or np.size(action) != len(unknown) else np.asarray(action).reshape(-1)
    if codes is None or (codes.dtype.kind not in "iu" and (codes % 1 != 0).any()):
        return text
    distinct = np.unique(codes).astype(np.int64).tolist()
    shares = {one: float(unknown[codes == one].mean()) for one in distinct}
    most = sorted(shares, key=lambda one: -shares[one])
    return f"{text}: " + shorten((f"{shares[one]:.1%} after '{labels[one] if labels else one}'" for one in most), SHOWN)


def unknown_predictors(balance: Balance | None) -> str:
    """Which columns predict which rewards are unknown, by a test of `balance_of`."""
    if balance is None:
        return "too few to test what predicts them"
    if balance.p_value >= DOUBTFUL:
        return f"no recorded column predicts which ones ({balance.p_text})"
    named = [one.name for one in balance.named]
    listed = ", ".join(one if one in (ACTION, EVERYTHING) else f"'{one}'" for one in named[:SHOWN])
    verb = "predicts" if len(named) == 1 and named != [EVERYTHING] else "predict"
    return f"{listed} {verb} which ones ({balance.p_text})"


def balance_of(
    columns: Sequence[ObservedColumn],
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
        columns = [*columns, ObservedColumn(BEFORE, np.asarray(before, np.int64) + 1, True)]
    within = stratum if shares else np.zeros(rows, np.int64)
    rarest = max(float(probabilities.mean(axis=0).min()), EXPECTED / rows)
    least = max(FEWEST, int(np.ceil(EXPECTED / rarest)))
    sizes = np.maximum(np.bincount(within), 1)
    bases, parts = list[tuple[str, Floats]](), list[Floats]()
    for one in columns[:MOST_COLUMNS]:
        for features in _features(one, MOST_LEVELS, least):
            if not features.shape[1]:
                continue
            means = np.stack([np.bincount(within, column) for column in features.T], axis=1) / sizes[:, None]
            basis = _basis(features - means[within])
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
    effect = 1.0  # variance of sums over clusters, in units of that of independent rows
    if units is not None:
        of_clusters = np.stack([np.bincount(units, column) for column in residuals.T], axis=1)
        effect = max(1.0, float(np.square(of_clusters).sum() / max(np.square(residuals).sum(), EXACT)))
    count, mean, normal = len(predictors), probabilities.mean(axis=0), NormalDist()
    reach = -normal.inv_cdf(0.5 * DOUBTFUL / count) + normal.inv_cdf(POWER)
    largest = float(np.sqrt(mean * (1.0 - mean)).max())
    detectable = min(1.0, reach * 2.0 * largest / float(np.sqrt(rows / effect)))
    return Balance(
        min(1.0, count * predictors[0].p_value),
        tuple(predictors),
        detectable,
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
    position = np.full(len(expected), len(common))
    position[common] = np.arange(len(common))
    known = probabilities[:, common]
    return position[action], np.concatenate([known, np.maximum(1.0 - known.sum(1, keepdims=True), 0.0)], axis=1)


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


def _features(column: ObservedColumn, most: int, least: int) -> Iterator[Floats]:
    """[N, D]: the levels of words; of numbers the rank and its square, else whether they are the most frequent one.

    Levels of fewer rows than `least` are joined to one, and left out if they are still too few.
    """
    distinct, codes, count = np.unique(column.values, return_inverse=True, return_counts=True)
    if column.is_words or len(distinct) <= FEW_VALUES:
        order = np.argsort(-count, kind="stable")[: most - 1]
        common = order[count[order] >= least]
        position = np.full(len(distinct), len(common))
        position[common] = np.arange(len(common))
        levels = np.eye(len(common) + 1)[position[codes]]
        yield np.asarray(levels if levels[:, -1].sum() >= least else levels[:, :-1])
        return
    rank = (np.cumsum(count) - 0.5 * (count + 1.0)) / max(len(codes) - 1, 1) * 2.0 - 1.0
    yield np.stack([rank, np.square(rank)], axis=1)[codes]
    usual = codes == count.argmax()
    if min(int(usual.sum()), int((~usual).sum())) >= least:
        yield usual[:, None].astype(np.float64)


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


def fit_of(
    columns: Sequence[ObservedColumn],
    action: NDArray[Any],
    recorded: NDArray[Any],
    actions: int,
    clusters: NDArray[Any] | None = None,
    *,
    masked: bool = False,
) -> Balance | None:
    """Whether recorded propensities [N] fit the logged actions [N], in the whole log and in strata of each column.

    None where they do not tell the probabilities of all actions: mean weights alone have too heavy tails for a test,
    and each policy's own is limited (`checks.py` of `ope`).
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
    same = _rounded_by(recorded)
    stated = [_without_rounding(known[:, one], same) for one in frequent]
    tested = [ObservedColumn(STATED, chances, False) for chances in stated if chances is not None]
    return balance_of([*tested, *columns], action, actions, chances=known, clusters=clusters)


def _rounded_by(recorded: NDArray[Any]) -> float:
    """By how much two roundings of a probability may differ: one and a half of the last digit, decimal or binary."""
    values = np.asarray(recorded, np.float64)
    values = values[values >= 0.5] if (values >= 0.5).any() else values  # of few digits, those of large numbers count
    for grain in GRAINS:
        if (np.abs(values - np.round(values / grain) * grain) < SINGLE).mean() > MOST_ROUNDED:
            return 1.5 * grain
    return 10.0 * SINGLE


def _without_rounding(chances: NDArray[np.float64], same: float) -> NDArray[np.float64] | None:
    """[N]: probabilities with one value for those that rounding may have made different.

    A probability comes from that of the logged action, and is one minus it in other rows: rounded, its digits would
    tell the action. Values are one if they are closer than two digits can be, or else than `same`. Where even then
    rounding cannot be told from differences, they stay, or, where many rows have one of them, None: this cannot be
    tested.
    """
    distinct, codes, counts = np.unique(chances, return_inverse=True, return_counts=True)
    dense, first, group = np.zeros(len(distinct), bool), np.zeros(1, np.int64), np.zeros(len(distinct), np.int64)
    for apart in (ROUNDED, same):
        group = np.concatenate([[0], np.cumsum(np.diff(distinct) > apart)])
        first = np.flatnonzero(np.diff(group, prepend=-1))
        width = np.maximum.reduceat(distinct, first) - distinct[first]
        dense = (width > 2.0 * apart)[group]
        if not dense.any():
            break
    if (counts[dense] > FREQUENT * len(chances)).any():
        return None
    return np.asarray(np.where(dense, distinct, distinct[first][group])[codes])


def as_number(time: NDArray[Any]) -> NDArray[np.float64]:
    """Times [N] as numbers, NaN for those that are none."""
    if time.dtype.kind != "M":
        return np.asarray(time, np.float64)
    return np.where(np.isnat(time), np.nan, time.astype("datetime64[us]").astype(np.int64).astype(np.float64))
