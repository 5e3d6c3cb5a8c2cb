"""What `POST /recommend` takes and answers: histories by item id, lists of item ids. Letters: `B` histories."""

from __future__ import annotations

from typing import Any, NamedTuple

from tidelog.errors import nearest
from tidelog.runtime.recommender import Recommender
from tidelog.serving.bodies import TOO_MANY, UNFIT, Refused, parsed

MOST = 100_000  # items in one answer
FEW = 20_000  # items that are looked at, and places of lists
CHOICES = ("k", "exclude_seen", "candidates", "exclude", "unknown")
ONE = ("history", "events", "user", *CHOICES)
MANY = ("histories", "events", "users", *CHOICES)


class Asked(NamedTuple):
    """What a client asks for; everything is a batch, of one where one history was sent."""

    histories: list[list[Any]]
    rows: int  # B
    single: bool
    choices: dict[str, Any]  # of `Recommender.recommend`


class Lists:
    """Histories in, lists out; at most `most` histories."""

    path = "/recommend"

    def __init__(self, policy: Recommender, most: int) -> None:
        self.policy, self._most = policy, most

    def read(self, text: bytes) -> Asked:
        """What a body asks for; Refused where it does not fit."""
        body = parsed(text)
        if not isinstance(body, dict) or ("history" in body) == ("histories" in body):
            raise Refused(UNFIT, 'expected {"history": [...]} for one user, or {"histories": [[...], ...]} for several')
        single = "history" in body
        fields = ONE if single else MANY
        for name in body:
            if name not in fields:
                raise Refused(UNFIT, f"unknown field '{name}': {nearest(name, fields)}")
        histories = _rows(body[fields[0]], fields[0], single)
        if len(histories) > self._most:
            raise Refused(
                TOO_MANY, f"'histories' has {len(histories):,} rows, this server takes {self._most:,} at most"
            )
        choices = {name: body[name] for name in CHOICES if name in body}
        _check(choices, len(histories))
        if body.get("events") is not None:
            choices["events"] = _rows(body["events"], "events", single)
        if body.get(fields[2]) is not None:
            choices["users"] = _users(body[fields[2]], fields[2], single)
        return Asked(histories, len(histories), single, choices)

    def quick(self, asked: Asked) -> bool:
        """Whether the answer is computed faster than a thread is asked."""
        return asked.rows * (self.policy.ranker().items + 100 * int(asked.choices.get("k", 10))) <= FEW

    def compute(self, asked: Asked) -> dict[str, Any]:
        """Items and scores [B, k], best first."""
        found = self.policy.recommend(asked.histories, **asked.choices)
        items, scores = found.items.tolist(), found.scores.tolist()
        return {"items": items[0], "scores": scores[0]} if asked.single else {"items": items, "scores": scores}


def _rows(value: Any, name: str, single: bool) -> list[list[Any]]:
    """Lists of ids or words, one a user."""
    rows = [value] if single else value
    if not isinstance(rows, list) or not rows:
        raise Refused(UNFIT, f"'{name}' must be a list with a list of each user's")
    for i, row in enumerate(rows):
        where = name if single else f"{name}[{i}]"
        if not isinstance(row, list):
            raise Refused(UNFIT, f"'{where}' must be a list, the latest last; [] is a user without a history")
        _check_ids(row, where)
    return rows


def _users(value: Any, name: str, single: bool) -> list[dict[str, Any] | None]:
    """What is known of each user: columns by name."""
    rows = [value] if single else value
    if not isinstance(rows, list):
        raise Refused(UNFIT, f"'{name}' must be a list with an object for each history")
    for i, row in enumerate(rows):
        if row is not None and not isinstance(row, dict):
            raise Refused(UNFIT, f"'{name if single else f'{name}[{i}]'}' must be an object of columns and values")
    return rows


def _check_ids(ids: list[Any], where: str) -> None:
    for i, one in enumerate(ids):
        if type(one) not in (str, int):
            raise Refused(UNFIT, f"'{where}[{i}]' must be a string or a whole number")


def _check(choices: dict[str, Any], rows: int) -> None:
    """Refused unless each choice is of its kind, and the answer is of a size that one answer may have."""
    k = choices.get("k", 10)
    if type(k) is not int or k < 1:
        raise Refused(UNFIT, f"'k' must be a whole number from 1 on, found {k!r:.40}")
    if k * rows > MOST:
        raise Refused(TOO_MANY, f"'k' = {k:,} for {rows:,} histories: an answer holds at most {MOST:,} items")
    if type(choices.get("exclude_seen", True)) is not bool:
        raise Refused(UNFIT, "'exclude_seen' must be true or false")
    for name in ("candidates", "exclude"):
        if choices.get(name) is not None:
            if not isinstance(choices[name], list):
                raise Refused(UNFIT, f"'{name}' must be a list of item ids")
            _check_ids(choices[name], name)
