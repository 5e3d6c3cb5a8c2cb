"""Requests and answers of `POST /act` (observations in, actions out) and `POST /recommend` (histories in, lists out).

Invalid input is a `RequestError` with the status and a sentence that names the field. Letters: `B` batch.
"""

from __future__ import annotations

import difflib
import json
import math
import re
import secrets
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from tidelog.errors import nearest
from tidelog.runtime.observations import column_names, unseen_labels, unseen_text
from tidelog.runtime.policy import Memory, Policy
from tidelog.runtime.recommender import LEAST_POOL, MOST_REASONS, POOL, Recommender, Vocabulary
from tidelog.runtime.rule import Rule
from tidelog.runtime.way_of_acting import other_way
from tidelog.types import Catalogue, Codes, Discrete, Image, Spec, Vector, lists_among

NumpyArray = np.ndarray[Any, Any]
MALFORMED, UNFIT, TOO_MANY = 400, 422, 413
ONE = ("observation", "mask", "memory", "seed")
MANY = ("observations", "masks", "memories", "seed")
CHOICES = ("k", "exclude_seen", "candidates", "exclude", "unknown", "diversity")
ONE_LIST = ("history", "events", "user", *CHOICES, "because", "times", "now", "user_id")
MANY_LISTS = ("histories", "events", "users", *CHOICES, "because", "times", "now", "user_ids")
PLURAL = {"action": "actions", "code": "codes", "propensity": "propensities", "memory": "memories"}
MOST_ITEMS = 100_000  # items in one answer
DIVERSITY = 20  # scores of the search that take the time of one similarity, which reads a vector of its own
LARGEST = 3e38  # largest float32, about
MOST_NAMED = 5  # names in an answer
DEEPEST = 5  # lists within lists: a batch of pictures has four


class RequestError(Exception):
    """A request that gets a status and a sentence."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class ParsedRequest(NamedTuple):
    """A client's request; always a batch, of one for a single observation."""

    observation: dict[str, NumpyArray]  # [B, ...] by feature or by leaf
    rows: int  # B
    single: bool
    mask: NumpyArray | None = None  # [B, A]
    memory: Memory | None = None
    seed: int | None = None


class ActEndpoint:
    """Observations in, actions out, in the policy's declared way of acting; at most `most` rows."""

    path = "/act"

    def __init__(self, policy: Policy | Rule, most: int) -> None:
        self.policy, self._most = policy, most

    def read(self, text: bytes) -> ParsedRequest:
        """Return the request of a body; RequestError for invalid JSON, invalid fields, or more than `most` rows."""
        body = parse_json(text)
        _refuse_misspelt(body, ONE, MANY)
        if not isinstance(body, dict) or ("observation" in body) == ("observations" in body):
            raise RequestError(
                UNFIT, 'the body needs {"observation": ...} for one, or {"observations": [...]} for a batch'
            )
        single = "observation" in body
        fields = ONE if single else MANY
        for name in body:
            if name not in fields:
                raise RequestError(UNFIT, f"unknown field '{name}': {nearest(name, fields)}")
        rows = [body["observation"]] if single else body["observations"]
        if not isinstance(rows, list) or not rows:
            raise RequestError(UNFIT, "'observations' is not a list with at least one observation. fix: send [{...}]")
        if len(rows) > self._most:
            raise RequestError(
                TOO_MANY, f"'observations' has {len(rows):,} rows, at most {self._most:,} are allowed. fix: send fewer"
            )
        where = "observation" if single else "observations"
        observation = _observation(rows, self.policy.spec, where)
        mask, memory = (body.get(name) for name in fields[1:3])
        return ParsedRequest(
            observation,
            len(rows),
            single,
            None if mask is None else _mask([mask] if single else mask, fields[1]),
            _memory(memory, single, self.policy, len(rows), fields[2]),
            _seed(body.get("seed")),
        )

    def compute(self, asked: ParsedRequest) -> dict[str, Any]:
        """Return the answer to a request: actions by label, with their codes, where the log has labels."""
        observation, space = pictures(asked, self.policy.spec), self.policy.spec.action
        answer: dict[str, Any] = {}
        with np.errstate(all="ignore"):  # values that are not finite are refused below
            if asked.seed is None and self.policy.acting != "sample":
                answer["action"], _ = self.policy.act(observation, None, asked.mask, asked.memory)
            else:
                seed = secrets.randbits(32) if asked.seed is None else asked.seed
                answer["action"], answer["propensity"] = self.policy.act(observation, seed, asked.mask, asked.memory)
        if asked.memory is not None:
            answer["memory"] = asked.memory.carry
        for name, values in answer.items():
            if values is not None and not np.isfinite(values).all():
                raise RequestError(
                    UNFIT, f"the {name} is not finite, the observation is too large. fix: send smaller values"
                )
        if isinstance(space, Discrete) and space.names:
            codes = answer.pop("action")
            answer = {"action": np.asarray(space.names)[codes], "code": codes, **answer}
        plain = {name: None if values is None else values.tolist() for name, values in answer.items()}
        warnings = [other_way("mode")] if asked.seed is not None and self.policy.acting == "mode" else []
        warnings += [unseen_text(unseen)] if (unseen := unseen_labels(observation, self.policy.spec)) else []
        warning = {"warning": "; ".join(warnings)} if warnings else {}
        if asked.single:
            return {name: None if values is None else values[0] for name, values in plain.items()} | warning
        return {PLURAL[name]: values for name, values in plain.items()} | warning


