"""The command: a process that listens, survives its clients, and stops on request."""

import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from contextlib import closing, contextmanager, suppress

import pytest

import tidelog.serving
from tests.serving.bodies import JSON, ROW
from tidelog.cli import main


@contextmanager
def served(path, *words):
    """A server of a policy: its process and port."""
    command = [sys.executable, "-m", "tidelog", "serve", str(path), "--port", "0", *words]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ | {"PYTHONUNBUFFERED": "1"}
    ) as process:
        try:
            line = process.stdout.readline()
            found = re.search(r"http://127\.0\.0\.1:(\d+)", line)
            assert found, line + process.stderr.read()
            yield process, int(found[1])
        finally:
            process.terminate()  # a process that ends by itself keeps what coverage measured in it
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()


def post(port, body, timeout=30):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
    connection.request("POST", "/act", body, JSON)
    answer = connection.getresponse()
    content = answer.read()
    connection.close()
    return answer.status, json.loads(content)


def half_a_request(port, *, wait):
    """Return the answer to headers that promise more than is sent."""
    with socket.create_connection(("127.0.0.1", port), timeout=30) as client:
        client.sendall(
            b"POST /act HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n{"
        )
        return client.recv(1000) if wait else b""


def test_a_server_answers_survives_and_stops(saved, plain):
    with served(saved["iql, choice"], "--seconds", "1") as (process, port):
        status, answer = post(port, json.dumps({"observation": ROW}))
        assert (status, answer["action"]) == (200, plain["iql, choice"](ROW))
        half_a_request(port, wait=False)
        assert half_a_request(port, wait=True).startswith(b"HTTP/1.1 408")
        with socket.create_connection(("127.0.0.1", port)) as client:
            client.sendall(b"\x16\x03\x01 no HTTP at all\r\n\r\n")
            assert b"400 Bad Request" in client.recv(1000)
        assert post(port, b"{")[0] == 400
        assert post(port, json.dumps({"observation": ROW}))[0] == 200
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=30)
    assert process.returncode == 0
    assert "stopped; every open request was answered" in out
    assert "Traceback" not in out + err


@pytest.mark.parametrize(("words", "message"), [
    (("nowhere",), "nowhere does not exist: expected a policy written by `tidelog export`"),
    (("{saved}", "--rows", "0"), "a limit is out of range: expected --rows"),
    (("{saved}", "--host", "not.a.host.invalid"), "cannot be opened"),
    (("{saved}", "--allow-host", "w*rd"), "--allow-host w*rd: a * stands for the first part of a name. fix: use *.ex"),
])  # fmt: skip
def test_what_cannot_be_served_is_said(words, message, saved, capsys):
    assert main(["serve", *(word.format(saved=saved["bc, point"]) for word in words)]) == 2
    assert message in capsys.readouterr().err


def head(*lines, first=b"POST /act HTTP/1.1"):
    return b"\r\n".join([first, b"Host: localhost", b"Content-Type: application/json", *lines, b"", b""])


def received(port, content):
    """Return everything that the server sends before it ends the connection."""
    with socket.create_connection(("127.0.0.1", port), timeout=30) as client:
        with suppress(ConnectionError):
            client.sendall(content)
        return until_its_end(client)


def until_its_end(client):
    found = b""
    with suppress(ConnectionError):
        while part := client.recv(1 << 16):
            found += part
    return found


def statuses(content):
    return [int(status) for status in re.findall(rb"HTTP/1.1 (\d+) ", content)]


SECOND = b"GET /policy HTTP/1.1\r\nHost: localhost\r\n\r\n"
HOSTILE = {  # bytes, and the status of their only answer
    "length and coding": (head(b"Content-Length: 4", b"Transfer-Encoding: chunked") + b"0\r\n\r\n" + SECOND, 411),
    "chunks": (head(b"Transfer-Encoding: chunked") + b"2\r\n{}\r\n0\r\n\r\n" + SECOND, 411),
    "an unknown coding": (head(b"Transfer-Encoding: xchunked") + b"0\r\n\r\n" + SECOND, 400),
    "two lengths": (head(b"Content-Length: 0", b"Content-Length: 44") + SECOND, 400),
    "a signed length": (head(b"Content-Length: +2") + b"{}" + SECOND, 400),
    "a space before the colon": (head(b"Content-Length : 44") + SECOND, 400),
    "two hosts": (head(b"Host: rebound.example") + SECOND, 400),
    "no host": (b"GET /health HTTP/1.1\r\n\r\n" + SECOND, 400),
    "another host": (head(b"Connection: close").replace(b"localhost", b"rebound.example"), 400),
    "TLS": (b"\x16\x03\x01\x02\r\n\r\n" + SECOND, 400),
    "a large header": (head(b"X: " + b"a" * 2_000_000), 400),
    "10 GB": (head(b"Content-Length: 10000000000", b"Connection: close") + b"{", 413),
}  # fmt: skip


