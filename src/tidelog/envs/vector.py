"""Adapter of gymnasium's vector environments, for each of the three autoreset modes.

SAME_STEP: the last observation of an episode is in the info ("final_obs"). DISABLED: this adapter restarts ended
copies in the same step (`reset(options={"reset_mask": ...})`). NEXT_STEP: the row after an end only restarts its copy
and is marked in `Outcome.valid`. The mode is read from `metadata["autoreset_mode"]` and never guessed: a wrong guess
loses transitions or joins two episodes.

Letters in shapes: `W` copies, `A` number of actions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import getitem
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tidelog.envs.gym import action_space, action_start, readers
from tidelog.envs.protocol import (
    Batch,
    BatchObservation,
    Expected,
    Outcome,
    Saved,
    check_action,
    check_saved,
    generators_from_array,
    generators_to_array,
    positive,
)
from tidelog.errors import ConfigError, EnvironmentFailure, SpecError
from tidelog.types import Codes, Continuous, Discrete, Leaf, Spec

_FIX = 'set metadata["autoreset_mode"] to a gymnasium.vector.AutoresetMode: NEXT_STEP, SAME_STEP or DISABLED'


class Column(NamedTuple):
    """The layout of one observation leaf in gymnasium's batches."""

    leaf: Leaf
    key: str | None  # within a Dict
    shape: tuple[int, ...]  # of one copy
    start: NDArray[np.int64]  # the lowest code; 0 for numbers

    def read(self, batch: Batch, what: str, value: Any) -> NDArray[Any]:
        """Convert the leaf from `[W, *shape]`."""
        array = batch.shaped(what, value, self.shape)
        if isinstance(self.leaf, Codes):
            array = array.reshape(len(array), len(self.leaf.sizes))
            array = array - self.start if np.issubdtype(array.dtype, np.integer) else array
        return batch.leaf(what, array, self.leaf)