class ListRequest(NamedTuple):
    """A client's request; always a batch, of one for a single history."""

    histories: list[list[Any]]
    rows: int  # B
    single: bool
    choices: dict[str, Any]  # arguments of `Recommender.recommend`
    because: bool  # whether the answer has reasons


class RecommendEndpoint:
    """Histories in, lists out; at most `most` histories, lists of `longest` items, and `scores` scores a request."""

    path = "/recommend"

    def __init__(self, policy: Recommender, most: int, longest: int = MOST_ITEMS, scores: int = 2_000_000_000) -> None:
        self.policy, self._most, self._longest, self._scores = policy, most, longest, scores

    def read(self, text: bytes) -> ListRequest:
        """Return the request of a body; RequestError for an invalid one."""
        body = parse_json(text)
        _refuse_misspelt(body, ONE_LIST, MANY_LISTS)
        if not isinstance(body, dict) or ("history" in body) == ("histories" in body):
            raise RequestError(
                UNFIT, 'the body needs {"history": [...]} for one user, or {"histories": [[...], ...]} for several'
            )
        single = "history" in body
        fields = ONE_LIST if single else MANY_LISTS
        for name in body:
            if name not in fields:
                raise RequestError(UNFIT, f"unknown field '{name}': {nearest(name, fields)}")
        histories = _rows(body[fields[0]], fields[0], single)
        if len(histories) > self._most:
            raise RequestError(
                TOO_MANY,
                f"'histories' has {len(histories):,} rows, at most {self._most:,} are allowed. fix: send fewer",
            )
        choices = {name: body[name] for name in CHOICES if name in body}
        _check_choices(choices, len(histories))
        self._check_work(len(histories), choices, body.get("because") is True)
        if body.get("events") is not None:
            choices["events"] = _rows(body["events"], "events", single)
        if body.get(fields[2]) is not None:
            choices["users"] = _users(body[fields[2]], fields[2], single)
        if body.get("times") is not None:
            choices["times"] = _times([body["times"]] if single else body["times"])
        if body.get("now") is not None:
            choices["now"] = _times([[body["now"]]])[0][0]
        if body.get(fields[-1]) is not None:
            choices["user_ids"] = _user_ids(body[fields[-1]], fields[-1], single)
        if type(body.get("because", False)) is not bool:
            raise RequestError(UNFIT, "'because' is not true or false. fix: send true")
        return ListRequest(histories, len(histories), single, choices, body.get("because", False))

    def _check_work(self, rows: int, choices: dict[str, Any], because: bool) -> None:
        """Raise RequestError where the lists are too long, or their computation scores too many items."""
        k, items = choices.get("k", 10), self.policy.ranker().items
        if k > self._longest:
            raise RequestError(
                MALFORMED, f"'k' is {k:,}, at most {self._longest:,} are allowed here. fix: send a smaller k"
            )
        scores, parts = rows * items, ["'histories'"]
        if because:
            scores += rows * MOST_REASONS * items
            parts.append("'because'")
        if choices.get("diversity"):
            scores += DIVERSITY * rows * k * min(max(POOL * k, LEAST_POOL), items)
            parts.append("'k' with 'diversity'")
        if scores > self._scores:
            raise RequestError(
                MALFORMED,
                f"the request needs {scores:,} scores, at most {self._scores:,} are allowed here. "
                f"fix: send less of {', '.join(parts)}",
            )

    def compute(self, asked: ListRequest) -> dict[str, Any]:
        """Return items and scores [B, k], best first; where asked for also each item's reason and what it does."""
        lists = self.policy.recommend(asked.histories, **asked.choices)
        answer = {"items": lists.items.tolist(), "scores": lists.scores.tolist()}
        if asked.because:
            known = {
                name: asked.choices[name]
                for name in ("events", "users", "unknown", "times", "now", "user_ids")
                if name in asked.choices
            }
            reasons = self.policy.because(asked.histories, answer["items"], **known)
            answer |= {"because": reasons.items.tolist(), "times_likelier": reasons.times.tolist()}
        return {name: values[0] for name, values in answer.items()} if asked.single else answer


