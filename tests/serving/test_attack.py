"""Hostile clients: each gets one answer or a closed connection, in time, and others are answered beside them."""

import json
import random
import signal
import socket
import sys
import time

import numpy as np
import pytest

from benchmarks import serving_attack as attacks
from tests.serving.bodies import ROW
from tests.serving.test_server import served
from tidelog.serving import connections


@pytest.fixture(scope="module")
def server(saved):
    """The process and port of a server with short limits."""
    with served(saved["iql, choice"], "--seconds", "1") as (process, port):
        yield process, port


@pytest.fixture(scope="module")
def small_server(saved):
    """The port of a server with 20 connections."""
    with served(saved["iql, choice"], "--seconds", "5", "--connections", "20") as (_, port):
        yield port


@pytest.fixture(scope="module")
def pairs(plain):
    """Requests and the answers of the NumPy runtime."""
    policy, found = plain["iql, choice"], []
    for age in range(9):
        row = ROW | {"age": float(age)}
        wanted = policy({name: np.asarray([value]) for name, value in row.items()})
        body = json.dumps({"observation": row}).encode()
        found.append((attacks.post(body), {"action": wanted[0], "code": int(wanted.codes[0])}))
    return found


def beside(port, attack, count, pairs):
    """What an attack got; the good clients were all answered, as NumPy answers."""
    one = attacks.beside(port, attack, count, pairs, 1)
    assert set(one["good"]) <= {"200", "connected again"}, one["good"]
    assert one["good"]["200"] > 0
    return one


@pytest.mark.parametrize("name", attacks.SHAPES)
def test_a_hostile_request_gets_one_answer_and_the_end(name, server):
    """Nothing that follows it on its connection is read as a request."""
    content, status = attacks.SHAPES[name]
    assert attacks.all_answers(server[1], content) == str(status)


def test_a_million_chunks_stall_nobody(server, pairs):
    one = beside(server[1], attacks.one_byte_chunks, 1, pairs)
    assert one["got"] == {"411": 1}
    assert one["slowest"] < 2


def test_pipelined_requests_are_answered_in_order(server, pairs):
    assert beside(server[1], attacks.pipelines, 900, pairs)["got"] == {"in order": 900}


def test_a_body_beyond_a_piece_is_read_whole(server, plain):
    """Bytes are parsed in pieces, and 64 kB at most wait for the application."""
    body = json.dumps({"observations": [ROW] * 1024, "masks": [[True] * 5] * 1024}).encode() + b" " * 800_000
    with attacks.connected(server[1]) as client:
        client.sendall(attacks.post(body))
        status, received, _ = attacks.answer(client)
        assert (status, len(json.loads(received)["actions"])) == (200, 1024)


@pytest.mark.full
def test_slow_bodies_keep_nobody_out(small_server, pairs):
    """More half bodies than connections: the longest wait gives way, long before its time limit."""
    begin = time.monotonic()
    with attacks.ExitStack() as stack:
        clients = []
        for _ in range(60):  # each sends at once: one that sent nothing yet is closed without an answer
            clients.append(stack.enter_context(attacks.connected(small_server)))
            clients[-1].sendall(attacks.head(b"Content-Length: 99") + b"{")
        for content, wanted in pairs:
            with attacks.connected(small_server) as client:
                client.sendall(content)
                status, body, _ = attacks.answer(client)
                assert (status, json.loads(body)) == (200, wanted)
        assert attacks.statuses(clients[0].recv(1000)) == ["503"]
    assert time.monotonic() - begin < 4


def test_bytes_after_the_last_request_do_not_disturb_its_answer(server):
    """They arrive while the answer is computed in a thread."""
    body = json.dumps({"observations": [ROW] * 1024}).encode()
    with attacks.connected(server[1]) as client:
        client.sendall(attacks.head(b"Content-Length: %d" % len(body), b"Connection: close") + body)
        received = b""
        for _ in range(20):
            client.sendall(b"no request\r\n\r\n")
            time.sleep(0.001)
        while part := client.recv(1 << 16):
            received += part
    assert attacks.statuses(received) == ["200"]


def seconds_until_closed(client, content, pause):
    """Send again and again until the server has closed the connection; at most 15 s."""
    begin = time.monotonic()
    while time.monotonic() - begin < 15:
        try:
            client.sendall(content)
        except (ConnectionError, TimeoutError):
            break
        time.sleep(pause)
    return time.monotonic() - begin


def test_a_slow_head_ends_after_the_time_limit(server):
    with attacks.connected(server[1]) as client:
        assert 0.5 < seconds_until_closed(client, b"a", 0.1) < 3