class VectorGymnasium:
    """A `gymnasium.vector.VectorEnv` with all its copies.

    SpecError if its spaces are not supported; ConfigError if it has no autoreset mode; EnvironmentFailure, with the
    step and if possible the copy, if it raises or returns unusable values.
    """

    def __init__(self, source: Any, name: str | None = None) -> None:
        self.count = positive("count", source.num_envs)
        registered = getattr(source, "spec", None)
        self.name = name or (registered.id if registered is not None else type(source).__name__)
        self._source = source
        self._mode = self._autoreset_mode()
        self._columns = columns(source.single_observation_space)
        action = action_space(source.single_action_space)
        self._start = action_start(source.single_action_space)
        self._steps, self._masked = 0, False
        self._waiting: NDArray[np.bool_] | None = None  # [W]: ended in the last step; None: not reset yet
        _, info = self._reset_source(0)
        self._masked = "action_mask" in info
        if self._masked and not isinstance(action, Discrete):
            raise SpecError(f"{self.name} has an action mask for {action}: expected discrete actions")
        self.spec = Spec({key: column.leaf for key, column in self._columns.items()}, action, masked=self._masked)

    def reset(self, seed: int) -> BatchObservation:
        """Restart every copy; the source derives the seeds of its copies from one seed."""
        self._steps = 0
        self._waiting = np.zeros(self.count, bool)
        return self._read(*self._reset_source(int(np.random.SeedSequence(seed).generate_state(1)[0])))

    def step(self, action: NDArray[Any]) -> Outcome:
        """Step every copy: action `[W]`, `[W, M]` or `[W, A]` in the environment's own units."""
        if self._waiting is None:
            raise EnvironmentFailure(f"{self.name} was not reset. fix: call reset(seed) before the first step")
        action = check_action(self.spec, action, self.count)
        shifted = action if isinstance(self.spec.action, Continuous) else action + self._start
        orders = shifted.astype(self._source.single_action_space.dtype)
        self._steps += 1
        raw, earned, terminations, truncations, info = self._call("step", 5, orders)
        batch = self._batch()
        reward = batch.numbers("the reward", earned, ())
        terminated = batch.flags("terminated", terminations)
        truncated = batch.flags("truncated", truncations)
        ended = terminated | truncated
        if self._mode == "NEXT_STEP":
            return self._next_step(reward, terminated, truncated, self._read(raw, info))
        if not ended.any():
            observed = self._read(raw, info)
            return Outcome(reward, terminated, truncated, observed, observed)
        following, current = self._split_ended(ended, raw, info)
        return Outcome(reward, terminated, truncated, following, current)

    def close(self) -> None:
        """Close the source."""
        self._source.close()

    def _reset_source(self, seed: int) -> Any:
        return self._call("reset", 2, seed=seed)

    def _autoreset_mode(self) -> str:
        from gymnasium.vector import AutoresetMode

        mode_name = (getattr(self._source, "metadata", None) or {}).get("autoreset_mode")
        for mode in AutoresetMode:
            if mode_name is mode or mode_name == mode.value:
                return mode.name
        raise ConfigError(f"{self.name}: autoreset_mode is {mode_name!r}, expected a known mode. fix: {_FIX}")

    def _next_step(
        self,
        reward: NDArray[Any],
        terminated: NDArray[np.bool_],
        truncated: NDArray[np.bool_],
        observed: BatchObservation,
    ) -> Outcome:
        waited, ended = self._waiting, terminated | truncated
        if waited is None or not waited.any():
            valid = None
        else:
            again = np.flatnonzero(waited & ended)
            if again.size:
                message = "the copy ended in the step that restarts it: its autoreset mode is not NEXT_STEP"
                raise self._batch().failure(int(again[0]), message)
            valid, reward = ~waited, np.where(waited, np.float32(0.0), reward)
        self._waiting = ended
        free = observed.action_mask
        current = observed if free is None or not ended.any() else observed._replace(action_mask=free | ended[:, None])
        return Outcome(reward, terminated, truncated, observed, current, valid)

    def _split_ended(
        self, ended: NDArray[np.bool_], raw: Any, info: Mapping[str, Any]
    ) -> tuple[BatchObservation, BatchObservation]:
        """The next observations, and the inputs of the next actions, in a step in which copies ended."""
        rows = np.flatnonzero(ended)
        observed = self._read(raw, info)
        if self._mode == "DISABLED":
            raw, info = self._restart(ended)
            return observed, self._replace_rows(observed, rows, raw, info)
        if "final_obs" not in info:
            message = "the info has no 'final_obs': the last observation of the episode is lost"
            raise self._batch().failure(int(rows[0]), message)
        return self._replace_rows(observed, rows, info["final_obs"], info.get("final_info", {})), observed

    def _restart(self, ended: NDArray[np.bool_]) -> tuple[Any, Mapping[str, Any]]:
        raw, info = self._call("reset", 2, options={"reset_mask": ended.copy()})
        return raw, info

    def _replace_rows(
        self, observed: BatchObservation, rows: NDArray[np.int64], raw: Any, info: Mapping[str, Any]
    ) -> BatchObservation:
        """Replace the given rows of observations."""
        batch = self._batch(rows)
        leaves = {}
        for name, column in self._columns.items():
            leaves[name] = observed.observation[name].copy()
            part = self._try(batch, _pick, raw, column.key, rows)
            leaves[name][rows] = column.read(batch, _what(name), part)
        if observed.action_mask is None:
            return BatchObservation(leaves)
        mask = observed.action_mask.copy()
        mask[rows] = self._mask(info, rows)[rows]
        return BatchObservation(leaves, mask)

    def _read(self, raw: Any, info: Mapping[str, Any]) -> BatchObservation:
        batch, leaves = self._batch(), {}
        for name, column in self._columns.items():
            value = raw if column.key is None else self._try(batch, getitem, raw, column.key)
            leaves[name] = column.read(batch, _what(name), value)
        return BatchObservation(leaves, self._mask(info) if self._masked else None)

    def _mask(self, info: Mapping[str, Any], rows: NDArray[np.int64] | None = None) -> NDArray[np.bool_]:
        batch, size = self._batch(), self._source.single_action_space.n
        has_mask = info.get("_action_mask", np.full(self.count, "action_mask" in info))
        missing = np.flatnonzero(~np.asarray(has_mask, bool)[slice(None) if rows is None else rows])
        if missing.size:
            copy = missing[0] if rows is None else rows[missing[0]]
            raise batch.failure(int(copy), "the info has no action_mask")
        return batch.flags("the info's action_mask", info["action_mask"], (size,))

    def _call(self, what: str, parts: int, *args: Any, **kwargs: Any) -> Any:
        """Call a method of the source and check the number of returned values."""
        try:
            returned = getattr(self._source, what)(*args, **kwargs)
        except Exception as error:
            raise self._batch().failure(None, f"{what} raised {type(error).__name__}: {error}") from error
        if not isinstance(returned, tuple) or len(returned) != parts:
            kind = type(returned).__name__
            raise self._batch().failure(None, f"{what} returned a {kind}: expected a tuple of {parts} values")
        return returned

    def _try(self, batch: Batch, take: Callable[..., Any], *args: Any) -> Any:
        try:
            return take(*args)
        except (KeyError, IndexError, TypeError, ValueError) as error:
            raise batch.failure(None, f"the observation is unusable: {type(error).__name__}: {error}") from error

    def _batch(self, rows: NDArray[np.int64] | None = None) -> Batch:
        return Batch(self.name, self.count if rows is None else len(rows), self._steps, rows)