def _rows(value: Any, name: str, single: bool) -> list[list[Any]]:
    """Return lists of ids or texts, one per user."""
    rows = [value] if single else value
    if not isinstance(rows, list) or not rows:
        raise RequestError(UNFIT, f"'{name}' is not a list with one list per user. fix: send [[...], ...]")
    for i, row in enumerate(rows):
        where = name if single else f"{name}[{i}]"
        if not isinstance(row, list):
            raise RequestError(
                UNFIT, f"'{where}' is not a list (the latest last). fix: send [] for a user without history"
            )
        _check_ids(row, where)
    return rows


def _times(rows: Any) -> list[list[Any]]:
    """Return lists of times, one per user: numbers or dates in text."""
    if not isinstance(rows, list) or not all(isinstance(row, list) for row in rows):
        raise RequestError(UNFIT, "'times' is not a list with one time per item. fix: send numbers or dates")
    for one in (one for row in rows for one in row):
        if type(one) not in (int, float, str) or (type(one) is int and abs(one) > LARGEST):
            raise RequestError(UNFIT, f"a time is {one!r:.40}: expected a number or a date. fix: send the log's times")
    return rows


def _users(value: Any, name: str, single: bool) -> list[dict[str, Any] | None]:
    """Return the features of each user: columns by name."""
    rows = [value] if single else value
    if not isinstance(rows, list):
        raise RequestError(UNFIT, f"'{name}' is not a list with one object per history. fix: send [{{...}}, ...]")
    for i, row in enumerate(rows):
        if row is not None and not isinstance(row, dict):
            raise RequestError(
                UNFIT, f"'{name if single else f'{name}[{i}]'}' is not an object. fix: send columns and values"
            )
    return rows


def _user_ids(value: Any, name: str, single: bool) -> list[Any]:
    """Return the id of each user, None for an unknown one."""
    ids = [value] if single else value
    if not isinstance(ids, list) or not all(one is None or type(one) in (str, int) for one in ids):
        raise RequestError(
            UNFIT, f"'{name}' is {value!r:.40}: expected text or a whole number for each user. fix: send the user's id"
        )
    return ids


