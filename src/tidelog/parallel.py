"""Functions in other processes: of this machine, or of a Ray cluster. Nothing else starts a pool, or imports Ray.

A process imports this module before it imports JAX, which sizes its threads by the cores that it may use. It keeps to
cores of its own, prints no signal's traceback, and ends when the process that started it has ended.
"""

from __future__ import annotations

import contextlib
import ipaddress
import multiprocessing
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable
from concurrent.futures import Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.context import SpawnContext, SpawnProcess
from types import ModuleType
from typing import Any, Protocol

from tidelog.errors import ConfigError, import_extra

SAVE_SECONDS = 30.0  # for functions to save after they are asked to end
MOST_CALLS = 100  # of one process: the programs that it has compiled stay in its memory
RETRIES = 3  # by Ray, of a function whose process or node is lost
ADDRESS, LOOPBACK_ONLY = "RAY_ADDRESS", "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
CONNECT_SECONDS, PROBE_SECONDS = 10.0, 60.0
STORE_BYTES = 100_000_000  # of Ray's object store, through which nothing large passes
JOBS = "`ray job submit --address http://HEAD:8265 -- tidelog ...`, which runs the command in the cluster"
PROBE = """
import sys
import ray
from ray._raylet import GcsClient
try:
    GcsClient(address=sys.argv[1]).get_all_node_info()
    print("open")
except ray.exceptions.AuthenticationError:
    print("closed")
"""
_own_cores: list[socket.socket] = []  # what says to others which cores this process has


class Pool(Protocol):
    """Where functions run, several at once."""

    def free(self) -> bool:
        """Whether another function can start now."""

    def submit(self, function: Callable[..., Any], *arguments: Any) -> Future[Any]:
        """Start a function that other processes can import; what it raised, or how it was lost, is in the future."""

    def cancel(self, future: Future[Any]) -> None:
        """End a function by force, even one that does not react."""

    def close(self) -> None:
        """Ask all functions to save and end, as by Ctrl-C, then end them by force."""


def pool_of(on: str | Pool, cpus: int = 1, workers: int | None = None, insecure: bool = False) -> Pool:
    """Return the pool of a name, or the pool itself: "here", this machine, or "ray", a Ray cluster.

    Each function has `cpus` processor cores; `workers` are at work at once, by default as many as there are cores for.
    ConfigError for another name, and for more cores than there are.
    """
    for name, count in {"cpus": cpus, "workers": workers}.items():
        if count is not None and (isinstance(count, bool) or not isinstance(count, int) or count < 1):
            raise ConfigError(f"{name} = {count}", "a whole number of at least 1")
    if not isinstance(on, str):
        return on
    if on == "ray":
        return RayTasks(cpus, workers, insecure)
    if on.startswith("ray:"):
        raise ConfigError(
            "on begins with 'ray:'",
            "'ray'; the environment variable RAY_ADDRESS names the cluster, and a client outside of it "
            "(ray://) loses its work with its connection",
            f"run the command in the cluster: {JOBS}",
        )
    if on != "here":
        raise ConfigError(f"on = {on!r}", "'here', this machine, or 'ray', a Ray cluster", "drop on")
    if insecure:
        raise ConfigError("insecure is for clusters, and on = 'here' is this machine", fix="drop insecure")
    return ProcessPool(cpus, workers)


def ending(error: BaseException | None) -> str:
    """Say in a few words how a function ended."""
    if isinstance(error, BrokenProcessPool) or type(error).__name__ in ("WorkerCrashedError", "LocalRayletDiedError"):
        return "its process was killed"
    if isinstance(error, KeyboardInterrupt | SystemExit) or type(error).__name__ == "TaskCancelledError":
        return "ended by a signal"
    return "ended" if error is None else f"ended with {type(error).__name__}: {_last_line(error)}"


