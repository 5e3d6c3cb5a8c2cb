"""gymnasium environments: their spaces, copies stepped one by one, and exact resumption.

The copies are stepped here and not by gymnasium's `SyncVectorEnv`, which neither names the copy that failed nor checks
what a copy returned, and returns the last observation of an episode in a form that depends on the observation space.
Each copy is seeded once, from the seed of `reset`; later episodes of a copy continue its own random numbers.

Observations: `Box` of one dimension -> Vector, `Box` [height, width, channels] of uint8 -> Image; `Discrete` and
one-dimensional `MultiDiscrete` -> Codes counted from 0; `Dict` and `Tuple` of those, nested too -> one leaf each, named
by keys and positions as `outer/inner`. Actions: `Discrete`, one-dimensional `MultiDiscrete`, `Box` with finite bounds;
`Dict` and `Tuple` of those -> `Hybrid` with parts named in the same way, whose rows become the action of the space.
An "action_mask" in the info of an observation becomes the action mask. With `metadata["elapsed_unit"] = "hour"` every
info of a step has "elapsed": the time from the decision to the observation that is returned.

gymnasium has no interface for resuming in the middle of an episode. `ResumableGymnasium` offers it only if the complete
state is known: for MuJoCo and classic control, in the wrappers of `gymnasium.make` and in other wrappers without state.
For MuJoCo the integration state is not enough: Ant and Humanoid compute their speed from positions of the previous
step; these are saved too. `tests/envs/test_saving.py` tests all problems of version 5.

Letters in shapes: `W` copies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import reduce
from operator import getitem
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tidelog.envs.protocol import (
    BatchObservation,
    BatchReader,
    Expected,
    Leaves,
    Outcome,
    Saved,
    check_action,
    check_saved,
    generators_from_array,
    generators_to_array,
    positive,
    require_reset,
)
from tidelog.errors import ConfigError, EnvironmentFailure, SpecError, nearest
from tidelog.types import (
    ActionSpace,
    Codes,
    Continuous,
    Discrete,
    Hybrid,
    Image,
    Leaf,
    MultiDiscrete,
    Spec,
    Vector,
    check_seed,
    flat_leaves,
    is_masked,
)

_SUPPORTED = (
    "a one-dimensional Box, an image (a uint8 Box [height, width, channels]), a Discrete, a one-dimensional "
    "MultiDiscrete, or a Dict or Tuple of these"
)
_CHANNELS = 4  # a first axis of at most this size counts as channels
_STEP = "step(action) to return (observation, reward, terminated, truncated, info)"
_RESET = "reset(*, seed=None, options=None) to return (observation, info)"
_KNOWN = ("gymnasium.envs.mujoco.", "gymnasium.envs.classic_control.")
_PLAIN = ("TimeLimit", "OrderEnforcing", "PassiveEnvChecker", "RescaleAction", "ClipAction", "FlattenObservation")
_ZERO = np.zeros((), np.int64)
_MASK = "the info's action_mask"
_NO_ELAPSED = "the info has no elapsed time, which metadata['elapsed_unit'] promises"
_Observed = tuple[Leaves, NDArray[np.bool_] | None]  # leaves and mask of one copy
_LAST_POSITIONS = ("xpos", "xipos")  # of bodies and of their centres of mass


class SpaceColumn(NamedTuple):
    """The layout of one observation leaf in gymnasium's batches."""

    leaf: Leaf
    path: tuple[Any, ...]  # keys of a Dict and positions of a Tuple, from outside; () of the space itself
    shape: tuple[int, ...]  # of one copy
    start: NDArray[np.int64]  # the lowest code; 0 for numbers

    def read(self, batch: BatchReader, what: str, value: Any) -> NDArray[Any]:
        """Convert the leaf from `[W, *shape]`."""
        if not isinstance(self.leaf, Codes):
            return batch.leaf(what, value, self.leaf)
        codes = batch.count, len(self.leaf.sizes)
        if not is_masked(value) and np.shape(value)[:1] == codes[:1] and np.size(value) == np.prod(codes):
            value = np.reshape(value, (batch.count, *self.shape))  # a code by itself, or in an array of one
        return batch.leaf(what, batch.shaped(what, value, self.shape).reshape(codes), self.leaf, self.start)


