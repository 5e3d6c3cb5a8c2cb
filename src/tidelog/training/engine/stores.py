"""A log on the device, in the units of the networks. Letters: `B` batch, `N` steps, `M` stored observations."""

from __future__ import annotations

from typing import Any

import numpy as np

from tidelog.algorithms.core.contract import Algorithm, StoreSpec
from tidelog.algorithms.core.sampling import Stored
from tidelog.data.log import Log
from tidelog.data.scaling import Scaler
from tidelog.data.statistics import actions_are_equal, rewards_are_equal
from tidelog.errors import LogError
from tidelog.networks.arrays import from_host, int32
from tidelog.types import Continuous, Discrete


def stores_of(algorithm: Algorithm, log: Log, scaler: Scaler) -> dict[str, Stored]:
    """Create the stores of an algorithm, filled from one log."""
    return {name: stored(log, store_spec, scaler) for name, store_spec in algorithm.stores(log.spec).items()}


def stored(log: Log, store_spec: StoreSpec, scaler: Scaler) -> Stored:
    """Return the columns of a store; LogError if the log lacks one of them or has nothing to bootstrap from."""
    check_columns(log, store_spec)
    usable = np.flatnonzero(log.has_target) if "reward" in store_spec.columns else None
    if usable is not None and len(usable) == 0:
        raise LogError(
            "no step of this log can be learned from: every episode has one step that is not terminated, and its next "
            "observation is unknown. fix: set terminated=True for one-step decisions, or add a next_observation column"
        )
    space = log.spec.action
    action = space.to_unit(log.action) if isinstance(space, Continuous) else log.action
    return Stored(
        observation={name: from_host(leaf) for name, leaf in scaler.observation(log.observation).items()},
        position=int32(log.position),
        next_position=int32(log.next_position),
        reach=int32(log.reach),
        action=from_host(action),
        episode=int32(log.episode),
        starts=int32(log.starts),
        usable=None if usable is None or len(usable) == len(log.position) else int32(usable),
        reward=None if log.reward is None or usable is None else from_host(scaler.reward(log.reward)),
        terminated=from_host(log.terminated) if "terminated" in store_spec.columns else None,
        mask=None if log.action_mask is None else from_host(log.action_mask),
        weight=None if log.weight is None else from_host(log.weight / mean_weight(log.weight, usable)),
    )


def mean_weight(weight: np.ndarray[Any, Any], rows: np.ndarray[Any, Any] | None) -> float:
    """Return the mean weight of the rows that are read, all rows for None; LogError if it is 0.

    Weights are divided by it: they set the relative weight of rows, and do not change the size of a step.
    """
    mean = float(np.mean(weight if rows is None else weight[rows], dtype=np.float64))
    if mean == 0.0:
        raise LogError(
            "all weights of the steps that are read are 0, expected at least one above 0. fix: correct the weight "
            "column, remove it from the mapping, or hold out other episodes (split_seed)"
        )
    return mean


def check_columns(log: Log, store_spec: StoreSpec) -> None:
    """Raise LogError if the log lacks a column of a store."""
    if "reward" in store_spec.columns and log.reward is None:
        raise LogError("this log has no reward column, and the algorithm learns from rewards. fix: map one, or use bc")


def check_differences(algorithm: Algorithm, log: Log) -> None:
    """Raise LogError if an algorithm learns from rewards, and all decisions have equal rewards or are one action."""
    learns = any("reward" in store_spec.columns for store_spec in algorithm.stores(log.spec).values())
    if learns and actions_are_equal(log):
        first, space = np.asarray(log.action[0]), log.spec.action
        shown = repr(space.names[int(first)]) if isinstance(space, Discrete) and space.names else f"{first}"
        raise LogError(
            f"every action of this log is {shown}, so a policy that is learnt from it cannot differ from the logger; "
            "expected at least two actions. fix: check the mapping of `action`, or use bc, which imitates the logger"
        )
    if learns and log.reward is not None and rewards_are_equal(log):
        raise LogError(
            f"every reward of this log is {np.ravel(log.reward[:1])[0]:g} and all returns are equal; expected rewards "
            "that differ. fix: check the mapping, or use bc, which imitates the logging policy"
        )
