"""Folds of episodes: what rates an episode never saw it. Letters: `N` steps, `E` episodes, `F` folds."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tidelog.data.log import Log
from tidelog.errors import ConfigError, LogError

Ordinals = NDArray[np.int64]


def episode_folds(log: Log, count: int, seed: int) -> Ordinals:
    """The fold of each episode, [E], decided by the seed; episodes of one cluster are in one fold.

    Folds have equally many clusters, apart by one at most; without a cluster column, equally many episodes. Raises
    ConfigError for fewer than two folds, LogError for fewer clusters or episodes than folds.
    """
    clusters = log.clusters
    members = int(clusters.max(initial=-1)) + 1
    if isinstance(count, bool) or not isinstance(count, int | np.integer) or count < 2:
        raise ConfigError(f"folds = {count!r}: cross-fitting needs a whole number of at least 2")
    if members < count:
        units = "episodes" if log.cluster is None else "clusters"
        raise LogError(
            f"cross-fitting in {count} folds needs as many {units}, this log has {members}: judge on a longer log, "
            "or ask for fewer folds"
        )
    return np.asarray(np.random.default_rng([seed, 2]).permutation(members) % count, np.int64)[clusters]


def clusters_of(log: Log) -> Ordinals | None:
    """The cluster of each episode, [E] from 0 without gaps; None where every episode stands alone."""
    clusters = np.asarray(log.clusters, np.int64)
    return None if int(clusters.max(initial=-1)) + 1 == len(clusters) else clusters


def fold_of_steps(log: Log, folds: Ordinals) -> Ordinals:
    """The fold of each step, [N]."""
    return np.asarray(folds[np.asarray(log.episode)])


def check_seed(seed: Any) -> None:
    """ConfigError unless a seed is a whole number from 0 on."""
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
        raise ConfigError(f"seed = {seed!r}: expected a whole number from 0 on")


def without(folds: Ordinals, fold: int) -> Ordinals:
    """Ordinals of the episodes that a fold's models learn from: all but the fold's own."""
    return np.flatnonzero(folds != fold)
