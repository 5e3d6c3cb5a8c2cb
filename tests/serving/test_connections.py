"""Connections with a transport that notes what is done to it: what gives way, what is dropped, and who waits."""

import asyncio
import socket
from types import SimpleNamespace

import pytest

from tidelog.serving import connections
from tidelog.serving.app import Bounds, application
from tidelog.serving.connections import LingeringTransport, _connected, _hear_no_new_client

HEAD = b"POST /act HTTP/1.1\r\nHost: localhost\r\n"


class Transport:
    """Notes the calls of a connection; what is written is kept."""

    def __init__(self):
        self.calls, self.written, self.ended = [], b"", False

    def write(self, data):
        self.written += data

    def abort(self):
        self.calls.append("abort")
        self.ended = True

    def is_closing(self):
        return self.ended

    def get_extra_info(self, name, default=None):
        return default

    def get_write_buffer_size(self):
        return 0

    def __getattr__(self, name):
        return lambda *args: self.calls.append(name)


def connected(policy, check, count=1, room=2):
    """Open `count` connections of a server of a policy with this room, and check them within its loop."""

    async def go():
        server = connections.server(application(policy), Bounds(), room, 10)
        server.config.load()
        server.lifespan = SimpleNamespace(state={}, shutdown=lambda: asyncio.sleep(0))
        pairs = []
        for _ in range(count):
            pairs.append((server._protocol(), Transport()))
            pairs[-1][0].connection_made(pairs[-1][1])
            await asyncio.sleep(0)
        await check(server, pairs)
        for protocol, _ in pairs:
            protocol.connection_lost(None)

    asyncio.run(go())


def test_the_longest_wait_gives_way_with_an_answer_only_where_a_request_began(plain):
    async def check(server, pairs):
        (silent, first), (begun, second), *_ = pairs
        assert first.calls == ["abort"]  # by the third connection
        assert first.written == b""
        begun.data_received(HEAD)
        begun.give_way()
        assert second.written.startswith(b"HTTP/1.1 503 ")
        assert b"the server has no free connection. fix: send the whole request at once, or later" in second.written
        assert begun not in begun.room.waiting
        assert silent not in begun.room.waiting

    connected(plain["iql, choice"], check, count=3)


def test_bytes_after_a_refused_request_are_dropped_up_to_a_limit(plain, monkeypatch):
    monkeypatch.setattr(connections, "MOST_DISCARDED", 100)

    async def check(server, pairs):
        ((protocol, transport),) = pairs
        protocol.data_received(HEAD + b"Host: twice\r\n\r\n")
        assert transport.written.startswith(b"HTTP/1.1 400 ")
        assert b"the header host is repeated. fix: send it once" in transport.written
        assert transport.calls == ["write_eof", "resume_reading"]
        protocol.transport.close()  # it closes already
        protocol.data_received(b"x" * 100)
        assert transport.calls == ["write_eof", "resume_reading"]
        protocol.data_received(b"x")
        assert transport.calls == ["write_eof", "resume_reading", "abort"]

    connected(plain["iql, choice"], check)


def test_who_does_not_read_waits_until_it_reads(plain):
    async def check(server, pairs):
        ((protocol, _),) = pairs
        protocol.data_received(HEAD + b"Content-Length: 2\r\n\r\n{}")
        assert protocol not in protocol.room.waiting  # the request is whole
        protocol.pause_writing()
        assert protocol in protocol.room.waiting
        protocol.resume_writing()
        assert protocol not in protocol.room.waiting
        protocol.cycle = None
        for task in list(server.server_state.tasks):
            task.cancel()

    connected(plain["iql, choice"], check)


def test_a_new_connection_that_reads_again_still_waits_for_its_request(plain):
    async def check(server, pairs):
        ((protocol, _),) = pairs
        protocol.pause_writing()
        protocol.resume_writing()
        assert protocol in protocol.room.waiting

    connected(plain["iql, choice"], check)


def test_a_stop_cancels_answers_that_take_longer_than_the_limit(plain):
    async def check(server, pairs):
        ((_, transport),) = pairs
        task = asyncio.ensure_future(asyncio.sleep(60))
        server.config.timeout_graceful_shutdown = 0.1
        server.server_state.tasks.add(task)
        server.servers = []
        await server.shutdown([])
        assert "abort" in transport.calls
        with pytest.raises(asyncio.CancelledError):
            await task

    connected(plain["iql, choice"], check)


def test_clients_that_the_system_has_connected_are_taken_over_interruptions():
    client = SimpleNamespace(setblocking=lambda blocking: None)
    accepted = iter([InterruptedError(), (client, None), ConnectionAbortedError(), (client, None), BlockingIOError()])
    calls = []

    def accept():
        found = next(accepted)
        if isinstance(found, OSError):
            raise found
        return found

    listening = SimpleNamespace(accept=accept, setblocking=calls.append, shutdown=calls.append)
    assert _connected(listening) == [client, client]
    assert calls == [False, socket.SHUT_RD]


def test_a_transport_is_closed_once():
    async def go():
        transport = Transport()
        lingering = LingeringTransport(transport, asyncio.get_running_loop(), 1.0)
        lingering.close()
        lingering.close()
        lingering.write(b"late")
        assert transport.calls == ["write_eof", "resume_reading"]
        assert transport.written == b""
        lingering.ended()

    asyncio.run(go())


@pytest.mark.parametrize("platform", ["linux", "darwin"])
def test_new_clients_are_heard_where_the_system_cannot_drop_them(platform, monkeypatch):
    def refused(*arguments):
        raise PermissionError(1, "Operation not permitted")

    asked = []
    allowed = SimpleNamespace(family=socket.AF_INET, setsockopt=lambda *arguments: asked.append(arguments))
    monkeypatch.setattr(connections.sys, "platform", platform)
    assert _hear_no_new_client(allowed) == (platform == "linux") == bool(asked)
    assert not _hear_no_new_client(SimpleNamespace(family=socket.AF_INET, setsockopt=refused))
    assert not _hear_no_new_client(SimpleNamespace(family=socket.AF_UNIX, setsockopt=asked.append))
    assert len(asked) == (platform == "linux")


def test_a_client_that_was_connected_before_the_stop_is_answered(plain, monkeypatch):
    monkeypatch.setattr(connections, "HANDSHAKE", 3600.0)  # nothing to wait for where new clients are heard anyway

    async def check(server, pairs):
        client, ours = socket.socketpair()
        ours.setblocking(False)
        client.settimeout(10)
        client.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        closed = []
        listening = SimpleNamespace(family=socket.AF_UNIX, close=lambda: closed.append(True))
        monkeypatch.setattr(connections, "_connected", lambda one: [ours])
        server.servers = []
        await asyncio.wait_for(server.shutdown([listening]), 30)
        assert closed == [True]
        answer = client.recv(10_000)
        assert answer.startswith(b"HTTP/1.1 200 ")
        assert b"connection: close" in answer
        client.close()

    connected(plain["iql, choice"], check, count=0)
