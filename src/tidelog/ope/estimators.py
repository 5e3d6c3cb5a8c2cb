"""Estimators of a policy's value from single decisions and from sequences, and how far the log supports them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tidelog._text import rows_table, three_digits
from tidelog.errors import ConfigError, SpecError, nearest
from tidelog.ope.evidence import Evidence, Floats
from tidelog.policies.statistics import Interval

# An estimate as a sum of ratios of sums over episodes, and the contribution of each episode.
#
# Every estimator returns `Ratios`; one bootstrap, one jackknife and one difference work for all of them. The
# denominators are 1 for a plain mean and weights for a self-normalised one; a weighted sequential estimate has one
# ratio per step.
#
# Letters: `E` episodes, `R` rows (episodes, or groups of them), `K` ratios, `C` clusters.


@dataclass(frozen=True, eq=False)
class Ratios:
    """`sum_k (sum_i numerators_ik / sum_i denominators_ik)`; a ratio without weight, 0 / 0, is NaN.

    Rows are the `episodes` of a log in order, or sums over groups of neighbours or clusters.
    """

    numerators: Floats  # [R, K]
    denominators: Floats  # [R, K], at least 0
    episodes: int = 0  # E; 0 means R
    row_of: NDArray[np.int64] | None = None  # [E]: the row of each episode, if rows are clusters

    def __post_init__(self) -> None:
        if np.ndim(self.numerators) != 2 or np.shape(self.numerators) != np.shape(self.denominators):
            shapes = f"{np.shape(self.numerators)} and {np.shape(self.denominators)}"
            raise SpecError(f"numerators and denominators have shapes {shapes}", "equal shapes [rows, ratios]")
        if not len(self.numerators):
            raise SpecError("found 0 episodes", "at least one")
        object.__setattr__(self, "episodes", self.episodes or len(self.numerators))

    def __len__(self) -> int:
        return len(self.numerators)

    @property
    def estimate(self) -> float:
        """The sum over ratios."""
        return float(quotients(self.numerators.sum(0), self.denominators.sum(0)).sum())

    @property
    def contributions(self) -> Floats:
        """Contribution of each row, [R], whose mean is the estimate: that plus R times the row's influence on it."""
        numerators, denominators = self.numerators.sum(0), self.denominators.sum(0)
        ratios = quotients(numerators, denominators)
        share, slope = quotients(1.0, denominators), quotients(ratios, denominators)
        return np.asarray(ratios.sum() + len(self) * (self.numerators @ share - self.denominators @ slope))

    def plus(self, other: Ratios) -> Ratios:
        """Sum of two estimates on the same episodes."""
        if self.episodes != other.episodes:
            raise SpecError(f"found {self.episodes} and {other.episodes} episodes", "estimates on the same episodes")
        one, two = self.clustered(other.row_of), other.clustered(self.row_of)
        most = min(len(one), len(two))
        if any(len(part) not in (most, part.episodes) for part in (one, two)):
            raise SpecError(f"found {len(one)} and {len(two)} groups", "the same grouping in both estimates")
        one, two = one.grouped(most), two.grouped(most)
        numerators = np.hstack([one.numerators, two.numerators])
        return Ratios(numerators, np.hstack([one.denominators, two.denominators]), one.episodes, one.row_of)

    def minus(self, other: Ratios) -> Ratios:
        """Difference of two estimates on the same episodes, resampled jointly."""
        return self.plus(replace(other, numerators=-other.numerators))

    def grouped(self, most: int = 10_000) -> Ratios:
        """The same estimate over at most `most` groups of neighbouring rows, nearly equal in size."""
        if most < 1:
            raise ConfigError(f"groups = {most}", "at least 1", "use 10000")
        if len(self) <= most:
            return self
        first = group_starts(len(self), most)
        return Ratios(group_sums(self.numerators, first), group_sums(self.denominators, first), self.episodes)

    def clustered(self, clusters: NDArray[np.int64] | None) -> Ratios:
        """The same estimate over clusters of episodes, `clusters` [E] counted from 0; None: one row per episode."""
        if clusters is None or self.row_of is not None:
            return self
        sums = cluster_sums(np.hstack([self.numerators, self.denominators]), clusters)
        numerators, denominators = np.hsplit(sums, 2)
        return Ratios(numerators, denominators, self.episodes, clusters)


def means(values: NDArray[Any]) -> Ratios:
    """Plain mean of one value per episode, [E]."""
    values = np.asarray(values, np.float64)[:, None]
    return Ratios(values, np.broadcast_to(np.float64(1.0), values.shape))


