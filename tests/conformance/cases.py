"""Every algorithm with every kind of action that it supports, and functions to inspect an algorithm."""

from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Any

import equinox as eqx
import jax
import numpy as np
import pytest

from tests.algorithms.worlds import KINDS, compiled, drawn, small, stores, world
from tidelog import ConfigError, Log
from tidelog.algorithms.hyperparameters import from_config, to_config
from tidelog.algorithms.names import algorithm_class
from tidelog.policies.policy import named_arrays
from tidelog.training.engine import Engine
from tidelog.training.loop import Member, as_arrays

BUILT_IN = ("iql", "bc", "bcq", "discrete-bcq", "td3-bc", "rebrac", "cql", "discrete-cql", "fql")
DETERMINISTIC = ("td3-bc", "rebrac")  # their policies have one action for all keys, and no density
the_world = cache(world)


@dataclass(frozen=True)
class Case:
    """One algorithm with one kind of action."""

    name: str
    kind: str
    algorithm: Any

    @property
    def log(self) -> Log:
        return the_world(self.kind)

    @property
    def phase(self) -> Any:
        (phase,) = self.algorithm.phases()
        return phase

    def but(self, **changes: Any) -> "Case":
        return replace(self, algorithm=replace(self.algorithm, **changes))

    def init(self, seed: int = 0) -> Any:
        return self.algorithm.init(self.log.spec, jax.random.key(seed), 6)

    def batch(self, seed: int = 0, log: Log | None = None) -> Any:
        return drawn(self.algorithm, log or self.log, seed)

    def step(self, state: Any, batch: Any) -> Any:
        """Return the compiled step; numbers are arguments of the program."""
        return compiled(self.phase.step)(self.algorithm, state, batch)

    def after(self, updates: int, log: Log | None = None) -> Any:
        """Return the state after some updates on batches that depend only on their number."""
        state = self.init()
        for update in range(updates):
            state, _ = self.step(state, self.batch(update, log))
        return state

    @cached_property
    def observation(self) -> Any:
        """Return the observation of every row of the log."""
        return {name: leaf[self.log.position] for name, leaf in self.log.observation.items()}

    @cached_property
    def mask(self) -> Any:
        return None if self.log.action_mask is None else self.log.action_mask[self.log.position]

    def act(self, state: Any, seed: int | None = None) -> Any:
        return self.chosen(state, self.observation, self.mask, seed)

    def chosen(self, state: Any, observation: Any, mask: Any = None, seed: int | None = None) -> Any:
        """Return the policy's actions; with a seed, samples."""
        key = None if seed is None else jax.random.key(seed)
        return _act(as_arrays(self.algorithm), self.algorithm.policy_params(state), observation, mask, key)

    def policy(self, state: Any, observation: Any, mask: Any = None) -> Any:
        """Return the sampled policy's distribution."""
        return _distribution(as_arrays(self.algorithm), self.algorithm.policy_params(state), observation, mask)

    def trainer(self, *members: tuple[Any, int], vmap: bool = False, steps: int = 300) -> Engine:
        """Return a trainer of (algorithm, seed) pairs."""
        numbered = [Member(i, algorithm, seed) for i, (algorithm, seed) in enumerate(members)]
        return Engine.fresh(numbered, self.log.spec, stores(self.algorithm, self.log), steps, vmap=vmap)


def last_layer(state: Any) -> Any:
    """Return the last layer of the network that chooses among discrete actions."""
    if not hasattr(state, "actor") and not hasattr(state, "imitator"):
        return state.critic.body.layers[-1]
    return state.actor.head if hasattr(state, "actor") else state.imitator.head


CASES = [
    Case(name, kind, small(name))
    for name in BUILT_IN
    for kind, space in KINDS.items()
    if space in algorithm_class(name).takes
]


@eqx.filter_jit
def _act(algorithm: Any, params: Any, observation: Any, mask: Any, key: Any) -> Any:
    return algorithm.act(params, observation, mask=mask, key=key)


@eqx.filter_jit
def _distribution(algorithm: Any, params: Any, observation: Any, mask: Any) -> Any:
    return algorithm.distribution(params, observation, mask)


def same(one: Any, two: Any, rtol: float = 0.0, atol: float = 0.0) -> None:
    """Assert that two pytrees hold the same arrays, exactly or nearly."""
    first, second = named_arrays(one), named_arrays(two)
    assert set(first) == set(second)
    for name, array in first.items():
        np.testing.assert_allclose(array, second[name], rtol=rtol, atol=atol, err_msg=name)


def differ(one: Any, two: Any, by: float = 1e-5) -> bool:
    """Return whether two pytrees have other arrays, other shapes, or a number that differs by more than `by`."""
    first, second = named_arrays(one), named_arrays(two)
    if {n: a.shape for n, a in first.items()} != {n: a.shape for n, a in second.items()}:
        return True
    return any(np.abs(array.astype(float) - second[name].astype(float)).max() > by for name, array in first.items())


def finite(tree: Any) -> bool:
    """Return whether every number of a pytree is finite."""
    return all(np.isfinite(array).all() for array in named_arrays(tree).values())


def check_field(cls: type[Any], name: str, value: Any, others: dict[str, Any]) -> None:
    """Assert that wrong values of a field are refused by its name, and that this other value survives a file."""
    metadata = cls.__dataclass_fields__[name].metadata  # type: ignore[attr-defined]
    wrong: list[Any] = ["no such thing", 1j, {"a": 1}]
    if metadata["leaf"]:
        least, most, open_ends = metadata["range"]
        wrong += [float("nan"), float("inf"), True, "0.5", least - 0.1, most + 0.1, *((least, most) * open_ends)]
    elif metadata.get("least") is not None:
        wrong += [metadata["least"] - 1, metadata["least"] + 0.5, True]
    for one in wrong:
        with pytest.raises(ConfigError, match=rf"{cls.__name__}\.{name} = "):
            cls(**{name: one})
    changed = cls(**(others | {name: value}))
    if metadata.get("own"):
        with pytest.raises(ConfigError, match=f"{name} is '{value.__name__}', your own function"):
            from_config(cls, to_config(changed))
    else:
        assert from_config(cls, to_config(changed)) == changed != cls(**others), name
