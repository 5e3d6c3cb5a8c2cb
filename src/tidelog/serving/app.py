"""A policy over HTTP: the bodies of requests, their answers, the ASGI application, and the server that runs it.

`POST /act` takes observations and answers with actions, `POST /recommend` takes histories and answers with lists. The
types of the bodies are below; a body of another type is refused with the path of the wrong field. Every answer of the
application is JSON; an internal error is a 500 without details and one entry in the server's log. Letters: `B` batch.
"""

from __future__ import annotations

import asyncio
import difflib
import json
import os
import secrets
import threading
from collections.abc import Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Annotated, Any, Generic, Literal, NamedTuple, TypeAlias, TypeVar, cast, get_args

import msgspec
import numpy as np
import uvicorn
from msgspec import Meta
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tidelog._files import finite, parse_saved
from tidelog.errors import SpecError, TidelogError, nearest
from tidelog.runtime.networks import stoppable
from tidelog.runtime.observations import column_names, unseen_labels, unseen_text
from tidelog.runtime.policy import NumpyPolicy, RecurrentState, as_rows
from tidelog.runtime.recommender import LEAST_POOL, MOST_REASONS, POOL, Histories, Recommender
from tidelog.runtime.rule import Rule
from tidelog.runtime.way_of_acting import has_labels, labelled, other_way
from tidelog.types import Catalogue, Codes, Image, Leaf, Spec, Vector, lists_among

NumpyArray = np.ndarray[Any, Any]
PLURAL = {"action": "actions", "code": "codes", "propensity": "propensities", "state": "states"}
MOST_ITEMS = 100_000  # items in one answer
DIVERSITY = 20  # scores of the search that take the time of one similarity, which reads a vector of its own
MOST_NAMED = 5  # names in an answer
LARGEST_HEAD = 16_384  # bytes of a request's line and headers
SMALL_BODY = 16_384  # bytes of a request that does not wait for larger ones
MALFORMED, TOO_LARGE, UNFIT = 400, 413, 422
UNREAD = (408, 411)  # the rest of the body is not read, and the connection ends


class RequestError(TidelogError):
    """A request that gets a status of its own; one that does not fit the policy is a SpecError, status 422."""

    def __init__(self, status: int, found: str, expected: str = "", fix: str = "") -> None:
        super().__init__(found, expected, fix)
        self.status = status


# Bodies.

Number: TypeAlias = bool | float
Word: TypeAlias = str | int | float | bool
Id: TypeAlias = str | int
Row = TypeVar("Row")  # the type of an observation
Seed: TypeAlias = Annotated[int, Meta(ge=0, lt=2**32)]


class OneObservation(msgspec.Struct, Generic[Row], forbid_unknown_fields=True):
    """`POST /act` for one observation."""

    observation: Row
    mask: list[Number] | None = None  # of each action
    state: list[float] | None = None  # of the last answer; None: the start of an episode
    seed: Seed | None = None  # of a sample; None: the policy's declared way of acting


class ManyObservations(msgspec.Struct, Generic[Row], forbid_unknown_fields=True):
    """`POST /act` for a batch."""

    observations: list[Row]
    masks: list[list[Number]] | None = None
    states: list[list[float]] | None = None
    seed: Seed | None = None


