"""The ASGI application: `POST /act` or `/recommend`, `GET /policy`, `/health` and `/metrics`.

Every request gets a JSON answer; an internal error is one entry in the server's log and a 500 without details.
"""

from __future__ import annotations

import json
import logging
import math
import re
import time
from collections import Counter
from collections.abc import Collection, Mapping
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
from tidelog.serving.endpoints import UNFIT, ActEndpoint, RecommendEndpoint, RequestError, as_sent, in_json

LOG = logging.getLogger("tidelog.serving")
HOST = re.compile(r"^(.*?|\[.*\])(:\d*)?$", re.DOTALL)  # a name or an address, and a port
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


def application(
    policy: Policy | Recommender, bounds: Bounds | None = None, hosts: Collection[str] | None = None
) -> Starlette:
    """Return the application of a policy: at `/act`, or for a ranking policy at `/recommend`.

    `hosts` are the names that a request may call this server; None for any.
    """
    bounds = bounds or Bounds()
    asks = (
        RecommendEndpoint(policy, bounds.rows) if isinstance(policy, Recommender) else ActEndpoint(policy, bounds.rows)
    )
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

    checks = [] if hosts is None else [Middleware(_HostCheck, hosts=frozenset(hosts))]
    return Starlette(routes=routes, middleware=checks, exception_handlers={HTTPException: elsewhere, Exception: broken})


class _HostCheck:
    """Refuses requests for other hosts: a page of another site that points its own name here reaches nothing."""

    def __init__(self, app: Any, hosts: Collection[str]) -> None:
        self.app, self.hosts = app, hosts

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        names = [value.decode("latin-1") for name, value in scope.get("headers", ()) if name == b"host"]
        if scope["type"] == "http" and (len(names) != 1 or HOST.sub(r"\1", names[0].lower()) not in self.hosts):
            known = ", ".join(sorted(self.hosts))
            text = (
                f"Host '{', '.join(names)[:100]}': this server is called {known}. fix: start it with --allow-host NAME"
            )
            await _error(421, text)(scope, receive, send)
            return
        await self.app(scope, receive, send)


class _Server:
    def __init__(self, policy: Policy | Recommender, asks: ActEndpoint | RecommendEndpoint, bounds: Bounds) -> None:
        self.asks, self.bounds, self.counts = asks, bounds, Counts()
        facts = {name: policy.manifest.get(name) for name in _DESCRIBED} | {"is_recurrent": policy.is_recurrent}
        self._description = Answer(_plain(facts))

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
        try:
            asked = self.asks.read(await self._body(request))
            answer = await self._computed(asked)
            self.counts.rows += asked.rows
            return Answer(answer)
        except RequestError as refusal:
            return _error(refusal.status, str(refusal))
        except SpecError as error:
            return _error(UNFIT, in_json(as_sent(str(error), asked)))
        except ClientDisconnect:
            return _error(400, "the client disconnected during its request. fix: send it again")
        except Exception:
            LOG.exception("an answer failed")
            return _error(500, "the answer failed. fix: see the server's log")

    async def _body(self, request: Request) -> bytes:
        kind = request.headers.get("content-type", "").split(";")[0].strip().lower()
        if kind != "application/json":
            raise RequestError(415, f"Content-Type '{kind}': expected application/json. fix: set it")
        most, body = self.bounds.body, bytearray()
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
                    body += part
                    if len(body) > most:
                        raise too_large
        except TimeoutError:
            raise RequestError(
                408, f"the body did not arrive within {self.bounds.seconds:g} s. fix: send less"
            ) from None
        return bytes(body)

    async def _computed(self, asked: Any) -> dict[str, Any]:
        if self.asks.quick(asked):
            return self.asks.compute(asked)
        try:
            with anyio.fail_after(self.bounds.seconds):
                return await anyio.to_thread.run_sync(self.asks.compute, asked, abandon_on_cancel=True)
        except TimeoutError:
            raise RequestError(
                503, f"the answer took longer than {self.bounds.seconds:g} s. fix: send fewer rows"
            ) from None

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


def _error(status: int, message: str) -> Response:
    return Answer({"error": message}, status)


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


def idle_timeout_protocol(seconds: float) -> type[Any]:
    """Return uvicorn's protocol that closes a connection after this time without the headers of a request."""
    from uvicorn.protocols.http.auto import AutoHTTPProtocol

    class Patient(AutoHTTPProtocol):  # type: ignore[misc,valid-type]
        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self._answered, self._was_idle = self.cycle, True
            self._look = self.loop.call_later(seconds, self._looked)

        def connection_lost(self, exc: Exception | None) -> None:
            self._look.cancel()
            super().connection_lost(exc)

        def _looked(self) -> None:
            idle = self.cycle is None or self.cycle.response_complete
            if idle and self._was_idle and self.cycle is self._answered:
                self.transport.close()
                return
            self._answered, self._was_idle = self.cycle, idle
            self._look = self.loop.call_later(seconds, self._looked)

    return Patient
