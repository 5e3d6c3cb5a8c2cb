"""The ASGI application: `POST /act` or `/recommend`, `GET /policy`, `/health` and `/metrics`.

Every request gets a JSON answer; an internal error is one entry in the server's log and a 500 without details.
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
import os
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import anyio
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from tidelog.errors import SpecError
from tidelog.runtime.policy import Policy
from tidelog.runtime.recommender import Recommender
from tidelog.runtime.rule import Rule
from tidelog.runtime.stopping import stoppable
from tidelog.serving.endpoints import UNFIT, ActEndpoint, RecommendEndpoint, RequestError, as_sent, in_json

LOG = logging.getLogger("tidelog.serving")
HOST = re.compile(r"^(.*?|\[.*\])(:\d*)?$", re.DOTALL)  # a name or an address, and a port
ORIGIN = re.compile(r"^https?://(.*)$", re.DOTALL)
QUICK_BODY = 16_384  # bytes of a body that is read faster than a thread is switched
SMALL_BODY = 65_536  # bytes of a body that always has room
MOST_BODIES = 256_000_000  # bytes of all larger bodies at a time
CLOSING = {408, 411, 413}  # the rest of the body is not read
EDGES = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)  # seconds


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
    policy: Policy | Recommender | Rule, bounds: Bounds | None = None, hosts: Collection[str] | None = None
) -> Starlette:
    """Return the application of a policy: at `/act`, or for a ranking policy at `/recommend`.

    `hosts` are the names that a request may call this server; None for any.
    """
    bounds = bounds or Bounds()
    asks: ActEndpoint | RecommendEndpoint
    if isinstance(policy, Recommender):
        asks = RecommendEndpoint(policy, bounds.rows, bounds.k, bounds.scores)
    else:
        asks = ActEndpoint(policy, bounds.rows)
    server = _Server(policy, asks, bounds)
    routes = [
        Route(asks.path, server.answer, methods=["POST"]),
        Route("/policy", server.describe, methods=["GET"]),
        Route("/health", server.health, methods=["GET"]),
        Route("/metrics", server.metrics, methods=["GET"]),
    ]

    async def elsewhere(request: Request, error: Exception) -> Response:
        """Answer an unknown path or method."""
        status = error.status_code if isinstance(error, HTTPException) else 500
        known = f"POST {asks.path}, GET /policy, GET /health, GET /metrics"
        return _error(status, f"{request.method} {request.url.path} does not exist. fix: use one of {known}")

    async def broken(request: Request, error: Exception) -> Response:
        """Answer an error outside an answer; the server's log has it."""
        return _error(500, "the answer failed. fix: see the server's log")

    checks = [Middleware(_SiteCheck, hosts=None if hosts is None else frozenset(hosts))]
    app = Starlette(routes=routes, middleware=checks, exception_handlers={HTTPException: elsewhere, Exception: broken})
    app.state.counts = server.counts
    return app


class _SiteCheck:
    """Refuses requests for other hosts, and from pages of other sites: what they point here reaches nothing."""

    def __init__(self, app: Any, hosts: Collection[str] | None) -> None:
        self.app, self.hosts = app, hosts

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        refusal = self._refusal(scope.get("headers", ())) if scope["type"] == "http" else None
        await (self.app if refusal is None else refusal)(scope, receive, send)

    def _refusal(self, headers: Any) -> Response | None:
        values = [[v.decode("latin-1") for name, v in headers if name == wanted] for wanted in (b"host", b"origin")]
        (names, origins) = values
        called = {_without_port(name) for name in names}
        if self.hosts is not None and (len(names) != 1 or not called <= set(self.hosts)):
            known = ", ".join(sorted(self.hosts))
            return _error(
                421,
                f"Host '{', '.join(names)[:100]}': this server is called {known}. fix: start it with --allow-host NAME",
            )
        for origin in origins:
            site = ORIGIN.match(origin.lower())
            if site is None or _without_port(site[1]) not in (called if self.hosts is None else self.hosts):
                return _error(
                    403,
                    f"Origin '{origin[:100]}': pages of other sites are not answered. fix: ask from a program, or "
                    "start the server with --allow-host NAME",
                )
        return None


def _without_port(host: str) -> str:
    return HOST.sub(r"\1", host.lower())