def _keep_to_own_cores(cpus: int) -> None:
    """Keep this process to `cpus` cores that no other process of a pool on this machine has; ConfigError for too many.

    A name of the machine's own, which the system frees when the process ends, says that a core is taken.
    """
    if _own_cores or not hasattr(os, "sched_setaffinity"):
        return
    cores = sorted(os.sched_getaffinity(0))
    groups = [cores[first : first + cpus] for first in range(0, len(cores) - cpus + 1, cpus)]
    if not groups:
        host, most = socket.gethostname(), len(cores)
        raise ConfigError(f"cpus = {cpus}: a process on node {host} may use {most} core(s)", fix=f"use cpus={most}")
    name = socket.socket(socket.AF_UNIX)
    _own_cores.append(name)
    for group in groups:
        with contextlib.suppress(OSError):  # taken
            name.bind(f"\0tidelog-core-{group[0]}")
            break
    else:
        group = random.choice(groups)  # more processes than cores: some share
    os.sched_setaffinity(0, group)


# This machine.


class _Process(SpawnProcess):
    """A spawned process that does not run the main module of the program again, which may begin another pool there."""

    def start(self) -> None:
        """Start the process."""
        main = sys.modules["__main__"]
        sys.modules["__main__"] = ModuleType("__main__")
        try:
            super().start()
        finally:
            sys.modules["__main__"] = main


class _Spawn(SpawnContext):
    Process = _Process