def quotients(numerators: Any, denominators: Any) -> Floats:
    """Elementwise quotients; division by 0 gives NaN, without a warning."""
    shape = np.broadcast_shapes(np.shape(numerators), np.shape(denominators))
    undefined = np.full(shape, np.nan)
    return np.asarray(np.divide(numerators, denominators, out=undefined, where=np.asarray(denominators) != 0))


def group_starts(rows: int, most: int) -> NDArray[np.int64]:
    """The first row of each of at most `most` groups, [G]."""
    return np.linspace(0, rows, min(rows, most), endpoint=False).astype(np.int64)


def group_sums(values: Floats, first: NDArray[np.int64]) -> Floats:
    """Sums over groups of neighbouring rows, [G, K]."""
    return np.stack([np.add.reduceat(column, first) for column in values.T], axis=1)


def cluster_sums(values: Floats, clusters: NDArray[np.int64]) -> Floats:
    """Sums over clusters, [C, ...], of values [E, ...]."""
    if len(values) != len(clusters):
        raise SpecError(f"found {len(clusters):,} clusters", f"one per episode ({len(values):,})")
    sums = np.zeros((int(clusters.max()) + 1, *values.shape[1:]))
    np.add.at(sums, clusters, values)
    return sums


def required_part(evidence: Evidence, name: str) -> NDArray[np.float64]:
    """A required part of the evidence, as float64; SpecError if it is missing."""
    values = getattr(evidence, name)
    if values is None:
        raise SpecError(f"this estimator reads `{name}`, but the evidence has none", fix="gather it first")
    return np.asarray(values, np.float64)


# Estimates of a policy's mean reward from single decisions: every episode has one step.
#
# `w = target / behaviour`; Q is a model's value of the logged action, V its mean over the target's actions:
# - importance sampling `w r`, self-normalised, or clipped at a largest weight;
# - the model alone, V, and doubly robust, `V + w (r - Q)` (Dudik, Langford & Li 2011, arXiv:1103.4601);
# - doubly robust without weights above a threshold (Wang, Agarwal & Dudik 2017, arXiv:1612.01205), or with weights
#   shrunk to `s w / (w^2 + s)` (Su et al. 2020, arXiv:1907.09623).
#
# Limits: clipping at infinity is importance sampling, at 0 it gives 0; a threshold or a shrinkage of infinity is doubly
# robust, of 0 the model alone.
#
# Letters: `N` steps (and episodes), `A` actions.


def ips(evidence: Evidence) -> Ratios:
    """Mean of weighted rewards."""
    return means(_weights(evidence) * evidence.reward)


def snips(evidence: Evidence) -> Ratios:
    """Weighted mean of rewards (Swaminathan & Joachims 2015)."""
    weights = _weights(evidence)
    return Ratios((weights * evidence.reward)[:, None], weights[:, None])


def clipped_ips(evidence: Evidence, largest: float = 10.0) -> Ratios:
    """Importance sampling with weights clipped at `largest`: less variance, and a bias towards 0."""
    return means(np.minimum(_weights(evidence), _at_least_0("largest", largest)) * evidence.reward)


def direct_method(evidence: Evidence) -> Ratios:
    """The model's mean value under the target policy."""
    _weights(evidence)
    return means(required_part(evidence, "model_target"))


def switch_dr(evidence: Evidence, largest: float = 10.0) -> Ratios:
    """Doubly robust where the weight is at most `largest`, the model alone elsewhere."""
    weights = _weights(evidence)
    small = np.where(weights <= _at_least_0("largest", largest), weights, 0.0)
    return means(required_part(evidence, "model_target") + small * _residuals(evidence))


def dr_optimistic_shrinkage(evidence: Evidence, shrinkage: float = 100.0) -> Ratios:
    """Doubly robust with weights `s w / (w^2 + s)`, at most `sqrt(s) / 2`."""
    weights = _weights(evidence)
    if not np.isinf(_at_least_0("shrinkage", shrinkage)):
        weights = np.where(weights > 0, shrinkage * weights / np.maximum(weights**2 + shrinkage, 1e-300), 0.0)
    return means(required_part(evidence, "model_target") + weights * _residuals(evidence))


def _weights(evidence: Evidence) -> Floats:
    """Target over behaviour, [N]; SpecError for longer episodes."""
    if evidence.horizon > 1:
        raise SpecError(
            f"bandit estimators support episodes of one step; the longest here has {evidence.horizon}",
            fix="use a sequential estimator, such as 'weighted_dr'",
        )
    return np.asarray(evidence.target, np.float64) / np.asarray(evidence.behaviour, np.float64)


