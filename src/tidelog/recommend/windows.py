"""Interactions on the device, and windows of them: a user's history, the next items, and their rewards.

Each window ends at one event of a user and includes earlier events, across sessions. Its last `targets` events are the
training targets; windows follow each other, and every event is a target in exactly one of them.

Letters: `M` events, `W` windows, `B` batch, `H` history length, `T` targets, `S` items of a slate, `U` users,
`F` features.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from tidelog.algorithms.core.sampling import Gathered
from tidelog.recommend.interactions.log import Interactions


class StoredInteractions(NamedTuple):
    """Interactions on the device."""

    item: jax.Array  # [M] int32
    event: jax.Array  # [M] int32
    reward: jax.Array  # [M]
    terminated: jax.Array  # [M] bool
    start: jax.Array  # [M] int32: the first event of its user
    ends: jax.Array  # [W] int32: the last events of windows
    scored: jax.Array | None = None  # [M] bool: events that count; None: all
    slate: jax.Array | None = None  # [M, S] int32
    user: jax.Array | None = None  # [M] int32: the event's user, counted from 0
    users: jax.Array | None = None  # [U, F]: features of each user


class Visit(NamedTuple):
    """Windows of `H + 1` events; a short one begins with zeros. The last `T` columns are the targets."""

    items: jax.Array  # [B, H + 1] int32
    events: jax.Array  # [B, H + 1] int32
    reward: jax.Array  # [B, T]
    discount: jax.Array  # [B, T]: 0 where the session ended
    slate: jax.Array | None  # [B, T, S] int32
    user: jax.Array | None = None  # [B, F]

    @property
    def chosen(self) -> jax.Array:
        """The selected items [B, T] of the target steps."""
        return self.items[:, -self.reward.shape[1] :]

    def states(self, read: jax.Array) -> jax.Array:
        """Return the states [B, T, D] in which those items were selected, out of all columns' states."""
        return read[:, -self.reward.shape[1] - 1 : -1]

    def following(self, read: jax.Array) -> jax.Array:
        """Return the states [B, T, D] after them."""
        return read[:, -self.reward.shape[1] :]


@dataclass(frozen=True)
class Windows:
    """The last `targets` events of windows, each after at least `length - targets + 1` events where they exist."""

    length: int
    targets: int
    discount: Any = 0.0  # float, or a tracer in a population

    def rows(self, store: StoredInteractions) -> tuple[int, jax.Array]:
        """Return all windows."""
        return store.ends.shape[0], store.ends

    def gather(self, store: StoredInteractions, rows: jax.Array) -> Gathered:
        """Return windows that end at `rows` [B]."""
        grid = rows[:, None] + jnp.arange(-self.length, 1)
        real = grid >= store.start[rows][:, None]
        within = jnp.where(real, grid, rows[:, None])
        late, valid = within[:, -self.targets :], real[:, -self.targets :]
        continues = 1.0 - store.terminated[late].astype(jnp.float32)
        data = Visit(
            items=jnp.where(real, store.item[within], 0),
            events=jnp.where(real, store.event[within], 0),
            reward=store.reward[late],
            discount=self.discount * continues,
            slate=None if store.slate is None else store.slate[late],
            user=None if store.users is None else store.users[store.user[rows]],  # type: ignore[index]
        )
        return Gathered(data, None, valid if store.scored is None else valid & store.scored[late])


def visits(log: Interactions, targets: int, slates: bool, users: bool = False) -> StoredInteractions:
    """Return a store of interactions whose windows have this number of targets, with slates and user features."""
    last = log.starts[1:][log.user] - 1
    ends = (last - np.arange(len(log))) % targets == 0
    if log.scored is not None:  # only windows with a scored event
        counted = np.append(0, np.cumsum(log.scored))
        begin = np.maximum(np.arange(len(log)) - targets + 1, log.starts[log.user])
        ends &= counted[1:] > counted[begin]
    return StoredInteractions(
        item=_index(log.item),
        event=_index(log.event),
        reward=jnp.asarray(log.reward.astype(np.float32)),
        terminated=jnp.asarray(log.terminated),
        start=_index(log.starts[log.user]),
        ends=_index(np.flatnonzero(ends)),
        scored=None if log.scored is None else jnp.asarray(log.scored),
        slate=None if log.slate is None or not slates else _index(log.slate),
        user=_index(log.user) if users else None,
        users=jnp.asarray(log.user_features) if users else None,
    )


def _index(values: np.ndarray[Any, Any]) -> jax.Array:
    return jnp.asarray(values.astype(np.int32))