@pytest.mark.full
def test_a_client_that_does_not_read_ends(server):
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.settimeout(20)
        client.connect(("127.0.0.1", server[1]))
        assert seconds_until_closed(client, b"GET /policy HTTP/1.1\r\nHost: localhost\r\n\r\n" * 100, 0) < 10


@pytest.mark.parametrize(("origin", "status"), [
    ("http://localhost:8000", 200), ("https://LOCALHOST", 200), ("http://evil.example", 403), ("null", 403),
    ("http://localhost.evil.example", 403), ("file://", 403), ("http://localhost@evil.example", 403),
])  # fmt: skip
@pytest.mark.parametrize("hosts", [("localhost",), None])
def test_pages_of_other_sites_are_not_answered(origin, status, hosts, plain):
    from tests.serving.test_app import asked

    request = ("GET", "/health", {"headers": {"Host": "localhost", "Origin": origin}})
    assert asked(plain["iql, choice"], request, hosts=hosts)[0].status_code == status


@pytest.mark.full
def test_a_stop_resets_nobody(saved, pairs):
    got = attacks.stop_under_load(saved["iql, choice"], pairs, 0)
    assert got["answers after the signal"] > 0
    assert set(got) <= {"answers", "answers after the signal", "stops", "stops with status 0", "stops within 3 s"}, got
    assert got["stops with status 0"] == 1


@pytest.mark.skipif(sys.platform != "linux", reason="the packet filter is of Linux")
@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6])
def test_a_client_that_comes_while_the_server_stops_is_not_heard_and_then_refused(family):
    with socket.socket(family) as listening:
        try:
            listening.bind(("::1" if family == socket.AF_INET6 else "127.0.0.1", 0))
        except OSError:
            pytest.skip("this machine has no IPv6")
        listening.listen()
        place = listening.getsockname()[:2]
        with socket.create_connection(place) as early:
            assert connections._hear_no_new_client(listening)
            with pytest.raises(TimeoutError):
                socket.create_connection(place, timeout=0.2)
            (one,) = connections._connected(listening)
            early.sendall(b"still heard")
            one.setblocking(True)
            assert one.recv(20) == b"still heard"
            one.close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(place, timeout=5)


@pytest.mark.full
def test_a_stop_answers_what_was_asked_and_closes_what_was_not(saved, pairs):
    content, wanted = pairs[0]
    with served(saved["iql, choice"], "--seconds", "20") as (process, port):
        with attacks.connected(port) as half, attacks.connected(port) as idle, attacks.connected(port) as kept:
            kept.sendall(content)
            assert attacks.answer(kept)[2] is False
            half.sendall(content[:-5])
            time.sleep(0.3)
            process.send_signal(signal.SIGTERM)
            begin = time.monotonic()
            time.sleep(0.5)
            with pytest.raises(ConnectionRefusedError):
                attacks.connected(port)
            kept.sendall(content)
            assert attacks.answer(kept)[::2] == (200, True)
            assert idle.recv(10) == b""
            assert time.monotonic() - begin < 4
            half.sendall(content[-5:])
            status, body, closes = attacks.answer(half)
            assert (status, json.loads(body), closes) == (200, wanted, True)
            assert kept.recv(10) == half.recv(10) == b""
        assert process.wait(10) == 0
        assert time.monotonic() - begin < 10  # the idle one is not waited for


@pytest.mark.full
def test_a_stop_ends_after_the_time_limit(saved):
    with served(saved["iql, choice"], "--seconds", "1") as (process, port), attacks.connected(port) as client:
        client.sendall(attacks.head(b"Content-Length: 99") + b"{")
        time.sleep(0.3)
        process.send_signal(signal.SIGTERM)
        assert process.wait(5) == 0


@pytest.mark.full
@pytest.mark.parametrize("name", [name for name in attacks.ATTACKS if name not in ("none", "100 slow readers")])
def test_good_clients_are_answered_beside(name, server, pairs):
    process, port = server
    attack, share = attacks.ATTACKS[name]
    beside(port, attack, int(share) if share >= 1 else 2_000, pairs)
    time.sleep(2.5)
    before = attacks.state_of(process)
    beside(port, attack, int(share) if share >= 1 else 2_000, pairs)
    time.sleep(2.5)
    after = attacks.state_of(process)
    assert after["open_files"] <= before["open_files"] + 3
    assert after["resident_mb"] <= before["resident_mb"] + 15


@pytest.mark.full
def test_random_bodies_have_known_statuses(server, pairs):
    bodies = [content.partition(b"\r\n\r\n")[2] for content, _ in pairs]
    got = attacks.random_bodies(server[1], 5_000, random.Random(1), bodies)
    assert set(got) <= {"200", "400", "422"}
