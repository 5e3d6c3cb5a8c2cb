"""Functional environments of gymnax and brax as ours, by what they offer and without importing either.

Both restart copies inside their `step` if asked to; neither is asked to here, so that what truly followed is seen.

gymnax: `reset_env` and `step_env` are taken, which never restart. From gymnax 1.0 on, `step_env` tells terminations and
`is_truncated` the time limit. Before, one flag meant either: a termination is then what `is_terminal` tells under a
limit that is out of reach, and reaching `max_steps_in_episode` truncates (both flags where both hold).

brax: the bare environment is taken; `done` terminates, `limit` steps truncate, and actions lie in [-1, 1]. Where brax's
`EpisodeWrapper` is around it, its "truncation" is taken at its word. Wrappers that restart or batch are refused.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from tidelog.envs.functional import Moved
from tidelog.envs.spaces import bounds
from tidelog.errors import ConfigError, SpecError
from tidelog.types import ActionSpace, Array, Codes, Continuous, Discrete, Leaf, Observation, Spec, Vector

_OUT_OF_REACH = 2**30


class Held(NamedTuple):
    """A foreign world, what it shows, and how long the episode is."""

    state: Any
    seen: Any
    age: Array  # [] int32: steps so far


class FromGymnax:
    """A gymnax environment; `params` are its default ones unless given.

    Taken: Box observations of one dimension, Discrete ones, and Dict of these; Discrete and bounded one-dimensional Box
    actions. SpecError for others, ConfigError for what is no gymnax environment.
    """

    def __init__(self, env: Any, params: Any = None) -> None:
        missing = [
            part for part in ("step_env", "reset_env", "observation_space", "action_space") if not hasattr(env, part)
        ]
        if missing:
            raise ConfigError(f"expected a gymnax environment, found {type(env).__name__} without {missing[0]}")
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

    def start(self, key: Array) -> Held:
        seen, state = self._env.reset_env(key, self._params)
        return Held(_steady(state), _steady(seen), jnp.zeros((), jnp.int32))

    def observe(self, world: Held) -> Observation:
        return _leaves(self.spec, world.seen if self._nested else {"observation": world.seen})

    def mask(self, world: Held) -> None:
        return None

    def step(self, world: Held, action: Array, key: Array) -> Moved:
        seen, state, reward, ended, _ = self._env.step_env(key, world.state, action, self._params)
        moved = Held(_like(state, world.state), _like(seen, world.seen), world.age + 1)
        terminated, truncated = self._ends(state, jnp.asarray(ended, bool))
        return Moved(moved, jnp.asarray(reward, jnp.float32).reshape(()), terminated, truncated)

    def _ends(self, state: Any, ended: Array) -> tuple[Array, Array]:
        if hasattr(self._env, "is_truncated"):
            return ended, jnp.asarray(self._env.is_truncated(state, self._params), bool)
        limit = getattr(self._params, "max_steps_in_episode", None)
        if limit is None or not hasattr(state, "time"):
            return ended, jnp.zeros((), bool)
        late = ended & (state.time >= limit)
        if not hasattr(self._env, "is_terminal"):
            return ended & ~late, late
        endless = self._params.replace(max_steps_in_episode=_OUT_OF_REACH)
        return ended & (~late | jnp.asarray(self._env.is_terminal(state, endless), bool)), late


class FromBrax:
    """A brax environment whose episodes are cut off after `limit` steps; None: never (or by its own `EpisodeWrapper`).

    Observations are one vector, or a mapping of vectors. ConfigError for wrappers that restart or batch.
    """

    def __init__(self, env: Any, limit: int | None = 1000) -> None:
        inner, wrappers = env, [type(env).__name__]
        while hasattr(inner, "env") and inner.env is not inner:
            inner = inner.env
            wrappers.append(type(inner).__name__)
        for wrapper in wrappers:
            if "AutoReset" in wrapper or "Vmap" in wrapper:
                raise ConfigError(
                    f"{wrapper} hides what followed or batches copies; pass the bare environment (env.unwrapped)"
                )
        if not all(hasattr(env, part) for part in ("reset", "step", "action_size")):
            raise ConfigError(f"expected a brax environment, found {type(env).__name__}")
        if limit is not None and limit < 1:
            raise ConfigError(f"limit must be at least 1, found {limit}")
        self._env, self._limit = env, limit
        self.name = f"brax:{wrappers[-1]}"
        size = int(env.action_size)
        self.spec = Spec(
            _vectors(jax.eval_shape(env.reset, jax.random.key(0)).obs), Continuous((-1.0,) * size, (1.0,) * size)
        )

    def start(self, key: Array) -> Held:
        state = _steady(self._env.reset(key))
        return Held(state, state.obs, jnp.zeros((), jnp.int32))

    def observe(self, world: Held) -> Observation:
        return _leaves(self.spec, world.seen if isinstance(world.seen, dict) else {"observation": world.seen})

    def mask(self, world: Held) -> None:
        return None

    def step(self, world: Held, action: Array, key: Array) -> Moved:
        state = self._env.step(world.state, action)
        age = world.age + 1
        cut = jnp.asarray(state.info.get("truncation", 0)).reshape(()) > 0
        late = cut if self._limit is None else cut | (age >= self._limit)
        terminated = (jnp.asarray(state.done).reshape(()) > 0) & ~cut
        state = _like(state, world.state)
        return Moved(Held(state, state.obs, age), jnp.asarray(state.reward, jnp.float32).reshape(()), terminated, late)


def _leaf(name: str, space: Any) -> Leaf:
    if hasattr(space, "n"):
        return Codes((int(space.n),))
    if len(getattr(space, "shape", (0, 0))) == 1:
        return Vector(int(space.shape[0]))
    raise SpecError(f"observation {name!r} is {space}; taken are one-dimensional Box and Discrete: flatten it")


def _action(space: Any) -> ActionSpace:
    if hasattr(space, "n"):
        return Discrete(int(space.n))
    shape = tuple(getattr(space, "shape", ()))
    if len(shape) != 1 or not hasattr(space, "low"):
        raise SpecError(f"actions are {space}; taken are Discrete and a one-dimensional Box with finite bounds")
    low, high = (np.broadcast_to(np.asarray(edge, np.float32), shape) for edge in (space.low, space.high))
    return bounds(low, high, space)


def _vectors(seen: Any) -> dict[str, Leaf]:
    shapes = seen if isinstance(seen, dict) else {"observation": seen}
    for name, leaf in shapes.items():
        if getattr(leaf, "ndim", None) != 1:
            raise SpecError(f"observation {name!r} is no vector, found {leaf}; give an environment with flat ones")
    return {name: Vector(leaf.shape[0]) for name, leaf in shapes.items()}


def _leaves(spec: Spec, seen: dict[str, Any]) -> Observation:
    return {
        name: jnp.asarray(seen[name], jnp.int32).reshape(1)
        if isinstance(leaf, Codes)
        else seen[name].astype(jnp.float32)
        for name, leaf in spec.observation.items()
    }


def _steady(tree: Any) -> Any:
    """Every leaf an array of a type that its own steps keep (a world goes through `scan`)."""
    return jax.tree.map(lambda leaf: leaf if hasattr(leaf, "dtype") else jnp.asarray(leaf), tree)


def _like(tree: Any, model: Any) -> Any:
    return jax.tree.map(lambda leaf, other: jnp.asarray(leaf, other.dtype).reshape(other.shape), tree, model)
