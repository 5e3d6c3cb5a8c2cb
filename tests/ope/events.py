"""A handful of events by hand, as an interaction log holds them."""

from types import SimpleNamespace

import numpy as np


def events_of(rows, items, terminated=()):
    """Rows of (user, item, event, reward, time), sorted; `terminated` numbers the rows that end a session."""
    user, item, event, reward, time = (np.array(column) for column in zip(*rows, strict=True))
    last = np.append(user[1:] != user[:-1], True)
    ends = np.isin(np.arange(len(rows)), terminated)
    return SimpleNamespace(
        items=np.arange(items) + 100, users=np.unique(user), events=("view", "buy"),
        user=user.astype(np.int32), item=item.astype(np.int32),
        event=event.astype(np.int32), reward=reward.astype(np.float32), time=time.astype(float),
        terminated=ends, truncated=last & ~ends, user_features=None,
    )  # fmt: skip
