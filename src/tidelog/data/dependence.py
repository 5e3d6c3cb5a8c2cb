"""Checks for dependent episodes and copies of rows."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from typing import Literal, NamedTuple, TypeAlias

import numpy as np

from tidelog.data.log_columns import LogColumns
from tidelog.data.raw import RawLog, Values
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
        correlation, p_value = (math.nan, math.nan) if returns is None else _strongest(one.codes[part], returns[part])
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


def _strongest(codes: Values, returns: Values) -> tuple[float, float]:
    """The correlation of the reward component with the smallest p-value, and that p-value times the component count."""
    results = [intraclass_correlation(codes, column) for column in returns.T]
    correlation, p_value = min(results, key=lambda pair: pair[1])
    return correlation, min(1.0, p_value * len(results))


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
_AT_ONCE = 1 << 20  # rows hashed at once
_SAMPLE = 50_000  # approximate number of units compared
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
    thin = max(1, units // _SAMPLE) if len(few) < len(columns) else 1
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
        total = total + heads[place] * _constant(place)
        if len(np.unique(total)) >= _DISTINCT:
            break
    return [columns[place] for place in chosen]


def _constant(place: int) -> np.uint64:
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
    hashes += order.step[places].astype(np.uint64) * _constant(-1)
    return np.add.reduceat(_mixed(hashes), np.cumsum(sizes) - sizes)


def _hash_rows(columns: list[Values], rows: Values, whole: bool = False) -> Values:
    """[n] hashes of rows of columns; `whole`: the rows are all rows in order."""
    total = np.zeros(len(rows), np.uint64)
    for start in range(0, len(rows), _AT_ONCE):
        part = slice(start, start + _AT_ONCE)
        place = 0
        for values in columns:
            block = values[part] if whole else values[rows[part]]
            wide = block.reshape(len(block), -1)
            step = max(1, wide.shape[1] // _PIXELS) if block.ndim == 4 else 1
            for column in range(0, wide.shape[1], step):
                bits = _bits(wide[:, column])
                bits ^= bits >> np.uint64(15)
                bits *= _constant(place)
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
        for start in range(0, len(rows), _AT_ONCE // 16):
            part = slice(start, start + _AT_ONCE // 16)
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
