"""gymnasium environments that can resume exactly in the middle of an episode: MuJoCo and classic control.

gymnasium has no interface for this. It is offered only if the complete state is known: for the environments below, in
the wrappers of `gymnasium.make` and in other wrappers without state.

For MuJoCo the integration state is not enough: Ant and Humanoid compute their speed from positions of the previous
step; these are saved too. `tests/envs/test_saving.py` tests all problems of version 5.

Letters in shapes: `W` copies.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tidelog.envs.gym import Gymnasium
from tidelog.envs.protocol import Observed
from tidelog.envs.saving import Expected, Saved, checked, generators_from_array, generators_to_array
from tidelog.errors import EnvironmentFailure

_KNOWN = ("gymnasium.envs.mujoco.", "gymnasium.envs.classic_control.")
_PLAIN = ("TimeLimit", "OrderEnforcing", "PassiveEnvChecker", "RescaleAction", "ClipAction", "FlattenObservation")
_LAST_POSITIONS = ("xpos", "xipos")  # of bodies and of their centres of mass


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
        if not self._started:
            raise EnvironmentFailure(f"{self.name} was not reset. fix: call reset(seed) before the first step")
        worlds = [_world(copy) for copy in self._copies]
        saved = {f"world.{key}": np.stack([world[key] for world in worlds]) for key in worlds[0]}
        saved |= {f"shown.{name}": leaf.copy() for name, leaf in self._shown.observation.items()}
        saved["generator"] = generators_to_array([copy.unwrapped.np_random for copy in self._copies])
        return {**saved, "steps": np.asarray(self._steps)}

    def restore_state(self, saved: Mapping[str, NDArray[Any]]) -> Observed:
        """Restore a state of `save_state`; ConfigError for the state of another problem or count."""
        shown = self.reset(0)
        expected: Expected = dict(self.save_state())
        arrays = checked(saved, {**expected, "generator": None}, self.name)
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
    positions = {key: getattr(inner.data, key).copy() for key in _LAST_POSITIONS}
    return {"age": ages, "state": _integration_state(inner), **positions}


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


def _integration_state(inner: Any) -> NDArray[np.float64]:
    """The complete MuJoCo state that a step depends on, including the warm start of the solver."""
    import mujoco

    kind = mujoco.mjtState.mjSTATE_INTEGRATION
    state = np.empty(mujoco.mj_stateSize(inner.model, kind))
    mujoco.mj_getState(inner.model, inner.data, state, kind)
    return state
