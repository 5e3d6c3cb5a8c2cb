"""What a server does under attack: hostile requests beside good clients, whose answers are compared with NumPy's.

    python -m benchmarks.serving_attack --requests 50000     # a piece; pieces add up

Good clients ask single observations and batches over kept connections, and connect again when theirs is closed. Each
attack runs beside them. Kept: what each attack got, the share of good requests that were answered and their latency,
answers that differ from the NumPy runtime, the server's memory and open files, and clients at a stop under load.
Results: benchmarks/results/serving_attack.json.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np

RESULTS = Path(__file__).parent / "results" / "serving_attack.json"
COMMAND = "python -m benchmarks.serving_attack --requests 50000"
LATENCIES = 2_000  # kept per attack and piece
CLIENTS, STOPS, CLIENTS_AT_STOP = 2, 3, 12
KIND = b"Host: localhost\r\nContent-Type: application/json\r\n"
SMUGGLED = b"GET /policy HTTP/1.1\r\nHost: localhost\r\n\r\n"


def head(*lines: bytes, first: bytes = b"POST /act HTTP/1.1") -> bytes:
    return b"\r\n".join([first, b"Host: localhost", b"Content-Type: application/json", *lines, b"", b""])


def post(body: bytes) -> bytes:
    return head(b"Content-Length: %d" % len(body)) + body


SHAPES: dict[str, tuple[bytes, int]] = {  # bytes that are sent, and the status of the only answer
    "length and coding": (head(b"Content-Length: 4", b"Transfer-Encoding: chunked") + b"0\r\n\r\n" + SMUGGLED, 400),
    "coding and length": (head(b"Transfer-Encoding: chunked", b"Content-Length: 99") + b"0\r\n\r\n" + SMUGGLED, 400),
    "chunks": (head(b"Transfer-Encoding: chunked") + b"2\r\n{}\r\n0\r\n\r\n", 411),
    "chunk extensions": (head(b"Transfer-Encoding: chunked") + b"2;a=\n\r\n{}\r\n0\r\n\r\n" + SMUGGLED, 411),
    "chunk size overflow": (head(b"Transfer-Encoding: chunked") + b"1" + b"0" * 17 + b"\r\n{}\r\n0\r\n\r\n", 411),
    "two codings": (head(b"Transfer-Encoding: chunked", b"Transfer-Encoding: identity") + b"0\r\n\r\n", 400),
    "an unknown coding": (head(b"Transfer-Encoding: xchunked") + b"0\r\n\r\n", 501),
    "a coding with a tab": (head(b"Transfer-Encoding:\tchunked") + b"0\r\n\r\n", 411),
    "two lengths": (head(b"Content-Length: 0", b"Content-Length: 44") + SMUGGLED, 400),
    "one length twice": (head(b"Content-Length: 2", b"Content-Length: 2") + b"{}", 400),
    "a list of lengths": (head(b"Content-Length: 2, 2") + b"{}", 400),
    "a signed length": (head(b"Content-Length: +2") + b"{}", 400),
    "a negative length": (head(b"Content-Length: -2") + b"{}", 400),
    "a length with an underscore": (head(b"Content-Length: 1_0") + b"{}", 400),
    "a length of 10 GB": (head(b"Content-Length: 10000000000") + b"{", 413),
    "a length beyond 64 bits": (head(b"Content-Length: 99999999999999999999999") + b"{", 400),
    "a folded line": (head(b"X: 1", b" Content-Length: 44") + SMUGGLED, 400),
    "a bare LF": (b"POST /act HTTP/1.1\nHost: localhost\nContent-Length: 0\n\n" + SMUGGLED, 400),
    "a bare LF in a header": (head(b"X: 1\nContent-Length: 44") + SMUGGLED, 400),
    "a bare CR in a header": (head(b"X: 1\rContent-Length: 44") + SMUGGLED, 400),
    "a space before the colon": (head(b"Content-Length : 44") + SMUGGLED, 400),
    "a space before a name": (b"GET /health HTTP/1.1\r\n Host: localhost\r\n\r\n" + SMUGGLED, 400),
    "a zero byte": (head(b"X: a\0b"), 400),
    "no host": (b"GET /health HTTP/1.1\r\n\r\n" + SMUGGLED, 400),
    "two hosts": (head(b"Host: localhost"), 400),
    "another host": (b"GET /health HTTP/1.1\r\nHost: rebound.example\r\nConnection: close\r\n\r\n", 421),
    "another origin": (head(b"Origin: http://evil.example", b"Content-Length: 2", b"Connection: close") + b"{}", 403),
    "no origin": (head(b"Origin: null", b"Content-Length: 2", b"Connection: close") + b"{}", 403),
    "HTTP/0.9": (b"GET /health\r\n\r\n", 400),
    "HTTP/2.0": (b"GET /health HTTP/2.0\r\nHost: localhost\r\n\r\n", 505),
    "HTTP/2": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505),
    "TLS": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(range(128)), 400),
    "an upgrade": (head(b"Connection: Upgrade, close", b"Upgrade: websocket", first=b"GET /act HTTP/1.1") , 405),
    "a large header": (head(b"X: " + b"a" * 200_000), 431),
    "a header of 20 kB": (head(b"X: " + b"a" * 20_000), 431),
    "a long line": (b"GET /" + b"a" * 200_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n", 431),
    "many headers": (head(*[b"X%d: 1" % i for i in range(1_000)]), 431),
    "many folded lines": (head(b"X: 1", *[b" 1"] * 3_000), 400),
    "a body too large": (post(b" " * 2_000_000), 413),
    "a tower": (head(b"Content-Length: 900000", b"Connection: close") + b"[" * 900_000, 400),
    "a tower of objects": (
        head(b"Content-Length: 900000", b"Connection: close") + (b'{"a":' * 180_000)[:900_000], 400),
    "no UTF-8": (head(b"Content-Length: 7", b"Connection: close") + b'{"\xff\xfe":1', 400),
    "half a surrogate": (head(b"Content-Length: 14", b"Connection: close") + b'{"\\ud800": 1}\n', 422),
    "many digits": (head(b"Content-Length: 900000", b"Connection: close") + b"9" * 900_000, 400),
    "bytes after the last request": (
        b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n" + SMUGGLED, 200),
}  # fmt: skip


# Clients.


def connected(port: int, timeout: float = 30.0) -> socket.socket:
    client = socket.create_connection(("127.0.0.1", port), timeout=timeout)
    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return client


def all_answers(port: int, content: bytes, timeout: float = 30.0) -> str:
    """Send bytes, read until the server ends, and return the statuses, or how the connection ended without one."""
    received = b""
    try:
        with connected(port, timeout) as client:
            try:
                client.sendall(content)
            except (ConnectionResetError, BrokenPipeError):
                received = b""
            while part := client.recv(1 << 16):
                received += part
    except TimeoutError:
        return "timeout"
    except ConnectionResetError:
        return "reset" if not received else "reset after " + " ".join(statuses(received))
    return " ".join(statuses(received)) or "closed"


def statuses(received: bytes) -> list[str]:
    return [found.decode() for found in re.findall(rb"HTTP/1\.1 (\d\d\d) ", received)]


def answer(client: socket.socket) -> tuple[int, bytes, bool]:
    """Return the status and body of the next answer, and whether the server closes then; ConnectionError at the end."""
    received = b""
    while b"\r\n\r\n" not in received:
        part = client.recv(1 << 16)
        if not part:
            raise ConnectionAbortedError("the server ended the connection")
        received += part
    top, _, body = received.partition(b"\r\n\r\n")
    length = int(re.search(rb"content-length: (\d+)", top)[1])  # type: ignore[index]
    while len(body) < length:
        part = client.recv(1 << 20)
        if not part:
            raise ConnectionAbortedError("the server ended the connection within an answer")
        body += part
    return int(top.split(b" ")[1]), body[:length], b"connection: close" in top.lower()


class Good(threading.Thread):
    """A client that asks what NumPy has answered already, until `done`."""

    def __init__(self, port: int, pairs: list[tuple[bytes, Any]], seed: int, done: threading.Event) -> None:
        super().__init__(daemon=True)
        self.port, self.pairs, self.done, self.rng = port, pairs, done, random.Random(seed)
        self.latencies: list[float] = []
        self.counts: Counter[str] = Counter()
        self.client: socket.socket | None = None

    def run(self) -> None:
        while not self.done.is_set():
            content, expected = self.rng.choice(self.pairs)
            begin = time.perf_counter()
            for attempt in (1, 2):  # a kept connection may have been closed in the meantime
                try:
                    fresh = self.client is None
                    self.client = self.client or connected(self.port)
                    self.client.sendall(content)
                    status, body, closes = answer(self.client)
                    self.counts[str(status)] += 1
                    self.counts["differs"] += status == 200 and json.loads(body) != expected
                    if closes:
                        self.close()
                    break
                except OSError as error:
                    self.close()
                    if fresh or attempt == 2:
                        self.counts[type(error).__name__] += 1
                        break
                    self.counts["connected again"] += 1
            self.latencies.append(time.perf_counter() - begin)
            time.sleep(0.002)
        self.close()

    def close(self) -> None:
        if self.client is not None:
            self.client.close()
        self.client = None


# Attacks: each takes a port, a number of requests, a generator and the example of a good body, and counts what it got.

Attack = Callable[[int, int, random.Random, list[bytes]], Counter[str]]


def shapes(port: int, count: int, rng: random.Random, bodies: list[bytes]) -> Counter[str]:
    got: Counter[str] = Counter()
    for _ in range(count):
        name = rng.choice(list(SHAPES))
        content, expected = SHAPES[name]
        outcome = all_answers(port, content)
        got["as expected" if outcome == str(expected) else f"{name}: {outcome}"] += 1
    return got


def random_bodies(port: int, count: int, rng: random.Random, bodies: list[bytes]) -> Counter[str]:
    """Good bodies with changed, cut or repeated bytes, 32 requests at a time over one connection."""
    got: Counter[str] = Counter()
    for start in range(0, count, 2_000):
        with connected(port) as client:
            left = min(2_000, count - start)
            while left:
                many = min(32, left)
                client.sendall(b"".join(post(changed(rng.choice(bodies), rng)) for _ in range(many)))
                got.update(str(answer_of_many) for answer_of_many in answers(client, many))
                left -= many
    return got


def changed(body: bytes, rng: random.Random) -> bytes:
    content = bytearray(body)
    for _ in range(rng.randrange(4)):
        at = rng.randrange(len(content))
        kind = rng.randrange(4)
        if kind == 0:
            content[at] = rng.randrange(256)
        elif kind == 1:
            del content[at : at + rng.randrange(1, 20)]
        elif kind == 2:
            content[at:at] = content[at : at + rng.randrange(1, 20)]
        else:
            content[at:at] = rng.choice([b"null", b"[" * 9, b"1e999", b"NaN", b'"', b"\\ud800", b"{}", b"-", b"\0"])
        if not content:
            break
    return bytes(content)


def answers(client: socket.socket, count: int) -> list[int]:
    """Return the statuses of several answers on one connection."""
    buffer, found = b"", []
    while len(found) < count:
        top, mark, rest = buffer.partition(b"\r\n\r\n")
        length = int(re.search(rb"content-length: (\d+)", top)[1]) if mark else 0  # type: ignore[index]
        if mark and len(rest) >= length:
            found.append(int(top.split(b" ")[1]))
            buffer = rest[length:]
            continue
        part = client.recv(1 << 16)
        if not part:
            raise ConnectionAbortedError(f"{len(found)} of {count} answers")
        buffer += part
    return found


def pipelines(port: int, count: int, rng: random.Random, bodies: list[bytes]) -> Counter[str]:
    """Hundreds of requests in one write, in one order of answers."""
    got: Counter[str] = Counter()
    for start in range(0, count, 300):
        many = min(300, count - start)
        kinds = [rng.randrange(3) for _ in range(many)]
        wanted = [(200, 404, 415)[kind] for kind in kinds]
        sent = [
            b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n",
            b"GET /elsewhere HTTP/1.1\r\nHost: localhost\r\n\r\n",
            b"POST /act HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\n\r\nabc",
        ]
        with connected(port) as client:
            client.sendall(b"".join(sent[kind] for kind in kinds))
            got["in order" if answers(client, many) == wanted else "out of order"] += many
    return got


def held(port: int, count: int, content: bytes, trickle: bytes, seconds: float) -> Counter[str]:
    """Open connections that send a part of a request, then single bytes; what they got until the time is over."""
    got: Counter[str] = Counter()
    with ExitStack() as stack:
        clients = []
        for _ in range(count):
            try:
                client = stack.enter_context(connected(port, 5))
                client.sendall(content)
                clients.append(client)
            except OSError as error:
                got[type(error).__name__] += 1
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            for client in clients if trickle else ():
                try:
                    client.send(trickle)
                except OSError:
                    continue
            time.sleep(0.25)
        for client in clients:
            client.setblocking(False)
            try:
                received = client.recv(1 << 16)
                got[" ".join(sorted(set(statuses(received)))) or "closed"] += 1
            except BlockingIOError:
                got["still open"] += 1
            except OSError as error:
                got[type(error).__name__] += 1
    return got


def slow_heads(port: int, count: int, rng: random.Random, bodies: list[bytes]) -> Counter[str]:
    return held(port, count, b"POST /act HTTP/1.1\r\nHost: localhost\r\nX: ", b"a", 4.5)


def slow_bodies(port: int, count: int, rng: random.Random, bodies: list[bytes]) -> Counter[str]:
    return held(port, count, head(b"Content-Length: 1000") + b"{", b" ", 4.5)


def silent(port: int, count: int, rng: random.Random, bodies: list[bytes]) -> Counter[str]:
    return held(port, count, b"", b"", 4.5)


def slow_readers(port: int, count: int, rng: random.Random, bodies: list[bytes]) -> Counter[str]:
    """Connections that ask for megabytes of answers and read none."""
    return held(port, count, b"GET /policy HTTP/1.1\r\nHost: localhost\r\n\r\n" * 300, b"", 8)


def one_byte_chunks(port: int, count: int, rng: random.Random, bodies: list[bytes]) -> Counter[str]:
    """A million chunks of one byte from one client."""
    return Counter([all_answers(port, head(b"Transfer-Encoding: chunked") + b"1\r\n \r\n" * 1_000_000)])


def large_bodies(port: int, count: int, rng: random.Random, bodies: list[bytes]) -> Counter[str]:
    """The largest bodies that are allowed, from 4 clients at a time."""
    one = b'{"observations": [' + b",".join([b"{}"] * 300_000) + b"]}"
    got: Counter[str] = Counter()

    def ask(number: int) -> None:
        for _ in range(number):
            got[all_answers(port, head(b"Content-Length: %d" % len(one), b"Connection: close") + one)] += 1

    workers = [threading.Thread(target=ask, args=(count // 4,)) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return got


def many_connections(port: int, count: int, rng: random.Random, bodies: list[bytes]) -> Counter[str]:
    """Connections that are opened at once; then each asks once."""
    got: Counter[str] = Counter()
    with ExitStack() as stack:
        clients = [stack.enter_context(connected(port, 60)) for _ in range(count)]
        for client in clients:
            client.sendall(post(bodies[0]))
        for client in clients:
            try:
                got[str(answer(client)[0])] += 1
            except OSError as error:
                got[type(error).__name__] += 1
    return got


ATTACKS: dict[str, tuple[Attack, float]] = {  # and its share of the requests of a piece, or (from 1) its number
    "none": (lambda port, count, rng, bodies: Counter({"": time.sleep(5) or 0}), 1),
    "1,000 connections at once": (many_connections, 1_000),
    "260 slow bodies": (slow_bodies, 260),
    "1,000 slow heads": (slow_heads, 1_000),
    "3,000 silent connections": (silent, 3_000),
    "100 slow readers": (slow_readers, 100),
    "a million chunks of one byte": (one_byte_chunks, 1),
    "bodies of 0.9 MB": (large_bodies, 40),
    "random bodies": (random_bodies, 0.55),
    "pipelines": (pipelines, 0.3),
    "hostile shapes": (shapes, 0.15),
}


# The study.


@contextmanager
def served(path: Path, *words: str) -> Iterator[tuple[subprocess.Popen[str], int]]:
    command = [sys.executable, "-m", "tidelog", "serve", str(path), "--port", "0", *words]
    with tempfile.TemporaryFile("w+") as errors:
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True) as server:
            try:
                line = server.stdout.readline()  # type: ignore[union-attr]
                yield server, int(re.search(r":(\d+)\n", line)[1])  # type: ignore[index]
            finally:
                server.kill()
        errors.seek(0)
        if text := errors.read():
            raise SystemExit(f"the server wrote errors:\n{text[-3000:]}")


def state_of(process: subprocess.Popen[str]) -> dict[str, float]:
    status = Path(f"/proc/{process.pid}/status").read_text()
    return {
        "resident_mb": round(int(re.search(r"VmRSS:\s+(\d+)", status)[1]) / 1024, 1),  # type: ignore[index]
        "threads": int(re.search(r"Threads:\s+(\d+)", status)[1]),  # type: ignore[index]
        "open_files": len(os.listdir(f"/proc/{process.pid}/fd")),
    }


def beside(port: int, attack: Attack, count: int, pairs: list[tuple[bytes, Any]], seed: int) -> dict[str, Any]:
    done = threading.Event()
    clients = [Good(port, pairs, seed + number, done) for number in range(CLIENTS)]
    for client in clients:
        client.start()
    begin = time.perf_counter()
    got = attack(port, count, random.Random(seed), [content.partition(b"\r\n\r\n")[2] for content, _ in pairs[:64]])
    seconds = time.perf_counter() - begin
    done.set()
    for client in clients:
        client.join()
    counts: Counter[str] = sum((client.counts for client in clients), Counter())
    latencies = [value for client in clients for value in client.latencies]
    random.Random(seed).shuffle(latencies)
    return {
        "got": +got, "good": +counts, "seconds": seconds, "good requests": len(latencies), "slowest": max(latencies),
        "latencies_ms": [round(1e3 * value, 2) for value in latencies[:LATENCIES]],
    }  # fmt: skip


def stop_under_load(path: Path, pairs: list[tuple[bytes, Any]], seed: int) -> Counter[str]:
    """What clients see of a stop: each asks on and on, over kept or new connections, until it cannot connect."""
    got: Counter[str] = Counter()
    with served(path) as (server, port):
        stopping = threading.Event()

        def ask(number: int) -> None:
            rng, client = random.Random(seed + number), None
            while True:
                content, expected = rng.choice(pairs)
                try:
                    client = client or connected(port)
                except ConnectionRefusedError:
                    break
                except OSError as error:
                    got[f"connecting: {type(error).__name__}"] += 1
                    break
                try:
                    client.sendall(content)
                    _, body, closes = answer(client)
                    got["answers"] += 1
                    got["differs"] += json.loads(body) != expected
                    if stopping.is_set():
                        got["answers after the signal"] += 1
                except ConnectionAbortedError:
                    got["closed without an answer"] += 1
                    closes = True
                except OSError as error:
                    got[type(error).__name__] += 1
                    closes = True
                if closes or number % 2:
                    client.close()
                    client = None

        workers = [threading.Thread(target=ask, args=(number,)) for number in range(CLIENTS_AT_STOP)]
        for worker in workers:
            worker.start()
        time.sleep(1)
        stopping.set()
        server.send_signal(signal.SIGTERM)
        begin = time.perf_counter()
        for worker in workers:
            worker.join()
        server.wait(30)
        got["stops"] += 1
        got["stops with status 0"] += server.returncode == 0
        got["stops within 3 s"] += time.perf_counter() - begin < 3
    return +got


def good_pairs(path: Path) -> list[tuple[bytes, Any]]:
    """Requests, and their answers by the NumPy runtime in this process."""
    from benchmarks.serving import observation
    from tidelog import runtime
    from tidelog.serving.endpoints import ActEndpoint

    endpoint, pairs = ActEndpoint(runtime.load(path), 1024), []  # type: ignore[arg-type]
    for number in range(200):
        body: dict[str, Any] = {"observation": observation(number)}
        if number % 20 == 19:
            body = {"observations": [observation(number + row) for row in range(16)]}
        content = json.dumps(body).encode()
        pairs.append((post(content), json.loads(json.dumps(endpoint.compute(endpoint.read(content))))))
    return pairs


def piece(path: Path, requests: int, seed: int) -> dict[str, Any]:
    pairs = good_pairs(path)
    found: dict[str, Any] = {"attacks": {}}
    with served(path, "--seconds", "2") as (server, port):
        beside(port, random_bodies, 300, pairs, seed)
        found["start"] = state_of(server)
        for name, (attack, share) in ATTACKS.items():
            count = int(share) if share >= 1 else int(share * requests)
            if share < 1 and "before" not in found:  # the few attacks that take memory were there
                found["before"] = state_of(server)
            found["attacks"][name] = one = beside(port, attack, count, pairs, seed)
            one["requests"] = count
            print(f"{name}: {dict(one['got'])}, good {dict(one['good'])}, "
                  f"p99 {np.quantile(one['latencies_ms'], 0.99):.0f} ms", flush=True)  # fmt: skip
        time.sleep(4)
        found["after"] = state_of(server)
        server.send_signal(signal.SIGTERM)
        server.wait(30)
    stops: Counter[str] = Counter()
    for number in range(STOPS):
        stops += stop_under_load(path, pairs, seed + number)
    found["stops"] = stops
    print(found["before"], found["after"], dict(stops), flush=True)
    return found


def add(results: dict[str, Any], found: dict[str, Any]) -> None:
    """Add a piece to the kept results."""
    for name, one in found["attacks"].items():
        kept = results["attacks"].setdefault(
            name, {"requests": 0, "seconds": 0.0, "got": {}, "good": {}, "latencies_ms": [], "slowest_ms": 0.0}
        )
        kept["requests"] += one["requests"]
        kept["seconds"] = round(kept["seconds"] + one["seconds"], 1)
        for part in ("got", "good"):
            kept[part] = dict(Counter(kept[part]) + Counter(one[part]))
        kept["latencies_ms"] = (kept["latencies_ms"] + one["latencies_ms"])[-LATENCIES:]
        kept["slowest_ms"] = max(kept["slowest_ms"], round(1e3 * one["slowest"], 1))
        kept["p50_ms"], kept["p99_ms"] = (
            round(float(np.quantile(kept["latencies_ms"], level)), 2) for level in (0.5, 0.99)
        )
        failed = sum(count for key, count in kept["good"].items() if key not in ("200", "connected again", "differs"))
        kept["good answered"] = round(kept["good"].get("200", 0) / (kept["good"].get("200", 0) + failed), 6)
    results["pieces"].append({when: found[when] for when in ("start", "before", "after")})
    results["stops"] = dict(Counter(results["stops"]) + Counter(found["stops"]))
    good = sum(one["good"].get("200", 0) for one in results["attacks"].values())
    results["requests"] = good + sum(one["requests"] for one in results["attacks"].values())
    results["differ from NumPy"] = sum(one["good"].get("differs", 0) for one in results["attacks"].values())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("--requests", type=int, default=50_000, help="hostile requests of the piece, about")
    parser.add_argument("--seed", type=int)
    options = parser.parse_args()
    from benchmarks.serving import made
    from tidelog.training.runs.record import this_machine

    empty: dict[str, Any] = {"attacks": {}, "pieces": [], "stops": {}}
    known = json.loads(RESULTS.read_text()) if RESULTS.exists() else empty
    with tempfile.TemporaryDirectory() as folder:
        seed = options.seed if options.seed is not None else len(known["pieces"])
        found = piece(made(Path(folder), "IQL, 25 actions"), options.requests, seed)
    results = known | {"command": COMMAND, "machine": this_machine()}
    add(results, found)
    RESULTS.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
