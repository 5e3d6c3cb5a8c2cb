"""An interaction log in numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

from tidelog.data.core.order import Values
from tidelog.recommend.interactions.log import Interactions


def describe(log: Interactions) -> dict[str, Any]:
    """Plain numbers, lists and dictionaries; `repeats` is the share of events whose item the user had taken before."""
    lengths = np.diff(log.starts)
    bounds = np.append(-1, log.episodes)
    used = log.counts[1:]
    return {
        "events": len(log),
        "users": len(log.users),
        "items": len(log.items),
        "items_never_taken": int((used == 0).sum()),
        "sessions": len(log.episodes),
        "density": len(log) / max(1, len(log.users) * len(log.items)),
        "kinds": {name: int((log.event == code + 1).sum()) for code, name in enumerate(log.events)},
        "events_a_user": _spread(lengths),
        "events_a_session": _spread(np.diff(bounds)),
        "events_an_item": _spread(used),
        "users_without_history": int((lengths == 1).sum()),
        "rewards": _spread(log.reward),
        "repeats": float(repeated(log).mean()),
        "largest_share_of_an_item": float(used.max() / len(log)),
        "first": str(log.time.min()),
        "last": str(log.time.max()),
        "propensities": None if log.propensity is None else _spread(log.propensity),
        "shown": None if log.slate is None else _spread((log.slate > 0).sum(axis=1)),
    }


def repeated(log: Interactions) -> Values:
    """[M] bool: events whose item the same user had taken before."""
    pair = log.user.astype(np.int64) * (len(log.items) + 1) + log.item
    _, first = np.unique(pair, return_index=True)
    again = np.ones(len(log), bool)
    again[first] = False
    return again


def text(log: Interactions) -> str:
    """Plain lines for a terminal."""
    numbers = describe(log)
    lines = [
        f"{numbers['events']:,} events of {numbers['users']:,} users in {numbers['sessions']:,} sessions, "
        f"{numbers['items']:,} items ({numbers['items_never_taken']:,} never taken)",
        f"from {numbers['first']} to {numbers['last']}",
        "kinds: " + ", ".join(f"{name} {count:,}" for name, count in numbers["kinds"].items()),
        f"repeats: {numbers['repeats']:.1%} of events; the most frequent item has "
        f"{numbers['largest_share_of_an_item']:.1%} of them",
        f"users without history: {numbers['users_without_history']:,}",
    ]
    for name in ("events_a_user", "events_a_session", "events_an_item", "rewards", "propensities", "shown"):
        if numbers[name] is not None:
            spread = ", ".join(f"{word} {value:.4g}" for word, value in numbers[name].items())
            lines.append(f"{name.replace('_', ' ')}: {spread}")
    return "\n".join(lines)


def _spread(values: Values) -> dict[str, float]:
    return {
        "min": float(np.min(values)),
        "median": float(np.median(values)),
        "mean": float(np.mean(values)),
        "max": float(np.max(values)),
    }
