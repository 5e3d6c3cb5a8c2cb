"""`tidelog serve POLICY`: answer observations (or histories) over HTTP until it is stopped."""

from __future__ import annotations

import json
import shlex
import signal
import socket
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from tidelog._files import digest, write_file
from tidelog._text import printable
from tidelog.cli.flags import parse
from tidelog.cli.policies import WORDS, open_rule, open_simple_rule, with_rule
from tidelog.errors import ConfigError, ExportError, install
from tidelog.hub import local
from tidelog.runtime.load import load
from tidelog.runtime.policy import NumpyPolicy
from tidelog.runtime.rule import Rule
from tidelog.runtime.way_of_acting import DOES, BasePolicy, verdict_line

SWITCH = 0.0005  # seconds after which a thread that computes lets the server read: a stop resets who is not read yet
LONGEST_EXAMPLE = 80  # characters of an observation in the printed command; a longer one is in a file


@dataclass
class Serve:
    """Answer over HTTP: POST /act or /recommend, GET /policy and /health."""

    policy: tyro.conf.Positional[Annotated[str, "POLICY"]]
    """a saved policy, folder or .zip, as written by `tidelog export`, or hf://USER/NAME on the Hugging Face Hub"""
    rule: Annotated[str, "NAME"] | None = None
    """for a run folder: serve a simple rule, the best one of at most two questions (`--rule` alone, or `tree`) or the
    best single action (`constant`); of a recommender, lists by a rule that counts the events of its log, such as
    last-event-markov"""
    host: Annotated[str, "ADDRESS"] = "127.0.0.1"
    """the address to listen on; 0.0.0.0 accepts other machines"""
    port: int = 8000
    """0 uses any free port"""
    rows: int = 1024
    """largest number of observations or histories in a request"""
    body: int = 1_000_000
    """largest size of a request in bytes"""
    seconds: float = 10.0
    """time limit for a body, for an answer, for a connection between two requests, and for open requests when the
    server stops"""
    k: int = 1_000
    """largest number of items in a list"""
    scores: int = 2_000_000_000
    """largest number of scored items in a request: histories times the catalogue; diversity and reasons need more"""
    connections: int = 512
    """largest number of connections at a time; requests of one more are answered with 503"""
    allow_host: Annotated[tuple[str, ...], "NAME"] = ()
    """a name by which requests may call this server, besides its address (as in the Host header); may be repeated;
    default: localhost and its addresses, or any name with an address that other machines reach"""
    quiet: bool = False
    """print the address only, without the verdict, notes and an example"""


def run(words: list[str]) -> int:
    """Serve until a signal arrives; 0 after all open requests are answered."""
    options = parse(Serve, with_rule(words, others=True), "serve")
    if (
        min(options.rows, options.body, options.connections, options.k, options.scores) < 1
        or not 0 < options.seconds < 1e6
    ):
        raise ConfigError(
            "a limit is out of range",
            "--rows, --body, --k, --scores, --connections above 0, --seconds between 0 and 1,000,000",
        )
    app = _app()
    source = local(options.policy)
    if not Path(source).exists():
        raise ConfigError(f"{source} does not exist", "a policy written by `tidelog export`")
    policy: Any
    if options.rule is None:
        policy = load(source)
    elif options.rule in WORDS:
        policy = open_simple_rule(source, options.rule)
    else:
        policy = open_rule(source, options.rule)
    bounds = app.Bounds(options.body, options.rows, options.seconds, options.k, options.scores)
    answers = app.application(policy, bounds, _hosts(options))
    try:
        listening = socket.create_server((options.host, options.port))
    except (OSError, OverflowError) as error:
        raise ConfigError(f"--host {options.host} --port {options.port} cannot be opened: {error}") from error
    server = app.server(answers, options.connections, options.seconds)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: None)  # the server handles it, and raises it again at its end
    for note in policy.notes() if not options.quiet else ():
        print(printable(f"note: {note}"), flush=True)  # noqa: T201
    host, port = listening.getsockname()[:2]
    print(f"serving {options.policy} on http://{host}:{port}", flush=True)  # noqa: T201
    if not options.quiet:
        if isinstance(policy, BasePolicy):
            print(f"{verdict_line(policy.verdict)}\nthe policy {DOES[policy.acting or 'mode']}", flush=True)  # noqa: T201
        for line in _example(policy, f"http://{host}:{port}"):
            print(line, flush=True)  # noqa: T201
    sys.setswitchinterval(SWITCH)
    server.run(sockets=[listening])
    print("stopped; every open request was answered or timed out", flush=True)  # noqa: T201
    return 0


def _example(policy: Any, address: str) -> list[str]:
    """A ready command that asks the server; a long observation is in a temporary file."""
    from tidelog.serving.app import example, list_example

    body, path = (
        (example(policy), "act") if isinstance(policy, NumpyPolicy | Rule) else (list_example(policy), "recommend")
    )
    if body is None:
        return []
    text = json.dumps(body)
    data = shlex.quote(text)
    if len(text) > LONGEST_EXAMPLE:
        file = Path(tempfile.gettempdir()) / f"tidelog-observation-{digest(body)[:12]}.json"
        try:
            write_file(file, text.encode(), ConfigError)
        except ConfigError:  # a container that nothing can write to serves as well
            return [
                f"try: send {len(text):,} characters of JSON by POST to {address}/{path}; GET /policy says of what form"
            ]
        data = shlex.quote(f"@{file}")
    return [f"try: curl {address}/{path} -H 'Content-Type: application/json' -d {data}"]


def _hosts(options: Serve) -> set[str] | None:
    """The names of the server, or None for any."""
    for name in options.allow_host:
        if "*" in name.removeprefix("*."):
            raise ConfigError(f"--allow-host {name}: a * stands for the first part of a name", fix="use *.example.org")
    if options.host not in {"localhost", "127.0.0.1", "::1"} and not options.allow_host:
        return None
    own = {"localhost", "127.0.0.1", "[::1]"}
    return {*own, options.host.lower(), *(name.lower() for name in options.allow_host)}


def _app() -> Any:
    try:
        from tidelog.serving import app
    except ModuleNotFoundError as error:
        raise ExportError(f"serving needs an extra ({error})", fix=install("serve")) from error
    return app
