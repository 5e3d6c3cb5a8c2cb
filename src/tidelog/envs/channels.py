"""Vector environments whose pictures have their channels first, as those of Atari are made, with them last."""

from __future__ import annotations

from typing import Any

import numpy as np

MOST = 16  # channels that stand first: four pictures of three colours, or a few more


class ChannelsLast:
    """A vector environment of pictures [W, C, H, W'] uint8 that shows them [W, H, W', C]; all else is its own."""

    def __init__(self, source: Any) -> None:
        from gymnasium import spaces

        self._source = source
        channels, height, width = source.single_observation_space.shape
        self.single_observation_space = spaces.Box(0, 255, (height, width, channels), np.uint8)
        self.single_action_space = source.single_action_space
        self.num_envs, self.metadata = source.num_envs, source.metadata
        self.spec = getattr(source, "spec", None)

    def reset(self, **given: Any) -> tuple[Any, dict[str, Any]]:
        """As the source's."""
        shown, info = self._source.reset(**given)
        return np.moveaxis(np.asarray(shown), 1, -1), info

    def step(self, action: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """As the source's."""
        shown, *rest, info = self._source.step(action)
        reward, terminated, truncated = rest
        return np.moveaxis(np.asarray(shown), 1, -1), reward, terminated, truncated, info

    def close(self) -> None:
        """As the source's."""
        self._source.close()


def channels_last(source: Any) -> Any:
    """The source, its pictures turned where their channels stand first."""
    space = source.single_observation_space
    first = space.shape is not None and len(space.shape) == 3 and space.dtype == np.uint8
    turned = first and (space.shape[0] <= 4 < space.shape[2] or space.shape[0] <= MOST < space.shape[2])
    return ChannelsLast(source) if turned else source
