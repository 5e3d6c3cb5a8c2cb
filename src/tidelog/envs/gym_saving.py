"""gymnasium environments that can go on exactly in the middle of an episode: MuJoCo's and classic control.

gymnasium has no word for this, so it is offered only where everything that the future depends on is known: the
environments below in the wrappers that `gymnasium.make` puts around them, and wrappers that remember nothing.

For MuJoCo the integration state alone is not enough: Ant and Humanoid measure their speed from positions that the last
step left behind, so those are kept too. `tests/envs/test_saving.py` tries all problems of version 5.

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
_LEFT_BEHIND = ("xpos", "xipos")  # of bodies and of their centres of mass


def can_save(copies: Sequence[Any]) -> bool:
    """Whether every copy is of a known kind, in wrappers that remember nothing but the time."""
    return all(
        hasattr(copy, "unwrapped")
        and type(copy.unwrapped).__module__.startswith(_KNOWN)
        and all(type(wrap).__name__ in _PLAIN for wrap in _wraps(copy))
        for copy in copies
    )


class ResumableGymnasium(Gymnasium):
    """Copies whose worlds can be written down; otherwise as `Gymnasium`."""

    def save_state(self) -> Saved:
        """Worlds, ages, random numbers, and what every copy shows now."""
        if not self._started:
            raise EnvironmentFailure(f"{self.name}: reset it before the first step")
        worlds = [_world(copy) for copy in self._copies]
        saved = {f"world.{key}": np.stack([world[key] for world in worlds]) for key in worlds[0]}
        saved |= {f"shown.{name}": leaf.copy() for name, leaf in self._shown.observation.items()}
        saved["generator"] = generators_to_array([copy.unwrapped.np_random for copy in self._copies])
        return {**saved, "steps": np.asarray(self._steps)}

    def restore_state(self, saved: Mapping[str, NDArray[Any]]) -> Observed:
        """Go on from what `save_state` returned; ConfigError where it is another problem's or another count's."""
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
    found = []
    while copy is not copy.unwrapped:
        found.append(copy)
        copy = copy.env
    return found


def _ages(copy: Any) -> list[Any]:
    return [wrap for wrap in _wraps(copy) if hasattr(wrap, "_elapsed_steps")]


def _world(copy: Any) -> dict[str, NDArray[Any]]:
    inner = copy.unwrapped
    ages = np.asarray([wrap._elapsed_steps for wrap in _ages(copy)], np.int64)
    if not hasattr(inner, "data"):
        state = np.asarray(inner.state)  # classic control computes in whichever width its state has
        return {"age": ages, "state": state.astype(np.float64), "narrow": np.asarray(state.dtype == np.float32)}
    return {"age": ages, "state": _integrated(inner), **{key: getattr(inner.data, key).copy() for key in _LEFT_BEHIND}}


def _set_world(copy: Any, world: Mapping[str, NDArray[Any]]) -> None:
    inner = copy.unwrapped
    for wrap, age in zip(_ages(copy), world["age"], strict=True):
        wrap._elapsed_steps = int(age)
    if not hasattr(inner, "data"):
        inner.state = world["state"].astype(np.float32 if world["narrow"] else np.float64)
        return
    import mujoco

    mujoco.mj_setState(inner.model, inner.data, world["state"], mujoco.mjtState.mjSTATE_INTEGRATION)
    for key in _LEFT_BEHIND:
        getattr(inner.data, key)[:] = world[key]


def _integrated(inner: Any) -> NDArray[np.float64]:
    """All that a MuJoCo step depends on, warm start of the solver included."""
    import mujoco

    kind = mujoco.mjtState.mjSTATE_INTEGRATION
    state = np.empty(mujoco.mj_stateSize(inner.model, kind))
    mujoco.mj_getState(inner.model, inner.data, state, kind)
    return state