class ListChoices(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """What `POST /recommend` has for one history and for several; see `Recommender.recommend` and `Histories`."""

    k: Annotated[int, Meta(ge=1)] = 10
    exclude_seen: bool | None = None
    candidates: list[Id] | None = None
    exclude: list[Id] | None = None
    diversity: Annotated[float, Meta(ge=0.0, le=1.0)] = 0.0
    unknown: Literal["error", "skip"] = "error"
    explain: bool = False  # whether the answer has reasons


class OneHistory(ListChoices, kw_only=True):
    """`POST /recommend` for one user."""

    history: list[Id]
    events: list[Id] | None = None
    user: dict[str, Any] | None = None
    user_id: Id | None = None

    def asked(self) -> Histories:
        """Return the history as a batch of one."""
        fields = (self.events, self.user, self.user_id)
        events, users, user_ids = (None if value is None else [value] for value in fields)
        return Histories([self.history], events, users, user_ids, self.unknown)


class ManyHistories(ListChoices, kw_only=True):
    """`POST /recommend` for several users."""

    histories: list[list[Id]]
    events: list[list[Id]] | None = None
    users: list[dict[str, Any] | None] | None = None
    user_ids: list[Id | None] | None = None

    def asked(self) -> Histories:
        """Return the histories."""
        return Histories(self.histories, self.events, self.users, self.user_ids, self.unknown)


def fields_of(text: bytes, one: Any, many: Any, name: str, names: str) -> tuple[dict[str, Any], Any]:
    """Return the fields of a body and their type: `one` if it has the field `name`, `many` if it has `names`.

    RequestError for invalid JSON; SpecError for both or neither of them, and for unknown fields.
    """
    if not text.strip():
        raise RequestError(MALFORMED, "the body is empty", fix="send a JSON object")
    try:
        fields = parse_saved(text)
    except ValueError as error:
        raise RequestError(
            MALFORMED, f"the body is not JSON: {error}", fix="send valid JSON, with null for a missing value"
        ) from error
    found = fields.keys() & {name, names} if isinstance(fields, dict) else set()
    kinds = [kind for key, kind in ((name, one), (names, many)) if key in found] or [one, many]
    known = dict.fromkeys(field for kind in kinds for field in kind.__struct_fields__)
    for field in fields if isinstance(fields, dict) else ():
        if field not in known:
            raise SpecError(f"unknown field '{field:.40}': {nearest(field, known)}")
    if len(found) != 1:
        raise SpecError(f'the body needs {{"{name}": ...}} for one, or {{"{names}": [...]}} for several')
    return fields, kinds[0]


def as_body(fields: dict[str, Any], kind: Any) -> Any:
    """Return the fields of a body in their type; SpecError with the path of a field of another type."""
    try:
        return msgspec.convert(fields, kind)
    except msgspec.ValidationError as error:
        raise SpecError(f"{error}", fix="correct this field") from error
    except UnicodeEncodeError as error:
        raise SpecError("a text has half of a character (\\ud800 to \\udfff)", fix="send whole characters") from error


def refuse_size(rows: int, most: int, name: str) -> None:
    """Raise SpecError for a batch without rows, and RequestError for one with more than `most`."""
    if not rows:
        raise SpecError(f"'{name}' has no rows", "at least one", "send [...]")
    if rows > most:
        raise RequestError(TOO_LARGE, f"'{name}' has {rows:,} rows, at most {most:,} are allowed", fix="send fewer")


# Observations in, actions out.


def feature_types(spec: Spec) -> dict[str, Any]:
    """Return the type of each feature in a body: a number or a label, or null where it may be missing."""
    types: dict[str, Any] = {}
    for leaf in spec.observation.values():
        if isinstance(leaf, Vector):
            fills = dict(leaf.fills)
            types |= {name: Number | None if name in fills else Number for name in column_names(leaf)}
        elif isinstance(leaf, Codes):
            known = leaf.vocabularies or ((),) * len(leaf.names)
            for name, words in zip(leaf.names, known, strict=False):
                types[name] = Number if not words else Word | None if "" in words else Word
    return types


def leaf_type(leaf: Leaf) -> Any:
    """Return the type of a leaf in a body; its width is checked with the observation."""
    if isinstance(leaf, Image):
        return list[list[list[Annotated[int, Meta(ge=0, le=255)]]]]
    return Number | list[Number] if isinstance(leaf, Vector) else Word | list[Word]


def columns_of(rows: list[Any], spec: Spec, features: Mapping[str, Any]) -> dict[str, NumpyArray]:
    """Return observations [B], objects by name or values of the only leaf, as columns [B, ...]."""
    if isinstance(rows[0], msgspec.Struct):
        fields = zip(rows[0].__struct_fields__, rows[0].__struct_encode_fields__, strict=True)
        named = {name: [getattr(row, field) for row in rows] for field, name in fields}
        by_leaf = named.keys() == spec.observation.keys() and not named.keys() & features.keys()
    else:
        named, by_leaf = {next(iter(spec.observation)): rows}, True
    lists, columns = lists_among(features), dict[str, NumpyArray]()
    for name, values in named.items():
        if by_leaf:
            columns[name] = _leaf_array(values, name, spec.observation[name])
        elif name not in features:  # a column of lists: numbers, with null where the list or one of them is missing
            columns[name] = np.empty(len(values), object)
            for row, value in enumerate(values):
                columns[name][row] = [None] * len(lists[name]) if value is None else value
        elif str in get_args(features[name]):
            columns[name] = np.asarray([None if value is None else str(value) for value in values], object)
        else:
            columns[name] = np.asarray(values, np.float64)
    return columns


def _leaf_array(values: list[Any], name: str, leaf: Leaf) -> NumpyArray:
    """Return a leaf [B, ...]; whole numbers of categories stay integers, because they are codes."""
    kind: Any = np.uint8 if isinstance(leaf, Image) else np.float64 if isinstance(leaf, Vector) else object
    array = _array(values, name, kind)
    if kind is object:
        kinds = {type(value) for value in array.flat}
        array = array if str in kinds else _array(values, name, np.int64 if kinds == {int} else np.float64)
    return array[:, None] if array.ndim == 1 else array


def _array(values: Any, name: str, kind: Any) -> NumpyArray:
    try:
        with np.errstate(over="ignore"):  # infinite numbers are refused later
            return np.asarray(values, kind)
    except ValueError:
        raise SpecError(f"'{name}' has rows of different lengths", fix="give every row one shape") from None
    except OverflowError:
        raise SpecError(f"'{name}' has a number that is too large", fix="send a smaller number") from None


class ActRequest(NamedTuple):
    """What a client asks; always a batch, of one for a single observation."""

    observation: dict[str, NumpyArray]  # [B, ...] by feature or by leaf
    rows: int  # B
    single: bool
    mask: NumpyArray | None = None  # [B, A]
    state: RecurrentState | None = None
    seed: int | None = None


class ActEndpoint:
    """Observations in, actions out, in the policy's declared way of acting; at most `most` rows."""

    path = "/act"

    def __init__(self, policy: NumpyPolicy | Rule, most: int) -> None:
        self.policy, self._most = policy, most
        self._features, self._types = feature_types(policy.spec), dict[Any, Any]()

    def read(self, text: bytes) -> ActRequest:
        """Return the request of a body; RequestError or SpecError for an invalid one, or more than `most` rows."""
        fields, kind = fields_of(text, OneObservation, ManyObservations, "observation", "observations")
        single = kind is OneObservation
        sent = [fields["observation"]] if single else fields["observations"]
        refuse_size(len(sent) if isinstance(sent, list) else 0, self._most, "observations")
        body = as_body(fields, kind[self._row_type(sent)])
        rows = [body.observation] if single else body.observations
        mask, state = (body.mask, body.state) if single else (body.masks, body.states)
        return ActRequest(
            columns_of(rows, self.policy.spec, self._features),
            len(rows),
            single,
            None if mask is None else _array([mask] if single else mask, "masks", None),
            self._state([state] if single and state is not None else state, len(rows)),
            body.seed,
        )

    def _row_type(self, rows: list[Any]) -> Any:
        """Return the type of observations in a body: by feature name, by leaf name, or by position in the only leaf."""
        spec, features, first = self.policy.spec, self._features, rows[0]
        if not isinstance(first, dict):
            if len(spec.observation) != 1:
                raise SpecError(f"the policy needs {', '.join(spec.observation)}", fix="name the features")
            return leaf_type(next(iter(spec.observation.values())))
        by_leaf = bool(first) and first.keys() <= spec.observation.keys() and not first.keys() & features.keys()
        if by_leaf or not features:
            types = {name: leaf_type(leaf) for name, leaf in spec.observation.items()}
        else:
            types = dict(features)
            for name, labels in lists_among(features).items():
                if name in first and not first.keys() & set(labels):
                    several, row = [types.pop(label) for label in labels], list[Number | list[Number | None] | None]
                    types[name] = row | None if any(type(None) in get_args(kind) for kind in several) else row
        _refuse_names(dict.fromkeys(name for row in rows if isinstance(row, dict) for name in row), types)
        key = frozenset(types)
        if key not in self._types:
            names = {f"f{i}": name for i, name in enumerate(types)}
            fields = zip(names, types.values(), strict=True)
            self._types[key] = msgspec.defstruct("Row", fields, rename=names, forbid_unknown_fields=True)
        return self._types[key]

    def _state(self, values: list[list[float]] | None, count: int) -> RecurrentState | None:
        if not self.policy.is_recurrent:
            if values is not None:
                raise SpecError(
                    "this policy is feed-forward and has no recurrent state", fix="drop the recurrent state"
                )
            return None
        state = self.policy.initial_state(count)
        if values is None:  # the start of an episode
            return state
        carry = _array(values, "states", np.float32)
        if carry.shape != state.carry.shape or not np.isfinite(carry).all():
            raise SpecError(
                f"the recurrent state has shape {list(carry.shape)}",
                f"finite numbers of shape {list(state.carry.shape)}",
                "send those of the last answer",
            )
        state.carry = carry
        return state

    def compute(self, asked: ActRequest) -> dict[str, Any]:
        """Return the answer to a request: actions by label, with their codes, where the log has labels."""
        observation, space = asked.observation, self.policy.spec.action
        answer: dict[str, Any] = {}
        with np.errstate(all="ignore"):  # values that are not finite are refused below
            if asked.seed is None and self.policy.acting != "sample":
                answer["action"], _ = self.policy.act(observation, None, asked.mask, asked.state)
            else:
                seed = secrets.randbits(32) if asked.seed is None else asked.seed
                answer["action"], answer["propensity"] = self.policy.act(observation, seed, asked.mask, asked.state)
        if asked.state is not None:
            answer["state"] = asked.state.carry
        for name, values in {**answer, "action": as_rows(space, answer["action"])}.items():
            if values is not None and not np.isfinite(values).all():
                raise SpecError(f"the {name} is not finite, the observation is too large", fix="send smaller values")
        if has_labels(space):
            codes = answer.pop("action")
            answer = {"action": labelled(space, codes), "code": codes, **answer}
        plain = {name: None if values is None else _rows_of(values) for name, values in answer.items()}
        warnings = [other_way("mode")] if asked.seed is not None and self.policy.acting == "mode" else []
        warnings += [unseen_text(unseen)] if (unseen := unseen_labels(observation, self.policy.spec)) else []
        warning = {"warning": "; ".join(warnings)} if warnings else {}
        if asked.single:
            return {name: None if values is None else values[0] for name, values in plain.items()} | warning
        return {PLURAL[name]: values for name, values in plain.items()} | warning


def _rows_of(values: Any) -> list[Any]:
    """Return plain values [B]; of a mapping of parts one mapping for each row, nested as it is."""
    if not isinstance(values, Mapping):
        return cast("list[Any]", values.tolist())
    columns = {name: _rows_of(part) for name, part in values.items()}
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def _refuse_names(sent: Mapping[str, Any], known: Mapping[str, Any]) -> None:
    """Raise SpecError for names that are no features, with the nearest features that were not sent."""
    unknown = [name for name in sent if name not in known]
    if not unknown:
        return
    absent = [name for name in sorted(known) if name not in sent]
    close = {name: difflib.get_close_matches(name, absent or known, n=1, cutoff=0.6) for name in unknown}
    named = ", ".join(f"'{name:.40}'" for name in unknown[:MOST_NAMED])
    more = f" and {len(unknown) - MOST_NAMED:,} more" if len(unknown) > MOST_NAMED else ""
    meant = " or ".join(dict.fromkeys(f"'{names[0]}'" for names in close.values() if names))
    lacks = f"; not sent: {', '.join(absent[:MOST_NAMED])}" if absent else ""
    found = (
        f"unknown feature{'s' if len(unknown) > 1 else ''} {named}{more}{f': did you mean {meant}?' if meant else ''}"
    )
    raise SpecError(found + lacks, fix="" if meant else f"leave {'it' if len(unknown) == 1 else 'them'} out")


# Histories in, lists out.


class ListRequest(NamedTuple):
    """What a client asks; always a batch, of one for a single history."""

    histories: Histories
    single: bool
    choices: ListChoices


class RecommendEndpoint:
    """Histories in, lists out; at most `most` histories, lists of `longest` items, and `scores` scores a request."""

    path = "/recommend"

    def __init__(self, policy: Recommender, most: int, longest: int = MOST_ITEMS, scores: int = 2_000_000_000) -> None:
        self.policy, self._most, self._longest, self._scores = policy, most, longest, scores

    def read(self, text: bytes) -> ListRequest:
        """Return the request of a body; RequestError or SpecError for an invalid one."""
        body = as_body(*fields_of(text, OneHistory, ManyHistories, "history", "histories"))
        asked: Histories = body.asked()
        refuse_size(len(asked.items), self._most, "histories")
        self._check_work(len(asked.items), body)
        return ListRequest(asked, isinstance(body, OneHistory), body)

    def _check_work(self, rows: int, body: ListChoices) -> None:
        """Raise RequestError where the lists are too long, or their computation scores too many items."""
        k, items = body.k, self.policy.ranker().items
        if k * rows > MOST_ITEMS:
            raise RequestError(
                TOO_LARGE, f"'k' = {k:,} for {rows:,} histories, at most {MOST_ITEMS:,} items per answer", fix="lower k"
            )
        if k > self._longest:
            raise RequestError(
                MALFORMED, f"'k' is {k:,}, at most {self._longest:,} are allowed here", fix="send a smaller k"
            )
        scores, parts = rows * items, ["'histories'"]
        if body.explain:
            scores += rows * MOST_REASONS * items
            parts.append("'explain'")
        if body.diversity:
            scores += DIVERSITY * rows * k * min(max(POOL * k, LEAST_POOL), items)
            parts.append("'k' with 'diversity'")
        if scores > self._scores:
            raise RequestError(
                MALFORMED,
                f"the request needs {scores:,} scores, at most {self._scores:,} are allowed here",
                fix=f"send less of {', '.join(parts)}",
            )

    def compute(self, asked: ListRequest) -> dict[str, Any]:
        """Return items and scores [B, k], best first; where asked for also each item's reason and what it does."""
        body = asked.choices
        lists = self.policy.recommend(
            asked.histories, body.k, body.exclude_seen, body.candidates, body.exclude, diversity=body.diversity
        )
        answer = {"items": lists.items.tolist(), "scores": lists.scores.tolist()}
        if body.explain:
            reasons = self.policy.explain(asked.histories, answer["items"])
            answer |= {"explain": reasons.items.tolist(), "times_likelier": reasons.times.tolist()}
        return {name: values[0] for name, values in answer.items()} if asked.single else answer


# The body of a first request, for `tidelog serve`.


def example(policy: NumpyPolicy | Rule) -> dict[str, Any] | None:
    """Return the body of a request with the policy's own features: means of the log, first categories; None without.

    A feature that has whole numbers only in the log has the nearest one. A feature that was not standardised has its
    fill, or 0.
    """
    spec, scaled = policy.spec, policy.manifest.get("scaler", {}).get("observation", {})
    leaves = [(key, leaf) for key, leaf in spec.observation.items() if not isinstance(leaf, Image)]
    if not feature_types(spec) or len(leaves) < len(spec.observation):
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
    return {"observation": row}


def list_example(policy: Recommender) -> dict[str, Any]:
    """Return the body of a request for the list of a user who took two items of the log."""
    space = policy.spec.action
    items = list(space.ids[:2]) if isinstance(space, Catalogue) else []
    return {"history": items, "k": max(1, min(5, policy.ranker().items - len(items)))}


# The application.


class Answer(JSONResponse):
    """A JSON response for any content: characters beyond ASCII are escaped."""

    def render(self, content: Any) -> bytes:
        """Return the bytes of the answer."""
        return json.dumps(content, allow_nan=False).encode("ascii")


@dataclass(frozen=True)
class Bounds:
    """The limits of one request."""

    body: int = 1_000_000  # bytes
    rows: int = 1024
    seconds: float = 10.0  # for the body, and again for the answer
    k: int = 1_000  # items of a list
    scores: int = 2_000_000_000  # scored items of a request: histories times items of the catalogue, and more


def application(
    policy: NumpyPolicy | Recommender | Rule, bounds: Bounds | None = None, hosts: Collection[str] | None = None
) -> Starlette:
    """Return the application of a policy: at `/act`, or for a ranking policy at `/recommend`.

    `hosts` are the names that a request may call this server; None for any.
    """
    bounds = bounds or Bounds()
    endpoint: ActEndpoint | RecommendEndpoint
    if isinstance(policy, Recommender):
        endpoint = RecommendEndpoint(policy, bounds.rows, bounds.k, bounds.scores)
    else:
        endpoint = ActEndpoint(policy, bounds.rows)
    facts = {name: policy.manifest.get(name) for name in _DESCRIBED} | {"is_recurrent": policy.is_recurrent}
    facts |= {"algorithm": policy.name, "rule": policy.sentence} if isinstance(policy, Rule) else {}
    description = Answer(finite(facts))

    async def describe(request: Request) -> Response:
        """Return the observations, actions and origin of the policy."""
        return description

    async def health(request: Request) -> Response:
        """Return that the server runs; it listens only after its policy is loaded."""
        return Answer({"status": "ok"})

    async def refused(request: Request, error: Exception) -> Response:
        """Answer a request that does not fit."""
        status = getattr(error, "status", UNFIT if isinstance(error, SpecError) else MALFORMED)
        return Answer({"error": str(error)}, status, {"connection": "close"} if status in UNREAD else None)

    async def elsewhere(request: Request, error: Exception) -> Response:
        """Answer an unknown path or method."""
        status = error.status_code if isinstance(error, HTTPException) else 500
        known = f"POST {endpoint.path}, GET /policy, GET /health"
        text = f"{request.method} {request.url.path} does not exist. fix: use one of {known}"
        return Answer({"error": text}, status)

    async def broken(request: Request, error: Exception) -> Response:
        """Answer an error of the server itself; its log has it."""
        return Answer({"error": "the answer failed. fix: see the server's log"}, 500)

    return Starlette(
        routes=[
            Route(endpoint.path, _EndpointThreads(endpoint, bounds).answer, methods=["POST"]),
            Route("/policy", describe, methods=["GET"]),
            Route("/health", health, methods=["GET"]),
        ],
        middleware=[] if hosts is None else [Middleware(TrustedHostMiddleware, list(hosts), www_redirect=False)],
        exception_handlers={
            RequestError: refused,
            SpecError: refused,
            ClientDisconnect: refused,
            HTTPException: elsewhere,
            Exception: broken,
        },
    )


def server(app: Starlette, connections: int, seconds: float) -> uvicorn.Server:
    """Return a server for this number of connections at a time; it answers 503 to requests of more.

    SIGTERM or SIGINT ends it: open requests are answered first, in at most `seconds`.
    """
    limit = max(1, round(seconds))
    return uvicorn.Server(
        uvicorn.Config(
            app,
            http="h11",  # the parser with a limit of the head
            h11_max_incomplete_event_size=LARGEST_HEAD,
            limit_concurrency=connections + 1,  # uvicorn refuses from this number on
            timeout_keep_alive=limit,
            timeout_graceful_shutdown=limit,
            ws="none",
            lifespan="off",
            log_level="error",  # a client can cause warnings, and with them fill a disk
            access_log=False,
            proxy_headers=False,
            server_header=False,
        )
    )


class _EndpointThreads:
    """Answers of one endpoint, each read and computed in a thread.

    Small bodies have threads of their own, so that they do not wait for large ones; of both there are as many as
    processors.
    """

    def __init__(self, endpoint: ActEndpoint | RecommendEndpoint, bounds: Bounds) -> None:
        self._endpoint, self._bounds = endpoint, bounds
        self._large, self._small = (ThreadPoolExecutor(os.cpu_count() or 1) for _ in range(2))

    async def answer(self, request: Request) -> Response:
        """Return the answer to a request; its work stops after the time limit (503), or when its client leaves."""
        body, stop, seconds = await self._body(request), threading.Event(), self._bounds.seconds

        def compute() -> Response:
            with stoppable(stop):
                asked: Any = self._endpoint.read(body)
                return Answer(self._endpoint.compute(asked))

        threads = self._large if len(body) > SMALL_BODY else self._small
        answer: asyncio.Future[Response] = asyncio.get_running_loop().run_in_executor(threads, compute)
        left: asyncio.Future[Any] = asyncio.ensure_future(request.receive())  # after the body only the end follows
        try:
            waiting: set[asyncio.Future[Any]] = {answer, left}
            await asyncio.wait(waiting, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            if answer.done():
                return answer.result()
            if left.done():
                raise ClientDisconnect
            raise RequestError(503, f"the answer took longer than {seconds:g} s", fix="send fewer rows")
        finally:
            stop.set()
            left.cancel()
            answer.cancel()

    async def _body(self, request: Request) -> bytes:
        """Return the body of a request; RequestError if it is of another kind, too large, or late."""
        most, seconds = self._bounds.body, self._bounds.seconds
        kind = request.headers.get("content-type", "").split(";")[0].strip().lower()
        if kind != "application/json":
            raise RequestError(415, f"Content-Type '{kind}'", "application/json", "set it")
        too_large = RequestError(
            413, f"the body is larger than {most:,} bytes, the server's limit", fix="send fewer rows"
        )
        length = request.headers.get("content-length")
        if length is None or "transfer-encoding" in request.headers:  # a million chunks of one byte take seconds
            raise RequestError(411, "the length of the body is unknown", fix="send it whole, with Content-Length")
        if length.isdecimal() and int(length[:20]) > most:
            raise too_large
        body = bytearray()
        try:
            async with asyncio.timeout(seconds):
                async for part in request.stream():
                    body += part
                    if len(body) > most:
                        raise too_large
        except TimeoutError:
            raise RequestError(408, f"the body did not arrive within {seconds:g} s", fix="send less") from None
        return bytes(body)


_DESCRIBED = ("algorithm", "acting", "verdict", "spec", "masks", "missing", "metrics", "versions", "parity")