def _residuals(evidence: Evidence) -> Floats:
    return np.asarray(evidence.reward - required_part(evidence, "model"))


def _at_least_0(name: str, value: float) -> float:
    if not value >= 0:
        raise ConfigError(f"{name} = {value}", "at least 0")
    return value


# Estimates of a policy's return from episodes of several steps; with one step each is a bandit estimate.
#
# `w_t = target / behaviour`, `rho_t = w_0 ... w_t` (`rho_-1 = 1`), G is the return up to the recorded end:
# - trajectory importance sampling `rho_T-1 G`, and weighted (self-normalised over episodes);
# - per decision, `sum_t gamma^t rho_t r_t`, and weighted step by step (Precup, Sutton & Singh 2000);
# - doubly robust, `sum_t gamma^t (rho_t (r_t - Q_t) + rho_t-1 V_t)` (Jiang & Li 2016, arXiv:1511.03722), and weighted
#   (Thomas & Brunskill 2016, arXiv:1604.00923);
# - by occupancy ratios w of each step instead of `rho_t`: marginal importance `sum_t w_t r_t`, and double reinforcement
#   learning (Kallus and Uehara 2020, "Double Reinforcement Learning for Efficient Off-Policy Evaluation in Markov
#   Decision Processes"), in which correct ratios repair wrong values and the reverse.
#
# In the weighted forms an ended episode keeps its last weight at later steps, with a reward of 0, because it earned
# nothing there. Otherwise long episodes would represent all episodes.
#
# Weights are products in logarithms, clipped at `e^300`; each weighted step is divided by its largest weight, which
# changes no ratio. If episodes times steps exceed `CELLS`, neighbouring episodes are summed, block by block.
#
# Letters: `N` steps, `E` episodes, `T` steps of the longest episode, `R` rows of the result, `b` episodes of a block.

LONGEST_PRODUCT = 50  # steps of an episode beyond which products of weights carry no information
CELLS = 1 << 24
BLOCK = 1 << 20
LARGEST_LOG = 300.0


def logged_return(evidence: Evidence) -> Ratios:
    """The behaviour policy's mean return."""
    return means(returns(evidence))


def trajectory_is(evidence: Evidence) -> Ratios:
    """Mean of return times the whole episode's weight."""
    return means(episode_weights(evidence) * returns(evidence))


def wis(evidence: Evidence) -> Ratios:
    """Mean return weighted by the whole episode's weight, self-normalised."""
    logs = log_weights(evidence)
    weights = np.exp(logs - _finite(np.asarray(logs.max())))
    return Ratios((weights * returns(evidence))[:, None], weights[:, None])


def per_decision_is(evidence: Evidence) -> Ratios:
    """Mean of rewards, each multiplied by the weight of the decisions up to it."""
    return _plain(evidence, np.asarray(evidence.reward, np.float64), None)


def weighted_per_decision_is(evidence: Evidence) -> Ratios:
    """Rewards weighted step by step by the decisions up to each, self-normalised over all episodes."""
    return _weighted(evidence, np.asarray(evidence.reward, np.float64), None)


def sequential_dr(evidence: Evidence) -> Ratios:
    """Doubly robust: the model's value, corrected by weighted residuals."""
    return _plain(evidence, _residuals(evidence), required_part(evidence, "model_target"))


def weighted_dr(evidence: Evidence) -> Ratios:
    """Weighted doubly robust: two ratios a step, residuals over `rho_t` and model values over `rho_t-1`."""
    return _weighted(evidence, _residuals(evidence), required_part(evidence, "model_target"))


def marginal_importance(evidence: Evidence) -> Ratios:
    """Mean over episodes of `sum_t w r`."""
    steps = required_part(evidence, "occupancy") * np.asarray(evidence.reward, np.float64)
    return means(np.add.reduceat(steps, evidence.starts[:-1]))


def double_reinforcement(evidence: Evidence) -> Ratios:
    """Mean over episodes of `V(s0) + sum_t w (r + discount V(s') - Q(s, a))`, with V = 0 after the recorded end."""
    gaps = required_part(evidence, "occupancy") * td_gaps(evidence)
    first = required_part(evidence, "model_target")[evidence.starts[:-1]]
    return means(first + np.add.reduceat(gaps, evidence.starts[:-1]))


