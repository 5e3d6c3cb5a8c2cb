"""An estimate as a sum of ratios of sums over episodes, and the contribution of each episode.

Every estimator returns `Ratios`; one bootstrap, one jackknife and one difference work for all of them. The denominators
are 1 for a plain mean and weights for a self-normalised one; a weighted sequential estimate has one ratio per step.

Letters: `E` episodes, `R` rows (episodes, or groups of them), `K` ratios, `C` clusters.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tidelog.errors import ConfigError, SpecError
from tidelog.ope.evidence.evidence import Evidence, Floats


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
            raise SpecError(f"numerators and denominators have shapes {shapes}: expected equal shapes [rows, ratios]")
        if not len(self.numerators):
            raise SpecError("found 0 episodes: expected at least one")
        object.__setattr__(self, "episodes", self.episodes or len(self.numerators))

    def __len__(self) -> int:
        return len(self.numerators)

    @property
    def estimate(self) -> float:
        """The sum over ratios."""
        return float(quotients(self.numerators.sum(0), self.denominators.sum(0)).sum())

    @property
    def contributions(self) -> Floats:
        """Contribution of each row, [R]: the estimate plus R times the row's influence on it.

        Their mean is the estimate. For a plain mean they are the averaged values.
        """
        numerators, denominators = self.numerators.sum(0), self.denominators.sum(0)
        ratios = quotients(numerators, denominators)
        share, slope = quotients(1.0, denominators), quotients(ratios, denominators)
        return np.asarray(ratios.sum() + len(self) * (self.numerators @ share - self.denominators @ slope))

    def plus(self, other: Ratios) -> Ratios:
        """Sum of two estimates on the same episodes."""
        one, two = _with_equal_rows(self, other)
        return Ratios(
            np.hstack([one.numerators, two.numerators]),
            np.hstack([one.denominators, two.denominators]),
            one.episodes,
            one.row_of,
        )

    def minus(self, other: Ratios) -> Ratios:
        """Difference of two estimates on the same episodes, resampled jointly."""
        return self.plus(replace(other, numerators=-other.numerators))

    def grouped(self, most: int = 10_000) -> Ratios:
        """The same estimate over at most `most` groups of neighbouring rows, nearly equal in size."""
        if most < 1:
            raise ConfigError(f"groups = {most}: expected at least 1. fix: use 10000")
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
        raise SpecError(f"found {len(clusters):,} clusters: expected one per episode ({len(values):,})")
    sums = np.zeros((int(clusters.max()) + 1, *values.shape[1:]))
    np.add.at(sums, clusters, values)
    return sums


def required_part(evidence: Evidence, name: str) -> NDArray[np.float64]:
    """A required part of the evidence, as float64; SpecError if it is missing."""
    values = getattr(evidence, name)
    if values is None:
        raise SpecError(f"this estimator reads `{name}`, but the evidence has none. fix: gather it first")
    return np.asarray(values, np.float64)


def weights_of_steps(evidence: Evidence) -> Floats:
    """Target over behaviour, step by step, [N]."""
    return np.asarray(evidence.target, np.float64) / np.asarray(evidence.behaviour, np.float64)


def _with_equal_rows(one: Ratios, two: Ratios) -> tuple[Ratios, Ratios]:
    if one.episodes != two.episodes:
        raise SpecError(f"found {one.episodes} and {two.episodes} episodes: expected estimates on the same episodes")
    one, two = one.clustered(two.row_of), two.clustered(one.row_of)
    most = min(len(one), len(two))
    if any(len(part) not in (most, part.episodes) for part in (one, two)):
        raise SpecError(f"found {len(one)} and {len(two)} groups: expected the same grouping in both estimates")
    return one.grouped(most), two.grouped(most)
