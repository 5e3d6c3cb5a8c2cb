"""gymnasium's vector environments under our protocol, in each of the three ways in which they restart copies.

SAME_STEP: the last observation of an episode comes in the info ("final_obs"). DISABLED: copies that ended are
restarted here, in the same step (`reset(options={"reset_mask": ...})`). NEXT_STEP: the row after an end only restarts
its copy; it is marked in `Outcome.valid`. The mode is read from `metadata["autoreset_mode"]` and never guessed: a
wrong guess loses transitions or joins two episodes.

Letters in shapes: `W` copies, `A` number of actions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tidelog.envs.checks import Batch
from tidelog.envs.protocol import Observed, Outcome, check_action, positive
from tidelog.envs.saving import Expected, Saved, checked, generators_from_array, generators_to_array
from tidelog.envs.spaces import action_space, action_start, readers
from tidelog.errors import ConfigError, EnvironmentFailure, SpecError
from tidelog.types import Codes, Continuous, Discrete, Leaf, Spec

_MEND = 'set metadata["autoreset_mode"] to a gymnasium.vector.AutoresetMode: NEXT_STEP, SAME_STEP or DISABLED'


class Column(NamedTuple):
    """One observation leaf as gymnasium batches it."""

    leaf: Leaf
    key: str | None  # within a Dict
    shape: tuple[int, ...]  # of one copy
    start: NDArray[np.int64]  # what codes are counted from; 0 for numbers

    def read(self, batch: Batch, what: str, value: Any) -> NDArray[Any]:
        """The leaf in our types, from `[W, *shape]`."""
        array = batch.shaped(what, value, self.shape)
        if isinstance(self.leaf, Codes):
            array = array.reshape(len(array), len(self.leaf.sizes))
            array = array - self.start if np.issubdtype(array.dtype, np.integer) else array
        return batch.leaf(what, array, self.leaf)


class VectorGymnasium:
    """A `gymnasium.vector.VectorEnv` with all its copies.

    SpecError where its spaces cannot be taken; ConfigError where it does not say how it restarts; EnvironmentFailure,
    naming the copy wherever one can be told and the step, where it raises or returns what cannot be used.
    """

    def __init__(self, source: Any, name: str | None = None) -> None:
        self.count = positive("count", source.num_envs)
        registered = getattr(source, "spec", None)
        self.name = name or (registered.id if registered is not None else type(source).__name__)
        self._source = source
        self._mode = self._restarts()
        self._columns = columns(source.single_observation_space)
        action = action_space(source.single_action_space)
        self._start = action_start(source.single_action_space)
        self._steps, self._masked = 0, False
        self._waiting: NDArray[np.bool_] | None = None  # [W]: ended in the last step; None: never reset
        _, info = self._begun(0)
        self._masked = "action_mask" in info
        if self._masked and not isinstance(action, Discrete):
            raise SpecError(f"{self.name}: an action mask needs a discrete action, found {action}")
        self.spec = Spec({key: column.leaf for key, column in self._columns.items()}, action, masked=self._masked)

    def reset(self, seed: int) -> Observed:
        """Start every copy anew; what the source makes of one seed for all copies is its own affair."""
        self._steps = 0
        self._waiting = np.zeros(self.count, bool)
        return self._read(*self._begun(int(np.random.SeedSequence(seed).generate_state(1)[0])))

    def step(self, action: NDArray[Any]) -> Outcome:
        """Act in every copy: action `[W]`, `[W, M]` or `[W, A]` in the environment's own units."""
        if self._waiting is None:
            raise EnvironmentFailure(f"{self.name}: reset it before the first step")
        orders = self._orders(check_action(self.spec, action, self.count))
        self._steps += 1
        raw, earned, ended_by_world, ended_by_clock, info = self._called("step", 5, orders)
        batch = self._batch()
        reward = batch.numbers("the reward", earned, ())
        terminated = batch.flags("terminated", ended_by_world)
        truncated = batch.flags("truncated", ended_by_clock)
        ended = terminated | truncated
        if self._mode == "NEXT_STEP":
            return self._next_step(reward, terminated, truncated, self._read(raw, info))
        if not ended.any():
            seen = self._read(raw, info)
            return Outcome(reward, terminated, truncated, seen, seen)
        following, current = self._parted(ended, raw, info)
        return Outcome(reward, terminated, truncated, following, current)

    def close(self) -> None:
        """Close the source."""
        self._source.close()

    def _begun(self, seed: int) -> Any:
        return self._called("reset", 2, seed=seed)

    def _restarts(self) -> str:
        from gymnasium.vector import AutoresetMode

        told = (getattr(self._source, "metadata", None) or {}).get("autoreset_mode")
        for mode in AutoresetMode:
            if told is mode or told == mode.value:
                return mode.name
        raise ConfigError(f"{self.name} does not say how it restarts copies (found {told!r}); {_MEND}")

    def _next_step(
        self, reward: NDArray[Any], terminated: NDArray[np.bool_], truncated: NDArray[np.bool_], seen: Observed
    ) -> Outcome:
        waited, ended = self._waiting, terminated | truncated
        if waited is None or not waited.any():
            valid = None
        else:
            again = np.flatnonzero(waited & ended)
            if again.size:
                told = "it ended in the very step that restarts it: its autoreset mode is not NEXT_STEP"
                raise self._batch().failure(int(again[0]), told)
            valid, reward = ~waited, np.where(waited, np.float32(0.0), reward)
        self._waiting = ended
        free = seen.action_mask
        current = seen if free is None or not ended.any() else seen._replace(action_mask=free | ended[:, None])
        return Outcome(reward, terminated, truncated, seen, current, valid)

    def _parted(self, ended: NDArray[np.bool_], raw: Any, info: Mapping[str, Any]) -> tuple[Observed, Observed]:
        """What followed, and what to act on next, in a step in which copies ended."""
        rows = np.flatnonzero(ended)
        seen = self._read(raw, info)
        if self._mode == "DISABLED":
            raw, info = self._restart(ended)
            return seen, self._exchanged(seen, rows, raw, info)
        if "final_obs" not in info:
            told = "the info holds no 'final_obs': the last observation of the episode is lost"
            raise self._batch().failure(int(rows[0]), told)
        return self._exchanged(seen, rows, info["final_obs"], info.get("final_info", {})), seen

    def _restart(self, ended: NDArray[np.bool_]) -> tuple[Any, Mapping[str, Any]]:
        raw, info = self._called("reset", 2, options={"reset_mask": ended.copy()})
        return raw, info

    def _exchanged(self, seen: Observed, rows: NDArray[np.int64], raw: Any, info: Mapping[str, Any]) -> Observed:
        """What is seen, with the given rows taken from elsewhere."""
        batch = self._batch(rows)
        leaves = {}
        for name, column in self._columns.items():
            leaves[name] = seen.observation[name].copy()
            part = self._tried(batch, _picked, raw, column.key, rows)
            leaves[name][rows] = column.read(batch, _what(name), part)
        if seen.action_mask is None:
            return Observed(leaves)
        mask = seen.action_mask.copy()
        mask[rows] = self._mask(info, rows)[rows]
        return Observed(leaves, mask)

    def _read(self, raw: Any, info: Mapping[str, Any]) -> Observed:
        batch, leaves = self._batch(), {}
        for name, column in self._columns.items():
            value = raw if column.key is None else self._tried(batch, _under, raw, column.key)
            leaves[name] = column.read(batch, _what(name), value)
        return Observed(leaves, self._mask(info) if self._masked else None)

    def _mask(self, info: Mapping[str, Any], rows: NDArray[np.int64] | None = None) -> NDArray[np.bool_]:
        batch, size = self._batch(), self._source.single_action_space.n
        told = info.get("_action_mask", np.full(self.count, "action_mask" in info))
        missing = np.flatnonzero(~np.asarray(told, bool)[slice(None) if rows is None else rows])
        if missing.size:
            copy = missing[0] if rows is None else rows[missing[0]]
            raise batch.failure(int(copy), "the info holds no action_mask")
        return batch.flags("the info's action_mask", info["action_mask"], (size,))

    def _orders(self, action: NDArray[Any]) -> NDArray[Any]:
        if isinstance(self.spec.action, Continuous):
            return action.astype(self._source.single_action_space.dtype)
        return (action + self._start).astype(self._source.single_action_space.dtype)

    def _called(self, what: str, parts: int, *args: Any, **kwargs: Any) -> Any:
        """Call the source, which has to return so many parts."""
        try:
            returned = getattr(self._source, what)(*args, **kwargs)
        except Exception as error:
            raise self._batch().failure(None, f"{what} raised {type(error).__name__}: {error}") from error
        if not isinstance(returned, tuple) or len(returned) != parts:
            raise self._batch().failure(None, f"{what} must return {parts} things, found {type(returned).__name__}")
        return returned

    def _tried(self, batch: Batch, take: Callable[..., Any], *args: Any) -> Any:
        try:
            return take(*args)
        except (KeyError, IndexError, TypeError, ValueError) as error:
            raise batch.failure(None, f"the observation is unusable: {type(error).__name__}: {error}") from error

    def _batch(self, rows: NDArray[np.int64] | None = None) -> Batch:
        return Batch(self.name, self.count if rows is None else len(rows), self._steps, rows)