class VectorCartPole(VectorGymnasium):
    """gymnasium's own vectorised CartPole; copies restart in the step that ends them.

    The source would restart them in the next step, with the same random draw; here every row is a decision.
    """

    def save_state(self) -> Saved:
        """The states of the carts, their ages, the random generator and the step."""
        source = self._started()
        return {
            "state": source.state.copy(),
            "age": source.steps.copy(),
            "generator": generators_to_array([source.np_random]),
            "steps": np.asarray(self._steps),
        }

    def restore_state(self, saved: Mapping[str, NDArray[Any]]) -> BatchObservation:
        """Restore a state of `save_state`; ConfigError for the state of another problem or count."""
        like: Expected = {"state": np.zeros((4, self.count)), "age": np.zeros(self.count, np.int32)}
        like |= {"generator": None, "steps": np.asarray(0)}
        arrays = check_saved(saved, like, self.name)
        (generator,) = generators_from_array(arrays["generator"], 1, self.name)
        source = self._source
        source.state, source.steps, source.np_random = arrays["state"].copy(), arrays["age"].copy(), generator
        source.prev_done[:] = False
        self._waiting, self._steps = np.zeros(self.count, bool), int(arrays["steps"])
        return self._read(source.state.T, {})

    def _autoreset_mode(self) -> str:
        return "DISABLED"

    def _restart(self, ended: NDArray[np.bool_]) -> tuple[Any, Mapping[str, Any]]:
        source = self._source
        source.state[:, ended] = source.np_random.uniform(source.low, source.high, (4, int(ended.sum())))
        source.steps[ended] = 0
        source.prev_done[ended] = False
        return source.state.T, {}

    def _started(self) -> Any:
        if self._waiting is None:
            raise EnvironmentFailure(f"{self.name} was not reset. fix: call reset(seed) before the first step")
        return self._source


def vectorised(name: str, count: int) -> VectorGymnasium | None:
    """Make the registered vectorised form of a gymnasium id; None unless it is the same problem.

    It is the same problem if its spaces equal those of one copy, and its steps do not depend on other copies. gymnasium
    1.4's functional JAX environments freeze *all* copies in a step that restarts one.
    """
    import gymnasium

    registered = gymnasium.registry.get(name)
    if registered is None or registered.vector_entry_point is None or registered.additional_wrappers:
        return None
    source = gymnasium.make_vec(name, count, "vector_entry_point")
    single = gymnasium.make(name)
    agree = single.observation_space == source.single_observation_space
    agree = agree and single.action_space == source.single_action_space
    single.close()
    if not agree or freezes_copies(source):
        source.close()
        return None
    return (
        VectorCartPole(source, name) if type(source).__name__ == "CartPoleVectorEnv" else VectorGymnasium(source, name)
    )


def freezes_copies(source: Any) -> bool:
    """Whether it is one of gymnasium's functional JAX environments, which freeze copies while another restarts."""
    return any(kind.__name__ == "FunctionalJaxVectorEnv" for kind in type(source).__mro__)


def columns(space: Any) -> dict[str, Column]:
    """The leaves of a space of one copy; SpecError for an unsupported space."""
    layout = {}
    for name, reader in readers(space).items():
        inner = space if reader.key is None else space[reader.key]
        layout[name] = Column(reader.leaf, reader.key, tuple(inner.shape), action_start(inner))
    return layout


def _pick(raw: Any, key: str | None, rows: NDArray[np.int64]) -> NDArray[Any]:
    """Rows of a batch, or of an array with one observation per copy."""
    if isinstance(raw, np.ndarray) and raw.dtype == object:
        return np.stack([np.asarray(raw[row] if key is None else raw[row][key]) for row in rows])
    return np.asarray(raw if key is None else raw[key])[rows]


def _what(name: str) -> str:
    return "the observation" if name == "observation" else f"observation {name!r}"
