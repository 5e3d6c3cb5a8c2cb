"""Statistics of a log."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np

from tidelog.data.core.log_columns import LogColumns
from tidelog.data.core.order import Values
from tidelog.types import Codes, Discrete, Image, MultiDiscrete

_BINS = 30
_CHUNK = 65_536
_PIXELS = 1 << 22
_MOST_COUNTED = 1_000_000  # codes


@dataclass(frozen=True)
class Statistics:
    """Plain numbers, lists and dictionaries; returns are undiscounted sums of an episode's rewards.

    `lengths`, `returns` and `propensities` hold min, mean, median and max. `actions` holds counts (discrete) or mean,
    std, min and max per dimension. `features` holds mean, std, min and max of each numeric column, and of all pixels of
    an image, over all stored observations. `categories` holds the count of each code in the stored observations.
    `missing_propensities` is a share of the rows.
    """

    episodes: int
    steps: int
    observations: int
    terminated: int
    truncated: int
    without_target: int
    lengths: dict[str, float]
    returns: dict[str, Any] | None
    rewards: dict[str, Any] | None
    actions: dict[str, Any]
    propensities: dict[str, Any] | None
    missing_propensities: float
    features: dict[str, dict[str, float]]
    categories: dict[str, dict[str, int]]

    def to_json(self) -> dict[str, Any]:
        """Plain dictionaries and lists."""
        return asdict(self)


def describe(log: LogColumns) -> Statistics:
    """Compute the statistics of a log."""
    returns = episode_returns(log)
    return Statistics(
        episodes=len(log.episode_ids),
        steps=log.steps,
        observations=stored(log),
        terminated=int(log.terminated.sum()),
        truncated=int(log.truncated.sum()),
        without_target=int((~log.has_target).sum()),
        lengths=summary(np.diff(log.starts)),
        returns=None if returns is None else summary(returns),
        rewards=None if log.reward is None else summary(log.reward),
        actions=_actions(log),
        propensities=None if log.propensity is None else summary(log.propensity),
        missing_propensities=1.0 if log.propensity is None else 0.0,
        features=dict(_features(log)),
        categories=dict(_categories(log)),
    )


def episode_returns(log: LogColumns) -> Values | None:
    """[E] or [E, K] float64: the undiscounted sum of each episode's rewards; None without rewards."""
    if log.reward is None:
        return None
    returns: Values = np.add.reduceat(log.reward.astype(np.float64), log.starts[:-1], axis=0)
    return returns


def rewards_are_equal(log: LogColumns) -> bool:
    """Whether all rewards and all returns are equal, so that nothing can be learnt from them; False without rewards."""
    if log.reward is None or log.reward.min() != log.reward.max():
        return False
    lengths = np.diff(log.starts)
    return float(log.reward.flat[0]) == 0.0 or bool((lengths == lengths[0]).all())


def actions_are_equal(log: LogColumns) -> bool:
    """Whether every decision is the same action, so that nothing shows what another action earns."""
    return bool((log.action.min(axis=0) == log.action.max(axis=0)).all())


def stored(log: LogColumns) -> int:
    """M: the number of stored observations."""
    return int(log.next_position[-1]) + 1


def summary(values: Values) -> dict[str, Any]:
    """Minimum, mean, median and maximum along the first axis, as numbers or lists."""
    wide = values.astype(np.float64)
    measures = {"min": wide.min(axis=0), "mean": wide.mean(axis=0)}
    measures |= {"median": np.median(wide, axis=0), "max": wide.max(axis=0)}
    return {name: np.asarray(value).tolist() for name, value in measures.items()}


class Bins(NamedTuple):
    """Counts [B] between edges [B + 1]; `whole` if every bin is one whole number."""

    counts: Values
    edges: Values
    whole: bool


def bins(values: Values) -> Bins:
    """Bins of finite numbers: one per whole number if there are few, else thirty of equal width."""
    values = np.asarray(values, np.float64)
    low, high = float(values.min()), float(values.max())
    if low == high:
        return Bins(np.array([len(values)]), np.array([low, high]), low % 1 == 0)
    if high - low < _BINS and bool((values % 1 == 0).all()):
        edges = np.arange(low, high + 2) - 0.5
        return Bins(np.bincount((values - low).astype(np.int64)), edges, True)
    counts, edges = np.histogram(values / 2, _BINS, (low / 2, high / 2))
    return Bins(counts, edges * 2, False)


