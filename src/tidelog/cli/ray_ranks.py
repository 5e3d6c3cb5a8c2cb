"""The ranks of one training on the nodes of a Ray cluster: an actor for each, which starts the rank and follows it.

A rank is a process of its own below its actor, because JAX ends one whose connection to another is lost. Text alone
travels: the words of a command to an actor; what the rank prints, and its exit code, back.
"""

from __future__ import annotations

import codecs
import contextlib
import os
import platform
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import msgspec

from tidelog.disk import not_written
from tidelog.errors import ConfigError
from tidelog.ray_cluster import ADDRESS, cause_of_loss, connect, installed, last_line, refuse_other_versions
from tidelog.schema import decode
from tidelog.training.runs.processes import HEARTBEAT_SECONDS

RANKED = "TIDELOG_RANK"  # an environment variable of ranks, which a process started that watches them
FOLLOW_SECONDS = 1.0
END_SECONDS = 2 * HEARTBEAT_SECONDS + 20  # for the other ranks to end after one has ended
PROBE = ".tidelog-"  # beginning of a file's name
INTERRUPTED, TERMINATED = 130, 143  # exit codes after Ctrl-C and after SIGTERM
LOST = -int(signal.SIGKILL)  # the exit code of a rank whose actor is lost


class About(msgspec.Struct):
    """What an actor says of itself."""

    host: str
    address: str
    versions: dict[str, str]
    missing: list[str]  # folders and files that its node does not see


class News(msgspec.Struct):
    """What a rank has printed since the last question, and its exit code once it has ended."""

    out: str
    error: str
    code: int | None