def _check_ids(ids: list[Any], where: str) -> None:
    for i, one in enumerate(ids):
        if type(one) not in (str, int):
            raise RequestError(UNFIT, f"'{where}[{i}]' is not a string or a whole number. fix: send an item id")


def _check_choices(choices: dict[str, Any], rows: int) -> None:
    """Raise RequestError unless each choice has its type, and the answer is within the limit."""
    k = choices.get("k", 10)
    if type(k) is not int or k < 1:
        raise RequestError(UNFIT, f"'k' is {k!r:.40}, expected a whole number of at least 1. fix: send 10")
    if k * rows > MOST_ITEMS:
        raise RequestError(
            TOO_MANY, f"'k' = {k:,} for {rows:,} histories, at most {MOST_ITEMS:,} items per answer. fix: lower k"
        )
    share = choices.get("diversity", 0.0)
    if type(share) not in (int, float) or not 0.0 <= share <= 1.0:
        raise RequestError(UNFIT, f"'diversity' is {share!r:.40}, expected a number from 0 to 1. fix: send 0.3")
    if type(choices.get("exclude_seen", True)) is not bool:
        raise RequestError(UNFIT, "'exclude_seen' is not true or false. fix: send true")
    for name in ("candidates", "exclude"):
        if choices.get(name) is not None:
            if not isinstance(choices[name], list):
                raise RequestError(UNFIT, f"'{name}' is not a list of item ids. fix: send [...]")
            _check_ids(choices[name], name)


def example(policy: Policy | Rule) -> dict[str, Any] | None:
    """Return the body of a request with the policy's own features: means of the log, first categories; None without.

    A feature that has whole numbers only in the log has the nearest one. A feature that was not standardised has its
    fill, or 0.
    """
    spec, scaled = policy.spec, policy.manifest.get("scaler", {}).get("observation", {})
    leaves = [(key, leaf) for key, leaf in spec.observation.items() if not isinstance(leaf, Image)]
    if not _features(spec) or len(leaves) < len(spec.observation):
        return None
    row: dict[str, Any] = {}
    for key, leaf in leaves:
        if isinstance(leaf, Vector):
            values = dict(zip(leaf.names, scaled[key]["mean"], strict=True)) if key in scaled else dict(leaf.fills)
            whole = {leaf.names[column] for column in scaled.get(key, {}).get("whole", ())}
            for name in column_names(leaf):
                value = values.get(name, 0.0)
                row[name] = round(value) if name in whole else float(f"{value:.3g}")
        else:
            words = leaf.vocabularies or ((),) * len(leaf.names)
            row |= {name: known[0] if known else 0 for name, known in zip(leaf.names, words, strict=True)}
    for name, labels in lists_among(row).items():
        row[name] = [row.pop(label) for label in labels]
    return {ONE[0]: row}


def list_example(policy: Recommender) -> dict[str, Any]:
    """Return the body of a request for the list of a user who took two items of the log."""
    space = policy.spec.action
    items = list(space.ids[:2]) if isinstance(space, Catalogue) else []
    body: dict[str, Any] = {"history": items, "k": max(1, min(5, policy.ranker().items - len(items)))}
    if not policy.ranker().reads_gaps:
        return body
    dated = Vocabulary(policy.spec).times == "dates"
    moments = [f"2026-01-0{1 + day}" if dated else day for day in range(len(items) + 1)]
    return body | {"times": moments[:-1], "now": moments[-1]}


# Words and fields of JSON.

IN_JSON = {  # what an error says for Python and the command line, and for a request; the longer first
    "unknown='skip' (--unknown skip)": '"unknown": "skip"',
    "unknown='skip'": '"unknown": "skip"',
    "exclude_seen=False (--exclude-seen no)": '"exclude_seen": false',
    "drop users=, or train with user_features=...": 'drop "user" or "users", or train with user features',
    "a mapping or None": "an object or null",
    "or None": "or null",
    "use None": "send null",
    "times=, one time per item": '"times", one time per item',
    "and now=, the time of the lists (--time and --now)": 'and "now", the time of the lists',
    "drop times= and now=, or train with time_gaps=True": 'drop "times" and "now", or train with time gaps',
    "now= after": '"now" after',
    "drop user_ids=, or train with user_embedding=True": 'drop "user_id" or "user_ids", or train with user embeddings',
    "mask=": '"mask"',
    "use a bool array": "send true and false",
}


