"""Ways to look at a log: by transition and by episode. Nothing is copied before it is asked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from tidelog.data.core.order import Values

if TYPE_CHECKING:
    from tidelog.data.log import Log


class Transitions:
    """Rows with what followed them, gathered when an attribute is read; `transitions[rows]` narrows the view."""

    def __init__(self, log: Log, rows: Values | None = None) -> None:
        self._log = log
        self._rows = rows

    def __len__(self) -> int:
        return len(self._log) if self._rows is None else len(self._rows)

    def __getitem__(self, rows: Any) -> Transitions:
        mine = np.arange(len(self._log)) if self._rows is None else self._rows
        return Transitions(self._log, np.atleast_1d(mine[rows]))

    @property
    def observation(self) -> dict[str, Values]:
        """Leaves [B, ...]."""
        where = self._take(self._log.position)
        return {name: leaf[where] for name, leaf in self._log.observation.items()}

    @property
    def next_observation(self) -> dict[str, Values]:
        """Leaves [B, ...]; the row's own observation where `followed` is False."""
        where = self._take(self._log.next_position)
        return {name: leaf[where] for name, leaf in self._log.observation.items()}

    @property
    def followed(self) -> Values:
        """[B] bool: whether the next observation is known."""
        followed: Values = self._take(self._log.next_position) != self._take(self._log.position)
        return followed

    @property
    def action(self) -> Values:
        """[B], [B, D] or [B, A]."""
        return self._take(self._log.action)

    @property
    def reward(self) -> Values | None:
        """[B] or [B, K]."""
        return None if self._log.reward is None else self._take(self._log.reward)

    @property
    def terminated(self) -> Values:
        """[B] bool."""
        return self._take(self._log.terminated)

    @property
    def truncated(self) -> Values:
        """[B] bool."""
        return self._take(self._log.truncated)

    @property
    def propensity(self) -> Values | None:
        """[B]."""
        return None if self._log.propensity is None else self._take(self._log.propensity)

    @property
    def mask(self) -> Values | None:
        """[B, A] bool."""
        return None if self._log.action_mask is None else self._log.action_mask[self._take(self._log.position)]

    @property
    def next_mask(self) -> Values | None:
        """[B, A] bool."""
        return None if self._log.action_mask is None else self._log.action_mask[self._take(self._log.next_position)]

    def _take(self, values: Values) -> Values:
        return values if self._rows is None else values[self._rows]


@dataclass(frozen=True, eq=False)
class Episode:
    """One episode of T steps; observations are T + 1 where what followed the last step is known, else T."""

    id: Any
    rows: slice
    observation: dict[str, Values]  # leaves [T + 1 or T, ...]
    action: Values  # [T], [T, D] or [T, A]
    reward: Values | None  # [T] or [T, K]
    terminated: bool
    truncated: bool
    propensity: Values | None  # [T]
    action_mask: Values | None  # [T + 1 or T, A] bool

    def __len__(self) -> int:
        return len(self.action)


class Episodes(Sequence[Episode]):
    """The episodes of a log in order; slices copy nothing but the list."""

    def __init__(self, log: Log) -> None:
        self._log = log

    def __len__(self) -> int:
        return len(self._log.episode_ids)

    @overload
    def __getitem__(self, ordinal: int) -> Episode: ...

    @overload
    def __getitem__(self, ordinal: slice) -> list[Episode]: ...

    def __getitem__(self, ordinal: int | slice) -> Episode | list[Episode]:
        if isinstance(ordinal, slice):
            return [self[place] for place in range(*ordinal.indices(len(self)))]
        place = range(len(self))[ordinal]
        log, rows = self._log, slice(int(self._log.starts[place]), int(self._log.starts[place + 1]))
        stored = slice(int(log.position[rows.start]), int(log.next_position[rows.stop - 1]) + 1)
        return Episode(
            id=log.episode_ids[place].item(),
            rows=rows,
            observation={name: leaf[stored] for name, leaf in log.observation.items()},
            action=log.action[rows],
            reward=None if log.reward is None else log.reward[rows],
            terminated=bool(log.terminated[rows.stop - 1]),
            truncated=bool(log.truncated[rows.stop - 1]),
            propensity=None if log.propensity is None else log.propensity[rows],
            action_mask=None if log.action_mask is None else log.action_mask[stored],
        )