def moments(values: Any) -> tuple[Values, Values]:
    """Mean and standard deviation [O] float64 of `[M, O]`, in two passes over chunks to limit memory."""
    chunks = range(0, len(values), _CHUNK)
    mean = sum(values[at : at + _CHUNK].astype(np.float64).sum(axis=0) for at in chunks) / len(values)
    squares = sum(np.square(values[at : at + _CHUNK].astype(np.float64) - mean).sum(axis=0) for at in chunks)
    return np.asarray(mean), np.sqrt(np.asarray(squares) / len(values))


def whole_columns(values: Any, fills: Values) -> list[int]:
    """Return the columns of `[M, O]` that have only whole numbers, or the values of `fills` [O], in one pass."""
    columns = np.arange(len(fills))
    for at in range(0, len(values), _CHUNK):
        if not len(columns):
            break
        chunk = values[at : at + _CHUNK][:, columns]
        columns = columns[((chunk == np.round(chunk)) | (chunk == fills[columns])).all(axis=0)]
    return [int(column) for column in columns]


def _actions(log: LogColumns) -> dict[str, Any]:
    space = log.spec.action
    if isinstance(space, Discrete):
        return {"counts": _counts(log.action, space.n, space.names)}
    if isinstance(space, MultiDiscrete):
        columns = (_counts(log.action[:, place], size) for place, size in enumerate(space.sizes))
        return {"counts": {str(place): list(counts.values()) for place, counts in enumerate(columns)}}
    mean, std = moments(log.action)
    low, high = log.action.min(axis=0), log.action.max(axis=0)
    return {"mean": mean.tolist(), "std": std.tolist(), "min": low.tolist(), "max": high.tolist()}


def _features(log: LogColumns) -> Iterator[tuple[str, dict[str, float]]]:
    for name, leaf in log.observation.items():
        if isinstance(log.spec.observation[name], Codes):
            continue
        if isinstance(log.spec.observation[name], Image):
            yield name, _image(leaf)
            continue
        mean, std = moments(leaf)
        measures = {"mean": mean, "std": std, "min": leaf.min(axis=0), "max": leaf.max(axis=0)}
        for place, label in enumerate(_labels(log, name)):
            yield label, {measure: float(values[place]) for measure, values in measures.items()}


def _image(leaf: Values) -> dict[str, float]:
    """Statistics of all pixels of `[M, H, W, C]`, computed in chunks."""
    chunk = max(1, _PIXELS // leaf[0].size)
    sums = np.zeros(2)
    for at in range(0, len(leaf), chunk):
        counts = np.bincount(leaf[at : at + chunk].reshape(-1), minlength=256)
        sums += counts @ np.arange(256), counts @ np.arange(256) ** 2
    mean, square = sums / leaf.size
    std = float(np.sqrt(max(square - mean**2, 0.0)))
    return {"mean": float(mean), "std": std, "min": float(leaf.min()), "max": float(leaf.max())}


def _categories(log: LogColumns) -> Iterator[tuple[str, dict[str, int]]]:
    for name, leaf in log.observation.items():
        spec = log.spec.observation[name]
        if isinstance(spec, Codes):
            for place, label in enumerate(_labels(log, name)):
                words = spec.vocabularies[place] if spec.vocabularies else ()
                yield label, _counts(leaf[:, place], spec.sizes[place], words)


def _counts(codes: Values, size: int, names: Sequence[str] = ()) -> dict[str, int]:
    """The number of rows with each code by its name; of very many codes, only those that occur."""
    if size > _MOST_COUNTED:
        found, counts = np.unique(codes, return_counts=True)
    else:
        found, counts = np.arange(size), np.bincount(codes, minlength=size)
    return {
        names[code] if names else str(code): count for code, count in zip(found.tolist(), counts.tolist(), strict=True)
    }


def _labels(log: LogColumns, name: str) -> list[str]:
    leaf = log.spec.observation[name]
    if isinstance(leaf, Image):
        return [name]
    width = len(leaf.sizes) if isinstance(leaf, Codes) else leaf.size
    return list(leaf.names) or [f"{name}[{place}]" for place in range(width)]