def in_json(message: str) -> str:
    """Return an error's message with the fields and values of a request."""
    for python, field in IN_JSON.items():
        message = message.replace(python, field)
    return message


def _refuse_misspelt(body: Any, one: tuple[str, ...], many: tuple[str, ...]) -> None:
    """Raise RequestError for an unknown field in a body with neither the first field of `one` nor that of `many`."""
    if isinstance(body, dict) and one[0] not in body and many[0] not in body:
        known = dict.fromkeys((*one, *many))
        for name in (name for name in body if name not in known):
            raise RequestError(UNFIT, f"unknown field '{name}': {nearest(name, known)}")


# Reading JSON.


def parse_json(text: bytes) -> Any:
    """Return the JSON of a body; RequestError for invalid JSON."""

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        fields = dict(pairs)
        if len(fields) < len(pairs):
            seen: set[str] = set()
            twice = next(name for name, _ in pairs if name in seen or seen.add(name))  # type: ignore[func-returns-value]
            raise RequestError(MALFORMED, f"the field '{twice}' appears twice. fix: send it once")
        return fields

    def no_number(word: str) -> Any:
        raise RequestError(MALFORMED, f"{word} is not JSON. fix: send null for a missing value")

    if not text.strip():
        raise RequestError(MALFORMED, "the body is empty. fix: send a JSON object")
    try:
        return json.loads(text, object_pairs_hook=once, parse_constant=no_number)
    except (ValueError, RecursionError) as error:
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise RequestError(MALFORMED, f"the body is not JSON: {reason}. fix: send valid JSON") from error


def _observation(rows: list[Any], spec: Spec, where: str) -> dict[str, NumpyArray]:
    if all(isinstance(row, Mapping) for row in rows):
        named = set(rows[0]) <= set(spec.observation) and bool(rows[0])
        columns = _with_lists(_gathered(rows, where), spec, where)
        if named and not set(columns) & _features(spec):
            return {name: _batched(_array(values, name)) for name, values in columns.items()}
        _check_names(columns, spec)
        return {name: _column(values, name, spec, where) for name, values in columns.items()}
    if any(isinstance(row, Mapping) for row in rows):
        raise RequestError(UNFIT, f"'{where}' mixes observations by name and by position. fix: use one form")
    if len(spec.observation) != 1:
        raise RequestError(UNFIT, f"'{where}': the policy needs {', '.join(spec.observation)}. fix: name the features")
    (name,) = spec.observation
    return {name: _batched(_array(rows, where))}


def _with_lists(columns: dict[str, list[Any]], spec: Spec, where: str) -> dict[str, list[Any]]:
    """Return columns with one for each number of a column of lists; RequestError for lists of another length."""
    for name, labels in lists_among(_features(spec)).items():
        if name not in columns or any(label in columns for label in labels):
            continue
        numbers = [_flat_list(value) if isinstance(value, list) else [value] * len(labels) if value is None else None
                   for value in columns.pop(name)]  # fmt: skip
        for i, row in enumerate(numbers):
            if row is None or len(row) != len(labels):
                found = "is no list" if row is None else f"is a list of {len(row):,}"
                fix = f"send a list of {len(labels)}"
                raise RequestError(
                    UNFIT, f"{_place(where, i)}: '{name}' {found}, expected {len(labels)} numbers. fix: {fix}"
                )
        columns |= {label: [(row or [])[place] for row in numbers] for place, label in enumerate(labels)}
    return columns


