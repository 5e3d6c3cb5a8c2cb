"""Lists of settings: grids, random draws, and the settings in which trials differ."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Sequence
from numbers import Integral, Real
from typing import Any

import numpy as np

from tidelog.algorithms.names import as_algorithms
from tidelog.errors import ConfigError
from tidelog.training.options import whole

MOST_TRIALS = 10_000


def grid(algorithm: Any, **axes: Sequence[Any]) -> list[Any]:
    """Return an algorithm with every combination of settings, for `tl.sweep`; the last axis varies fastest.

    An axis is a hyper-parameter with the list of its values: `tl.grid(tl.IQL(), temperature=(1, 3, 10))`. Raises
    ConfigError for an unknown hyper-parameter, an invalid value, and an axis without values.

    Example:
        >>> trials = tl.grid(tl.IQL(), temperature=(1.0, 3.0), hidden=((32,), (64, 64)))
        >>> [(float(one.temperature), one.hidden) for one in trials]
        [(1.0, (32,)), (1.0, (64, 64)), (3.0, (32,)), (3.0, (64, 64))]
    """
    (base,) = as_algorithms(algorithm)
    for name, values in axes.items():
        if isinstance(values, str) or not isinstance(values, Sequence) or not len(values):
            raise ConfigError(f"{name} = {values!r}", "a list of values", f"write {name}=({values!r},)")
    count = math.prod(len(values) for values in axes.values())
    if count > MOST_TRIALS:
        raise ConfigError(f"the grid has {count:,} points", f"at most {MOST_TRIALS:,}", "use tl.draws")
    return [
        dataclasses.replace(base, **dict(zip(axes, point, strict=True))) for point in itertools.product(*axes.values())
    ]


def draws(algorithm: Any, count: int, seed: int = 0, **ranges: Sequence[Any]) -> list[Any]:
    """Return an algorithm with `count` random draws of settings, for `tl.sweep`; equal seeds give equal draws.

    A range is `(low, high)`, `(low, high, "log")` for a uniform logarithm, or a list (in square brackets) of values
    that are equally likely. Whole numbers are drawn for settings that hold them, both ends included. Raises
    ConfigError for an unknown hyper-parameter and an invalid range or value.

    Example:
        >>> trials = tl.draws(tl.IQL(), 3, seed=0, temperature=(0.3, 30.0, "log"), hidden=[(32,), (64, 64)])
        >>> [round(float(one.temperature), 1) for one in trials]
        [5.6, 0.4, 0.3]
    """
    (base,) = as_algorithms(algorithm)
    count = whole("count", count)
    if not 1 <= count <= MOST_TRIALS:
        raise ConfigError(f"count = {count}", f"1 to {MOST_TRIALS:,} draws")
    if not ranges:
        raise ConfigError("ranges: found none", "at least one", "pass one, as in temperature=(1, 10)")
    if whole("seed", seed) < 0:
        raise ConfigError(f"seed = {seed}", "at least 0")
    kinds = {field.name: field.metadata.get("type") for field in dataclasses.fields(base)}
    random = np.random.default_rng(seed)
    return [
        dataclasses.replace(base, **{name: _draw(random, name, one, kinds.get(name)) for name, one in ranges.items()})
        for _ in range(count)
    ]


def _draw(random: np.random.Generator, name: str, values: Sequence[Any], kind: Any) -> Any:
    if isinstance(values, list) and values:
        return values[int(random.integers(len(values)))]
    ends = values[:2] if isinstance(values, tuple) and len(values) in (2, 3) else ()
    numbers = [float(end) for end in ends if isinstance(end, Real) and not isinstance(end, bool)]
    logarithmic = len(values) == 3 and values[2] == "log"
    if len(numbers) != 2 or (len(values) == 3 and not logarithmic):
        raise ConfigError(
            f"{name} = {values!r}",
            "(low, high), (low, high, 'log') or a list of values",
            f"write {name}=(1, 10, 'log')",
        )
    low, high = numbers
    if not (math.isfinite(low) and math.isfinite(high) and low < high and (low > 0 or not logarithmic)):
        above = "above 0, " if logarithmic else ""
        raise ConfigError(f"{name} = {values!r}", f"finite numbers {above}the first one smaller")
    if kind is int:
        if not all(isinstance(end, Integral) for end in ends):
            raise ConfigError(f"{name} = {values!r}", "whole numbers as ends", f"write {name}=(64, 256)")
        if not logarithmic:
            return int(random.integers(int(low), int(high) + 1))
        return int(min(high, round(math.exp(random.uniform(math.log(low), math.log(high))))))
    return math.exp(random.uniform(math.log(low), math.log(high))) if logarithmic else float(random.uniform(low, high))


def differing_settings(configs: Sequence[dict[str, Any]]) -> list[str]:
    """Return the names of the settings that are not equal in all of these configurations, in their order."""
    names = dict.fromkeys(name for config in configs for name in config)
    return [name for name in names if any(config.get(name) != configs[0].get(name) for config in configs)]
