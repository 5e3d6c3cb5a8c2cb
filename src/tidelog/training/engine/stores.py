"""A log on the device, in the units that networks see. Letters: `B` batch, `N` steps, `M` stored observations."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

from tidelog.algorithms.core.contract import Algorithm, StoreSpec
from tidelog.algorithms.core.sampling import Stored
from tidelog.data.log import Log
from tidelog.data.scaling import Scaler
from tidelog.errors import LogError
from tidelog.types import Continuous


def stores_of(algorithm: Algorithm, log: Log, scaler: Scaler) -> dict[str, Stored]:
    """The stores that an algorithm keeps, filled from one log."""
    return {name: stored(log, keep, scaler) for name, keep in algorithm.stores(log.spec).items()}


def stored(log: Log, keep: StoreSpec, scaler: Scaler) -> Stored:
    """The columns that a store keeps; LogError where the log lacks one of them or has nothing to bootstrap from."""
    check_columns(log, keep)
    usable = np.flatnonzero(log.has_target) if "reward" in keep.columns else None
    if usable is not None and len(usable) == 0:
        raise LogError(
            "no step of this log can be learnt from: every episode is one step, not terminated, and what followed is "
            "unknown; say terminated=True for one-step decisions, or add a next_observation column"
        )
    space = log.spec.action
    action = space.to_unit(log.action) if isinstance(space, Continuous) else log.action
    return Stored(
        observation={name: jnp.asarray(leaf) for name, leaf in scaler.observation(log.observation).items()},
        position=_index(log.position),
        next_position=_index(log.next_position),
        reach=_index(log.reach),
        action=jnp.asarray(action),
        episode=_index(log.episode),
        starts=_index(log.starts),
        usable=None if usable is None or len(usable) == len(log.position) else _index(usable),
        reward=None if log.reward is None or usable is None else jnp.asarray(scaler.reward(log.reward)),
        terminated=jnp.asarray(log.terminated) if "terminated" in keep.columns else None,
        mask=None if log.action_mask is None else jnp.asarray(log.action_mask),
        weight=None if log.weight is None else jnp.asarray(log.weight / mean_weight(log.weight, usable)),
    )


def mean_weight(weight: np.ndarray[Any, Any], rows: np.ndarray[Any, Any] | None) -> float:
    """The mean weight of the rows that are read, all of them for None; LogError where that is 0.

    Weights are divided by it, so that they say how much rows count relative to each other and not how long a step is.
    """
    mean = float(np.mean(weight if rows is None else weight[rows], dtype=np.float64))
    if mean == 0.0:
        raise LogError(
            "all weights of the steps that are read are 0, so nothing counts; expected at least one above 0; fix: "
            "correct the weight column, leave it out of the mapping, or hold out other episodes (split_seed)"
        )
    return mean


def check_columns(log: Log, keep: StoreSpec) -> None:
    """Raise LogError where the log lacks a column that a store keeps."""
    if "reward" in keep.columns and log.reward is None:
        raise LogError("this log has no reward column, and the algorithm learns from rewards: map one, or use bc")


def check_rewards(algorithm: Algorithm, log: Log) -> None:
    """Raise LogError where an algorithm learns from rewards that tell no decision from another."""
    learns = any("reward" in keep.columns for keep in algorithm.stores(log.spec).values())
    if learns and log.reward is not None and _tells_nothing(log.reward, np.diff(log.starts)):
        raise LogError(
            f"every reward of this log is {np.ravel(log.reward[:1])[0]:g}, and no return differs: there is nothing to "
            "learn from; check the mapping, or use bc, which repeats the logger"
        )


def _tells_nothing(reward: np.ndarray[Any, Any], lengths: np.ndarray[Any, Any]) -> bool:
    """Whether no reward [N] and no return tells one decision from another; `lengths` [E] are the episodes'."""
    if reward.min() != reward.max():
        return False
    return float(reward.flat[0]) == 0.0 or bool((lengths == lengths[0]).all())


def _index(values: np.ndarray[Any, Any]) -> Any:
    return jnp.asarray(values.astype(np.int32))