class VectorCartPole(VectorGymnasium):
    """gymnasium's own vectorised CartPole, whose copies are restarted in the step that ends them.

    It would do so in the next step, by the very draw that is made here; so every row is a decision.
    """

    def save_state(self) -> Saved:
        """The carts, their ages, the random numbers and the step."""
        source = self._started()
        return {
            "state": source.state.copy(),
            "age": source.steps.copy(),
            "generator": generators_to_array([source.np_random]),
            "steps": np.asarray(self._steps),
        }

    def restore_state(self, saved: Mapping[str, NDArray[Any]]) -> Observed:
        """Go on from what `save_state` returned; ConfigError where it is another problem's or another count's."""
        like: Expected = {"state": np.zeros((4, self.count)), "age": np.zeros(self.count, np.int32)}
        like |= {"generator": None, "steps": np.asarray(0)}
        arrays = checked(saved, like, self.name)
        (generator,) = generators_from_array(arrays["generator"], 1, self.name)
        source = self._source
        source.state, source.steps, source.np_random = arrays["state"].copy(), arrays["age"].copy(), generator
        source.prev_done[:] = False
        self._waiting, self._steps = np.zeros(self.count, bool), int(arrays["steps"])
        return self._read(source.state.T, {})

    def _restarts(self) -> str:
        return "DISABLED"

    def _restart(self, ended: NDArray[np.bool_]) -> tuple[Any, Mapping[str, Any]]:
        source = self._source
        source.state[:, ended] = source.np_random.uniform(source.low, source.high, (4, int(ended.sum())))
        source.steps[ended] = 0
        source.prev_done[ended] = False
        return source.state.T, {}

    def _started(self) -> Any:
        if self._waiting is None:
            raise EnvironmentFailure(f"{self.name}: reset it before the first step")
        return self._source


