"""Episodes of a log as models read them: checks, clusters, folds for cross-fitting, elapsed time and recorded ends.

Letters: `N` steps, `M` stored observations, `I` numbers in an observation, `E` episodes, `F` folds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tidelog.data.log import Log
from tidelog.data.scaling import Scaler
from tidelog.errors import ConfigError, LogError, SpecError
from tidelog.types import Codes

Ordinals = NDArray[np.int64]


def check_kind(log: Any) -> None:
    """Raise LogError if this is not a log."""
    if not isinstance(log, Log):
        raise LogError(f"expected a log, found {type(log).__name__}. fix: read it with tl.read_log(path, columns)")


def check_log(log: Log, discount: float) -> None:
    """Raise SpecError if a log has no reward or several, ConfigError for an invalid discount."""
    if log.reward is None:
        raise SpecError(
            "this log has no rewards: expected one reward column. fix: name it in the mapping, or add an array "
            "`reward` to the file, and train again"
        )
    if log.spec.rewards is not None:
        raise SpecError(
            f"this log has {log.spec.rewards} rewards: expected one. fix: name one column as reward in the mapping, as "
            'in reward = "survived", or compute a weighted sum before reading the log'
        )
    if isinstance(discount, bool) or not isinstance(discount, int | float) or not 0.0 <= discount <= 1.0:
        raise ConfigError(f"discount = {discount!r}: expected a number in [0, 1]. fix: use 0.99")


def check_seed(seed: Any) -> None:
    """Raise ConfigError unless the seed is a whole number of at least 0."""
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
        raise ConfigError(f"seed = {seed!r}: expected a whole number of at least 0. fix: use seed=0")


def clusters_of(log: Log) -> Ordinals | None:
    """Cluster of each episode, [E] from 0 without gaps; None if every episode is its own cluster."""
    clusters = np.asarray(log.clusters, np.int64)
    return None if int(clusters.max(initial=-1)) + 1 == len(clusters) else clusters


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


def without(folds: Ordinals, fold: int) -> Ordinals:
    """Ordinals of the episodes for training a fold's models: all except the fold's own."""
    return np.flatnonzero(folds != fold)


def fold_of_steps(log: Log, folds: Ordinals) -> Ordinals:
    """Fold of each step, [N]."""
    return np.asarray(folds[np.asarray(log.episode)])


def out_of_fold(log: Log, folds: Ordinals, found: Sequence[NDArray[Any]], at: NDArray[Any] | None = None) -> Any:
    """Values of each step from its own fold: a list over folds of [N, ...], or of [M, ...] read `at` [N] -> [N, ...].

    Numbers are returned as float64, booleans as booleans.
    """
    of, where = fold_of_steps(log, folds), np.arange(log.steps) if at is None else np.asarray(at)
    joined = np.empty((log.steps, *found[0].shape[1:]), bool if found[0].dtype == bool else np.float64)
    for fold, values in enumerate(found):
        joined[of == fold] = values[where[of == fold]]
    return joined


def centred_rewards(log: Log, discount: float) -> tuple[Log, NDArray[np.float64]]:
    """The log with the rewards that models of values learn, and the value of the rest from each step, [N] or [1].

    If all episodes have the same length, these are the rewards minus their mean, and the value of that mean is added to
    the model's values: a constant added to every reward then changes no comparison.
    """
    lengths = np.diff(log.starts)
    if lengths.min() != lengths.max():
        return log, np.zeros(1)
    reward = np.asarray(log.reward, np.float64)
    left = np.cumsum(float(discount) ** np.arange(lengths[0]))[::-1]
    known = np.tile(left * reward.mean(), len(lengths))
    return replace(log, reward=(reward - reward.mean()).astype(np.float32)), known


def elapsed_share(log: Log) -> NDArray[np.float32]:
    """[M, 1]: elapsed steps at each stored observation, as a share of the longest episode."""
    share = np.zeros((len(next(iter(log.observation.values()))), 1), np.float32)
    longest = np.diff(log.starts).max()
    share[np.asarray(log.next_position), 0] = (np.asarray(log.step) + 1) / longest
    share[np.asarray(log.position), 0] = np.asarray(log.step) / longest
    return share


def ends_by_clock(log: Log) -> bool:
    """Whether episodes end by a time limit: some are truncated, or all have the same length."""
    lengths = np.diff(log.starts)
    last = np.asarray(log.starts[1:]) - 1
    return bool(not np.asarray(log.terminated)[last].all() or (lengths.max() > 1 and lengths.min() == lengths.max()))


def observed_numbers(log: Log, episodes: Ordinals | None = None) -> NDArray[np.float32]:
    """[M, I]: observations as numbers scaled by these episodes (None: all), one-hot codes, images divided by 255."""
    leaves = Scaler.fit(log, episodes=episodes).observation(
        {n: np.asarray(leaf) for n, leaf in log.observation.items()}
    )
    parts: list[NDArray[Any]] = []
    for name, leaf in sorted(leaves.items()):
        kind = log.spec.observation[name]
        if isinstance(kind, Codes):
            parts += [np.eye(size, dtype=np.float32)[leaf[:, c]] for c, size in enumerate(kind.sizes)]
        else:
            flat = leaf.reshape(len(leaf), -1).astype(np.float32)
            parts.append(flat / 255.0 if leaf.dtype == np.uint8 else flat)
    return np.concatenate(parts, axis=1)