def columns(space: Any) -> dict[str, SpaceColumn]:
    """Return a column for every leaf; a space without leaves is the leaf "observation". SpecError if not supported."""
    leaves = dict(_leaves_of(space, "the observation"))
    named = [(_name_of(path) or "observation", path, inner) for path, inner in leaves.items()]
    return {name: _column(inner, _what(name), path) for name, path, inner in named}


def _leaves_of(space: Any, what: str, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """The spaces in nested `Dict` and `Tuple`, each with its path; SpecError for two with one name, or none."""
    from gymnasium import spaces

    if not isinstance(space, spaces.Dict | spaces.Tuple):
        yield path, space
        return
    inner = space.spaces.items() if isinstance(space, spaces.Dict) else enumerate(space.spaces)
    found = [leaf for key, one in inner for leaf in _leaves_of(one, what, (*path, key))]
    names = [_name_of(own) for own, _ in found]
    if not names or len(set(names)) < len(names):
        wrapper = "TransformAction" if what == "the action" else "FlattenObservation"
        raise SpecError(f"{what} is {space} with the leaves {names}", "at least one, each with its own name",
                        f"rename its keys, or wrap it with gymnasium.wrappers.{wrapper}")  # fmt: skip
    yield from found


def _name_of(path: tuple[Any, ...]) -> str:
    return "/".join(map(str, path))


def _at(value: Any, path: tuple[Any, ...]) -> Any:
    """The value at a path of keys and positions."""
    return reduce(getitem, path, value)


def action_of(space: Any, leaves: Mapping[str, NDArray[Any]], path: tuple[Any, ...] = ()) -> Any:
    """The action of a `Dict` or `Tuple` space from its leaves by name, of one copy or [W, ...] of all, in their own
    types and counted from their own start.
    """
    from gymnasium import spaces

    if isinstance(space, spaces.Dict):
        return {key: action_of(inner, leaves, (*path, key)) for key, inner in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(action_of(inner, leaves, (*path, key)) for key, inner in enumerate(space.spaces))
    shifted = leaves[_name_of(path)] + (0 if isinstance(space, spaces.Box) else action_start(space))
    typed = np.asarray(shifted).astype(space.dtype)
    return int(typed) if isinstance(space, spaces.Discrete) and typed.ndim == 0 else typed


def action_space(space: Any) -> ActionSpace:
    """Convert a gymnasium action space; SpecError, with a fix, if it is not supported."""
    from gymnasium import spaces

    if isinstance(space, spaces.Dict | spaces.Tuple):
        parts: list[Any] = [(_name_of(path), action_space(inner)) for path, inner in _leaves_of(space, "the action")]
        return Hybrid(tuple(parts))
    if isinstance(space, spaces.Discrete):
        return Discrete(int(space.n))
    if isinstance(space, spaces.MultiDiscrete) and space.nvec.ndim == 1:
        return MultiDiscrete(tuple(int(n) for n in space.nvec))
    if isinstance(space, spaces.Box) and len(space.shape) == 1 and space.dtype not in (np.float32, np.float64):
        whole = "use gymnasium.spaces.MultiDiscrete(sizes, start=...)"
        raise SpecError(
            f"the action space is {space}, whose numbers would be rounded after they are recorded",
            "a Box of float32 or float64",
            whole if np.issubdtype(space.dtype, np.integer) else "use gymnasium.wrappers.RescaleAction",
        )
    if isinstance(space, spaces.Box) and len(space.shape) == 1:
        return bounds(space.low, space.high, space)
    raise SpecError(
        f"the action space is {space}",
        "a Discrete, a one-dimensional MultiDiscrete, a one-dimensional Box, or a Dict or Tuple of these",
        "wrap the environment with gymnasium.wrappers.TransformAction",
    )


def action_start(space: Any) -> NDArray[np.int64]:
    """The offset of actions counted from 0, `[]` or `[M]`."""
    return np.asarray(getattr(space, "start", 0), np.int64)


def bounds(low: NDArray[Any], high: NDArray[Any], source: Any) -> Continuous:
    """Actions between bounds `[A]`; SpecError, naming the source space, unless the bounds are finite."""
    if not (np.isfinite(low).all() and np.isfinite(high).all()):
        raise SpecError(
            f"the action space is {source}",
            "finite bounds",
            "use gymnasium.wrappers.RescaleAction or TransformAction, or a Box with finite low and high",
        )
    return Continuous(tuple(low.tolist()), tuple(high.tolist()))


def _column(space: Any, what: str, path: tuple[Any, ...]) -> SpaceColumn:
    from gymnasium import spaces

    shape = tuple(space.shape or ())
    if isinstance(space, spaces.Box) and len(shape) == 1:
        return SpaceColumn(Vector(int(shape[0])), path, shape, _ZERO)
    if isinstance(space, spaces.Box) and len(shape) in (2, 3):
        return SpaceColumn(_image(space, what), path, shape, _ZERO)
    if isinstance(space, spaces.Discrete):
        return SpaceColumn(Codes((int(space.n),)), path, shape, action_start(space))
    if isinstance(space, spaces.MultiDiscrete) and len(shape) == 1:
        return SpaceColumn(Codes(tuple(int(n) for n in space.nvec)), path, shape, action_start(space))
    raise SpecError(f"{what} is {space}", _SUPPORTED, "wrap it with gymnasium.wrappers.FlattenObservation")


def _image(space: Any, what: str) -> Image:
    """Return the leaf of an image; SpecError, with the wrapper to use, for another layout or type."""
    if space.dtype == np.uint8 and len(space.shape) == 3 and not (space.shape[0] <= _CHANNELS < space.shape[2]):
        return Image(*(int(side) for side in space.shape))
    if len(space.shape) == 3 and space.shape[0] <= _CHANNELS < space.shape[2]:
        found, fix = "its channels are first", "np.moveaxis(x, 0, -1)"
    elif space.dtype != np.uint8:
        found, fix = f"it has type {space.dtype}", "(255 * x).astype(np.uint8) for values in [0, 1]"
    else:
        found, fix = "it has no channels", "x[..., None]"
    wrapped = "gymnasium.wrappers.TransformObservation"
    if space.dtype != np.uint8:
        wrapped += " (or FlattenObservation, if it is not an image)"
    raise SpecError(f"{what} is {space}, {found}", _SUPPORTED, f"for an image apply {fix} with {wrapped}")


class Gymnasium:
    """`count` copies of a gymnasium environment, stepped one after another in this process.

    `factory` makes one copy. SpecError, with a fix, if its spaces are not supported; EnvironmentFailure, with copy and
    step, if a copy raises or returns a wrong shape, a value out of range, NaN or infinity.
    """

    def __init__(self, factory: Callable[[], Any], count: int, name: str | None = None) -> None:
        self.count = positive("count", count)
        self._copies = [factory() for _ in range(count)]
        first = self._copies[0]
        if not hasattr(first, "observation_space"):
            raise ConfigError(f"the factory made a {type(first).__name__}", "a gymnasium environment")
        registered = getattr(first, "spec", None)
        self.name = name or (registered.id if registered is not None else type(first).__name__)
        self._columns = columns(first.observation_space)
        self._steps = 0
        self._shown: BatchObservation | None = None  # the input of the next action
        self._masked = False
        action = action_space(first.action_space)
        self._start = action_start(first.action_space)
        raw, info = self._reset_copy(0, 0)
        self._read(0, raw, info)
        self._masked = "action_mask" in info
        if self._masked and not isinstance(action, Discrete):
            raise SpecError(f"{self.name} has an action mask for {first.action_space}", "discrete actions")
        leaves = {name: column.leaf for name, column in self._columns.items()}
        self.spec = Spec(leaves, action, masked=self._masked, elapsed_unit=_elapsed_unit(first, self.name))

    def reset(self, seed: int) -> BatchObservation:
        """Restart every copy, each with its own seed derived from this one."""
        self._steps = 0
        seeds = np.random.SeedSequence(check_seed(seed)).generate_state(self.count)
        self._shown = self._stacked([self._start_copy(copy, int(own)) for copy, own in enumerate(seeds)])
        self._batch().some_allowed(self._shown.action_mask)
        return self._shown

    def step(self, action: NDArray[Any]) -> Outcome:
        """Step every copy: action `[W]`, `[W, M]`, `[W, A]` or rows of parts, in the environment's own units."""
        require_reset(self._shown, self.name)
        action = check_action(self.spec, action, self.count)
        if isinstance(self.spec.action, Hybrid):
            rows = (dict(flat_leaves(self.spec.action.unpack(row))) for row in action)
            orders: list[Any] = [action_of(self._copies[0].action_space, leaves) for leaves in rows]
        elif isinstance(self.spec.action, Continuous):
            orders = list(action.astype(self._copies[0].action_space.dtype))
        else:
            shifted = action + self._start
            orders = [int(code) for code in shifted] if isinstance(self.spec.action, Discrete) else list(shifted)
        self._steps += 1
        following, *outcomes = zip(*(self._step_copy(copy, order) for copy, order in enumerate(orders)), strict=True)
        try:
            reward, terminated, truncated, elapsed = self._outcomes(self._batch(), *outcomes)
        except EnvironmentFailure:
            for copy, values in enumerate(zip(*outcomes, strict=True)):  # which copy it was
                self._outcomes(self._batch(copy), *([value] for value in values))
            raise
        ended = terminated | truncated
        current = [
            self._start_copy(copy, None) if over else result
            for copy, (over, result) in enumerate(zip(ended, following, strict=True))
        ]
        observed = self._stacked(following)
        self._shown = self._stacked(current) if ended.any() else observed
        self._batch().some_allowed(self._shown.action_mask)
        return Outcome(reward, terminated, truncated, observed, self._shown, elapsed=elapsed)

    def close(self) -> None:
        """Close every copy."""
        for copy in self._copies:
            copy.close()

    def _start_copy(self, copy: int, seed: int | None) -> _Observed:
        return self._read(copy, *self._reset_copy(copy, seed))

    def _reset_copy(self, copy: int, seed: int | None) -> tuple[Any, Any]:
        try:
            raw, info = self._copies[copy].reset(seed=seed)
        except Exception as error:
            raise self._batch(copy).failure(0, f"reset raised {_problem(error, _RESET)}") from error
        return raw, info

    def _step_copy(self, copy: int, order: Any) -> tuple[_Observed, Any, Any, Any, Any]:
        try:
            raw, reward, terminated, truncated, info = self._copies[copy].step(order)
        except Exception as error:
            raise self._batch(copy).failure(0, f"step raised {_problem(error, _STEP)}") from error
        shown = self._read(copy, raw, info)
        if self.spec.elapsed_unit is not None and "elapsed" not in info:
            raise self._batch(copy).failure(0, _NO_ELAPSED)
        return shown, reward, terminated, truncated, info.get("elapsed")

    def _read(self, copy: int, raw: Any, info: Any) -> _Observed:
        """Return the observation and the mask in arrays of their own: a copy may write into its own ones again."""
        batch, leaves = self._batch(copy), {}
        for name, column in self._columns.items():
            leaves[name] = column.read(batch, _what(name), [batch.take(_at, raw, column.path)])[0]
        info = batch.info(info)
        if not self._masked:
            return leaves, None
        if "action_mask" not in info:
            raise batch.failure(0, "the info has no action_mask")
        return leaves, batch.flags(_MASK, [info["action_mask"]], (int(self._copies[copy].action_space.n),))[0]

    def _stacked(self, results: Sequence[_Observed]) -> BatchObservation:
        leaves = {name: np.stack([observation[name] for observation, _ in results]) for name in self._columns}
        masks = [mask for _, mask in results if mask is not None]
        return BatchObservation(leaves, np.stack(masks) if self._masked else None)

    def _batch(self, copy: int | None = None) -> BatchReader:
        """Return the reader of one copy's values, or of all."""
        count, copies = (self.count, None) if copy is None else (1, [copy])
        return BatchReader(self.name, count, self._steps, copies)

    def _outcomes(self, batch: BatchReader, reward: Any, terminated: Any, truncated: Any, elapsed: Any) -> Any:
        """Check and convert rewards, flags and elapsed times, each `[W]`; None for times without a unit."""
        ends = batch.flags("terminated", terminated), batch.flags("truncated", truncated)
        times = None if self.spec.elapsed_unit is None else batch.times(elapsed)
        return batch.numbers("the reward", reward, ()), *ends, times


def _elapsed_unit(source: Any, name: str) -> str | None:
    """The unit of elapsed times that an environment names; SpecError for another thing than a word."""
    unit = (getattr(source, "metadata", None) or {}).get("elapsed_unit")
    if unit is None or (isinstance(unit, str) and unit.strip()):
        return unit
    raise SpecError(f'{name}: metadata["elapsed_unit"] is {unit!r}', 'a unit of time, such as "hour"')


def _problem(error: Exception, expected: str) -> str:
    """What an environment raised; for the API of older gyms, also what gymnasium expects."""
    text = f"{type(error).__name__}: {error}"
    older = ("values to unpack", "unexpected keyword argument 'seed'", "unexpected keyword argument 'options'")
    return f"{text}: expected {expected}" if any(one in str(error) for one in older) else text


def can_save(copies: Sequence[Any]) -> bool:
    """Whether every copy is of a known kind, in wrappers without state except the time."""
    return all(
        hasattr(copy, "unwrapped")
        and type(copy.unwrapped).__module__.startswith(_KNOWN)
        and all(type(wrap).__name__ in _PLAIN for wrap in _wraps(copy))
        for copy in copies
    )


class ResumableGymnasium(Gymnasium):
    """Like `Gymnasium`, for copies whose state can be saved."""

    def save_state(self) -> Saved:
        """The worlds, ages, random generators, and current observations of all copies."""
        shown = require_reset(self._shown, self.name)
        worlds = [_world(copy) for copy in self._copies]
        saved = {f"world.{key}": np.stack([world[key] for world in worlds]) for key in worlds[0]}
        saved |= {f"shown.{name}": leaf.copy() for name, leaf in shown.observation.items()}
        saved["generator"] = generators_to_array([copy.unwrapped.np_random for copy in self._copies])
        return {**saved, "steps": np.asarray(self._steps)}

    def restore_state(self, saved: Mapping[str, NDArray[Any]]) -> BatchObservation:
        """Restore a state of `save_state`; ConfigError for the state of another problem or count."""
        shown = self.reset(0)
        expected: Expected = dict(self.save_state())
        arrays = check_saved(saved, {**expected, "generator": None}, self.name)
        generators = generators_from_array(arrays["generator"], self.count, self.name)
        for row, (copy, generator) in enumerate(zip(self._copies, generators, strict=True)):
            _set_world(
                copy, {key.removeprefix("world."): arrays[key][row] for key in arrays if key.startswith("world.")}
            )
            copy.unwrapped.np_random = generator
        self._steps = int(arrays["steps"])
        self._shown = shown._replace(observation={name: arrays[f"shown.{name}"].copy() for name in shown.observation})
        return self._shown


def _wraps(copy: Any) -> list[Any]:
    wrappers = []
    while copy is not copy.unwrapped:
        wrappers.append(copy)
        copy = copy.env
    return wrappers


def _ages(copy: Any) -> list[Any]:
    return [wrap for wrap in _wraps(copy) if hasattr(wrap, "_elapsed_steps")]


def _world(copy: Any) -> dict[str, NDArray[Any]]:
    inner = copy.unwrapped
    ages = np.asarray([wrap._elapsed_steps for wrap in _ages(copy)], np.int64)
    if not hasattr(inner, "data"):
        state = np.asarray(inner.state)  # classic control computes in the float type of its state
        return {"age": ages, "state": state.astype(np.float64), "narrow": np.asarray(state.dtype == np.float32)}
    import mujoco

    kind = mujoco.mjtState.mjSTATE_INTEGRATION  # all that a step depends on, including the warm start of the solver
    state = np.empty(mujoco.mj_stateSize(inner.model, kind))
    mujoco.mj_getState(inner.model, inner.data, state, kind)
    return {"age": ages, "state": state, **{key: getattr(inner.data, key).copy() for key in _LAST_POSITIONS}}


def _set_world(copy: Any, world: Mapping[str, NDArray[Any]]) -> None:
    inner = copy.unwrapped
    for wrap, age in zip(_ages(copy), world["age"], strict=True):
        wrap._elapsed_steps = int(age)
    if not hasattr(inner, "data"):
        inner.state = world["state"].astype(np.float32 if world["narrow"] else np.float64)
        return
    import mujoco

    mujoco.mj_setState(inner.model, inner.data, world["state"], mujoco.mjtState.mjSTATE_INTEGRATION)
    for key in _LAST_POSITIONS:
        getattr(inner.data, key)[:] = world[key]


# Adapter of gymnasium's vector environments, for each of the three autoreset modes.
#
# SAME_STEP: the last observation of an episode is in the info ("final_obs"). DISABLED: this adapter restarts ended
# copies in the same step (`reset(options={"reset_mask": ...})`). NEXT_STEP: the row after an end only restarts its copy
# and is marked in `Outcome.valid`. The mode is read from `metadata["autoreset_mode"]` and never guessed: a wrong guess
# loses transitions or joins two episodes.
#
# Letters in shapes: `W` copies, `A` number of actions.

_FIX = 'set metadata["autoreset_mode"] to a gymnasium.vector.AutoresetMode: NEXT_STEP, SAME_STEP or DISABLED'


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
            raise SpecError(f"{self.name} has an action mask for {action}", "discrete actions")
        leaves = {name: column.leaf for name, column in self._columns.items()}
        self.spec = Spec(leaves, action, masked=self._masked, elapsed_unit=_elapsed_unit(source, self.name))

    def reset(self, seed: int) -> BatchObservation:
        """Restart every copy; the source derives the seeds of its copies from one seed."""
        self._steps = 0
        self._waiting = np.zeros(self.count, bool)
        observed = self._read(*self._reset_source(int(np.random.SeedSequence(check_seed(seed)).generate_state(1)[0])))
        self._batch().some_allowed(observed.action_mask)
        return observed

    def step(self, action: NDArray[Any]) -> Outcome:
        """Step every copy: action `[W]`, `[W, M]`, `[W, A]` or rows of parts, in the environment's own units."""
        require_reset(self._waiting, self.name)
        action = check_action(self.spec, action, self.count)
        if isinstance(self.spec.action, Hybrid):
            leaves = dict(flat_leaves(self.spec.action.unpack(action)))
            orders = action_of(self._source.single_action_space, leaves)
        else:
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
            outcome = self._next_step(reward, terminated, truncated, self._read(raw, info))
        elif ended.any():
            outcome = Outcome(reward, terminated, truncated, *self._split_ended(ended, raw, info))
        else:
            observed = self._read(raw, info)
            outcome = Outcome(reward, terminated, truncated, observed, observed)
        batch.some_allowed(outcome.current_observation.action_mask)
        return outcome._replace(elapsed=self._elapsed(info, ended, outcome.valid))

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
        raise ConfigError(f"{self.name}: autoreset_mode is {mode_name!r}", "a known mode", _FIX)

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
            part = batch.take(_pick, raw, column.path, rows)
            leaves[name][rows] = column.read(batch, _what(name), part)
        if observed.action_mask is None:
            return BatchObservation(leaves)
        mask = observed.action_mask.copy()
        mask[rows] = self._mask(info, rows)[rows]
        return BatchObservation(leaves, mask)

    def _read(self, raw: Any, info: Mapping[str, Any]) -> BatchObservation:
        batch, leaves = self._batch(), {}
        for name, column in self._columns.items():
            leaves[name] = column.read(batch, _what(name), batch.take(_at, raw, column.path))
        return BatchObservation(leaves, self._mask(info) if self._masked else None)

    def _mask(self, info: Mapping[str, Any], rows: NDArray[np.int64] | None = None) -> NDArray[np.bool_]:
        batch, size = self._batch(), self._source.single_action_space.n
        has_mask = info.get("_action_mask", np.full(self.count, "action_mask" in info))
        missing = np.flatnonzero(~np.asarray(has_mask, bool)[slice(None) if rows is None else rows])
        if missing.size:
            copy = missing[0] if rows is None else rows[missing[0]]
            raise batch.failure(int(copy), "the info has no action_mask")
        return batch.flags(_MASK, info["action_mask"], (size,))

    def _elapsed(
        self, info: Mapping[str, Any], ended: NDArray[np.bool_], valid: NDArray[np.bool_] | None
    ) -> NDArray[np.float32] | None:
        """Elapsed times `[W]`, None without a unit; 0 in rows that are no decisions."""
        if self.spec.elapsed_unit is None:
            return None
        times, decisions = np.zeros(self.count, np.float32), np.ones(self.count, bool) if valid is None else valid
        at_reset = ended & (self._mode == "SAME_STEP")  # whose info is that of the reset
        for part, of in ((info, decisions & ~at_reset), (info.get("final_info", {}), at_reset)):
            rows = np.flatnonzero(of)
            has = part.get("_elapsed", np.full(self.count, "elapsed" in part))
            missing = rows[~np.asarray(has, bool)[rows]]
            if missing.size:
                raise self._batch().failure(int(missing[0]), _NO_ELAPSED)
            if rows.size and np.asarray(part["elapsed"]).dtype.kind != "f":
                fix = "return float(elapsed): the type of the first copy is that of all, and would cut their times"
                raise self._batch(rows).failure(0, "elapsed is a whole number", fix)
            times[rows] = self._batch(rows).times(np.asarray(part["elapsed"])[rows]) if rows.size else 0.0
        return times

    def _call(self, what: str, parts: int, *args: Any, **kwargs: Any) -> Any:
        """Call a method of the source and check the number of returned values."""
        try:
            returned = getattr(self._source, what)(*args, **kwargs)
        except Exception as error:
            raise self._batch().failure(None, f"{what} raised {type(error).__name__}: {error}") from error
        if not isinstance(returned, tuple) or len(returned) != parts:
            kind = type(returned).__name__
            raise self._batch().failure(None, f"{what} returned a {kind}: expected a tuple of {parts} values")
        self._batch().info(returned[-1])
        return returned

    def _batch(self, rows: NDArray[np.int64] | None = None) -> BatchReader:
        return BatchReader(self.name, self.count if rows is None else len(rows), self._steps, rows)


class VectorCartPole(VectorGymnasium):
    """gymnasium's own vectorised CartPole; copies restart in the step that ends them.

    The source would restart them in the next step, with the same random draw; here every row is a decision.
    """

    def save_state(self) -> Saved:
        """The states of the carts, their ages, the random generator and the step."""
        require_reset(self._waiting, self.name)
        source = self._source
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


def _pick(raw: Any, path: tuple[Any, ...], rows: NDArray[np.int64]) -> NDArray[Any]:
    """Rows of a batch, or of an array with one observation per copy."""
    if isinstance(raw, np.ndarray) and raw.dtype == object:
        return np.stack([np.asarray(_at(raw[row], path)) for row in rows])
    return np.asarray(_at(raw, path))[rows]


def _what(name: str) -> str:
    return "the observation" if name == "observation" else f"observation {name!r}"


# Atari games ("ALE/Pong-v5"), which show the usual observation: four grey frames of 84 by 84.
#
# The Arcade Learning Environment steps all copies in one call and preprocesses the frames (Machado et al. 2018: sticky
# actions, rewards of the game unless clipped). It restarts a copy in the step after its end; those rows are not
# decisions (`Outcome.valid`). Its state cannot be saved: a resumed run starts new episodes, with a note.

MOST_CHANNELS = 16  # largest first axis that counts as channels: four images of three colours, or a few more


class Atari(VectorGymnasium):
    """Copies of one game, stepped together by the Arcade Learning Environment."""

    def _reset_source(self, seed: int) -> Any:
        return super()._reset_source(seed % 2**30)  # its seeds are signed 32-bit numbers, one per copy


def atari(name: str, count: int) -> Atari:
    """Make `count` copies of a game; ConfigError if its package is not installed or the name is unknown."""
    try:
        import ale_py
    except ImportError as error:
        found = f"{name} needs the Arcade Learning Environment: {error}"
        raise ConfigError(found, fix="pip install 'ale-py>=0.11'") from error
    import gymnasium

    gymnasium.register_envs(ale_py)
    known = [one for one in gymnasium.registry if one.startswith("ALE/")]
    if name not in known:
        raise ConfigError(f"there is no environment {name!r}: {nearest(name, known)}")
    copies = positive("count", count)
    source = gymnasium.make_vec(name, num_envs=copies, vectorization_mode="vector_entry_point")
    return Atari(channels_last(source), name)


class ChannelsLast:
    """A vector environment with images [W, C, H, W'] uint8, shown as [W, H, W', C]; otherwise unchanged."""

    def __init__(self, source: Any) -> None:
        from gymnasium import spaces

        self._source = source
        channels, height, width = source.single_observation_space.shape
        self.single_observation_space = spaces.Box(0, 255, (height, width, channels), np.uint8)
        self.single_action_space = source.single_action_space
        self.num_envs, self.metadata = source.num_envs, source.metadata
        self.spec = getattr(source, "spec", None)

    def reset(self, **options: Any) -> tuple[Any, dict[str, Any]]:
        """Reset the source."""
        shown, info = self._source.reset(**options)
        return np.moveaxis(np.asarray(shown), 1, -1), info

    def step(self, action: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Step the source."""
        shown, *rest, info = self._source.step(action)
        reward, terminated, truncated = rest
        return np.moveaxis(np.asarray(shown), 1, -1), reward, terminated, truncated, info

    def close(self) -> None:
        """Close the source."""
        self._source.close()


def channels_last(source: Any) -> Any:
    """Wrap the source if its images have channels first."""
    space = source.single_observation_space
    is_image = space.shape is not None and len(space.shape) == 3 and space.dtype == np.uint8
    channels_first = is_image and (
        space.shape[0] <= _CHANNELS < space.shape[2] or space.shape[0] <= MOST_CHANNELS < space.shape[2]
    )
    return ChannelsLast(source) if channels_first else source
