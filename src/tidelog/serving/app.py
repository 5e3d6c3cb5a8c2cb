"""The ASGI application: `POST /act` or `/recommend`, `GET /policy` and `/health`, and the server that runs it.

Every answer of the application is JSON; an internal error is a 500 without details and one entry in the server's log.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import threading
from collections.abc import Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tidelog.errors import SpecError
from tidelog.runtime.policy import Policy
from tidelog.runtime.recommender import Recommender
from tidelog.runtime.rule import Rule
from tidelog.runtime.stopping import stoppable
from tidelog.serving.endpoints import UNFIT, ActEndpoint, RecommendEndpoint, RequestError, as_sent, in_json

LARGEST_HEAD = 16_384  # bytes of a request's line and headers
SMALL_BODY = 16_384  # bytes of a request that does not wait for larger ones
UNREAD = (408, 411)  # the rest of the body is not read, and the connection ends


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
    endpoint: ActEndpoint | RecommendEndpoint
    if isinstance(policy, Recommender):
        endpoint = RecommendEndpoint(policy, bounds.rows, bounds.k, bounds.scores)
    else:
        endpoint = ActEndpoint(policy, bounds.rows)
    facts = {name: policy.manifest.get(name) for name in _DESCRIBED} | {"is_recurrent": policy.is_recurrent}
    facts |= {"algorithm": policy.name, "rule": policy.sentence} if isinstance(policy, Rule) else {}
    description = Answer(_plain(facts))

    async def describe(request: Request) -> Response:
        """Return the observations, actions and origin of the policy."""
        return description

    async def health(request: Request) -> Response:
        """Return that the server runs; it listens only after its policy is loaded."""
        return Answer({"status": "ok"})

    async def refused(request: Request, error: Exception) -> Response:
        """Answer a request that does not fit."""
        status = error.status if isinstance(error, RequestError) else 400
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
            Route(endpoint.path, _Answers(endpoint, bounds).answer, methods=["POST"]),
            Route("/policy", describe, methods=["GET"]),
            Route("/health", health, methods=["GET"]),
        ],
        middleware=[] if hosts is None else [Middleware(TrustedHostMiddleware, list(hosts), www_redirect=False)],
        exception_handlers={
            RequestError: refused, ClientDisconnect: refused, HTTPException: elsewhere, Exception: broken,
        },
    )  # fmt: skip


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


class _Answers:
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
                try:
                    return Answer(self._endpoint.compute(asked))
                except SpecError as error:
                    raise RequestError(UNFIT, in_json(as_sent(str(error), asked))) from error

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
            raise RequestError(503, f"the answer took longer than {seconds:g} s. fix: send fewer rows")
        finally:
            stop.set()
            left.cancel()
            answer.cancel()

    async def _body(self, request: Request) -> bytes:
        """Return the body of a request; RequestError if it is of another kind, too large, or late."""
        most, seconds = self._bounds.body, self._bounds.seconds
        kind = request.headers.get("content-type", "").split(";")[0].strip().lower()
        if kind != "application/json":
            raise RequestError(415, f"Content-Type '{kind}': expected application/json. fix: set it")
        too_large = RequestError(
            413, f"the body is larger than {most:,} bytes, the server's limit. fix: send fewer rows"
        )
        length = request.headers.get("content-length")
        if length is None or "transfer-encoding" in request.headers:  # a million chunks of one byte take seconds
            raise RequestError(411, "the length of the body is unknown. fix: send it whole, with Content-Length")
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
            raise RequestError(408, f"the body did not arrive within {seconds:g} s. fix: send less") from None
        return bytes(body)


_DESCRIBED = ("algorithm", "acting", "verdict", "spec", "masks", "missing", "metrics", "versions", "parity")


def _plain(value: Any) -> Any:
    """Return the value with null where JSON has no number."""
    if isinstance(value, Mapping):
        return {name: _plain(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
