"""Connections of the server: one exact form of HTTP/1.1, limits of time and room, and a stop that resets no client.

Sources: RFC 9112 (sections 2.2, 5.1, 5.2, 6.3 and 9.6).
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import json
import re
import socket
import struct
import sys
from collections import Counter
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

import h11
import uvicorn
from starlette.applications import Starlette
from uvicorn.protocols.http.h11_impl import H11Protocol

from tidelog.serving.app import Bounds, Counts

MOST_HEAD = 16_384  # bytes of a request's line and headers
MOST_HEADERS = 100
LARGE_HEAD = f"the head is larger than {MOST_HEAD:,} bytes. fix: send shorter headers"
PIECE = 16_384  # bytes that are parsed at a time
END_OF_HEAD = re.compile(rb"\n\r?\n")
BARE = re.compile(rb"(?<!\r)\n|\r(?!\n)")
FOLDED = re.compile(rb"\n[ \t]")
ONCE = (b"content-length", b"transfer-encoding", b"host")
LINGER = 1.0  # seconds in which a client reads its last answer and ends the connection
HANDSHAKE = 0.1  # seconds in which the system connects the clients that have begun to connect
SO_ATTACH_FILTER = 26  # of Linux; the socket module has no name for it
# A packet filter of Linux, as (operation, jump if true, jump if false, value): it drops the first packet of a new
# connection, the one whose flags (byte 13 of TCP) have SYN (0x02) without ACK (0x10), and keeps every other one.
NO_NEW_CLIENT = ((0x30, 0, 0, 13), (0x54, 0, 0, 0x12), (0x15, 0, 1, 0x02), (0x06, 0, 0, 0), (0x06, 0, 0, 0xFFFFFFFF))
MOST_DISCARDED = 16_000_000  # bytes that are read and dropped in this time


@dataclass
class Room:
    """What all connections of a server share."""

    bounds: Bounds
    connections: int  # at a time
    counts: Counts
    waiting: dict[GuardedProtocol, None] = field(default_factory=dict)  # for their clients, the longest wait first


def server(app: Starlette, bounds: Bounds, connections: int, backlog: int) -> GracefulServer:
    """Return a server of an application, with at most this number of connections."""
    room = Room(bounds, connections, app.state.counts)
    config = uvicorn.Config(
        app,
        http=type("Protocol", (GuardedProtocol,), {"room": room}),
        ws="none",
        log_level="error",  # a client can cause warnings, and with them fill a disk
        access_log=False,
        proxy_headers=False,
        server_header=False,
        backlog=backlog,
        timeout_graceful_shutdown=max(1, round(bounds.seconds)),
    )
    return GracefulServer(config)


class StrictConnection(h11.Connection):
    """h11's parser, for requests that no proxy can read in another way; `refusal` has the status and the reason.

    A head with a bare CR or LF, a folded line, or a repeated length, coding or host is refused, as is a body of unknown
    length or of more than `most` bytes, before a byte of the body is read.
    """

    def __init__(self, most: int) -> None:
        super().__init__(h11.SERVER, MOST_HEAD)
        self._most = most
        self.refusal = (400, "")

    def next_event(self) -> Any:
        """Return h11's next event; RemoteProtocolError for a request that is refused."""
        if self.their_state is h11.IDLE:
            self._check_head(self.trailing_data[0])
        try:
            event = super().next_event()
        except h11.RemoteProtocolError as error:
            status = error.error_status_hint
            reason = LARGE_HEAD if status == 431 else f"this is not HTTP/1.1: {error!s:.200}. fix: use an HTTP client"
            self.refusal = status, reason
            raise
        if isinstance(event, h11.Request):
            self._check_request(event)
        return event

    def _check_head(self, content: bytes) -> None:
        end = END_OF_HEAD.search(content)
        if end is None:
            return
        if end.end() > MOST_HEAD:
            self._refuse(431, LARGE_HEAD)
        head = content[: end.end()]
        if BARE.search(head):
            self._refuse(400, "a line of the head does not end with CR LF. fix: use an HTTP client")
        if FOLDED.search(head):
            self._refuse(400, "a line of the head is folded. fix: send each header on one line")
        lines = head.split(b"\r\n")[1:]
        if len(lines) - 2 > MOST_HEADERS:
            self._refuse(431, f"the head has more than {MOST_HEADERS} headers. fix: send fewer")
        names = Counter(line.partition(b":")[0].strip().lower() for line in lines)
        for name in ONCE:
            if names[name] > 1:
                self._refuse(400, f"the header {name.decode()} is repeated. fix: send it once")
        lengths = [line.partition(b":")[2].strip() for line in lines if line[:15].lower() == b"content-length:"]
        if lengths and not lengths[0].isdigit():
            self._refuse(400, "Content-Length is not one whole number. fix: send the number of bytes")

    def _check_request(self, request: h11.Request) -> None:
        headers = dict(request.headers)
        if request.http_version not in (b"1.0", b"1.1"):
            self._refuse(505, "the version is not HTTP/1.0 or HTTP/1.1. fix: use one of them")
        if b"transfer-encoding" in headers and b"content-length" in headers:
            self._refuse(400, "the body has a Content-Length and a Transfer-Encoding. fix: send Content-Length only")
        if b"transfer-encoding" in headers:
            self._refuse(411, "the length of the body is unknown. fix: send it whole, with Content-Length")
        if int(headers.get(b"content-length", 0)) > self._most:
            self._refuse(413, f"the body is larger than {self._most:,} bytes, the server's limit. fix: send fewer rows")

    def _refuse(self, status: int, reason: str) -> None:
        self.refusal = status, reason
        raise h11.RemoteProtocolError(reason, error_status_hint=status)