def vectorised(name: str, count: int) -> VectorGymnasium | None:
    """The vectorised form that is registered for a gymnasium id, if it is the same problem; else None.

    The same problem: the spaces agree with one copy's, and its steps do not depend on who else ends. gymnasium 1.4's
    functional JAX environments hold *all* copies where they were in steps that restart one.
    """
    import gymnasium

    registered = gymnasium.registry.get(name)
    if registered is None or registered.vector_entry_point is None or registered.additional_wrappers:
        return None
    source = gymnasium.make_vec(name, count, "vector_entry_point")
    alone = gymnasium.make(name)
    agree = alone.observation_space == source.single_observation_space
    agree = agree and alone.action_space == source.single_action_space
    alone.close()
    if not agree or stands_still(source):
        source.close()
        return None
    return (
        VectorCartPole(source, name) if type(source).__name__ == "CartPoleVectorEnv" else VectorGymnasium(source, name)
    )


def stands_still(source: Any) -> bool:
    """Whether it is one of gymnasium's functional JAX environments, whose copies wait when another restarts."""
    return any(kind.__name__ == "FunctionalJaxVectorEnv" for kind in type(source).__mro__)


def columns(space: Any) -> dict[str, Column]:
    """The leaves of a space of one copy; SpecError for what is not taken."""
    found = {}
    for name, reader in readers(space).items():
        inner = space if reader.key is None else space[reader.key]
        found[name] = Column(reader.leaf, reader.key, tuple(inner.shape), action_start(inner))
    return found


def _picked(raw: Any, key: str | None, rows: NDArray[np.int64]) -> NDArray[Any]:
    """Rows of a batch, or of an array that holds one observation a copy."""
    if isinstance(raw, np.ndarray) and raw.dtype == object:
        return np.stack([np.asarray(raw[row] if key is None else raw[row][key]) for row in rows])
    return np.asarray(raw if key is None else raw[key])[rows]


def _under(raw: Any, key: str) -> Any:
    return raw[key]


def _what(name: str) -> str:
    return "the observation" if name == "observation" else f"observation {name!r}"