def td_gaps(evidence: Evidence) -> Floats:
    """`r + discount V(s') - Q(s, a)` of each step, [N], with V = 0 after the recorded end."""
    after = np.append(required_part(evidence, "model_target")[1:], 0.0)
    after[evidence.starts[1:] - 1] = 0.0
    gaps = np.asarray(evidence.reward, np.float64) + evidence.step_discount * after - required_part(evidence, "model")
    return np.asarray(gaps)


def returns(evidence: Evidence) -> Floats:
    """Discounted return of each episode up to its recorded end, [E]."""
    return np.add.reduceat(discounts(evidence) * evidence.reward, evidence.starts[:-1])


def discounts(evidence: Evidence) -> Floats:
    """`gamma^t` of each step, [N]; t is the elapsed time where decisions are unequally spaced."""
    if evidence.elapsed is not None:
        before = np.cumsum(evidence.elapsed) - evidence.elapsed
        return np.asarray(evidence.discount ** (before - np.repeat(before[evidence.starts[:-1]], evidence.lengths)))
    return np.asarray((evidence.discount ** np.arange(evidence.horizon))[evidence.step])


def log_weights(evidence: Evidence) -> Floats:
    """Logarithm of each episode's weight, [E]; -inf if the target never takes its actions."""
    return np.add.reduceat(_log_ratios(evidence), evidence.starts[:-1])


def _log_ratios(evidence: Evidence) -> Floats:
    target = np.asarray(evidence.target, np.float64)
    logs = np.log(target, out=np.full(len(target), -np.inf), where=target > 0)
    return logs - np.log(np.asarray(evidence.behaviour, np.float64))


def step_weights(evidence: Evidence) -> Floats:
    """Products so far over their sum, [E, T], kept after an episode's end; NaN where no episode has weight."""
    weights = np.vstack([block.logs for block in _blocks(evidence)])
    weights -= _finite(weights.max(0))
    np.exp(weights, out=weights)
    return np.asarray(weights / np.where(weights.any(0), weights.sum(0), np.nan))


class _Block(NamedTuple):
    """Neighbouring episodes, padded to the longest of the log."""

    rows: slice  # of the result
    first: NDArray[np.int64]  # first episode of each row, counted within the block
    steps: slice
    within: NDArray[np.bool_]  # [b, T]: whether the episode has that step
    logs: Floats  # [b, T]: log rho_t; ended episodes keep their last value

    def padded(self, values: Floats) -> Floats:
        """Values of the block's steps, [b, T], 0 after the end."""
        grid = np.zeros(self.within.shape)
        grid[self.within] = values[self.steps]
        return grid


