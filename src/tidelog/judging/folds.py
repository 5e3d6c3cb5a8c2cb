"""Folds of episodes: what rates an episode never saw it. Letters: `N` steps, `E` episodes, `F` folds."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tidelog.data import Log
from tidelog.errors import ConfigError, LogError

Ordinals = NDArray[np.int64]


def episode_folds(log: Log, count: int, seed: int) -> Ordinals:
    """The fold of each episode, [E], whole clusters together, sizes apart by one at most; decided by the seed alone.

    Raises ConfigError for fewer than two folds, LogError for fewer episodes than folds.
    """
    clusters = clusters_of(log)
    episodes = len(log.episode_ids) if clusters is None else int(clusters.max()) + 1
    if isinstance(count, bool) or not isinstance(count, int | np.integer) or count < 2:
        raise ConfigError(f"folds = {count!r}: cross-fitting needs a whole number of at least 2")
    if episodes < count:
        raise LogError(
            f"cross-fitting in {count} folds needs as many {'episodes' if clusters is None else 'clusters'}, this log "
            f"has {episodes}: judge on a longer log, or ask for fewer folds"
        )
    folds = np.asarray(np.random.default_rng([seed, 2]).permutation(episodes) % count, np.int64)
    return folds if clusters is None else folds[clusters]


def clusters_of(log: Log) -> Ordinals | None:
    """The cluster of each episode, [E] from 0 without gaps; None where every episode stands alone."""
    clusters = np.asarray(getattr(log, "clusters", np.arange(len(log.episode_ids))), np.int64)
    return None if int(clusters.max()) + 1 == len(clusters) else clusters


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
