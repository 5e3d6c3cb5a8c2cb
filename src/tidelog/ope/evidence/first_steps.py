"""Logs of some steps: the first ones of every episode, a shorter question, or any as episodes of one step.

The weight of an episode is a product over its steps, so that a few long episodes can have all the weight of a log of
short ones. The return of the first `K` steps needs `K` factors only. It is another quantity than the whole return: what
follows those steps is in no number.

Letters: `N` steps, `M` stored observations, `E` episodes.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tidelog.data.core.log_columns import PLAIN, STORED
from tidelog.data.core.order import number_by_appearance
from tidelog.data.log import Log
from tidelog.errors import ConfigError
from tidelog.ope.evidence.evidence import BY_STEP, Evidence
from tidelog.ope.evidence.propensity_file import FilePropensities

BY_EPISODE = ("episode_ids",)


def check_first_steps(log: Log, steps: Any) -> None:
    """Raise ConfigError unless `steps` is None, or a whole number from 1 to below the longest episode's steps."""
    if steps is None:
        return
    longest = int(np.diff(log.starts).max())
    if isinstance(steps, bool) or not isinstance(steps, int | np.integer) or steps < 1:
        raise ConfigError(f"first_steps = {steps!r}: expected a whole number of at least 1. fix: use first_steps=5")
    if steps >= longest:
        raise ConfigError(
            f"first_steps = {steps}: it has no effect, because the longest episode has {longest:,} "
            f"{'step' if longest == 1 else 'steps'}. fix: remove first_steps"
        )


def cut_log(log: Log, steps: int) -> Log:
    """The log of the first `steps` steps of each episode; an episode that goes on is truncated there."""
    rows = np.flatnonzero(np.asarray(log.step) < steps)
    position, following = np.asarray(log.position)[rows], np.asarray(log.next_position)[rows]
    stored = np.union1d(position, following)
    others = {name for name in PLAIN if name not in (*STORED, *BY_EPISODE, "position", "next_position")}
    columns: dict[str, Any] = {
        name: np.asarray(getattr(log, name))[rows] for name in others if getattr(log, name) is not None
    }
    last = np.append(np.diff(columns["episode"]) > 0, True)
    columns["truncated"] = columns["truncated"] | (last & ~columns["terminated"])
    return replace(
        log,
        observation={name: leaf[stored] for name, leaf in log.observation.items()},
        action_mask=None if log.action_mask is None else log.action_mask[stored],
        position=np.searchsorted(stored, position).astype(np.int32),
        next_position=np.searchsorted(stored, following).astype(np.int32),
        extra={name: values[rows] for name, values in log.extra.items()},
        origin=None,
        **columns,
    )


def single_steps(log: Log, rows: NDArray[np.int64]) -> Log:
    """These rows [R] as episodes of one step, in the clusters of their episodes."""
    others = {name for name in PLAIN if name not in (*STORED, *BY_EPISODE, "position", "next_position")}
    columns: dict[str, Any] = {
        name: np.asarray(getattr(log, name))[rows] for name in others if getattr(log, name) is not None
    }
    cluster = number_by_appearance(log.clusters[columns["episode"]])[0]
    position, number = np.asarray(log.position)[rows], np.arange(len(rows), dtype=np.int32)
    columns |= {"episode": number, "episode_ids": number, "cluster": cluster.astype(np.int32)}
    columns |= {"step": np.zeros_like(number), "position": number, "next_position": number}
    columns |= {"terminated": np.ones(len(rows), bool), "truncated": np.zeros(len(rows), bool)}
    return replace(
        log,
        observation={name: np.asarray(leaf)[position] for name, leaf in log.observation.items()},
        action_mask=None if log.action_mask is None else np.asarray(log.action_mask)[position],
        extra={name: values[rows] for name, values in log.extra.items()},
        origin=None,
        **columns,
    )


def cut_propensities(source: Any, log: Log, steps: int) -> Any:
    """Propensities of the first `steps` steps of each episode of a log, if `source` has one for each step."""
    kept = np.asarray(log.step) < steps
    if isinstance(source, FilePropensities):
        return replace(source, values=source.values[kept])
    numbers = source is not None and not isinstance(source, str) and np.shape(source) == kept.shape
    return np.asarray(source)[kept] if numbers else source


def cut_evidence(evidence: Evidence, steps: int) -> Evidence:
    """The evidence about the first `steps` steps of each episode, with the values of whole episodes."""
    lengths = evidence.lengths
    place = np.arange(len(evidence.reward)) - np.repeat(evidence.starts[:-1], lengths)
    kept = place < steps
    arrays = {name: getattr(evidence, name) for name in BY_STEP}
    parts: dict[str, Any] = {name: None if values is None else values[kept] for name, values in arrays.items()}
    return replace(evidence, starts=np.append(0, np.cumsum(np.minimum(lengths, steps))), **parts)
