"""Adapters of gymnax and brax environments to functional environments: a file to copy, which imports neither package.

    run = tl.learn(tl.PPO(num_envs=64), FromGymnax(*gymnax.make("CartPole-v1")), steps=1_000_000)

Both packages can restart copies inside their `step`; this is not used, because the true next observation is needed.

gymnax from 1.0 on: `reset_env` and `step_env` are used, which never restart; `step_env` returns terminations and
`is_truncated` the time limit.

brax: the bare environment is used; `done` terminates, `limit` steps truncate, and actions are in [-1, 1]. With brax's
`EpisodeWrapper`, its "truncation" is used. Wrappers that restart or batch are an error.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from tidelog.envs.functional import CopyStep
from tidelog.envs.gym import bounds
from tidelog.errors import ConfigError, SpecError
from tidelog.types import ActionSpace, Array, Codes, Continuous, Discrete, Leaf, Observation, Spec, Vector


class ForeignState(NamedTuple):
    """The state and observation of a foreign environment, and the age of the episode."""

    state: Any
    seen: Any
    age: Array  # [] int32: steps so far


class FromGymnax:
    """A gymnax environment; `params` defaults to its default parameters.

    Supported: Box observations of one dimension, Discrete, and Dict of these; Discrete and bounded one-dimensional Box
    actions. SpecError for other spaces, ConfigError if it is not a gymnax environment.
    """

    def __init__(self, env: Any, params: Any = None) -> None:
        missing = [
            part
            for part in ("step_env", "reset_env", "is_truncated", "observation_space", "action_space")
            if not hasattr(env, part)
        ]
        if missing:
            raise ConfigError(
                f"{type(env).__name__} has no {missing[0]}: expected an environment of gymnax 1.0 or later"
            )
        self._env = env
        self._params = env.default_params if params is None else params
        self.name = f"gymnax:{getattr(env, 'name', type(env).__name__)}"
        seen = env.observation_space(self._params)
        inner = getattr(seen, "spaces", None)
        self._nested = isinstance(inner, dict)
        spaces = inner if isinstance(inner, dict) else {"observation": seen}
        self.spec = Spec(
            {name: _leaf(name, space) for name, space in spaces.items()}, _action(env.action_space(self._params))
        )

    def start(self, key: Array) -> ForeignState:
        seen, state = self._env.reset_env(key, self._params)
        return ForeignState(_as_arrays(state), _as_arrays(seen), jnp.zeros((), jnp.int32))

    def observe(self, world: ForeignState) -> Observation:
        return _leaves(self.spec, world.seen if self._nested else {"observation": world.seen})

    def mask(self, world: ForeignState) -> None:
        return None

    def step(self, world: ForeignState, action: Array, key: Array) -> CopyStep:
        seen, state, reward, ended, _ = self._env.step_env(key, world.state, action, self._params)
        moved = ForeignState(_like(state, world.state), _like(seen, world.seen), world.age + 1)
        truncated = jnp.asarray(self._env.is_truncated(state, self._params), bool)
        return CopyStep(moved, jnp.asarray(reward, jnp.float32).reshape(()), jnp.asarray(ended, bool), truncated)


class FromBrax:
    """A brax environment with episodes truncated after `limit` steps; None: never (or by its own `EpisodeWrapper`).

    Observations are a vector, or a mapping of vectors. ConfigError for wrappers that restart or batch.
    """

    def __init__(self, env: Any, limit: int | None = 1000) -> None:
        inner, wrappers = env, [type(env).__name__]
        while hasattr(inner, "env") and inner.env is not inner:
            inner = inner.env
            wrappers.append(type(inner).__name__)
        for wrapper in wrappers:
            if "AutoReset" in wrapper or "Vmap" in wrapper:
                raise ConfigError(f"{wrapper} hides the last observation or batches copies. fix: pass env.unwrapped")
        if not all(hasattr(env, part) for part in ("reset", "step", "action_size")):
            raise ConfigError(f"found a {type(env).__name__}: expected a brax environment")
        if limit is not None and limit < 1:
            raise ConfigError(f"limit = {limit}: expected at least 1")
        self._env, self._limit = env, limit
        self.name = f"brax:{wrappers[-1]}"
        size = int(env.action_size)
        self.spec = Spec(
            _vectors(jax.eval_shape(env.reset, jax.random.key(0)).obs), Continuous((-1.0,) * size, (1.0,) * size)
        )

    def start(self, key: Array) -> ForeignState:
        state = _as_arrays(self._env.reset(key))
        return ForeignState(state, state.obs, jnp.zeros((), jnp.int32))

    def observe(self, world: ForeignState) -> Observation:
        return _leaves(self.spec, world.seen if isinstance(world.seen, dict) else {"observation": world.seen})

    def mask(self, world: ForeignState) -> None:
        return None

    def step(self, world: ForeignState, action: Array, key: Array) -> CopyStep:
        state = self._env.step(world.state, action)
        age = world.age + 1
        cut = jnp.asarray(state.info.get("truncation", 0)).reshape(()) > 0
        late = cut if self._limit is None else cut | (age >= self._limit)
        terminated = (jnp.asarray(state.done).reshape(()) > 0) & ~cut
        state = _like(state, world.state)
        return CopyStep(
            ForeignState(state, state.obs, age), jnp.asarray(state.reward, jnp.float32).reshape(()), terminated, late
        )


def _leaf(name: str, space: Any) -> Leaf:
    if hasattr(space, "n"):
        return Codes((int(space.n),))
    if len(getattr(space, "shape", (0, 0))) == 1:
        return Vector(int(space.shape[0]))
    raise SpecError(f"observation {name!r} is {space}: expected a one-dimensional Box or Discrete. fix: flatten it")


def _action(space: Any) -> ActionSpace:
    if hasattr(space, "n"):
        return Discrete(int(space.n))
    shape = tuple(getattr(space, "shape", ()))
    if len(shape) != 1 or not hasattr(space, "low"):
        raise SpecError(f"the action space is {space}: expected Discrete, or a one-dimensional Box with finite bounds")
    low, high = (np.broadcast_to(np.asarray(edge, np.float32), shape) for edge in (space.low, space.high))
    return bounds(low, high, space)


def _vectors(seen: Any) -> dict[str, Leaf]:
    shapes = seen if isinstance(seen, dict) else {"observation": seen}
    for name, leaf in shapes.items():
        if getattr(leaf, "ndim", None) != 1:
            raise SpecError(f"observation {name!r} is {leaf}: expected a vector. fix: use flat observations")
    return {name: Vector(leaf.shape[0]) for name, leaf in shapes.items()}


def _leaves(spec: Spec, seen: dict[str, Any]) -> Observation:
    return {
        name: jnp.asarray(seen[name], jnp.int32).reshape(1)
        if isinstance(leaf, Codes)
        else seen[name].astype(jnp.float32)
        for name, leaf in spec.observation.items()
    }


def _as_arrays(tree: Any) -> Any:
    """Convert every leaf to an array whose type stays the same over steps (as `scan` requires)."""
    return jax.tree.map(lambda leaf: leaf if hasattr(leaf, "dtype") else jnp.asarray(leaf), tree)


def _like(tree: Any, model: Any) -> Any:
    return jax.tree.map(lambda leaf, other: jnp.asarray(leaf, other.dtype).reshape(other.shape), tree, model)