def _blocks(evidence: Evidence) -> Iterator[_Block]:
    ratios, starts, horizon = _log_ratios(evidence), evidence.starts, evidence.horizon
    edges = np.append(_rows(evidence), evidence.episodes)  # [R + 1]
    at = 0
    while at < len(edges) - 1:
        episodes = edges[at] + max(BLOCK // horizon, 1)
        end = min(max(int(np.searchsorted(edges, episodes, side="right")) - 1, at + 1), len(edges) - 1)
        begin, stop = edges[at], edges[end]
        within = np.arange(horizon) < evidence.lengths[begin:stop, None]
        steps = slice(starts[begin], starts[stop])
        logs = np.zeros(within.shape)
        logs[within] = ratios[steps]
        yield _Block(slice(at, end), edges[at:end] - begin, steps, within, np.cumsum(logs, axis=1, out=logs))
        at = end


def _rows(evidence: Evidence) -> NDArray[np.int64]:
    """First episode of each row, [R]: every episode, unless there are too many cells of episodes without clusters."""
    if evidence.clusters is not None or evidence.episodes * evidence.horizon <= CELLS:
        return np.arange(evidence.episodes)
    return group_starts(evidence.episodes, min(max(CELLS // evidence.horizon, 100), 10_000))


def _plain(evidence: Evidence, residual: Floats, value: Floats | None) -> Ratios:
    """Means over episodes of `sum_t gamma^t (rho_t residual_t + rho_t-1 value_t)`."""
    totals = np.zeros(evidence.episodes)
    discount = discounts(evidence)
    at = 0
    for block in _blocks(evidence):
        weights = np.exp(np.minimum(block.logs, LARGEST_LOG))
        part = np.einsum("bt,bt->b", weights, block.padded(discount * residual))
        if value is not None:
            values = block.padded(discount * value)
            part += values[:, 0] + np.einsum("bt,bt->b", weights[:, :-1], values[:, 1:])
        totals[at : at + len(part)] = part
        at += len(part)
    return means(totals)


def _weighted(evidence: Evidence, residual: Floats, value: Floats | None) -> Ratios:
    """Per step, `gamma^t rho_t residual_t` over `rho_t`, and `gamma^t rho_t-1 value_t` over `rho_t-1`."""
    horizon, rows = evidence.horizon, len(_rows(evidence))
    clusters = evidence.clusters if rows * horizon > CELLS else None
    rows = evidence.units if clusters is not None else rows
    ratios = horizon if value is None else 2 * horizon
    numerators, denominators = np.zeros((rows, ratios)), np.zeros((rows, ratios))
    discount, logs = discounts(evidence), np.full(horizon, -np.inf)
    for block in _blocks(evidence):
        np.maximum(logs, block.logs.max(0), out=logs)
    largest = _finite(logs)  # log weight at each step, [T]; 0 if no episode has weight

    def add(block: _Block, columns: slice, weights: Floats, values: Floats) -> None:
        for sums, parts in ((numerators, weights * values), (denominators, weights)):
            if clusters is None:
                by_row = parts if len(block.first) == len(parts) else np.add.reduceat(parts, block.first, axis=0)
                sums[block.rows, columns] = by_row
            else:
                np.add.at(sums[:, columns], clusters[block.rows], parts)

    for block in _blocks(evidence):
        weights = np.exp(block.logs - largest)
        add(block, slice(0, horizon), weights, block.padded(discount * residual))
        if value is not None:
            before = np.hstack([np.ones((len(weights), 1)), weights[:, :-1]])
            add(block, slice(horizon, None), before, block.padded(discount * value))
    return Ratios(numerators, denominators, evidence.episodes, clusters)


def _finite(largest: Floats) -> Floats:
    return np.where(np.isfinite(largest), largest, 0.0)


# An estimate with its support: measures of the episodes' weights, and of actions that were never tried.
#
# Effective sample size, largest share and tail index are computed on weights divided by the largest, which changes none
# of them and avoids overflow and underflow of products over long episodes.
#
# Letters: `E` episodes, `N` steps, `A` actions, `M` weights in the tail.


@dataclass(frozen=True)
class Support:
    """How much information the log has about the target policy."""

    episodes: int
    effective_sample_size: float  # (sum w)**2 / sum w**2 over episode weights
    largest_weight: float  # the largest share of one episode in the sum of weights
    mean_weight: float  # close to 1 if propensities are right and support is complete
    mean_weight_error: float  # its standard error
    # tail index of the weights: above 1/2 they have no variance, above 0.7 no useful mean; 0 if the log shows all of it
    pareto_k: float
    clipped_share: float  # share of episodes whose weight was clipped
    unsupported_mass: float | None  # mean share of the target's actions that the behaviour policy (nearly) never took
    horizon: int  # steps of the longest episode


@dataclass(frozen=True, eq=False)
class Estimate:
    """Result of one estimator; the mean of `contributions` [E] is the estimate."""

    name: str
    estimate: float
    low: float
    high: float
    method: str  # of the interval
    level: float
    support: Support
    estimated: bool  # whether propensities were estimated
    contributions: NDArray[np.float64]
    note: str = ""

    @property
    def interval(self) -> Interval:
        """The estimate with the ends of its interval."""
        return Interval(self.estimate, self.low, self.high)

    def to_json(self) -> dict[str, Any]:
        """All fields except the contributions."""
        content = asdict(self)
        del content["contributions"]
        return content


class Estimates(Sequence[Estimate]):
    """Table of estimates, by position or by name."""

    def __init__(self, rows: Sequence[Estimate]) -> None:
        self._rows = tuple(rows)

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, which: Any) -> Any:
        if not isinstance(which, str):
            return self._rows[which]
        by_name = {row.name: row for row in self._rows}
        if which not in by_name:
            raise ConfigError(f"unknown estimate '{which}': {nearest(which, by_name)}")
        return by_name[which]

    def _repr_html_(self) -> str:
        """Return a table for notebooks."""
        title = f"Estimates on {self._rows[0].support.episodes:,} episodes" if self._rows else "No estimates"
        head = ("estimator", "estimate", "interval", "effective sample size", "largest weight", "note")
        return rows_table(title, head, self.rows())

    def rows(self) -> list[list[str]]:
        """Cells of a printed table: name, estimate, interval, effective sample size, largest weight, note."""
        return [
            [
                row.name,
                three_digits(row.estimate),
                f"{three_digits(row.low)} to {three_digits(row.high)}",
                f"{row.support.effective_sample_size:,.1f}",
                f"{row.support.largest_weight:.1%}",
                row.note,
            ]
            for row in self._rows
        ]


RARE = 0.1  # share of the uniform probability below which an action counts as (nearly) never taken


def episode_weights(evidence: Evidence) -> Floats:
    """Product of target over behaviour of each episode, [E], at most `e^300`."""
    return np.exp(np.minimum(log_weights(evidence), LARGEST_LOG))


def support_of(evidence: Evidence, *, weights: NDArray[Any] | None = None) -> Support:
    """All measures of support, of these weights [E]; None: of the products of ratios along episodes."""
    if weights is None:
        logs = log_weights(evidence)
    else:
        values = np.asarray(weights, np.float64)
        logs = np.log(values, out=np.full(len(values), -np.inf), where=values > 0)
    if len(logs) != evidence.episodes:
        raise SpecError(f"found {len(logs)} weights", f"one per episode ({evidence.episodes})")
    most = float(logs.max())
    relative = np.exp(logs - most) if np.isfinite(most) else np.zeros(len(logs))
    plain = np.exp(np.minimum(logs, LARGEST_LOG))
    if evidence.clusters is not None:
        relative = cluster_sums(relative, evidence.clusters)
    return Support(
        episodes=evidence.units,
        effective_sample_size=effective_sample_size(relative),
        largest_weight=largest_share(relative),
        mean_weight=float(plain.mean()),
        mean_weight_error=standard_error(plain, evidence.clusters),
        pareto_k=0.0 if weights is None and shows_tail(evidence, most) else pareto_k(relative),
        clipped_share=0.0,
        unsupported_mass=unsupported_mass(evidence),
        horizon=evidence.horizon,
    )


def occupancy_support(evidence: Evidence) -> Support:
    """Support with occupancy ratios: an episode's weight is the sum of its steps' ratios.

    The mean weight is replaced by the occupancy-weighted terminations, whose mean over episodes must also be 1 (at
    discount 1, the sum of ratios over last steps; else also of `w (1 - gamma)` over the other steps).
    """
    visits, ends = required_part(evidence, "occupancy"), terminations(evidence)
    support = support_of(evidence, weights=np.maximum(np.add.reduceat(visits, evidence.starts[:-1]), 0.0))
    return replace(support, mean_weight=float(ends.mean()), mean_weight_error=standard_error(ends, evidence.clusters))


def terminations(evidence: Evidence) -> Floats:
    """[E]: occupancy-weighted terminations of each episode, and what a discount takes from its other steps."""
    last = np.zeros(len(evidence.reward))
    last[evidence.starts[1:] - 1] = 1.0
    parts = required_part(evidence, "occupancy") * (1.0 - evidence.step_discount * (1.0 - last))
    return np.asarray(np.add.reduceat(parts, evidence.starts[:-1]))


def standard_error(values: Floats, clusters: NDArray[np.int64] | None = None) -> float:
    """Standard error of the mean of one value per episode [E]; episodes of one cluster are dependent."""
    off = values - values.mean()
    sums = off if clusters is None else cluster_sums(off, clusters)
    units = len(sums)
    if units < 2:
        return float("inf")
    return float(np.sqrt(np.square(sums).sum() * units / (units - 1)) / len(values))


def effective_sample_size(weights: NDArray[Any]) -> float:
    """`(sum w)^2 / sum w^2` (Kish); 0 if no weight is above 0."""
    relative = _scaled(weights)
    squares = float((relative**2).sum())
    return float(relative.sum()) ** 2 / squares if squares > 0 else 0.0


def effective_number(influences: NDArray[Any]) -> float:
    """How many of influences [U] make their sum of squares: `(sum i^2)^2 / sum i^4`; 0 where all are 0."""
    return effective_sample_size(np.square(_scaled(np.abs(influences))))


def largest_share(weights: NDArray[Any]) -> float:
    """Share of the largest weight in the sum of weights; 1 if no weight is above 0."""
    relative = _scaled(weights)
    total = float(relative.sum())
    return float(relative.max()) / total if total > 0 else 1.0


def pareto_k(weights: NDArray[Any]) -> float:
    """Tail index of the weights (Vehtari et al. 2024, arXiv:1507.02646); moments above the 1/k-th do not exist.

    Fits a generalised Pareto distribution to the excess of the largest `min(n / 5, 3 sqrt n)` weights over the next
    smaller one; ties belong to the tail. 0 if the largest are all equal, infinite if fewer than 5 remain.
    """
    mantissa, exponent = np.frexp(_scaled(weights))
    weights = np.ldexp(np.round(mantissa, 5), exponent)  # equal products with other rounding become ties
    size = int(np.ceil(min(len(weights) / 5, 3 * np.sqrt(len(weights)))))
    if size < 5 or not weights.any():
        return float("inf")
    smallest = np.partition(weights, -size)[-size]
    if smallest == weights.max():
        return 0.0
    lower = weights[weights < smallest]
    exceeding = weights[weights >= smallest] - (lower.max() if len(lower) else 0.0)
    exceeding = np.sort(exceeding[exceeding > 0])
    if exceeding[0] == exceeding[-1]:
        return 0.0
    return generalised_pareto_shape(exceeding) if len(exceeding) >= 5 else float("inf")


SHOWN = 0.05  # by how much, in logarithms, no possible weight may exceed the largest logged one


def shows_tail(evidence: Evidence, most: float) -> bool:
    """Whether no action in any logged decision has a weight above the largest logged one, of this logarithm.

    Only where an episode is one decision, alone in its cluster, and actions can be listed: then the log shows the end
    of the weights, which a tail index would guess from the logged ones.
    """
    own, logged = evidence.target_all, evidence.behaviour_all
    if evidence.horizon > 1 or evidence.clusters is not None or own is None or logged is None or not np.isfinite(most):
        return False
    return bool((own <= logged * np.exp(most + SHOWN)).all())


def generalised_pareto_shape(exceeding: Floats) -> float:
    """Shape k of a generalised Pareto distribution from ordered values above 0, [M].

    The posterior mean of Zhang & Stephens (2009), shrunk towards 1/2 by ten pseudo-values as in Vehtari et al.
    """
    many = len(exceeding)
    points = 30 + int(np.sqrt(many))
    quartile = exceeding[int(many / 4 + 0.5) - 1]
    steps = 1.0 - np.sqrt(points / (np.arange(1, points + 1) - 0.5))
    candidates = 1.0 / exceeding[-1] + steps / (3.0 * quartile)  # [points]
    shapes = np.array([np.log1p(-one * exceeding).mean() for one in candidates])
    exponential = np.abs(candidates) * exceeding[-1] < 1e-9  # at 0 the distribution is exponential with rate 1 / mean
    rates = np.where(exponential, 1.0 / exceeding.mean(), -candidates / np.where(exponential, 1.0, shapes))
    likelihoods = many * (np.log(rates) - shapes - 1.0)
    posterior = np.exp(likelihoods - likelihoods.max())
    best = float((candidates * posterior).sum() / posterior.sum())
    shape = float(np.log1p(-best * exceeding).mean())
    return (shape * many + 0.5 * 10) / (many + 10)


def unsupported_mass(evidence: Evidence) -> float | None:
    """Mean share of the target's actions that the behaviour policy took with less than a tenth of the probability of
    a uniform choice among those that it may take; None if actions cannot be listed.
    """
    own = evidence.own_all
    if own is None or evidence.behaviour_all is None:
        return None
    rare = evidence.behaviour_all * (evidence.behaviour_all > 0).sum(1, keepdims=True) < RARE
    return float(np.where(rare, own, 0.0).sum(1).mean())


def _scaled(weights: NDArray[Any]) -> Floats:
    weights = np.asarray(weights, np.float64)
    if weights.ndim != 1 or not len(weights) or not (weights >= 0).all() or not np.isfinite(weights).all():
        raise SpecError("invalid weights", "a vector of finite numbers, none below 0")
    largest = float(weights.max())
    return np.asarray(weights / largest) if largest > 0 else weights


# The estimators by name, what each needs, and its support.

CLIP = 10.0  # largest weight of the estimators that clip weights
NEEDS = {
    "model": "a model of action values (model='none' was set, or this log supports none)",
    "occupancy": "occupancy ratios, which cannot be estimated on this log",
}


@dataclass(frozen=True)
class Estimator:
    """An estimator of a policy's value: its function, its inputs, and where it applies."""

    ratios: Callable[[Evidence], Ratios]
    needs: tuple[str, ...] = ()  # required parts of the evidence
    steps: str = "any"  # "one": only episodes of one step; "several": listed only for longer episodes
    vetoes: bool = False  # may contradict, because a constant added to every reward changes no difference
    largest: float = np.inf  # largest weight, if it clips weights
    uses_occupancy: bool = False  # uses occupancy ratios, not products along episodes


def fqe(evidence: Evidence) -> Ratios:
    """The model's value of each episode's first observation, under the target policy."""
    return means(required_part(evidence, "model_target")[evidence.starts[:-1]])


_Q, _VISITS = ("model",), ("model", "occupancy")
MODEL_ALONE = ("dm", "fqe")  # no reward of the judged episodes corrects their values
ESTIMATORS: dict[str, Estimator] = {
    "ips": Estimator(ips, (), "one"),  # Horvitz & Thompson 1952
    "snips": Estimator(snips, (), "one", True),  # Swaminathan & Joachims 2015
    "clipped_ips": Estimator(lambda e: clipped_ips(e, CLIP), (), "one", largest=CLIP),  # Ionides 2008
    "dm": Estimator(direct_method, _Q, "one", True),  # Dudik, Langford & Li 2011
    "switch_dr": Estimator(lambda e: switch_dr(e, CLIP), _Q, "one", largest=CLIP),  # Wang, Agarwal & Dudik 2017
    "dros": Estimator(dr_optimistic_shrinkage, _Q, "one"),  # Su et al. 2020
    "is": Estimator(trajectory_is, (), "several"),  # Precup, Sutton & Singh 2000, as the next two
    "wis": Estimator(wis, (), "several", True),
    "pdis": Estimator(per_decision_is, (), "several"),
    "wpdis": Estimator(weighted_per_decision_is, (), "several", True),  # Thomas 2015
    "dr": Estimator(sequential_dr, _Q),  # Jiang & Li 2016
    "wdr": Estimator(weighted_dr, _Q, vetoes=True),  # Thomas & Brunskill 2016
    "fqe": Estimator(fqe, _Q, "several", True),  # Le, Voloshin & Yue 2019
    "mwl": Estimator(marginal_importance, ("occupancy",), "several", uses_occupancy=True),  # Uehara, Huang, Jiang 2020
    "drl": Estimator(double_reinforcement, _VISITS, "several", True, uses_occupancy=True),  # Kallus & Uehara 2020
}


def possible_returns(evidence: Evidence) -> tuple[float, float]:
    """Lowest and highest return of an episode with a length and rewards within the ranges of the log.

    Where decisions are unequally spaced, with discounts of its rewards that sum up as those of a logged episode.
    """
    if evidence.elapsed is None:
        powers = np.cumsum(evidence.discount ** np.arange(evidence.horizon))[[int(evidence.lengths.min()) - 1, -1]]
    else:
        sums = np.add.reduceat(discounts(evidence), evidence.starts[:-1])
        powers = np.asarray([sums.min(), sums.max()])
    return float((evidence.reward.min() * powers).min()), float((evidence.reward.max() * powers).max())


def is_possible(estimate: float, evidence: Evidence) -> bool:
    """Whether an episode of the log's lengths and rewards can earn an estimate; of one that is no number nothing."""
    low, high = possible_returns(evidence)
    return not np.isfinite(estimate) or low - evidence.rounding <= estimate <= high + evidence.rounding


class Supports:
    """Support of each estimator on the same evidence; shared measures are computed once."""

    def __init__(self, evidence: Evidence) -> None:
        self._evidence, self._products = evidence, support_of(evidence)
        self._occupancy = None if evidence.occupancy is None else occupancy_support(evidence)

    def of(self, name: str) -> Support:
        """Support of one estimator."""
        estimator = ESTIMATORS[name]
        if estimator.uses_occupancy and self._occupancy is not None:
            return self._occupancy
        if np.isfinite(estimator.largest):
            clipped = episode_weights(self._evidence) > estimator.largest
            return replace(self._products, clipped_share=float(clipped.mean()))
        return self._products


def obstacle_of(name: str, evidence: Evidence) -> str | None:
    """Why an estimator cannot be computed on this evidence; None if it can."""
    estimator = ESTIMATORS[name]
    if estimator.steps == "one" and evidence.horizon > 1:
        return f"supports episodes of one step; the longest here has {evidence.horizon}. fix: use 'wis' or 'wdr'"
    missing = [part for part in estimator.needs if getattr(evidence, part) is None]
    return f"needs {NEEDS[missing[0]]}" if missing else None


def is_listed(name: str, evidence: Evidence) -> bool:
    """Whether the table of this evidence lists an estimator."""
    return obstacle_of(name, evidence) is None and not (ESTIMATORS[name].steps == "several" and evidence.horizon == 1)