class LingeringTransport:
    """A transport whose `close` ends the server's half, and the rest when the client has read it and ends its own.

    Closing with unread bytes resets a connection, and the client may lose the answer that was sent before.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop, seconds: float) -> None:
        self._transport, self._loop, self._seconds = transport, loop, seconds
        self.lingers = False
        self._end: asyncio.TimerHandle | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        """Send bytes; nothing after `close`."""
        if not self.is_closing():
            self._transport.write(data)

    def close(self) -> None:
        """Send what is left and the end; wait for the client's end, at most LINGER after everything was sent."""
        if self.is_closing():
            return
        self.lingers = True
        self._transport.write_eof()
        self._transport.resume_reading()  # the bytes that are dropped
        self._linger(self._loop.time() + self._seconds)

    def _linger(self, latest: float) -> None:
        if self._end is not None and (not self._transport.get_write_buffer_size() or self._loop.time() > latest):
            self._transport.abort()
            return
        self._end = self._loop.call_later(LINGER, self._linger, latest)

    def is_closing(self) -> bool:
        """Return whether `close` was called or the connection ended."""
        return self.lingers or self._transport.is_closing()

    def ended(self) -> None:
        """Note that the connection has ended."""
        self.lingers = True
        if self._end is not None:
            self._end.cancel()


class GuardedProtocol(H11Protocol):
    """uvicorn's protocol with limits; the class of one server has its `room`.

    A connection waits for its client while it has no whole request, or while the client does not read its answer. If
    there are too many connections, the one that has waited longest ends. A wait for a head or for a reader that is
    longer than the time limit ends too; the body and the answer have the limits of the application.
    """

    room: Room

    def __init__(self, config: Any, *args: Any, **options: Any) -> None:
        super().__init__(config, *args, **options)
        self.conn: StrictConnection = StrictConnection(self.room.bounds.body)
        self._received = bytearray()  # not parsed yet
        self._discarded = 0

    def connection_made(self, transport: Any) -> None:
        """Begin to wait for a request; end the longest wait where this is one connection too many."""
        seconds = self.room.bounds.seconds
        super().connection_made(LingeringTransport(transport, self.loop, seconds))  # type: ignore[arg-type]
        self._since = self.loop.time()
        self.room.waiting[self] = None
        self._look = self.loop.call_later(seconds, self._looked)
        if len(self.connections) > self.room.connections:
            next(iter(self.room.waiting)).give_way()

    def give_way(self) -> None:
        """End the connection for the sake of another one."""
        if self._has_part_of_a_request():
            self._answer_raw(503, "the server has no free connection. fix: send the whole request at once, or later")
        self.transport.abort()
        self.room.waiting.pop(self, None)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self._look.cancel()
        self.room.waiting.pop(self, None)
        self.transport.ended()  # type: ignore[attr-defined]
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse bytes in pieces, so that no head is larger than its limit; drop those after the last request."""
        if self.transport.is_closing() or self.conn.their_state in (h11.MUST_CLOSE, h11.CLOSED, h11.ERROR):
            self._discarded += len(data)
            if self._discarded > MOST_DISCARDED:
                self.transport.abort()
            return
        self._received += data
        self._unset_keepalive_if_required()
        self.handle_events()

    def handle_events(self) -> None:
        """Parse what was received until a whole request has no answer yet; the next one waits for this answer."""
        before = self.cycle
        super().handle_events()
        while self._received and self._needs_data():
            self.conn.receive_data(bytes(self._received[:PIECE]))
            del self._received[:PIECE]
            super().handle_events()
        if self.cycle is not before:
            self._since = self.loop.time()
        if not self._needs_data():
            if self._received:
                self.flow.pause_reading()
            self.room.waiting.pop(self, None)

    def send_400_response(self, msg: str) -> None:
        """Answer a request that the parser refuses."""
        self._answer_raw(*self.conn.refusal)
        self.transport.close()

    def on_response_complete(self) -> None:
        """Wait for the next request, or for the client's end."""
        self._since = self.loop.time()
        self._wait()
        super().on_response_complete()

    def pause_writing(self) -> None:
        """Wait for a client that does not read."""
        self._wait()
        super().pause_writing()

    def resume_writing(self) -> None:
        """Wait no more: the client reads."""
        if not self._needs_data():
            self.room.waiting.pop(self, None)
        super().resume_writing()

    def end_if_idle(self) -> None:
        """Close a connection with no part of a request."""
        if not self._has_part_of_a_request() and (self.cycle is None or self.cycle.response_complete):
            self.transport.close()

    def _needs_data(self) -> bool:
        return self.conn.their_state in (h11.IDLE, h11.SEND_BODY) and not self.transport.is_closing()

    def _wait(self) -> None:
        self.room.waiting.pop(self, None)
        self.room.waiting[self] = None

    def _has_part_of_a_request(self) -> bool:
        return bool(self._received or self.conn.trailing_data[0]) or self.conn.their_state is h11.SEND_BODY

    def _answer_raw(self, status: int, reason: str) -> None:
        body = json.dumps({"error": reason}).encode()
        head = f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\ncontent-type: application/json\r\n"
        self.transport.write(f"{head}content-length: {len(body)}\r\nconnection: close\r\n\r\n".encode() + body)
        self.room.counts.answered(status, 0.0)

    def _looked(self) -> None:
        """End the connection where its client is over the time: one limit for a head, three for a whole request."""
        seconds, now = self.room.bounds.seconds, self.loop.time()
        answered = self.cycle is None or self.cycle.response_complete
        left = self._since + (seconds if answered else 3 * seconds) - now
        if left <= 0:
            self.transport.abort()
        else:
            self._look = self.loop.call_later(left, self._looked)