@pytest.fixture(scope="module")
def port(saved):
    with served(saved["iql, choice"], "--seconds", "2") as (_, port):
        yield port


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_request_gets_one_answer_and_the_end(name, port):
    """Nothing that follows it on its connection is read as a request."""
    content, status = HOSTILE[name]
    assert statuses(received(port, content)) == [status]
    assert post(port, json.dumps({"observation": ROW}))[0] == 200


def test_pipelined_requests_are_answered_in_order(port):
    kinds = {200: SECOND, 404: SECOND.replace(b"policy", b"elsewhere"), 415: head(b"Content-Length: 3") + b"abc"}
    kinds[415] = kinds[415].replace(b"application/json", b"text/plain")
    order = [200, 404, 415, 415, 200, 404] * 50
    last = SECOND.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
    assert statuses(received(port, b"".join(kinds[one] for one in order) + last)) == [*order, 200]


def test_a_large_body_is_read_whole_or_refused_whole(port):
    body = json.dumps({"observations": [ROW] * 1024}).encode()
    assert len(post(port, body + b" " * 800_000)[1]["actions"]) == 1024
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=30)) as connection:
        connection.request("POST", "/act", b" " * 20_000_000, JSON)  # dropped as it comes: the answer is not lost
        answer = connection.getresponse()
        assert (answer.status, "larger than 1,000,000 bytes" in answer.read().decode()) == (413, True)
        connection.request("GET", "/health")
        assert connection.getresponse().status == 200


@pytest.mark.full
def test_a_connection_too_many_is_answered_with_503_until_one_ends(saved):
    with served(saved["iql, choice"], "--connections", "3") as (_, port):
        silent = [socket.create_connection(("127.0.0.1", port)) for _ in range(3)]
        time.sleep(0.5)
        assert statuses(received(port, SECOND)) == [503]
        silent[0].close()
        time.sleep(0.5)
        assert post(port, json.dumps({"observation": ROW}))[0] == 200
        for one in silent:
            one.close()


def test_a_stop_answers_what_was_asked_and_closes_what_was_not(saved):
    content = json.dumps({"observation": ROW}).encode()
    with served(saved["iql, choice"], "--seconds", "20") as (process, port):
        half, idle, kept = (socket.create_connection(("127.0.0.1", port), timeout=30) for _ in range(3))
        kept.sendall(SECOND)
        assert kept.recv(1 << 16).startswith(b"HTTP/1.1 200")
        half.sendall(head(b"Content-Length: %d" % len(content)) + content[:-5])
        time.sleep(0.5)
        process.send_signal(signal.SIGTERM)
        begin = time.monotonic()
        assert idle.recv(10) == b""
        assert statuses(until_its_end(kept)) == []
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port), timeout=5)
        half.sendall(content[-5:])
        assert statuses(until_its_end(half)) == [200]
        assert process.wait(10) == 0
        assert time.monotonic() - begin < 15
        for one in (half, idle, kept):
            one.close()


@pytest.mark.full
def test_a_stop_ends_after_the_time_limit(saved):
    """The client of an answer does not read it."""
    with served(saved["iql, choice"], "--seconds", "1") as (process, port):
        client = socket.socket()
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect(("127.0.0.1", port))
        client.settimeout(1)
        with suppress(TimeoutError):
            client.sendall(SECOND * 100_000)
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 0
        client.close()


def test_without_the_extra_serve_names_it(saved, monkeypatch, capsys):
    monkeypatch.delattr(tidelog.serving, "app")
    monkeypatch.setitem(sys.modules, "tidelog.serving.app", None)
    assert main(["serve", str(saved["bc, point"])]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert "serving needs an extra (" in said
    assert "fix: pip install 'h11" in said
