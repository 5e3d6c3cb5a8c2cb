"""Training in several processes: the flags, and the process that starts ranks on this machine and watches them.

A rank is a process of its own, because JAX ends one whose connection to another is lost: the process that started it
says what happened and ends with a code of tidelog. With `--processes N` alone it starts all ranks, and starts them
again from the last checkpoint if one is lost.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from tidelog.cli.flags import peek
from tidelog.errors import ConfigError
from tidelog.training.runs.processes import HEARTBEAT_SECONDS, Processes, connect_processes, connected

COMMANDS = ("train", "resume")
FLAGS = ("--coordinator", "--processes", "--rank", "--connect-seconds")
AUTO = "auto"
RANKED = "TIDELOG_RANK"  # an environment variable of ranks, which a process started that watches them
MOST_STARTS = 3  # of all ranks from one checkpoint
POLL_SECONDS = 0.1
END_SECONDS = 2 * HEARTBEAT_SECONDS + 20  # for the other ranks to end after one has ended
OK, FAILED = 0, 4


@dataclass(kw_only=True)
class ProcessFlags:
    """One training in several processes that share each batch."""

    processes: int | None = None
    """number of processes that train together; without --coordinator all are started on this machine"""
    coordinator: str | None = None
    """HOST:PORT of rank 0, which all processes reach; "auto" asks Slurm, Open MPI or Kubernetes for all three"""
    rank: int | None = None
    """number of this process, from 0"""
    connect_seconds: float = 300.0
    """wait so long for the other processes"""


def connect(options: Any) -> Processes:
    """Connect this process to the others that the flags name; the ranks after 0 print no results."""
    if options.coordinator is None and options.processes is None and options.rank is None:
        return connected()
    if RANKED not in os.environ:
        raise ConfigError("--processes, --coordinator and --rank are flags of the command line. fix: name them there")
    threading.Thread(target=_end_with_starter, daemon=True).start()
    named = (
        (None, None, None) if options.coordinator == AUTO else (options.coordinator, options.processes, options.rank)
    )
    group = connect_processes(*named, seconds=options.connect_seconds)
    shown = os.devnull if group.rank else os.dup(1)
    sys.stdout = open(shown, "w", encoding="utf-8", buffering=1)  # noqa: SIM115 (until the process ends)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # Gloo, which adds gradients up on processors, prints to it
    return group


def leave(code: int) -> None:
    """End a rank at once after it lost another one: the end of JAX would wait for it."""
    sys.stdout.flush()
    sys.stderr.flush()
    if RANKED in os.environ:
        os._exit(code)


def _end_with_starter() -> None:
    """Save and end when the process that started this one has ended."""
    while os.read(0, 1):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


def are_named(words: Sequence[str]) -> bool:
    """Whether these words start several processes, and this is not one of them."""
    asked = any(word.split("=")[0] in FLAGS[:3] for word in words)
    command = next((word for word in words if word in COMMANDS), None)
    return asked and command is not None and RANKED not in os.environ and not {"-h", "--help"} & {*words}


def run_ranks(words: list[str]) -> int:
    """Run a command as one rank, or as all ranks on this machine, and return its exit code."""
    coordinator, count, rank = (peek(words, flag) for flag in FLAGS[:3])
    if coordinator != AUTO and not ((count or "").isdigit() and int(count or 0)):
        raise ConfigError(f"--processes {count}: expected a number of processes. fix: use --processes 2")
    if (coordinator in (None, AUTO)) != (rank is None):
        raise ConfigError(
            f"--coordinator {coordinator}, --rank {rank}: expected both or none of them. fix: name both, or use "
            "--processes alone for processes of this machine, or --coordinator auto"
        )
    command = next(word for word in words if word in COMMANDS)
    folder = Path(peek(words, "--out") or "") if command == "train" else _run_of(words)
    if command == "train" and peek(words, "--out") is None:
        raise ConfigError("several processes write one run folder, which all must know. fix: name it with --out FOLDER")
    with _Ranks() as ranks:
        if coordinator is not None:
            ranks.start([words])
            return _exit_code(ranks.wait(), folder, rank)
        return _restarted(ranks, words, int(count or 0), folder)


def _restarted(ranks: _Ranks, words: list[str], count: int, folder: Path) -> int:
    """Run all ranks; start them again from the last checkpoint while there are newer ones."""
    command, starts, last = words, 0, _last_checkpoint(folder)
    while True:
        address = ranks.address()
        ranks.start([[*command, "--coordinator", address, "--rank", str(rank)] for rank in range(count)])
        codes = ranks.wait()
        newest = _last_checkpoint(folder)
        starts = starts + 1 if newest == last else 1
        last = newest
        if ranks.received is not None or all(code >= 0 for code in codes) or starts > MOST_STARTS:
            return _exit_code(codes, folder, None)
        lost = ", ".join(f"rank {rank} by signal {-code}" for rank, code in enumerate(codes) if code < 0)
        where = "the beginning" if newest is None else f"update {newest:,}"
        _say(f"processes were ended ({lost}); all {count} start again from {where}")
        command = _resumed(words, count, folder, newest is not None)


def _resumed(words: list[str], count: int, folder: Path, saved: bool) -> list[str]:
    """The words that continue a command: `resume`, or the same again if nothing was saved."""
    if not saved:
        return [*words, "--overwrite"] if "train" in words and (folder / "run.json").is_file() else words
    kept = [word for word in words if word in ("--quiet", "--json")]
    for flag in ("--plugin", "--connect-seconds"):
        value = peek(words, flag)
        kept += [] if value is None else [flag, value]
    return ["resume", str(folder), "--processes", str(count), *kept]


def _exit_code(codes: list[int], folder: Path, rank: str | None) -> int:
    """The exit code of ranks; say what JAX, or a signal, has ended."""
    if all(code >= 0 for code in codes):
        return next((code for code in codes if code != OK), OK)
    ended = ", ".join(
        f"{f'rank {rank or number}' if rank != AUTO else 'this rank'} was ended by signal {-code}"
        for number, code in enumerate(codes)
        if code < 0
    )
    lost = " (JAX ends a process that has lost another one)" if -signal.SIGABRT in codes else ""
    again = f"with `tidelog resume {folder}` and the same flags; the run continues from its last checkpoint"
    if _last_checkpoint(folder) is None:
        again = "with the same command; nothing is saved yet, and all must reach each other"
    _say(f"{ended}{lost}. fix: start all processes again {again}")
    return FAILED


def _say(text: str) -> None:
    print(f"tidelog: {text}", file=sys.stderr, flush=True)  # noqa: T201


def _run_of(words: list[str]) -> Path:
    """The run folder among the words of `tidelog resume`."""
    rest = words[words.index("resume") + 1 :]
    return Path(next((word for word in rest if (Path(word) / "run.json").is_file()), rest[0] if rest else ""))


def _last_checkpoint(folder: Path) -> int | None:
    names = [path.parent.name for path in folder.glob("checkpoints/*/manifest.json")]
    return max((int(name) for name in names if name.isdigit()), default=None)


class _Ranks:
    """Processes of this machine that train together, each a command; signals go on to all of them."""

    def __init__(self) -> None:
        self.received: int | None = None
        self._running: list[subprocess.Popen[bytes]] = []
        self._before: dict[int, Any] = {}

    def __enter__(self) -> _Ranks:
        self._before = {number: signal.signal(number, self._pass_on) for number in (signal.SIGINT, signal.SIGTERM)}
        return self

    def __exit__(self, *error: object) -> None:
        for one in self._running:
            one.kill()
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _pass_on(self, number: int, frame: FrameType | None) -> None:
        self.received = number
        for one in self._running:
            with contextlib.suppress(ProcessLookupError):
                one.send_signal(number)

    def address(self) -> str:
        """Return HOST:PORT for rank 0, with a port on which nothing listens."""
        with socket.socket() as one:
            one.bind(("127.0.0.1", 0))
            return f"127.0.0.1:{one.getsockname()[1]}"

    def start(self, commands: list[list[str]]) -> None:
        """Start a process for each command; it ends when this one has ended."""
        environment = {"TF_CPP_MIN_LOG_LEVEL": "3", **os.environ, RANKED: "1"}
        environment["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
        self._running = [
            subprocess.Popen(  # noqa: S603 (a command of tidelog)
                [sys.executable, "-m", "tidelog", *words],
                stdin=subprocess.PIPE,  # its end tells the process that this one has ended
                env=environment,
                start_new_session=True,  # Ctrl-C goes through `_pass_on`
            )
            for words in commands
        ]

    def wait(self) -> list[int]:
        """Return the exit codes of all, negative for signals; the rest is killed some time after one has failed."""
        until: float | None = None
        while any(one.poll() is None for one in self._running):
            if until is None and any(one.returncode not in (None, OK) for one in self._running):
                until = time.monotonic() + END_SECONDS
            if until is not None and time.monotonic() > until:
                for one in self._running:
                    one.kill()
            time.sleep(POLL_SECONDS)
        codes = [one.wait() for one in self._running]
        self._running = []
        return codes
