"""`tidelog serve POLICY`: answers observations (or histories) over HTTP until it is told to stop."""

from __future__ import annotations

import importlib
import signal
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import tyro

from tidelog.cli.flags import parse
from tidelog.errors import ConfigError, ExportError
from tidelog.runtime.loading import load
from tidelog.runtime.session import load_onnx


@dataclass
class Serve:
    """Answer over HTTP: POST /act (or /recommend), GET /policy, /health and /metrics. Stops gracefully at SIGTERM."""

    policy: tyro.conf.Positional[str]
    """a saved policy, folder or .zip, as `tidelog export` writes it"""
    host: str = "127.0.0.1"
    """the address to listen on; others than this machine reach it on 0.0.0.0"""
    port: int = 8000
    """0 takes any that is free"""
    backend: Literal["numpy", "onnx"] = "numpy"
    """what computes: NumPy, or onnxruntime where the policy holds an ONNX file"""
    rows: int = 1024
    """observations or histories that one request may hold"""
    body: int = 1_000_000
    """bytes that one request may have"""
    seconds: float = 10.0
    """how long headers and a body may take to arrive, an answer to be computed, open requests to end when it stops"""
    connections: int = 256
    """connections at a time; others are answered 503"""


def run(words: list[str]) -> int:
    """Serve until a signal comes; 0 when all open requests were answered."""
    options = parse(Serve, words, "serve")
    if min(options.rows, options.body, options.connections) < 1 or not 0 < options.seconds < 1e6:
        raise ConfigError("--rows, --body and --connections must be larger than 0, --seconds between 0 and 1,000,000")
    if not Path(options.policy).exists():
        raise ConfigError(f"{options.policy} does not exist: give a saved policy, as `tidelog export` writes it")
    uvicorn, app, protocol = _tools()
    policy = {"numpy": load, "onnx": load_onnx}[options.backend](options.policy)
    bounds = app.Bounds(options.body, options.rows, options.seconds)
    place = _listening(options.host, options.port)
    config = uvicorn.Config(
        app.application(policy, bounds),
        log_level="warning",
        access_log=False,
        http=protocol.patient_for(options.seconds),
        limit_concurrency=options.connections,
        timeout_graceful_shutdown=max(1, round(options.seconds)),
    )
    for word in (signal.SIGINT, signal.SIGTERM):
        signal.signal(word, _already_stopped)
    host, port = place.getsockname()[:2]
    print(f"serving {options.policy} with {options.backend} on http://{host}:{port}", flush=True)  # noqa: T201
    uvicorn.Server(config).run(sockets=[place])
    print("stopped; every open request was answered or had its time", flush=True)  # noqa: T201
    return 0


def _tools() -> tuple[Any, Any, Any]:
    try:
        from tidelog.serving import app, protocol

        return importlib.import_module("uvicorn"), app, protocol
    except ModuleNotFoundError as error:
        raise ExportError(f"serving needs an extra: pip install 'tidelog[serve]' ({error})") from error


def _listening(host: str, port: int) -> socket.socket:
    try:
        return socket.create_server((host, port), backlog=512)
    except (OSError, OverflowError) as error:
        raise ConfigError(f"--host {host} --port {port} cannot be listened on: {error}") from error


def _already_stopped(number: int, frame: Any) -> None:
    """The server has handled the signal; it is raised again when the server has ended."""
