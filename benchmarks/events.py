"""A frame of events as numbered arrays, for what needs no more of a log than that."""

from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar

import numpy as np
import polars as pl


@dataclass(frozen=True, eq=False)
class Numbered:
    """`M` events sorted by user and time; items and kinds of events are counted from 1, in the order of their ids."""

    items: np.ndarray  # [N] ids
    users: np.ndarray  # [U] ids
    events: tuple[str, ...]
    user: np.ndarray  # [M] int32
    item: np.ndarray  # [M] int32
    event: np.ndarray  # [M] int32
    reward: np.ndarray  # [M] float32
    time: np.ndarray  # [M]
    terminated: np.ndarray  # [M] bool
    truncated: np.ndarray  # [M] bool
    user_features: ClassVar[None] = None

    def select(self, rows: Any) -> "Numbered":
        """These events; items and users keep their numbers, and the last event of each user is the end of its log."""
        found = {one.name: getattr(self, one.name) for one in fields(self)}
        found = {name: held[rows] for name, held in found.items() if name not in ("items", "users", "events")}
        last = np.append(found["user"][1:] != found["user"][:-1], True)
        return replace(self, **found | {"truncated": last & ~found["terminated"]})


def numbered(frame: pl.DataFrame) -> Numbered:
    """Columns user, item, time, event and reward of a frame; each user's last event is truncated."""
    frame = frame.sort("user", "time", maintain_order=True)
    users, user = np.unique(frame["user"].to_numpy(), return_inverse=True)
    items, item = np.unique(frame["item"].to_numpy().astype(object), return_inverse=True)
    kinds, kind = np.unique(frame["event"].to_numpy().astype(str), return_inverse=True)
    return Numbered(
        items, users, tuple(kinds.tolist()), user.astype(np.int32), item.astype(np.int32) + 1,
        kind.astype(np.int32) + 1, frame["reward"].to_numpy().astype(np.float32), frame["time"].to_numpy(),
        np.zeros(len(frame), bool), np.append(user[1:] != user[:-1], True),
    )  # fmt: skip