def _flat_list(value: list[Any]) -> list[Any]:
    """Return the values of a list, or of the one list in it; all missing where one is, as when a log is read."""
    flat = value[0] if len(value) == 1 and isinstance(value[0], list) else value
    return [None] * len(flat) if None in flat else flat


def _batched(values: NumpyArray) -> NumpyArray:
    """Return single numbers as rows of one."""
    return values[:, None] if values.ndim == 1 else values


def _features(spec: Spec) -> set[str]:
    leaves = spec.observation.values()
    return {name for leaf in leaves if not isinstance(leaf, Image) for name in column_names(leaf)}


def _gathered(rows: list[Any], where: str) -> dict[str, list[Any]]:
    """Return rows with the same names as columns."""
    names = list(rows[0])
    for i, row in enumerate(rows):
        for name in set(names).symmetric_difference(row):
            problem = "does not have" if name in names else "is the only one with"
            raise RequestError(UNFIT, f"{where}[{i}] {problem} the feature '{name}'. fix: equal features in all rows")
    return {name: [row[name] for row in rows] for name in names}


def _check_names(columns: Mapping[str, Any], spec: Spec) -> None:
    """Raise RequestError for names that are no features, with the nearest features that were not sent."""
    features = _features(spec)
    unknown = [name for name in columns if name not in features]
    if not unknown or not features:
        return
    absent = [name for name in sorted(features) if name not in columns]
    close = {name: difflib.get_close_matches(name, absent or features, n=1, cutoff=0.6) for name in unknown}
    named = ", ".join(f"'{name:.40}'" for name in unknown[:MOST_NAMED])
    more = f" and {len(unknown) - MOST_NAMED:,} more" if len(unknown) > MOST_NAMED else ""
    meant = " or ".join(dict.fromkeys(f"'{names[0]}'" for names in close.values() if names))
    fix = f"did you mean {meant}?" if meant else f"fix: leave {'it' if len(unknown) == 1 else 'them'} out"
    lacks = f"; not sent: {', '.join(absent[:MOST_NAMED])}" if absent else ""
    raise RequestError(UNFIT, f"unknown feature{'s' if len(unknown) > 1 else ''} {named}{more}: {fix}{lacks}")


def as_sent(message: str, asked: Any) -> str:
    """Return a message about a row with the place of that row in the request; none for a single observation."""
    place = "" if asked.single else r" in observations[\1]"
    return re.sub(r" in row (\d+)", place, message, count=1)


def _place(where: str, row: int) -> str:
    """Return the name of a row as the client sent it: alone, or in a list."""
    return where if where == ONE[0] else f"{where}[{row}]"


def _column(values: list[Any], name: str, spec: Spec, where: str) -> NumpyArray:
    """Return one feature of every row: numbers, or categories; null where it is missing."""
    fillable = name in _fillable(spec)
    for i, value in enumerate(values):
        place = _place(where, i)
        if isinstance(value, list | dict):
            raise RequestError(UNFIT, f"{place}: '{name}' is a {_kind(value)}, expected one value. fix: send one")
        if value is None and not fillable:
            raise RequestError(UNFIT, f"{place}: '{name}' is null, but the log has a value in every row. fix: send one")
    if _has_words(name, spec):
        return np.asarray([None if v is None else v if isinstance(v, str) else str(v) for v in values], object)
    return np.asarray([_number(value, name, _place(where, i)) for i, value in enumerate(values)])


def _fillable(spec: Spec) -> set[str]:
    """Return the features that may be null: with a fill, or with an empty category."""
    names = {name for leaf in spec.observation.values() if isinstance(leaf, Vector) for name, _ in leaf.fills}
    for leaf in spec.observation.values():
        if isinstance(leaf, Codes):
            names |= {name for name, words in zip(leaf.names, leaf.vocabularies, strict=False) if "" in words}
    return names


def _has_words(name: str, spec: Spec) -> bool:
    for leaf in spec.observation.values():
        if isinstance(leaf, Codes) and name in leaf.names and leaf.vocabularies:
            return bool(leaf.vocabularies[leaf.names.index(name)])
    return False