def _begin(cpus: int) -> None:
    """Begin a process of the pool."""
    os.environ["JAX_PLATFORMS"] = "cpu"
    if hasattr(os, "setsid"):
        os.setsid()  # Ctrl-C is for the process that began the pool, which then asks its functions to save
    _keep_to_own_cores(cpus)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """Wait for the end of the process that began this one, then ask this one to save and end."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
    while True:  # the first signal ends the function, the next one the process
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(1.0)


class _Worker:
    """A process of this machine, which starts with its first function; another one follows when it is lost."""

    def __init__(self, cpus: int) -> None:
        self._executor = ProcessPoolExecutor(1, _Spawn(), _begin, (cpus,))
        self._process: Future[int] | None = None
        self.calls = 0
        self.future: Future[Any] | None = None  # of the last function

    @property
    def busy(self) -> bool:
        """Whether a function of it goes on."""
        return self.future is not None and not self.future.done()

    @property
    def lost(self) -> bool:
        """Whether its process has ended without being asked to."""
        return self.future is not None and self.future.done() and isinstance(self.future.exception(), BrokenProcessPool)

    def submit(self, function: Callable[..., Any], *arguments: Any) -> Future[Any]:
        """Start a function."""
        if self._process is None:
            self._process = self._executor.submit(os.getpid)
        self.calls += 1
        self.future = self._executor.submit(function, *arguments)
        return self.future

    def send(self, number: int) -> None:
        """Send a signal to the process, if it lives."""
        with contextlib.suppress(BrokenProcessPool, ProcessLookupError):
            if self._process is not None and not self.lost:
                os.kill(self._process.result(), number)

    def end(self) -> None:
        """End the process by force."""
        self.send(signal.SIGKILL)
        self._executor.shutdown(cancel_futures=True)


class ProcessPool:
    """Processes of this machine, on its processors; each runs one function after another, and starts warm."""

    def __init__(self, cpus: int = 1, workers: int | None = None) -> None:
        count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        if cpus > count:
            raise ConfigError(f"cpus = {cpus}: this process may use {count} core(s)", fix=f"use at most {count}")
        most = count // cpus
        if workers is not None and workers > most:
            raise ConfigError(
                f"workers = {workers}: {count} core(s) are enough for {most} job(s) of {cpus} core(s)",
                fix=f"use at most {most}",
            )
        self._cpus = cpus
        self._workers = [_Worker(cpus) for _ in range(workers or most)]

    def free(self) -> bool:
        """Whether another function can start now."""
        return not all(worker.busy for worker in self._workers)

    def submit(self, function: Callable[..., Any], *arguments: Any) -> Future[Any]:
        """Give a function to an idle process, the one with the most calls: a short list starts few."""
        idle = [number for number, worker in enumerate(self._workers) if not worker.busy]
        number = max(idle, key=lambda number: self._workers[number].calls)
        if self._workers[number].lost or self._workers[number].calls >= MOST_CALLS:
            self._replace(number)
        return self._workers[number].submit(function, *arguments)

    def cancel(self, future: Future[Any]) -> None:
        """Kill the process of a function, which ends a stopped one too."""
        for number, worker in enumerate(self._workers):
            if worker.future is future and worker.busy:
                self._replace(number)

    def close(self) -> None:
        """Ask all functions to save and end, then kill what is left."""
        busy = [worker for worker in self._workers if worker.busy]
        for worker in busy:
            worker.send(signal.SIGTERM)
        wait([worker.future for worker in busy if worker.future is not None], SAVE_SECONDS)
        for number in range(len(self._workers)):
            self._replace(number)

    def _replace(self, number: int) -> None:
        """End a process; the next function of its place starts another one."""
        self._workers[number].end()
        self._workers[number] = _Worker(self._cpus)


# Ray.


class RayTasks:
    """Tasks of a Ray cluster, which Ray places, and repeats where a process or a node is lost.

    The cluster is the one of the environment variable RAY_ADDRESS, which a job of the cluster has; without it Ray is
    started on this machine, for this process only. A cluster that is reached over the network must require a token,
    unless `insecure`. ConfigError says what is missing.
    """

    def __init__(self, cpus: int = 1, workers: int | None = None, insecure: bool = False) -> None:
        self._cpus, self._workers = cpus, workers
        self._alone = os.environ.get(ADDRESS, "") in ("", "local")
        self._ray, self._own = _connect(self._alone, insecure)
        self._tasks: dict[Future[Any], Any] = {}  # Ray's reference of each
        self._task = self._ray.remote(num_cpus=cpus, max_retries=RETRIES, max_calls=MOST_CALLS)(_in_cluster)
        nodes = [node["Resources"].get("CPU", 0) for node in self._ray.nodes() if node["Alive"]]
        if (workers is None or self._alone) and max(nodes, default=0) < cpus:
            self.close()
            raise ConfigError(
                f"cpus = {cpus}: no node of the Ray cluster has as many processors",
                fix=(
                    "use fewer cpus, or set workers to the number of jobs at once, for which a cluster that "
                    "grows by itself then starts nodes"
                ),
            )

    def free(self) -> bool:
        """Whether another function can start now; a cluster that grows by itself has `workers` places."""
        self._tasks = {future: task for future, task in self._tasks.items() if not future.done()}
        places = int(self._ray.cluster_resources().get("CPU", 0) // self._cpus)
        if self._workers is not None:
            places = min(places, self._workers) if self._alone else self._workers
        return len(self._tasks) < places

    def submit(self, function: Callable[..., Any], *arguments: Any) -> Future[Any]:
        """Give a function to the cluster."""
        task = self._task.remote(self._cpus, function, arguments)
        future: Future[Any] = task.future()
        self._tasks[future] = task
        return future

    def cancel(self, future: Future[Any]) -> None:
        """Let Ray kill the process of a function."""
        if future in self._tasks:
            self._ray.cancel(self._tasks.pop(future), force=True)

    def close(self) -> None:
        """Ask all functions to save and end, end them by force, and leave the cluster."""
        if self._ray is None or not self._ray.is_initialized():
            return
        for task in self._tasks.values():
            self._ray.cancel(task)  # as Ctrl-C
        wait(self._tasks, SAVE_SECONDS)
        for future in [future for future in self._tasks if not future.done()]:
            self.cancel(future)
        self._tasks.clear()
        if self._own:
            self._ray.shutdown()
        self._ray = None


def _in_cluster(cpus: int, function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    """Run a function in a process of the cluster; ConfigError if it may not use as many cores."""
    os.environ["JAX_PLATFORMS"] = "cpu"
    _keep_to_own_cores(cpus)
    return function(*arguments)


def _connect(alone: bool, insecure: bool) -> tuple[Any, bool]:
    """Return Ray, connected, and whether this call has connected it; ConfigError if it cannot, or must not."""
    address = os.environ.get(ADDRESS, "")
    if address.startswith(("ray://", "http://", "https://")):
        scheme = address.split("://")[0]
        raise ConfigError(
            f"{ADDRESS} begins with {scheme}://",
            "HOST:PORT of the head, in a process of the cluster; a client elsewhere loses its work with its connection",
            JOBS,
        )
    if alone and "ray" not in sys.modules:  # Ray reads it when it is imported
        os.environ[LOOPBACK_ONLY] = "0"
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    ray = import_extra("ray", "ray")
    if own := not ray.is_initialized():
        if alone and os.environ.get(LOOPBACK_ONLY) != "0":
            raise ConfigError(
                "Ray was imported before, and would listen to the network",
                fix=f"import it later, or set {LOOPBACK_ONLY}=0 before Python starts",
            )
        if not alone and address != "auto":
            _check_reachable(address)
        _init(ray, address or "local", alone)
    head = ray.get_runtime_context().gcs_address
    if not insecure and not is_loopback(head) and not _requires_token(head):
        if own:
            ray.shutdown()
        raise ConfigError(
            f"the Ray cluster at {head} is not shown to require a token, and whoever reaches its ports "
            "can run programs there",
            fix=(
                "start all its nodes with RAY_AUTH_MODE=token and one token (`ray get-auth-token "
                "--generate`), or pass insecure=True (--insecure) if nobody else reaches its network"
            ),
        )
    return ray, own


def _init(ray: Any, address: str, alone: bool) -> None:
    """Connect to a cluster, or start one of this machine's processors on the loopback interface."""
    options: dict[str, Any] = {"address": address, "log_to_driver": False, "logging_level": "ERROR"}
    if alone:
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        options |= {"num_cpus": cores, "include_dashboard": False, "object_store_memory": STORE_BYTES}
    try:
        with warnings.catch_warnings():
            # Ray starts programs of its own, in which nothing of JAX goes on
            warnings.filterwarnings("ignore", "os.fork", RuntimeWarning)
            ray.init(**options)
    except Exception as error:
        token = os.environ.get("RAY_AUTH_TOKEN") or "\0"
        raise ConfigError(
            f"Ray cannot be used at {address}: {_last_line(error).replace(token, '...')}",
            fix=f"run this on a node of the cluster, with its token and its versions of Ray and Python: {JOBS}",
        ) from None


