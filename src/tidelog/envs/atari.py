"""Atari's games by their gymnasium ids ("ALE/Pong-v5"), as agents see them: four grey frames of 84 by 84.

The Arcade Learning Environment steps all copies in one call and prepares the frames itself (Machado et al. 2018:
sticky actions, a reward that is the game's own unless clipped). Its copies restart in the step after their end; those
rows are no decisions. It cannot be saved so: a resumed run starts new episodes, and says so.
"""

from __future__ import annotations

from typing import Any

from tidelog.envs.channels import channels_last
from tidelog.envs.protocol import positive
from tidelog.envs.vector import VectorGymnasium
from tidelog.errors import ConfigError, nearest


class Atari(VectorGymnasium):
    """Copies of one game, stepped by the Arcade Learning Environment together."""

    def _begun(self, seed: int) -> Any:
        return super()._begun(seed % 2**30)  # its seeds are signed, 32 bits wide, and one a copy


def atari(name: str, count: int) -> Atari:
    """`count` copies of a game; ConfigError where the extra is missing or none is so called."""
    try:
        import ale_py
    except ImportError as error:
        raise ConfigError(
            f"{name} needs the Arcade Learning Environment: {error}; pip install 'tidelog[atari]'"
        ) from error
    import gymnasium

    gymnasium.register_envs(ale_py)
    known = [one for one in gymnasium.registry if one.startswith("ALE/")]
    if name not in known:
        raise ConfigError(f"there is no environment called {name!r}; {nearest(name, known)}")
    copies = positive("count", count)
    source = gymnasium.make_vec(name, num_envs=copies, vectorization_mode="vector_entry_point")
    return Atari(channels_last(source), name)
