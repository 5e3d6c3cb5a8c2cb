"""Convert images of vector environments from channels first, as in Atari, to channels last."""

from __future__ import annotations

from typing import Any

import numpy as np

MOST = 16  # largest first axis that counts as channels: four images of three colours, or a few more


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
