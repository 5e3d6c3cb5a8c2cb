"""Folds of episodes for cross-fitting. Letters: `N` steps, `E` episodes, `F` folds."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tidelog.data.log import Log
from tidelog.errors import ConfigError, LogError

Ordinals = NDArray[np.int64]


def episode_folds(log: Log, count: int, seed: int) -> Ordinals:
    """Fold of each episode, [E], determined by the seed; episodes of one cluster are in one fold.

    The folds' numbers of clusters (without a cluster column, of episodes) differ by at most one. Raises ConfigError for
    fewer than two folds, LogError for fewer clusters or episodes than folds.
    """
    clusters = log.clusters
    members = int(clusters.max(initial=-1)) + 1
    if isinstance(count, bool) or not isinstance(count, int | np.integer) or count < 2:
        raise ConfigError(f"folds = {count!r}: expected a whole number of at least 2. fix: use folds=5")
    if members < count:
        units = "episodes" if log.cluster is None else "clusters"
        raise LogError(
            f"this log has {members} {units}: expected at least {count}, one per fold. fix: judge on a longer log, or "
            "use fewer folds"
        )
    return np.asarray(np.random.default_rng([seed, 2]).permutation(members) % count, np.int64)[clusters]


def clusters_of(log: Log) -> Ordinals | None:
    """Cluster of each episode, [E] from 0 without gaps; None if every episode is its own cluster."""
    clusters = np.asarray(log.clusters, np.int64)
    return None if int(clusters.max(initial=-1)) + 1 == len(clusters) else clusters


def fold_of_steps(log: Log, folds: Ordinals) -> Ordinals:
    """Fold of each step, [N]."""
    return np.asarray(folds[np.asarray(log.episode)])


def check_seed(seed: Any) -> None:
    """Raise ConfigError unless the seed is a whole number of at least 0."""
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
        raise ConfigError(f"seed = {seed!r}: expected a whole number of at least 0. fix: use seed=0")


def without(folds: Ordinals, fold: int) -> Ordinals:
    """Ordinals of the episodes for training a fold's models: all except the fold's own."""
    return np.flatnonzero(folds != fold)
