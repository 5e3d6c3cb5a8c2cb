"""Atari games by their gymnasium ids ("ALE/Pong-v5"), with the usual observation: four grey frames of 84 by 84.

The Arcade Learning Environment steps all copies in one call and preprocesses the frames (Machado et al. 2018:
sticky actions, rewards of the game unless clipped). Its copies restart in the step after their end; those rows are
not decisions. Its state cannot be saved: a resumed run starts new episodes, with a note.
"""

from __future__ import annotations

from typing import Any

from tidelog.envs.channels import channels_last
from tidelog.envs.protocol import positive
from tidelog.envs.vector import VectorGymnasium
from tidelog.errors import ConfigError, nearest


class Atari(VectorGymnasium):
    """Copies of one game, stepped together by the Arcade Learning Environment."""

    def _reset_source(self, seed: int) -> Any:
        return super()._reset_source(seed % 2**30)  # its seeds are signed 32-bit numbers, one per copy


def atari(name: str, count: int) -> Atari:
    """Make `count` copies of a game; ConfigError if the extra is not installed or the name is unknown."""
    try:
        import ale_py
    except ImportError as error:
        raise ConfigError(
            f"{name} needs the Arcade Learning Environment: {error}. fix: pip install 'tidelog[atari]'"
        ) from error
    import gymnasium

    gymnasium.register_envs(ale_py)
    known = [one for one in gymnasium.registry if one.startswith("ALE/")]
    if name not in known:
        raise ConfigError(f"there is no environment {name!r}: {nearest(name, known)}")
    copies = positive("count", count)
    source = gymnasium.make_vec(name, num_envs=copies, vectorization_mode="vector_entry_point")
    return Atari(channels_last(source), name)
