"""Minari data sets: T + 1 observations per episode, all of them stored."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from tidelog.data.core.order import Values
from tidelog.data.core.raw import Finding, RawLog
from tidelog.data.core.registry import unreadable
from tidelog.data.parsing.arrays import from_arrays

_BROKEN = (OSError, ValueError, KeyError, TypeError, AssertionError, RuntimeError, json.JSONDecodeError)
_DATA_SET = "a Minari data set"
_FIELDS = {"reward": "rewards", "terminated": "terminations", "truncated": "truncations"}
_INFO_NAMES = ("propensity", "weight", "cluster", "action_mask")


def raw_minari(source: Any) -> RawLog:
    """Read all episodes of a data set as arrays; LogError if it is missing, broken, or of an unsupported kind."""
    dataset = _dataset(source)
    spaces = dict(_flat_space("", dataset.observation_space, str(source)))
    space = dataset.action_space
    kind = type(space).__name__
    box = kind == "Box" and len(space.shape) <= 1 and space.dtype.kind == "f"
    if not (box or kind == "Discrete" or (kind == "MultiDiscrete" and space.nvec.ndim == 1)):
        fix = "use Discrete, MultiDiscrete, or a flat Box of floats"
        raise unreadable(source, f"actions of type {kind}", _DATA_SET, fix)
    try:
        episodes = list(dataset.iterate_episodes())
        if not episodes:
            raise ValueError("the data set is empty")
        leaves = [dict(_flat_values("", episode.observations)) for episode in episodes]
        observation, following = _both_sides(episodes, leaves, spaces)
        actions = _joined(episode.actions for episode in episodes)
        lengths = [len(episode.rewards) for episode in episodes]
        columns: dict[str, Any] = {
            name: _joined(getattr(episode, field) for episode in episodes) for name, field in _FIELDS.items()
        }
        columns |= _infos(episodes, lengths)
    except _BROKEN as error:
        found = f"episodes that cannot be read ({error})"
        raise unreadable(source, found, _DATA_SET, "download or create it again") from error
    declared, action, note = _action(space, actions)
    raw = from_arrays(
        f"minari data set {dataset.id}",
        observation=observation,
        next_observation=following,
        action=action,
        episode=np.repeat([int(episode.id) for episode in episodes], lengths),
        sizes={name: kind.sizes for name, kind in spaces.items() if kind.sizes},
        **declared,
        **columns,
    )
    return raw if note is None else replace(raw, found=(*raw.found, ("converted", note)))


class _Leaf:
    """The layout of one leaf: `sizes` and `start` of codes (None for numbers),
    or the shape of an image.
    """

    def __init__(
        self,
        sizes: tuple[int, ...] | None = None,
        start: Values | int = 0,
        image: tuple[int, ...] | None = None,
    ) -> None:
        self.sizes = sizes
        self.start = start
        self.image = image

    def column(self, values: Values) -> Values:
        if self.image is not None:
            return values.reshape(len(values), *self.image)
        if self.sizes is not None:
            return (values.reshape(len(values), -1) - self.start).astype(np.int64)
        return values if values.dtype.kind == "f" else values.astype(np.float64)


def _dataset(source: Any) -> Any:
    if hasattr(source, "iterate_episodes"):
        return source
    import minari

    try:
        if Path(source).exists():
            inner = Path(source) / "data"
            return minari.MinariDataset(inner if inner.is_dir() else Path(source))
        return minari.load_dataset(str(source))
    except FileNotFoundError as error:
        fix = f"run `minari download {source}`, set MINARI_DATASETS_PATH, or pass the path of the folder"
        raise unreadable(source, f"the data set does not exist ({error})", _DATA_SET, fix) from error
    except _BROKEN as error:
        found = f"a data set that cannot be opened ({error})"
        raise unreadable(source, found, _DATA_SET, "download or create it again") from error


def _flat_space(name: str, space: Any, source: str) -> Iterator[tuple[str, _Leaf]]:
    """Leaves of a space, named by Dict keys and Tuple indices joined by '/'."""
    kind = type(space).__name__
    if kind in ("Dict", "Tuple"):
        items = space.items() if kind == "Dict" else enumerate(space)
        for key, inner in items:
            yield from _flat_space(f"{name}/{key}" if name else str(key), inner, source)
    elif kind == "Discrete":
        yield name or "observation", _Leaf((int(space.n),), int(space.start))
    elif kind == "MultiDiscrete" and space.nvec.ndim == 1:
        yield name or "observation", _Leaf(tuple(map(int, space.nvec)), np.asarray(space.start))
    elif kind == "Box" and len(space.shape) == 3 and space.dtype == np.uint8:
        yield name or "observation", _Leaf(image=space.shape)
    elif kind in ("Box", "MultiBinary") and len(space.shape) <= 1:
        yield name or "observation", _Leaf()
    else:
        shape = f" of shape {list(space.shape)}" if getattr(space, "shape", None) else ""
        fix = "use a flat Box, Discrete, Dict, Tuple, or images [H, W, C] of uint8"
        raise unreadable(source, f"observations of type {kind}{shape}", _DATA_SET, fix)


def _flat_values(name: str, values: Any) -> Iterator[tuple[str, Values]]:
    if isinstance(values, dict | tuple):
        for key, inner in values.items() if isinstance(values, dict) else enumerate(values):
            yield from _flat_values(f"{name}/{key}" if name else str(key), inner)
    else:
        yield name or "observation", np.asarray(values)


def _both_sides(
    episodes: list[Any], leaves: list[dict[str, Values]], spaces: dict[str, _Leaf]
) -> tuple[dict[str, Values], dict[str, Values]]:
    """Observations 0 .. T-1 and 1 .. T of every episode; ValueError unless an episode has T + 1 observations."""
    for episode, named in zip(episodes, leaves, strict=True):
        for name, values in named.items():
            if len(values) != len(episode.rewards) + 1:
                counts = f"{len(values)} observations for {len(episode.rewards)} steps in '{name}'"
                raise ValueError(f"episode {episode.id}: {counts}")
    now = {name: leaf.column(_joined(named[name][:-1] for named in leaves)) for name, leaf in spaces.items()}
    then = {name: leaf.column(_joined(named[name][1:] for named in leaves)) for name, leaf in spaces.items()}
    return now, then


def _infos(episodes: list[Any], lengths: list[int]) -> dict[str, Values]:
    """The columns in the infos of every episode: propensities, weights, clusters, and masks of T + 1 rows."""
    present = {name for name in _INFO_NAMES if all(name in (episode.infos or {}) for episode in episodes)}
    pairs = list(zip(episodes, lengths, strict=True))
    columns = {
        name: _joined(episode.infos[name][:steps] for episode, steps in pairs) for name in present - {"action_mask"}
    }
    if "action_mask" in present:
        masks = [np.asarray(episode.infos["action_mask"]) for episode in episodes]
        columns["action_mask"] = _joined(mask[:steps] for mask, steps in zip(masks, lengths, strict=True))
        if all(len(mask) == steps + 1 for mask, steps in zip(masks, lengths, strict=True)):
            columns["next_action_mask"] = _joined(mask[1:] for mask in masks)
    return columns


def _action(space: Any, values: Values) -> tuple[dict[str, Any], Values, Finding | None]:
    """The declared sizes or bounds of the action, its values counted from 0, and a note if they were not."""
    if type(space).__name__ == "Box":
        finite = bool(np.isfinite(space.low).all() and np.isfinite(space.high).all())
        limits = [np.atleast_1d(end).tolist() for end in (space.low, space.high)]
        return {"bounds": limits if finite else None}, values, None
    start = np.asarray(space.start)
    sizes = int(space.n) if start.ndim == 0 else list(map(int, space.nvec))
    note = Finding("action", None, f"actions from {start}", "actions from 0", f"add {start} to the policy's actions")
    return {"actions": sizes}, values - start, note if start.any() else None


def _joined(parts: Any) -> Values:
    listed = [np.asarray(part) for part in parts]
    return np.concatenate(listed) if listed else np.zeros(0)