class GracefulServer(uvicorn.Server):
    """uvicorn's server with a stop that answers every client that is connected.

    Clients that the system has connected already are accepted; each answer says `Connection: close`; idle connections
    are closed after LINGER, everything else after the time limit. On Linux no client can connect between the last
    accepted one and the close: new ones are not heard, and are refused when they try again, a second later.
    """

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Answer open requests and close; 0 connections are left."""
        loop, state, seconds = asyncio.get_running_loop(), self.server_state, self.config.timeout_graceful_shutdown or 1
        state.default_headers.append((b"connection", b"close"))
        heard = [one for one in sockets or [] if not _hear_no_new_client(one)]
        if not heard:
            await asyncio.sleep(HANDSHAKE)
        clients = [client for one in sockets or [] for client in _connected(one)]
        for server in self.servers:
            server.close()
        for one in sockets or []:
            one.close()
        for client in clients:
            await loop.connect_accepted_socket(self._protocol, client)
        begin, asked = loop.time(), False
        while (state.connections or state.tasks) and not self.force_exit and loop.time() < begin + seconds:
            if loop.time() > begin + min(LINGER, seconds / 2) and not asked:
                asked = True
                for connection in list(state.connections):
                    connection.end_if_idle()  # type: ignore[union-attr]
            await asyncio.sleep(0.02)
        for connection in list(state.connections):
            connection.transport.abort()
        for task in list(state.tasks):
            task.cancel()
        await self.lifespan.shutdown()

    def _protocol(self) -> asyncio.Protocol:
        return self.config.http_protocol_class(  # type: ignore[call-arg]
            config=self.config, server_state=self.server_state, app_state=self.lifespan.state
        )


def _hear_no_new_client(listening: socket.socket) -> bool:
    """Let the system drop the first packet of every new connection; False where it cannot (not Linux)."""
    steps = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in NO_NEW_CLIENT))
    program = struct.pack("HL", len(NO_NEW_CLIENT), ctypes.addressof(steps))
    if sys.platform != "linux" or listening.family not in (socket.AF_INET, socket.AF_INET6):
        return False
    try:
        listening.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, program)
    except OSError:
        return False
    return True


def _connected(listening: socket.socket) -> list[socket.socket]:
    """Return the clients that the system has connected, which a close would reset; no other one is connected."""
    listening.setblocking(False)
    clients: list[socket.socket] = []
    while True:
        try:
            client, _ = listening.accept()
        except (InterruptedError, ConnectionAbortedError):
            continue
        except OSError:  # no client is left, or no file descriptor
            with contextlib.suppress(OSError):  # at once: an event loop may close it later, and who came then is reset
                listening.shutdown(socket.SHUT_RD)
            return clients
        client.setblocking(False)
        clients.append(client)