class Rank:
    """The actor of a rank; `interrupt` answers while `follow` waits."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._decoders: list[Any] = []

    def describe(self, packages: list[str], expected: list[str]) -> str:
        """Return an `About`: the versions of some packages, and which of the paths its node does not see."""
        import ray

        missing = [path for path in expected if not Path(path).exists()]
        about = About(platform.node(), ray.util.get_node_ip_address(), installed(packages), missing)
        return msgspec.json.encode(about).decode()

    def free_port(self, address: str) -> int:
        """Return a port of this node on which nothing listens."""
        with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as one:
            one.bind((address, 0))
            return int(one.getsockname()[1])

    def start(self, words: list[str], folder: str) -> None:
        """Start a command of tidelog in a folder; it ends when this actor has ended."""
        environment = {"TF_CPP_MIN_LOG_LEVEL": "3", **os.environ, RANKED: "1", "JAX_PLATFORMS": "cpu"}
        environment["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
        self._decoders = [codecs.getincrementaldecoder("utf-8")("replace") for _ in range(2)]
        self._process = subprocess.Popen(  # noqa: S603 (a command of tidelog)
            [sys.executable, "-m", "tidelog", *words],
            stdin=subprocess.PIPE,  # its end tells the process that this one has ended
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
            cwd=folder,
            start_new_session=True,
        )

    def follow(self, seconds: float) -> str:
        """Return `News`, after at most some seconds."""
        process = self._process
        if process is None or process.stdout is None or process.stderr is None:
            return msgspec.json.encode(News("", "", None)).decode()
        until, read = time.monotonic() + seconds, [b"", b""]
        pipes: list[IO[bytes]] = [process.stdout, process.stderr]
        while True:
            ready, _, _ = select.select(pipes, [], [], max(0.0, until - time.monotonic()))
            found = [os.read(pipe.fileno(), 1 << 16) if pipe in ready else b"" for pipe in pipes]
            read = [before + more for before, more in zip(read, found, strict=True)]
            if not any(found):  # nothing more now, or both are at their ends
                out, error = (decoder.decode(text) for decoder, text in zip(self._decoders, read, strict=True))
                code = process.wait() if len(ready) == len(pipes) else None
                if code is not None and process.stdin is not None:
                    for pipe in (*pipes, process.stdin):
                        pipe.close()
                return msgspec.json.encode(News(out, error, code)).decode()

    def interrupt(self) -> None:
        """Ask the rank to save and end: by SIGTERM, as processes of Ray ignore SIGINT, and those below them too."""
        if self._process is not None:
            self._process.terminate()


class RayRanks:
    """The ranks of one training in a Ray cluster, each with `cpus` of its processors, on as many nodes as there are.

    The cluster is that of RAY_ADDRESS; without it Ray is started on this machine, for this process only. All nodes must
    see the same `run` folder, and the `logs`. ConfigError as `ray_cluster.connect`.
    """

    def __init__(
        self, count: int, cpus: int, seconds: float, run: Path, logs: list[Path], insecure: bool = False
    ) -> None:
        from tidelog.training.runs.record import PACKAGES

        self.received: int | None = None
        self._count, self._cpus, self._seconds, self._packages = count, cpus, seconds, list(PACKAGES)
        self._run, self._logs = run.absolute(), [log.absolute() for log in logs]
        self._alone = os.environ.get(ADDRESS, "") in ("", "local")
        self._ray, self._own = connect(count * cpus if self._alone else None, insecure)
        self._placed: Any = None
        self._actors: list[Any] = []
        self._hosts: list[str] = []
        self._before: dict[int, Any] = {}

    def __enter__(self) -> RayRanks:
        self._before = {number: signal.signal(number, self._keep) for number in (signal.SIGINT, signal.SIGTERM)}
        return self

    def __exit__(self, *error: object) -> None:
        self._remove()
        if self._own:
            self._ray.shutdown()
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _keep(self, number: int, frame: Any) -> None:
        self.received = number  # `wait` passes it on: Ray is not called while it may be at work

    def address(self) -> str:
        """Place an actor for each rank, and return HOST:PORT for rank 0; ConfigError if nodes cannot take them."""
        self._remove()
        util = self._ray.util
        total = self._ray.cluster_resources().get("CPU", 0)
        never = self._alone and total < self._count * self._cpus  # nothing is added to this machine's own Ray
        self._placed = util.placement_group([{"CPU": self._cpus}] * self._count, strategy="SPREAD")
        if never or not self._placed.wait(self._seconds):
            waited = "" if never else f" within {self._seconds:g} seconds"
            raise ConfigError(
                f"{self._count} processes of {self._cpus} processor(s) found no place{waited} in a Ray cluster of "
                f"{total:g} processor(s). fix: use fewer processes or --process-cpus, add nodes, or wait longer "
                "(--connect-seconds)"
            )
        strategy = util.scheduling_strategies.PlacementGroupSchedulingStrategy
        self._actors = [
            self._ray.remote(
                num_cpus=self._cpus,
                max_restarts=0,
                max_task_retries=0,
                max_concurrency=2,
                scheduling_strategy=strategy(self._placed, placement_group_bundle_index=rank),
            )(Rank).remote()
            for rank in range(self._count)
        ]
        with _probe(self._run) as probe:
            expected = [probe, os.getcwd(), *map(str, self._logs)]
            abouts = [self._about(actor, expected) for actor in self._actors]
        self._hosts = [one.host for one in abouts]
        first = abouts[0].address
        port = self._ray.get(self._actors[0].free_port.remote(first))
        return f"[{first}]:{port}" if ":" in first else f"{first}:{port}"

    def _about(self, actor: Any, expected: list[str]) -> About:
        try:
            text = self._ray.get(actor.describe.remote(self._packages, expected), timeout=self._seconds)
        except self._ray.exceptions.RayError as error:
            raise ConfigError(
                f"a process on the Ray cluster cannot start: {last_line(error)}. fix: install the same tidelog and Ray "
                "on all nodes"
            ) from error
        about = decode(text, About, "the answer of a node")
        refuse_other_versions(about.host, about.versions, self._packages)
        if about.missing:
            missing = [str(Path(one).parent) if Path(one).name.startswith(PROBE) else one for one in about.missing]
            raise ConfigError(
                f"node {about.host} does not see {', '.join(missing)} as this process does. fix: use folders that all "
                "nodes share under the same path, for the run, the log and the working directory"
            )
        return about

    def start(self, commands: list[list[str]]) -> None:
        """Start a command in each actor."""
        self._ray.get(
            [actor.start.remote(words, os.getcwd()) for actor, words in zip(self._actors, commands, strict=True)]
        )

    def wait(self) -> list[int]:
        """Print what the ranks print, and return the exit codes of all; a lost one counts as killed.

        Ranks that go on some time after another one has failed are killed.
        """
        codes: dict[int, int] = {}
        asked = {self._actors[rank].follow.remote(FOLLOW_SECONDS): rank for rank in range(self._count)}
        until, interrupted = float("inf"), False
        while asked:
            if self.received is not None and not interrupted:
                interrupted = True
                for rank in asked.values():
                    self._actors[rank].interrupt.remote()
            if time.monotonic() > until:
                for rank in asked.values():
                    self._ray.kill(self._actors[rank])
            done, _ = self._ray.wait(list(asked), num_returns=1, timeout=FOLLOW_SECONDS)
            for reference in done:
                rank = asked.pop(reference)
                code = self._news(rank, reference)
                if code is None:
                    asked[self._actors[rank].follow.remote(FOLLOW_SECONDS)] = rank
                    continue
                codes[rank] = code
                if code != 0:
                    until = min(until, time.monotonic() + END_SECONDS)
        by_ctrl_c = {TERMINATED: INTERRUPTED} if self.received == signal.SIGINT else {}
        return [by_ctrl_c.get(codes[rank], codes[rank]) for rank in range(self._count)]

    def _news(self, rank: int, reference: Any) -> int | None:
        try:
            news = decode(self._ray.get(reference), News, "the news of a rank")
        except self._ray.exceptions.RayError as error:
            print(f"tidelog: rank {rank} on {self._hosts[rank]}: {cause_of_loss(error)}", file=sys.stderr)  # noqa: T201
            return LOST
        for text, stream in ((news.out, sys.stdout), (news.error, sys.stderr)):
            stream.write(text)
            stream.flush()
        return news.code

    def _remove(self) -> None:
        """End all actors, and with them their ranks."""
        for actor in self._actors:
            self._ray.kill(actor)
        self._actors = []
        if self._placed is not None:
            self._ray.util.remove_placement_group(self._placed)
            self._placed = None


@contextlib.contextmanager
def _probe(folder: Path) -> Iterator[str]:
    """A file in a folder, or in the nearest one above, by which a node shows that it sees the same folder."""
    nearest = next(one for one in (folder, *folder.parents) if one.is_dir())
    try:
        file = tempfile.NamedTemporaryFile(prefix=PROBE, dir=nearest)  # noqa: SIM115 (an error of what follows is not its own)
    except OSError as problem:
        raise not_written(nearest, problem, ConfigError) from problem
    with file:
        yield file.name