class _Server:
    def __init__(
        self, policy: Policy | Recommender | Rule, asks: ActEndpoint | RecommendEndpoint, bounds: Bounds
    ) -> None:
        self.asks, self.bounds, self.counts = asks, bounds, Counts()
        facts = {name: policy.manifest.get(name) for name in _DESCRIBED} | {"is_recurrent": policy.is_recurrent}
        facts |= {"algorithm": policy.name, "rule": policy.sentence} if isinstance(policy, Rule) else {}
        self._description = Answer(_plain(facts))
        self._threads = ThreadPoolExecutor(os.cpu_count() or 1)
        self._held = 0  # bytes of larger bodies

    async def answer(self, request: Request) -> Response:
        """Answer one row or a batch; every answer is counted."""
        begin = time.perf_counter()
        self.counts.under_way += 1
        try:
            response = await self._answer(request)
        finally:
            self.counts.under_way -= 1
        self.counts.answered(response.status_code, time.perf_counter() - begin)
        return response

    async def _answer(self, request: Request) -> Response:
        body = bytearray()
        try:
            await self._receive(request, body)
            if len(body) > QUICK_BODY:
                response, rows = await self._in_thread(request, lambda: self._respond(self.asks.read(bytes(body))))
            elif self.asks.quick(asked := self.asks.read(bytes(body))):  # type: ignore[arg-type]
                response, rows = self._respond(asked)
            else:
                response, rows = await self._in_thread(request, lambda: self._respond(asked))
            self.counts.rows += rows
            return response
        except RequestError as refusal:
            return _error(refusal.status, str(refusal))
        except ClientDisconnect:
            return _error(400, "the client disconnected during its request. fix: send it again")
        except Exception:
            LOG.exception("an answer failed")
            return _error(500, "the answer failed. fix: see the server's log")
        finally:
            self._held -= _counted(body)

    async def _receive(self, request: Request, body: bytearray) -> None:
        """Append the body of a request, whose larger bodies have a common limit."""
        kind = request.headers.get("content-type", "").split(";")[0].strip().lower()
        if kind != "application/json":
            raise RequestError(415, f"Content-Type '{kind}': expected application/json. fix: set it")
        most = self.bounds.body
        length = request.headers.get("content-length")
        if length is None or "transfer-encoding" in request.headers:  # chunks of one byte would take the server's time
            raise RequestError(411, "the length of the body is unknown. fix: send it whole, with Content-Length")
        too_large = RequestError(
            413, f"the body is larger than {most:,} bytes, the server's limit. fix: send fewer rows"
        )
        if length.isdecimal() and int(length[:20]) > most:
            raise too_large
        try:
            with anyio.fail_after(self.bounds.seconds):
                async for part in request.stream():
                    before = _counted(body)
                    body += part
                    self._held += _counted(body) - before
                    if len(body) > most:
                        raise too_large
                    if self._held > MOST_BODIES:
                        raise RequestError(
                            503, "the server holds too many large bodies. fix: send fewer rows, or later"
                        )
        except TimeoutError:
            raise RequestError(
                408, f"the body did not arrive within {self.bounds.seconds:g} s. fix: send less"
            ) from None

    def _respond(self, asked: Any) -> tuple[Response, int]:
        """Return the answer and its number of rows."""
        try:
            return Answer(self.asks.compute(asked)), asked.rows
        except SpecError as error:
            raise RequestError(UNFIT, in_json(as_sent(str(error), asked))) from error

    async def _in_thread(self, request: Request, work: Callable[[], tuple[Response, int]]) -> tuple[Response, int]:
        """Do larger work beside other requests, as many at a time as there are processors; 503 after the time limit.

        The work is stopped when its time is over, its client leaves, or the server stops.
        """
        stop = threading.Event()

        def stopped_work() -> tuple[Response, int]:
            with stoppable(stop):
                return work()

        future = self._threads.submit(stopped_work)
        answer: asyncio.Future[Any] = asyncio.wrap_future(future)
        left: asyncio.Future[Any] = asyncio.ensure_future(request.receive())  # after the body only the end follows
        try:
            await asyncio.wait({answer, left}, timeout=self.bounds.seconds, return_when=asyncio.FIRST_COMPLETED)
            if answer.done():
                result: tuple[Response, int] = answer.result()
                return result
            if left.done():
                raise ClientDisconnect
            raise RequestError(503, f"the answer took longer than {self.bounds.seconds:g} s. fix: send fewer rows")
        finally:
            stop.set()
            left.cancel()
            answer.cancel()
            del answer, left, future  # an exception of theirs holds this frame: a cycle would keep the body

    async def describe(self, request: Request) -> Response:
        """Return the observations, actions and origin of the policy."""
        return self._description

    async def health(self, request: Request) -> Response:
        """Return that the server runs."""
        return Answer({"status": "ok"})

    async def metrics(self, request: Request) -> Response:
        """Return the server's counts so far."""
        return PlainTextResponse(self.counts.text(), media_type="text/plain; version=0.0.4")


_DESCRIBED = ("algorithm", "acting", "verdict", "spec", "masks", "missing", "metrics", "versions", "parity")


def _plain(value: Any) -> Any:
    """Return the value with null where JSON has no number."""
    if isinstance(value, Mapping):
        return {name: _plain(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _counted(body: bytearray) -> int:
    return len(body) if len(body) > SMALL_BODY else 0


def _error(status: int, message: str) -> Response:
    return Answer({"error": message}, status, {"connection": "close"} if status in CLOSING else None)


@dataclass
class Counts:
    """Requests by status, rows, and durations of answers."""

    answers: Counter[int] = field(default_factory=Counter)  # by status
    within: Counter[float] = field(default_factory=Counter)  # by edge, cumulative
    rows: int = 0
    seconds: float = 0.0
    under_way: int = 0

    def answered(self, status: int, seconds: float) -> None:
        """Count one answer."""
        self.answers[status] += 1
        self.seconds += seconds
        for edge in EDGES:
            self.within[edge] += seconds <= edge

    def text(self) -> str:
        """Return all counts as text."""
        total = sum(self.answers.values())
        lines = ["# TYPE tidelog_requests_total counter"]
        lines += [f'tidelog_requests_total{{status="{status}"}} {n}' for status, n in sorted(self.answers.items())]
        lines += ["# TYPE tidelog_rows_total counter", f"tidelog_rows_total {self.rows}"]
        lines += ["# TYPE tidelog_requests_under_way gauge", f"tidelog_requests_under_way {self.under_way}"]
        lines += ["# TYPE tidelog_request_seconds histogram"]
        lines += [f'tidelog_request_seconds_bucket{{le="{edge:g}"}} {self.within[edge]}' for edge in EDGES]
        lines += [f'tidelog_request_seconds_bucket{{le="+Inf"}} {total}']
        lines += [f"tidelog_request_seconds_sum {self.seconds:.6f}", f"tidelog_request_seconds_count {total}", ""]
        return "\n".join(lines)
