"""How fast a saved policy starts, acts, and answers over loopback.

The client runs on the same machine as the server. A request is one observation by name, or a batch of them. Artefacts
are made in the folder that is named, and used again if they stand there.
"""

import json
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np

from benchmarks.keep import keep
from tidelog import BCQ, IQL, runtime
from tidelog.data.statistics import Scaler
from tidelog.policies.export import export, random_observations
from tidelog.policies.policy import Policy
from tidelog.runtime.artefact import Saved
from tidelog.types import Codes, Continuous, Discrete, Spec, Vector

COMMAND = "python -m benchmarks serving FOLDER"
NAMES = tuple(f"feature_{i}" for i in range(20))
WORDS = tuple("abcdefgh")
SEEN = {"numeric": Vector(20, NAMES), "categorical": Codes((8,), ("ward",), (WORDS,))}
BOX = Continuous((-1.0,) * 3, (1.0,) * 3)
POLICIES: dict[str, tuple[Any, ...]] = {  # at the sizes of the papers; requests, and rows of a batch
    "IQL, 25 actions": (IQL(), Discrete(25), 1_000, 256),
    "BCQ, 3 dimensions, 100 candidates": (BCQ(), BOX, 200, 16),
}
BATCHES, STARTS = 40, 11


def made(place: Path, name: str) -> Path:
    """An artefact of an untrained policy."""
    path = place / f"{name.split(',')[0]}.zip"
    if path.exists():
        return path
    algorithm, space, _, _ = POLICIES[name]
    spec = Spec(SEEN, space)
    params = algorithm.policy_params(algorithm.init(spec, jax.random.key(0), 1))
    scaler = Scaler({"numeric": np.full(20, 0.5, np.float32)}, {"numeric": np.full(20, 2.0, np.float32)})
    export(Policy(algorithm, spec, scaler, params), path)
    return path


def observation(seed: int) -> dict:
    """One observation as a client sends it."""
    generator = np.random.default_rng(seed)
    numbers = dict(zip(NAMES, generator.normal(0, 2, 20).round(3).tolist(), strict=True))
    return numbers | {"ward": WORDS[generator.integers(8)]}


def request(body: dict) -> bytes:
    content = json.dumps(body).encode()
    head = b"POST /act HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    return b"%bContent-Length: %d\r\n\r\n%b" % (head, len(content), content)


def asked(client: socket.socket, content: bytes) -> float:
    """Seconds until the whole answer is there."""
    begin, found = time.perf_counter(), b""
    client.sendall(content)
    while b"\r\n\r\n" not in found:
        found += client.recv(1 << 16)
    head, _, rest = found.partition(b"\r\n\r\n")
    length = int(re.search(rb"content-length: (\d+)", head)[1])
    while len(rest) < length:
        rest += client.recv(1 << 20)
    if b" 200 " not in head.split(b"\r\n")[0]:
        raise RuntimeError(rest.decode())
    return time.perf_counter() - begin


def spread(seconds: list[float]) -> dict:
    return {"median_ms": 1e3 * float(np.median(seconds)), "p99_ms": 1e3 * float(np.quantile(seconds, 0.99))}


def one_after_another(port: int, content: bytes, count: int) -> list[float]:
    with socket.create_connection(("127.0.0.1", port)) as client:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return [asked(client, content) for _ in range(count + count // 10)][count // 10 :]


def served(path: Path, requests: int, rows: int) -> dict:
    """What a client sees of one server process."""
    command = [sys.executable, "-m", "tidelog", "serve", str(path), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        port = int(re.search(r":(\d+)\n", server.stdout.readline())[1])
        try:
            single = request({"observation": observation(0)})
            batch = request({"observations": [observation(i) for i in range(rows)]})
            alone = one_after_another(port, single, requests)
            many = one_after_another(port, batch, BATCHES)
        finally:
            server.send_signal(signal.SIGTERM)
            server.wait()
    return {
        "single": {**spread(alone), "per_second": len(alone) / sum(alone)},
        f"batch of {rows}": {**spread(many), "rows_per_second": rows * len(many) / sum(many)},
    }


def in_process(path: Path, requests: int, batch: int) -> dict:
    """The same without HTTP."""
    policy = runtime.load(path)
    found = {}
    for rows, count in ((1, requests), (batch, BATCHES)):
        seen = random_observations(_Bare(policy), rows)
        times = []
        for _ in range(count + 5):
            begin = time.perf_counter()
            policy(seen)
            times.append(time.perf_counter() - begin)
        found[f"{rows} row{'s' if rows > 1 else ''}"] = spread(times[5:])
    return found


class _Bare:
    def __init__(self, policy: runtime.NumpyPolicy) -> None:
        self.spec, self.scaler = policy.spec, Scaler()


def start(path: Path) -> dict:
    """Seconds of whole processes: Python alone, NumPy and safetensors imported, a policy loaded and asked once."""
    scripts = {
        "python": "pass",
        "numpy and safetensors": "import numpy, safetensors.numpy",
        "loaded and acted": "import sys, json; from tidelog import runtime; "
        "runtime.load(sys.argv[1])(json.loads(sys.argv[2]))",
    }
    found = {}
    for name, script in scripts.items():
        times = []
        for _ in range(STARTS):
            begin = time.perf_counter()
            subprocess.run([sys.executable, "-c", script, str(path), json.dumps(observation(0))], check=True)
            times.append(time.perf_counter() - begin)
        found[name] = {"median_ms": 1e3 * float(np.median(times)), "smallest_ms": 1e3 * min(times)}
    return found


def study(place: Path, /) -> dict:
    paths, cases = {name: made(place, name) for name in POLICIES}, {}
    for name, path in paths.items():
        size = POLICIES[name][2:]
        speed = {"start": start(path), "in process": in_process(path, *size), "http": served(path, *size)}
        cases[name] = {"parity": Saved(path).manifest["parity"], **speed}
    content = {"batches": BATCHES, "cases": cases}
    keep("serving", COMMAND, content)
    return content
