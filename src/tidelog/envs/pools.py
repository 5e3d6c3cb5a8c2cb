"""Compiled vector environments: Atari games ("ALE/Pong-v5") and envpool's environments ("envpool:ID").

Atari games show the usual observation: four grey frames of 84 by 84. The Arcade Learning Environment steps all copies
in one call and preprocesses the frames (Machado et al. 2018: sticky actions, rewards of the game unless clipped). Its
state cannot be saved: a resumed run starts new episodes, with a note.

envpool is compiled, multi-threaded, and seeded only at construction. Only pools that return all copies in each step are
supported.

Both restart a copy in the step after its end, according to their metadata; those rows are not decisions
(`Outcome.valid`).
"""

from __future__ import annotations

import difflib
from collections.abc import Callable
from typing import Any

import numpy as np

from tidelog.envs.gym import VectorGymnasium
from tidelog.envs.protocol import positive
from tidelog.errors import ConfigError, install, nearest

MOST = 16  # largest first axis that counts as channels: four images of three colours, or a few more


class Atari(VectorGymnasium):
    """Copies of one game, stepped together by the Arcade Learning Environment."""

    def _reset_source(self, seed: int) -> Any:
        return super()._reset_source(seed % 2**30)  # its seeds are signed 32-bit numbers, one per copy


def atari(name: str, count: int) -> Atari:
    """Make `count` copies of a game; ConfigError if the extra is not installed or the name is unknown."""
    try:
        import ale_py
    except ImportError as error:
        raise ConfigError(f"{name} needs the Arcade Learning Environment: {error}", fix=install("atari")) from error
    import gymnasium

    gymnasium.register_envs(ale_py)
    known = [one for one in gymnasium.registry if one.startswith("ALE/")]
    if name not in known:
        raise ConfigError(f"there is no environment {name!r}: {nearest(name, known)}")
    copies = positive("count", count)
    source = gymnasium.make_vec(name, num_envs=copies, vectorization_mode="vector_entry_point")
    return Atari(channels_last(source), name)


class Pool(VectorGymnasium):
    """All copies of one pool, rebuilt by `maker(seed)` at each reset because its seed is fixed at construction."""

    def __init__(self, maker: Callable[[int], Any], name: str | None = None) -> None:
        self._maker = maker
        super().__init__(maker(0), name)

    def _reset_source(self, seed: int) -> Any:
        self._source.close()
        self._source = self._maker(seed % 2**31)  # envpool's seeds are 32-bit and signed
        return self._call("reset", 2)

    def _call(self, what: str, parts: int, *args: Any, **kwargs: Any) -> Any:
        returned = super()._call(what, parts, *args, **kwargs)
        order = returned[-1].get("env_id")
        if order is not None and not np.array_equal(order, np.arange(self.count)):
            raise self._batch().failure(None, f"{what} returned the copies {order}. fix: set batch_size to num_envs")
        return returned


def pool(name: str, count: int) -> Pool:
    """Make `count` copies of one of envpool's environments; ConfigError if envpool or the name is missing."""
    try:
        import envpool
    except ImportError as error:
        raise ConfigError(f"envpool cannot be imported: {error}", fix=install("envpool")) from error
    known = envpool.list_all_envs()
    if name not in known:
        close = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
        hint = f": did you mean {' or '.join(map(repr, close))}?" if close else ""
        raise ConfigError(f"envpool has no environment {name!r}{hint}")
    copies = positive("count", count)

    def maker(seed: int) -> Any:
        return channels_last(envpool.make_gymnasium(name, num_envs=copies, seed=seed))

    return Pool(maker, f"envpool:{name}")


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
    channels_first = is_image and (space.shape[0] <= 4 < space.shape[2] or space.shape[0] <= MOST < space.shape[2])
    return ChannelsLast(source) if channels_first else source
