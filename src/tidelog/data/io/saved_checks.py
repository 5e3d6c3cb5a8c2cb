"""Check the columns of a saved log again: a manifest with right checksums may have been written by anyone.

Letters: `N` rows, `E` episodes, `M` stored observations.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tidelog.data.core.declared import DeclaredPropensities
from tidelog.data.core.order import Values
from tidelog.errors import LogError
from tidelog.types import Codes, Continuous, Discrete, Image, MultiDiscrete, Spec, Vector

_KINDS = {  # of the columns [N]
    "position": "i", "next_position": "i", "episode": "i", "step": "i", "terminated": "b", "truncated": "b",
    "propensity": "f", "stratum": "i", "weight": "f", "time": "iufM", "cluster": "i",
}  # fmt: skip
Plain = Mapping[str, Values | None]
MOST_STRATA = 2**24


def check_structure(
    spec: Spec,
    observation: Mapping[str, Values],
    plain: Plain,
    extra: Mapping[str, Values],
    declared: DeclaredPropensities | None = None,
) -> None:
    """Raise LogError unless every column has the type and the number of rows of its role; reads no contents."""
    count, stored = len(_of(plain, "position")), len(next(iter(observation.values())))
    if not count:
        raise LogError("the log has no rows")
    for name, kinds in _KINDS.items():
        if plain.get(name) is not None:
            expect_array(name, _of(plain, name), kinds, (count,))
    for name, values in extra.items():
        expect_array(name, values, "biufMU", (count,))
    action = spec.action
    if isinstance(action, Discrete):
        expect_array("action", _of(plain, "action"), "i", (count,))
    elif isinstance(action, MultiDiscrete):
        expect_array("action", _of(plain, "action"), "i", (count, len(action.sizes)))
    elif isinstance(action, Continuous):
        expect_array("action", _of(plain, "action"), "f", (count, action.size))
    else:
        raise LogError(f"actions of kind {type(action).__name__} in a log")
    if declared is not None:
        _check_declared(declared, spec, plain)
    if plain.get("reward") is not None:
        expect_array("reward", _of(plain, "reward"), "f", (count,) if spec.rewards is None else (count, spec.rewards))
    if spec.masked != (plain.get("action_mask") is not None):
        raise LogError("the spec and the columns differ about masks")
    if spec.masked:
        if not isinstance(action, Discrete):
            raise LogError(f"masks of actions of kind {type(action).__name__}")
        expect_array("action_mask", _of(plain, "action_mask"), "b", (stored, action.n))
    expect_array("episode_ids", _of(plain, "episode_ids"), "iufUM", (len(_of(plain, "episode_ids")),))
    for name, leaf in spec.observation.items():
        if isinstance(leaf, Vector):
            expect_array(name, observation[name], "f", (stored, leaf.size))
        elif isinstance(leaf, Codes):
            expect_array(name, observation[name], "i", (stored, len(leaf.sizes)))
        elif isinstance(leaf, Image):
            expect_array(name, observation[name], "u", (stored, leaf.height, leaf.width, leaf.channels))
        else:
            raise LogError(f"observations of kind {type(leaf).__name__} in a log")


def _check_declared(declared: DeclaredPropensities, spec: Spec, plain: Plain) -> None:
    """Raise LogError unless declared propensities fit the actions and have their columns."""
    chances, action = declared.probabilities, spec.action
    if not isinstance(action, Discrete) or plain.get("propensity") is None:
        raise LogError("propensities are declared, but actions are not discrete or have none")
    if chances is not None and not (len(chances) == action.n and min(chances) > 0 and abs(sum(chances) - 1) < 1e-6):
        raise LogError(f"declared propensities of {action.n} actions are {list(chances)}")
    if bool(declared.by) != (plain.get("stratum") is not None):
        raise LogError("declared strata and the column of strata differ")


def check_contents(spec: Spec, observation: Mapping[str, Values], plain: Plain) -> None:
    """Raise LogError unless episodes and positions are in order, codes in range, and numbers finite."""
    episode, position, after = (_of(plain, name) for name in ("episode", "position", "next_position"))
    last = np.append(episode[1:] != episode[:-1], True)
    inside = ~last[:-1]
    starts = np.flatnonzero(np.append(True, last[:-1]))
    stored = len(next(iter(observation.values())))
    ordered = episode[0] == 0 and bool((episode[1:] == episode[:-1] + last[:-1]).all())
    _expect(ordered and int(episode[-1]) + 1 == len(_of(plain, "episode_ids")), "episodes are not numbered in order")
    steps = np.arange(len(episode)) - np.repeat(starts, np.diff(np.append(starts, len(episode))))
    _expect(bool((_of(plain, "step") == steps).all()), "steps are not numbered in order")
    places = position[0] == 0 and bool((position[1:] == after[:-1] + last[:-1]).all())
    moves = after - position
    known = bool((moves[:-1][inside] == 1).all()) and bool(((moves == 0) | (moves == 1)).all())
    _expect(places and known and int(after[-1]) + 1 == stored, "positions do not match the stored observations")
    for name in ("terminated", "truncated"):
        _expect(not (_of(plain, name) & ~last).any(), f"{name} is set before the last row of an episode")
    action = _of(plain, "action")
    if isinstance(spec.action, Discrete | MultiDiscrete):
        sizes = spec.action.n if isinstance(spec.action, Discrete) else np.asarray(spec.action.sizes)
        _expect(bool(((action >= 0) & (action < sizes)).all()), "actions are out of range")
    if spec.masked:
        allowed = _of(plain, "action_mask")[position, action]
        _expect(bool(allowed.all()), "a logged action is masked out")
    for name, leaf in spec.observation.items():
        if isinstance(leaf, Codes):
            codes, sizes = observation[name], np.asarray(leaf.sizes)
            _expect(bool(((codes >= 0) & (codes < sizes)).all()), f"codes of '{name}' are out of range")
    numbers: dict[str, Any] = {name: plain.get(name) for name in ("action", "reward", "propensity", "weight")}
    for name, values in {**numbers, **observation}.items():
        if values is not None and values.dtype.kind == "f":
            _expect(bool(np.isfinite(values).all()), f"'{name}' holds a number that is not finite")
    propensity, cluster = plain.get("propensity"), plain.get("cluster")
    _expect(propensity is None or bool((propensity > 0).all()), "propensities are not positive")
    _expect(cluster is None or bool((cluster >= 0).all()), "clusters are negative")
    stratum = plain.get("stratum")
    _expect(stratum is None or bool(((stratum >= 0) & (stratum < MOST_STRATA)).all()), "strata are out of range")


def expect_array(name: str, values: Values, kinds: str, shape: tuple[int, ...]) -> None:
    """Raise LogError unless an array has one of these kinds of types, and this shape."""
    if values.dtype.kind not in kinds or values.shape != shape:
        raise LogError(f"'{name}' holds {values.dtype} {list(values.shape)}: expected {list(shape)} of kind '{kinds}'")


def _expect(holds: bool, found: str) -> None:
    if not holds:
        raise LogError(found)


def _of(plain: Plain, name: str) -> Values:
    values = plain[name]
    if values is None:
        raise LogError(f"the column '{name}' is missing")
    return values