def _check_reachable(address: str) -> None:
    """Raise ConfigError unless something answers at HOST:PORT; Ray itself waits for minutes."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), CONNECT_SECONDS).close()
    except (OSError, ValueError, OverflowError) as error:
        shown = address if "@" not in address else "its address"
        why = f": {error}" if isinstance(error, OSError) else ""
        raise ConfigError(
            f"{ADDRESS}: no head of a Ray cluster answers at {shown}{why}",
            "HOST:PORT",
            f"start the cluster, or drop {ADDRESS} to use this machine alone",
        ) from None


def is_loopback(address: str) -> bool:
    """Whether HOST:PORT is of this machine alone."""
    host = address.rpartition(":")[0].strip("[]")
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return host == "localhost"


def _requires_token(address: str) -> bool:
    """Whether the head of a cluster refuses a client without a token; False if it cannot be found out."""
    without = {name: value for name, value in os.environ.items() if not name.startswith("RAY_AUTH")}
    try:
        done = subprocess.run(  # noqa: S603
            [sys.executable, "-c", PROBE, address],
            env={**without, "RAY_AUTH_MODE": "disabled"},
            capture_output=True,
            text=True,
            timeout=PROBE_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return False
    return done.stdout.strip().endswith("closed")


def _last_line(error: BaseException) -> str:
    """Return the last line of an error's text, without its full stop."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[-1] if lines else type(error).__name__).rstrip(".")
