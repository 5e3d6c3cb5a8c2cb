"""Requests and answers of `POST /recommend`: histories and lists by item id. Letters: `B` histories."""

from __future__ import annotations

from typing import Any, NamedTuple

from tidelog.errors import nearest
from tidelog.runtime.recommender import Recommender
from tidelog.serving.bodies import TOO_MANY, UNFIT, Refused, parsed

MOST = 100_000  # items in one answer
FEW = 20_000  # scored items plus list places of a quick answer
CHOICES = ("k", "exclude_seen", "candidates", "exclude", "unknown")
ONE = ("history", "events", "user", *CHOICES)
MANY = ("histories", "events", "users", *CHOICES)


class ParsedRequest(NamedTuple):
    """A client's request; always a batch, of one for a single history."""

    histories: list[list[Any]]
    rows: int  # B
    single: bool
    choices: dict[str, Any]  # arguments of `Recommender.recommend`


class Lists:
    """Histories in, lists out; at most `most` histories."""

    path = "/recommend"

    def __init__(self, policy: Recommender, most: int) -> None:
        self.policy, self._most = policy, most

    def read(self, text: bytes) -> ParsedRequest:
        """Return the request of a body; Refused for an invalid one."""
        body = parsed(text)
        if not isinstance(body, dict) or ("history" in body) == ("histories" in body):
            raise Refused(
                UNFIT, 'the body needs {"history": [...]} for one user, or {"histories": [[...], ...]} for several'
            )
        single = "history" in body
        fields = ONE if single else MANY
        for name in body:
            if name not in fields:
                raise Refused(UNFIT, f"unknown field '{name}': {nearest(name, fields)}")
        histories = _rows(body[fields[0]], fields[0], single)
        if len(histories) > self._most:
            raise Refused(
                TOO_MANY,
                f"'histories' has {len(histories):,} rows, at most {self._most:,} are allowed. fix: send fewer",
            )
        choices = {name: body[name] for name in CHOICES if name in body}
        _check(choices, len(histories))
        if body.get("events") is not None:
            choices["events"] = _rows(body["events"], "events", single)
        if body.get(fields[2]) is not None:
            choices["users"] = _users(body[fields[2]], fields[2], single)
        return ParsedRequest(histories, len(histories), single, choices)

    def quick(self, asked: ParsedRequest) -> bool:
        """Return whether the computation is faster than a thread switch."""
        return asked.rows * (self.policy.ranker().items + 100 * int(asked.choices.get("k", 10))) <= FEW

    def compute(self, asked: ParsedRequest) -> dict[str, Any]:
        """Return items and scores [B, k], best first."""
        lists = self.policy.recommend(asked.histories, **asked.choices)
        items, scores = lists.items.tolist(), lists.scores.tolist()
        return {"items": items[0], "scores": scores[0]} if asked.single else {"items": items, "scores": scores}


def _rows(value: Any, name: str, single: bool) -> list[list[Any]]:
    """Return lists of ids or texts, one per user."""
    rows = [value] if single else value
    if not isinstance(rows, list) or not rows:
        raise Refused(UNFIT, f"'{name}' is not a list with one list per user. fix: send [[...], ...]")
    for i, row in enumerate(rows):
        where = name if single else f"{name}[{i}]"
        if not isinstance(row, list):
            raise Refused(UNFIT, f"'{where}' is not a list (the latest last). fix: send [] for a user without history")
        _check_ids(row, where)
    return rows


def _users(value: Any, name: str, single: bool) -> list[dict[str, Any] | None]:
    """Return the features of each user: columns by name."""
    rows = [value] if single else value
    if not isinstance(rows, list):
        raise Refused(UNFIT, f"'{name}' is not a list with one object per history. fix: send [{{...}}, ...]")
    for i, row in enumerate(rows):
        if row is not None and not isinstance(row, dict):
            raise Refused(
                UNFIT, f"'{name if single else f'{name}[{i}]'}' is not an object. fix: send columns and values"
            )
    return rows


def _check_ids(ids: list[Any], where: str) -> None:
    for i, one in enumerate(ids):
        if type(one) not in (str, int):
            raise Refused(UNFIT, f"'{where}[{i}]' is not a string or a whole number. fix: send an item id")


def _check(choices: dict[str, Any], rows: int) -> None:
    """Raise Refused unless each choice has its type, and the answer is within the limit."""
    k = choices.get("k", 10)
    if type(k) is not int or k < 1:
        raise Refused(UNFIT, f"'k' is {k!r:.40}, expected a whole number of at least 1. fix: send 10")
    if k * rows > MOST:
        raise Refused(TOO_MANY, f"'k' = {k:,} for {rows:,} histories, at most {MOST:,} items per answer. fix: lower k")
    if type(choices.get("exclude_seen", True)) is not bool:
        raise Refused(UNFIT, "'exclude_seen' is not true or false. fix: send true")
    for name in ("candidates", "exclude"):
        if choices.get(name) is not None:
            if not isinstance(choices[name], list):
                raise Refused(UNFIT, f"'{name}' is not a list of item ids. fix: send [...]")
            _check_ids(choices[name], name)