def _number(value: Any, name: str, place: str) -> float:
    if value is None:
        return math.nan
    if isinstance(value, str):
        raise RequestError(UNFIT, f"{place}: '{name}' is a string, expected a number. fix: send a number")
    try:
        return float(value)
    except OverflowError:
        raise RequestError(UNFIT, f"{place}: '{name}' is too large for a float. fix: send a smaller number") from None


def _array(values: Any, name: str) -> NumpyArray:
    """Return nested lists of numbers, or of text; whole numbers stay integers, because they are codes."""
    kinds = {_kind(value) for value in _flat(values, name)}
    if kinds == {"string"} or not kinds:
        dtype: Any = object if kinds else float
    elif kinds <= {"number", "boolean", "null"}:
        whole = all(isinstance(value, int) for value in _flat(values, name))
        dtype = np.int64 if whole else float
    else:
        raise RequestError(UNFIT, f"'{name}' mixes {' and '.join(sorted(kinds))} values. fix: use one type")
    try:
        array = np.asarray(values, dtype)
    except (ValueError, TypeError):
        raise RequestError(UNFIT, f"'{name}' has rows of different lengths. fix: give every row one shape") from None
    except OverflowError:
        raise RequestError(UNFIT, f"'{name}' has a number that is too large. fix: send a smaller number") from None
    return array


def _flat(values: Any, name: str, depth: int = 0) -> Iterator[Any]:
    if depth > DEEPEST:
        raise RequestError(UNFIT, f"'{name}' is nested too deeply. fix: send flatter lists")
    if isinstance(values, list):
        for value in values:
            yield from _flat(value, name, depth + 1)
    else:
        yield values


def _kind(value: Any) -> str:
    kinds = {bool: "boolean", int: "number", float: "number", str: "string", list: "list", dict: "mapping"}
    return kinds.get(type(value), "null")


def _mask(values: Any, name: str) -> NumpyArray:
    mask = _array(values, name)
    if mask.dtype.kind not in "biuf":
        raise RequestError(UNFIT, f"'{name}' has other values than true and false. fix: send these")
    return mask


def _memory(values: Any, single: bool, policy: Policy | Rule, count: int, name: str) -> Memory | None:
    if not policy.is_recurrent:
        if values is not None:
            raise RequestError(UNFIT, f"'{name}': this policy is feed-forward and has no memory. fix: drop it")
        return None
    memory = policy.start(count)
    if values is None:  # the start of an episode
        return memory
    carry = _array([values] if single else values, name)
    state = carry.astype(np.float32) if carry.dtype.kind in "if" and np.abs(carry).max(initial=0) < LARGEST else carry
    if state.shape != memory.carry.shape or state.dtype != np.float32 or not np.isfinite(state).all():
        raise RequestError(
            UNFIT, f"'{name}': expected numbers of shape {list(memory.carry.shape)}. fix: send those of the last answer"
        )
    memory.carry = state
    return memory


def _seed(value: Any) -> int | None:
    if value is None or (type(value) is int and 0 <= value < 2**32):
        return value
    raise RequestError(UNFIT, f"'seed' is not a whole number from 0 to {2**32 - 1:,}. fix: send 0")


def pictures(asked: ParsedRequest, spec: Spec) -> dict[str, NumpyArray]:
    """Return the observations with pictures as bytes; RequestError for other numbers."""
    observation = dict(asked.observation)
    for name, leaf in spec.observation.items():
        if isinstance(leaf, Image) and name in observation:
            if (
                observation[name].dtype.kind != "i"
                or observation[name].min(initial=0) < 0
                or observation[name].max(initial=0) > 255
            ):
                raise RequestError(
                    UNFIT, f"'{name}' is a picture, expected whole numbers from 0 to 255. fix: send these"
                )
            observation[name] = observation[name].astype(np.uint8)
    return observation
