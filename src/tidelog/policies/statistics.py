"""Summaries of scores that are robust for few runs, as rliable defines them.

Agarwal et al., "Deep Reinforcement Learning at the Edge of the Statistical Precipice", NeurIPS 2021,
arXiv:2108.13264; reference implementation: github.com/google-research/rliable. Scores are `[runs]` or `[runs, tasks]`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tidelog.errors import ConfigError
from tidelog.types import check_seed

Statistic: TypeAlias = Callable[[NDArray[np.float64]], float]


class Interval(NamedTuple):
    """An estimate and the two ends of its interval."""

    estimate: float
    low: float
    high: float


def mean(scores: NDArray[Any]) -> float:
    """Return the mean over all scores.

    Example:
        >>> from tidelog.policies.statistics import mean
        >>> mean(np.array([1.0, 2.0, 3.0, 10.0]))
        4.0
    """
    return float(_scores(scores).mean())


def iqm(scores: NDArray[Any]) -> float:
    """Return the interquartile mean: the mean without the lowest and the highest `floor(n / 4)` scores.

    As in rliable (`scipy.stats.trim_mean` at 0.25 over all runs and tasks), whole scores are left out.

    Example:
        >>> from tidelog.policies.statistics import iqm
        >>> iqm(np.array([1.0, 2.0, 3.0, 10.0]))
        2.5
    """
    ordered = np.sort(_scores(scores), axis=None)
    cut = ordered.size // 4
    return float(ordered[cut : ordered.size - cut].mean())


def bootstrap_interval(
    scores: NDArray[Any],
    statistic: Statistic = iqm,
    level: float = 0.95,
    replicates: int = 2000,
    seed: int = 0,
    *,
    whole_runs: bool = False,
) -> Interval:
    """Percentile bootstrap of a statistic over `[runs]` or `[runs, tasks]`, stratified by task as in rliable.

    Each column is resampled by itself. Columns that are episodes of the same run are not strata: `whole_runs` then
    resamples runs and keeps the episodes of each together.

    Example:
        >>> from tidelog.policies.statistics import bootstrap_interval
        >>> bootstrap_interval(np.arange(20.0))
        Interval(estimate=9.5, low=6.1, high=12.9)
    """
    scores = _scores(scores)
    generator = np.random.default_rng(check_seed(seed))
    drawn = [statistic(_resampled(scores, generator, whole_runs)) for _ in range(_count(replicates))]
    return _between(statistic(scores), np.asarray(drawn), level)


class Difference(NamedTuple):
    """The mean paired difference of two runs, by their positions, with its simultaneous interval."""

    one: int
    other: int
    interval: Interval


def simultaneous_differences(
    scores: NDArray[Any], level: float = 0.95, replicates: int = 4000, seed: int = 0, other: int | None = None
) -> list[Difference]:
    """Return the differences `one - other` of all pairs of runs, whose intervals hold for all pairs at once.

    With `other`, of all runs from this one only. Scores are `[runs, episodes]`, of the same episodes in every run. All
    differences are resampled together; the intervals are as many standard errors long as the largest error of each
    replicate asks for (Romano & Wolf 2005, doi:10.1111/j.1468-0262.2005.00615.x). ConfigError for fewer than two runs
    or episodes.

    Example:
        >>> from tidelog.policies.statistics import simultaneous_differences
        >>> returns = np.random.default_rng(0).normal([[0.0], [0.0], [1.0]], 1.0, (3, 50))  # 3 runs, 50 episodes
        >>> [(one, other) for one, other, found in simultaneous_differences(returns) if found.high < 0]
        [(0, 2), (1, 2)]
    """
    scores = _scores(scores)
    if scores.ndim != 2 or min(scores.shape) < 2:
        raise ConfigError(f"scores of shape {scores.shape}", "at least [2 runs, 2 episodes]", "play more")
    ones, others = np.triu_indices(len(scores), 1)
    if other is not None:
        ones = np.delete(np.arange(len(scores)), other)
        others = np.full(len(ones), other)
    differences, generator = (
        (scores[ones] - scores[others]).T,
        np.random.default_rng(check_seed(seed)),
    )  # [episodes, pairs]
    estimate, count = differences.mean(0), len(differences)
    errors = np.stack(
        [differences[generator.integers(count, size=count)].mean(0) - estimate for _ in range(_count(replicates))]
    )
    deviation = errors.std(0)
    relative = np.abs(errors) / np.where(deviation > 0.0, deviation, 1.0)
    reach = np.quantile(relative.max(1), level) * deviation
    return [
        Difference(int(i), int(j), Interval(float(middle), float(middle - half), float(middle + half)))
        for i, j, middle, half in zip(ones, others, estimate, reach, strict=True)
    ]


def _scores(scores: NDArray[Any]) -> NDArray[np.float64]:
    scores = np.asarray(scores, np.float64)
    if scores.ndim not in (1, 2) or scores.size == 0:
        raise ConfigError(f"scores have shape {scores.shape}", "[runs] or [runs, tasks]", "reshape them")
    if not np.isfinite(scores).all():
        raise ConfigError(f"scores hold {scores[~np.isfinite(scores)][0]}", "finite numbers", "drop these runs")
    return scores


def _count(replicates: int) -> int:
    if replicates < 1:
        raise ConfigError(f"replicates = {replicates}", "at least 1", "use 2000")
    return replicates


def _resampled(scores: NDArray[np.float64], generator: np.random.Generator, whole_runs: bool) -> NDArray[np.float64]:
    shape = (len(scores), 1) if whole_runs and scores.ndim == 2 else scores.shape
    rows = generator.integers(len(scores), size=shape)
    return np.take_along_axis(scores, np.broadcast_to(rows, scores.shape), axis=0)


def _between(estimate: float, drawn: NDArray[np.float64], level: float) -> Interval:
    if not 0.0 < level < 1.0:
        raise ConfigError(f"level = {level}", "a number between 0 and 1", "use 0.95")
    low, high = np.quantile(drawn, [(1.0 - level) / 2.0, (1.0 + level) / 2.0])
    return Interval(float(estimate), float(low), float(high))
