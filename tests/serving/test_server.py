"""The command: a process that listens, survives its clients, and stops on request."""

import http.client
import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import time
from contextlib import closing, contextmanager
from types import SimpleNamespace

import numpy as np
import pytest

import tidelog.serving
from tests.runtime.cases import listing
from tests.serving.bodies import JSON, ROW, random_body
from tidelog import runtime
from tidelog.cli import main, serve
from tidelog.runtime.policy import Policy
from tidelog.serving.app import Bounds
from tidelog.serving.endpoints import RecommendEndpoint, list_example


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
    (("{saved}", "--backend", "onnx"), "has no policy.onnx"),
])  # fmt: skip
def test_what_cannot_be_served_is_said(words, message, saved, capsys):
    assert main(["serve", *(word.format(saved=saved["bc, point"]) for word in words)]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.slow
def test_ten_thousand_random_bodies(saved):
    generator, statuses = np.random.default_rng(1), {}
    with served(saved["iql, choice"]) as (process, port):
        begin = time.monotonic()
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        for _ in range(10_000):
            connection.request("POST", "/act", random_body(generator), JSON)
            answer = connection.getresponse()
            answer.read()
            statuses[answer.status] = statuses.get(answer.status, 0) + 1
        connection.close()
        assert post(port, json.dumps({"observation": ROW}))[0] == 200
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=30)
    assert "Traceback" not in out + err
    assert set(statuses) <= {200, 400, 413, 422}
    print(statuses, f"{time.monotonic() - begin:.0f} s")


@pytest.mark.full
def test_silent_connections_do_not_keep_others_out(saved):
    with served(saved["iql, choice"], "--connections", "3", "--seconds", "1") as (_, port):
        silent = [socket.create_connection(("127.0.0.1", port)) for _ in range(3)]
        silent[0].sendall(b"POST /act HT")
        time.sleep(2.5)
        with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=30)) as connection:
            connection.request("GET", "/health")
            assert connection.getresponse().status == 200
        for one in silent:
            one.close()


def test_the_command_says_its_limits_and_notes_before_it_serves(saved, monkeypatch, capsys):
    made, stopped = [], SimpleNamespace(run=lambda sockets: sockets[0].close())
    connections = SimpleNamespace(server=lambda *args: made.append(args) or stopped)
    app = SimpleNamespace(Bounds=Bounds, application=lambda policy, bounds, hosts: (bounds, hosts))
    monkeypatch.setattr(serve, "_tools", lambda: (app, connections))
    monkeypatch.setattr(serve, "_room", lambda wanted: 7)
    monkeypatch.setattr(Policy, "notes", lambda policy: ["the log was small"])
    monkeypatch.setattr(serve.signal, "signal", lambda number, function: None)
    monkeypatch.setattr(sys, "setswitchinterval", lambda seconds: None)
    words = [str(saved["bc, point"]), "--port", "0", "--host", "0.0.0.0", "--rows", "3"]
    assert serve.run(words) == 0
    (((bounds, hosts), _, room, _),) = made
    assert (bounds.rows, hosts, room) == (3, None, 7)
    said = capsys.readouterr().out
    assert (
        "note: at most 7 connections: the limit of open files (ulimit -n) allows no more\nnote: the log was small\n"
        in said
    )
    named = serve.Serve("policy", host="0.0.0.0", allow_host=("Ward.example",))
    assert serve._hosts(named) == {"localhost", "127.0.0.1", "[::1]", "0.0.0.0", "ward.example"}


@pytest.mark.parametrize(("soft", "hard", "room", "raised"), [
    (10_000, 10_000, 500, None), (100, 100_000, 500, 1652), (100, -1, 500, 1652), (100, 1300, 148, 1300),
    (64, 64, 1, 64),
])  # fmt: skip
def test_each_connection_needs_a_file(soft, hard, room, raised, monkeypatch):
    limits = []
    monkeypatch.setattr(serve.resource, "getrlimit", lambda kind: (soft, hard))
    monkeypatch.setattr(serve.resource, "setrlimit", lambda kind, pair: limits.append(pair))
    assert serve._room(500) == room
    assert limits == ([] if raised is None else [(raised, hard)])


def test_without_the_extra_serve_names_it(saved, monkeypatch, capsys):
    monkeypatch.delattr(tidelog.serving, "app")
    monkeypatch.setitem(sys.modules, "tidelog.serving.app", None)
    assert main(["serve", str(saved["bc, point"])]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert "serving needs an extra (" in said
    assert "fix: pip install 'h11" in said


@pytest.mark.parametrize("listed", [True, False])
def test_the_command_prints_an_example_that_is_answered(listed, saved, tmp_path, monkeypatch, capsys):
    path = listing("lists, mean").save(tmp_path / "policy") if listed else saved["bc, point"]
    policies, server = [], SimpleNamespace(run=lambda sockets: sockets[0].close())
    app = SimpleNamespace(Bounds=Bounds, application=lambda policy, bounds, hosts: policies.append(policy))
    monkeypatch.setattr(serve, "_tools", lambda: (app, SimpleNamespace(server=lambda *arguments: server)))
    monkeypatch.setattr(serve.signal, "signal", lambda number, function: None)
    monkeypatch.setattr(sys, "setswitchinterval", lambda seconds: None)
    assert serve.run([str(path), "--port", "0"]) == 0
    said = capsys.readouterr().out
    assert ("the policy" in said) == (not listed)
    address = re.search(r"with numpy on (http://127\.0\.0\.1:\d+)", said)[1]
    words = shlex.split(re.search(r"try: (curl .*)", said)[1])
    assert words[1] == f"{address}/{'recommend' if listed else 'act'}"
    if listed:
        endpoint, body = RecommendEndpoint(policies[0], 10), json.loads(words[-1])
        assert body["history"] == list(policies[0].spec.action.ids[:2])
        assert len(endpoint.compute(endpoint.read(words[-1].encode()))["items"]) == body["k"]


def test_the_example_of_a_policy_that_reads_times_has_them(monkeypatch, tmp_path):
    policy = runtime.load(listing("lists, mean").save(tmp_path / "policy"))
    monkeypatch.setattr(type(policy.ranker()), "reads_gaps", True)
    assert list_example(policy) == {"history": ["i0", "i1"], "k": 5, "times": [0, 1], "now": 2}
