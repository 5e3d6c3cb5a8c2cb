"""Two small logs: mixed observations, masks, uneven episodes, unknown ends; and algorithms for them."""

import dataclasses
from collections.abc import Callable
from functools import cache
from typing import Any

import equinox as eqx
import jax
import numpy as np

from tidelog import Log
from tidelog.algorithms.names import ALGORITHMS
from tidelog.algorithms.sampling import Batch
from tidelog.data.statistics import Scaler
from tidelog.training.loop import as_arrays
from tidelog.training.stores import stores_of
from tidelog.types import Continuous, Discrete, Hybrid, MultiDiscrete

QUICK = {"xla_backend_optimization_level": 0}  # for programs that run a few times: half the compile time
KINDS = {"discrete": Discrete, "continuous": Continuous, "multi": MultiDiscrete, "hybrid": Hybrid}
ACTIONS = 4
SMALL = {
    "hidden": (8,), "generator_hidden": (8,), "perturbation_hidden": (8,), "embedding": 2, "batch_size": 16,
    "target_samples": 3, "samples": 4,
}  # fmt: skip
VISIBLE = {
    "discrete-bcq": {"epsilon": 1.0, "threshold": 0.01},  # samples differ from seed to seed
    "discrete-cql": {"epsilon": 1.0},
    "cql": {"samples": 3},
    "td3-bc": {"policy_delay": 1},  # every network moves in the first update
    "rebrac": {"policy_delay": 1},
}


def uneven(rng: np.random.Generator, episodes: int, longest: int = 7) -> dict[str, Any]:
    """Columns of episodes of random length, each terminated or truncated."""
    lengths = rng.integers(1, longest + 1, episodes)
    ends = np.zeros(lengths.sum(), bool)
    ends[np.cumsum(lengths) - 1] = True
    terminated = ends & np.repeat(rng.random(episodes) < 0.5, lengths)
    return {
        "episode": np.repeat(np.arange(episodes), lengths),
        "terminated": terminated,
        "truncated": ends & ~terminated,
        "reward": 3.0 * rng.standard_normal(len(ends)).astype(np.float32),
    }


def world(kind: str, seed: int = 0, **changes: Any) -> Log:
    """A random log: leaves "vitals" (4 numbers) and "ward" (two columns of codes); discrete actions are masked.

    Actions with parts are a number, two choices and one choice, [N, 4].
    """
    rng = np.random.default_rng(seed)
    columns = uneven(rng, 16)
    rows = len(columns["episode"])
    vitals = rng.standard_normal((rows, 4)).astype(np.float32)
    columns["observation"] = {"vitals": vitals, "ward": rng.permutation(np.arange(2 * rows) % 3).reshape(rows, 2)}
    if kind == "continuous":
        bounds = ([-2.0, -2.0], [2.0, 2.0])
        action = np.clip(rng.standard_normal((rows, 2)), -1.9, 1.9).astype(np.float32)
        return Log.from_arrays(**(columns | {"action": action, "bounds": bounds} | changes))
    if kind in ("multi", "hybrid"):
        action = rng.permutation(np.arange(2 * rows) % 3).reshape(rows, 2)
        dose = np.clip(rng.standard_normal((rows, 1)), -1.9, 1.9).astype(np.float32)
        parts = {"dose": {"drip": dose}, "drugs": action, "ward": np.arange(rows) % 2}
        bounds = {"dose": {"drip": (-2.0, 2.0)}}
        own = {"action": action} if kind == "multi" else {"action": parts, "bounds": bounds}
        rows_of_parts = {"action": changes.pop("action")} if kind == "hybrid" and "action" in changes else {}
        return dataclasses.replace(Log.from_arrays(**(columns | own | changes)), **rows_of_parts)
    mask = rng.random((rows, ACTIONS)) < 0.6
    action = rng.permutation(np.arange(rows) % ACTIONS)
    mask[np.arange(rows), action] = True
    return Log.from_arrays(**(columns | {"action": action, "actions": ACTIONS, "action_mask": mask} | changes))


def small(name: str, **changes: Any) -> Any:
    """Return the algorithm of that name with small networks and learning rates for visible effects of 3 updates."""
    fields = {field.name for field in dataclasses.fields(ALGORITHMS[name])}
    rates = {field: 1e-2 for field in fields if field.endswith("learning_rate")}
    sizes = {field: size for field, size in SMALL.items() if field in fields}
    return ALGORITHMS[name](**(sizes | rates | VISIBLE.get(name, {}) | changes))


def stores(algorithm: Any, log: Log) -> Any:
    """Return the algorithm's stores, unscaled."""
    return stores_of(algorithm, log, Scaler())


def drawn(algorithm: Any, log: Log, seed: int = 0) -> Batch:
    """Return a batch of the algorithm's only phase."""
    (phase,) = algorithm.phases()
    return _drawn(phase.samplers, stores(algorithm, log)[phase.samplers.store], jax.random.key(seed))


@eqx.filter_jit
def _drawn(samplers: Any, store: Any, key: jax.Array) -> Batch:
    return samplers.batch(store, samplers.order.init(8), key, jax.numpy.zeros(()))[0]


@cache
def compiled(step: Callable[..., Any]) -> Callable[..., Any]:
    """Return a phase's step, compiled once for all tests of a process; numbers are arguments of the program."""
    program = eqx.filter_jit(step, compiler_options=QUICK)
    return lambda algorithm, state, batch: program(as_arrays(algorithm), state, batch)
