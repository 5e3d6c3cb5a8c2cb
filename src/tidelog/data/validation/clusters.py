"""Find columns that look like clusters of episodes: by names of persons, stores or days, and by correlated returns.

Episodes of one cluster are dependent, and intervals that resample them as independent are too narrow. The test is the
one-way analysis of variance. Its statistic is the sum of squares between clusters; under the null hypothesis, the same
returns are assigned to the clusters at random. The mean and variance over all assignments are exact (Pitman
1938); the distribution is approximated by a gamma distribution, or sampled (Besag and Clifford 1991) if few returns
differ.

Letters: `N` rows, `E` episodes, `C` clusters.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from typing import Literal, NamedTuple, TypeAlias

import numpy as np

from tidelog.data.core.log_columns import LogColumns
from tidelog.data.core.order import Values
from tidelog.types import Discrete

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
