"""The engine of a Ray cluster: an actor for each job at once, which trains one job after another.

Text alone travels: a job as JSON to an actor, a line about its end back. What a job did is in its run folder, so a
cluster that is lost costs nothing but time. Nothing else imports Ray. What an actor imports at its start does not
import JAX: it keeps to its processor cores first.
"""

from __future__ import annotations

import contextlib
import ipaddress
import os
import platform
import signal
import socket
import subprocess
import sys
import time
import traceback
import warnings
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from tidelog.disk import create_missing, make_folders
from tidelog.errors import CheckpointError, ConfigError, install
from tidelog.folders import checksum
from tidelog.schema import decode
from tidelog.sweeps.engines import Ended, Job

ADDRESS, LOOPBACK_ONLY = "RAY_ADDRESS", "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
CONNECT_SECONDS, PROBE_SECONDS = 10.0, 60.0
POOL_SECONDS = 5.0  # between two looks at the nodes of the cluster
SAVE_SECONDS = 30.0  # for a job to save after it is asked to end
MOST_CORES = 1_000
MOST_STARTS = 20  # actors in a row that are lost before their first job
JOBS = "`ray job submit --address http://HEAD:8265 -- tidelog ...`, which runs the command in the cluster"
NO_SHARED_FOLDER = "no shared folder"
STORE_BYTES = 100_000_000  # of Ray's object store, through which nothing large passes
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


class About(msgspec.Struct):
    """What an actor says of itself."""

    node: str
    host: str
    process: int
    cores: list[int] | None  # that it may use
    versions: dict[str, str]


class Worker:
    """The actor; its calls run in the main thread of its process, one after another."""

    def describe(self, packages: list[str]) -> str:
        """Return an `About`, with the versions of some packages."""
        import ray

        cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None
        node, versions = ray.get_runtime_context().get_node_id(), installed(packages)
        return msgspec.json.encode(About(node, platform.node(), os.getpid(), cores, versions)).decode()

    def run(self, text: str, plan: str, sha256: str) -> str:
        """Run a job, and return how it ended; `NO_SHARED_FOLDER` if this node does not see the same `sweep.json`."""
        job = decode(text, Job, "the job")
        if not Path(plan).is_file() or checksum(Path(plan)) != sha256 or not os.access(job.folder, os.W_OK):
            return NO_SHARED_FOLDER
        os.environ["JAX_PLATFORMS"] = "cpu"
        if job.cores is not None:
            os.sched_setaffinity(0, job.cores)
        make_folders(job.output.parent)
        create_missing(job.output)
        output = os.open(job.output, os.O_WRONLY | os.O_APPEND)
        for stream in (1, 2):
            os.dup2(output, stream)
        os.close(output)
        try:
            from tidelog.sweeps.work import run_job

            return f"ended with code {run_job(job)}"
        except (KeyboardInterrupt, SystemExit):  # it has saved, as it was asked to
            return "ended by a signal"
        except Exception as error:
            traceback.print_exc()
            return f"ended with {type(error).__name__}"


def installed(packages: list[str]) -> dict[str, str]:
    """Return the versions of packages; "none" for those that are not there."""
    versions = {}
    for name in packages:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            versions[name] = "none"
    return versions


def ask_to_end(process: int) -> None:
    """Ask a process of this node to save and end."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(process, signal.SIGTERM)


class _Slot(NamedTuple):
    actor: Any
    about: About
    place: int  # among the slots of its node
    cores: list[int] | None


class _Running(NamedTuple):
    job: Job
    slot: _Slot
    result: Any  # Ray's reference to it


class Ray:
    """Actors of a Ray cluster, each on `cpus` processor cores; at most as many as `trials`, and as `workers` says.

    The cluster is the one of the environment variable RAY_ADDRESS, which a job of the cluster has; without it Ray is
    started on this machine, for this process only. A cluster that is reached over the network must require a token,
    unless `insecure`. ConfigError says what is missing.
    """

    def __init__(
        self, cpus: int = 1, workers: int | None = None, trials: int | None = None, insecure: bool = False
    ) -> None:
        from tidelog.training.runs.record import PACKAGES

        self._cpus, self._workers, self._trials = cpus, workers, trials
        self._alone = os.environ.get(ADDRESS, "") in ("", "local")
        self._ray, self._own = _connect(cpus * (workers or trials or MOST_CORES) if self._alone else None, insecure)
        self._packages = list(PACKAGES)
        self._actors = self._ray.remote(num_cpus=cpus, max_restarts=0, max_task_retries=0)(Worker)
        self._starting: dict[Any, Any] = {}  # an actor for the reference to what it says of itself
        self._idle: list[_Slot] = []
        self._running: dict[tuple[int, int], _Running] = {}
        self._plans: dict[str, tuple[str, str]] = {}
        self._lost_starts, self._next_look = 0, 0.0
        if (workers is None or self._alone) and not any(self._living().values()):
            self.close()
            raise ConfigError(
                f"cpus = {cpus}: no node of the Ray cluster has as many processors. fix: use fewer cpus, or set "
                "workers to the number of jobs at once, for which a cluster that grows by itself then starts nodes"
            )

    def free(self) -> bool:
        """Whether another job can start now."""
        return bool(self._idle)

    def submit(self, job: Job) -> None:
        """Send a job to an idle actor."""
        slot = self._idle.pop(0)
        job = msgspec.structs.replace(job, cores=slot.cores)
        if job.folder not in self._plans:
            self._plans[job.folder] = str(job.plan), checksum(job.plan)
        result = slot.actor.run.remote(msgspec.json.encode(job).decode(), *self._plans[job.folder])
        self._running[job.number, job.attempt] = _Running(job, slot, result)

    def wait(self, seconds: float) -> list[Ended]:
        """Return the jobs that have ended since the last call, after at most some seconds.

        ConfigError if an actor has other versions than this process, or does not see the sweep's folder.
        """
        self._look_at_nodes()
        running = {one.result: key for key, one in self._running.items()}
        waited = [*self._starting, *running]
        if not waited:
            time.sleep(seconds)
            return []
        self._ray.wait(waited, num_returns=1, timeout=seconds)
        done, _ = self._ray.wait(waited, num_returns=len(waited), timeout=0)
        ended = []
        for reference in done:
            if reference in self._starting:
                self._begin(reference)
            else:
                ended.append(self._end(self._running.pop(running[reference])))
        self._look_at_nodes()  # before another job goes to a node that was lost
        return ended

    def cancel(self, job: Job) -> None:
        """Kill the actor of a job; Ray kills its process, and a node that does not answer is one less for Ray soon."""
        one = self._running.pop((job.number, job.attempt), None)
        if one is not None:
            self._ray.kill(one.slot.actor)
            self._next_look = 0.0

    def close(self) -> None:
        """Ask all jobs to save and end, end all actors, and leave the cluster."""
        if self._ray is None or not self._ray.is_initialized():
            return
        ask = self._ray.remote(num_cpus=0, max_retries=0)(ask_to_end)
        on_node = self._ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy
        asked = [
            ask.options(scheduling_strategy=on_node(one.slot.about.node, soft=False)).remote(one.slot.about.process)
            for one in self._running.values()
        ]
        results = [one.result for one in self._running.values()]
        if results:
            self._ray.wait(results, num_returns=len(results), timeout=SAVE_SECONDS)
        slots = [*self._idle, *(one.slot for one in self._running.values())]
        for actor in (*(slot.actor for slot in slots), *self._starting.values()):
            self._ray.kill(actor)
        for kept in (self._idle, self._running, self._starting, asked):
            kept.clear()
        if self._own:
            self._ray.shutdown()
        self._ray = None

    def _living(self) -> dict[str, int]:
        """The living nodes of the cluster, and for how many actors each has processors."""
        nodes = [node for node in self._ray.nodes() if node["Alive"]]
        return {node["NodeID"]: int(node["Resources"].get("CPU", 0) // self._cpus) for node in nodes}

    def _look_at_nodes(self) -> None:
        """Start as many actors as are wanted, and give up those whose node is lost, or for which there is none."""
        if time.monotonic() < self._next_look:
            return
        self._next_look = time.monotonic() + POOL_SECONDS
        nodes = self._living()
        self._idle = [slot for slot in self._idle if slot.about.node in nodes]
        # with `workers`, nodes may be to come
        room = sum(nodes.values()) if self._workers is None or self._alone else self._workers
        wanted = min(limit for limit in (room, self._workers, self._trials) if limit is not None)
        more = wanted - len(self._starting) - len(self._idle) - len(self._running)
        for _ in range(more):
            actor = self._actors.remote()
            self._starting[actor.describe.remote(self._packages)] = actor
        for reference in list(self._starting)[: max(0, -more)]:
            self._ray.kill(self._starting.pop(reference))

    def _begin(self, reference: Any) -> None:
        """Take an actor that has started into the pool; ConfigError if it cannot train what this process would."""
        actor, errors = self._starting.pop(reference), self._ray.exceptions
        try:
            about = decode(self._ray.get(reference), About, "the answer of a worker")
        except errors.RayTaskError as error:
            raise ConfigError(
                f"a worker of the Ray cluster cannot start: {_last_line(error)}. fix: install the same tidelog and Ray "
                "on all nodes"
            ) from error
        except errors.RayError as error:
            self._next_look, self._lost_starts = 0.0, self._lost_starts + 1
            if self._lost_starts >= MOST_STARTS:
                raise CheckpointError(
                    f"{MOST_STARTS} workers in a row were lost before their first job, the last one: "
                    f"{_cause_of_loss(error)}. "
                    "fix: look at `ray status` and at Ray's logs of the nodes, then resume the sweep"
                ) from error
            return
        own = installed(self._packages)
        different = [f"{name} {about.versions.get(name)}" for name in own if about.versions.get(name) != own[name]]
        if different:
            raise ConfigError(
                f"node {about.host} has {', '.join(different)}, expected the versions of this process: "
                f"{', '.join(f'{name} {version}' for name, version in own.items())}. fix: install these on all nodes, "
                "then resume the sweep"
            )
        if about.cores is not None and len(about.cores) < self._cpus:
            raise ConfigError(
                f"cpus = {self._cpus}: a process on node {about.host} may use {len(about.cores)} core(s). fix: use "
                f"cpus={len(about.cores)}"
            )
        slots = [*self._idle, *(one.slot for one in self._running.values())]
        taken = {slot.place for slot in slots if slot.about.node == about.node}
        place = next(number for number in range(len(taken) + 1) if number not in taken)
        cores = about.cores
        if cores is not None:  # the first one by the node, as several nodes may be on one machine
            first = int(about.node, 16) + place * self._cpus
            cores = sorted(cores[(first + number) % len(cores)] for number in range(self._cpus))
        self._lost_starts = 0
        self._idle.append(_Slot(actor, about, place, cores))

    def _end(self, one: _Running) -> Ended:
        """Return how a job ended; its actor takes the next one, or is replaced if it is lost."""
        try:
            ending = str(self._ray.get(one.result))
        except self._ray.exceptions.RayError as error:
            self._ray.kill(one.slot.actor)
            self._next_look = 0.0
            return Ended(one.job, f"{_cause_of_loss(error)} on node {one.slot.about.host}")
        if ending == NO_SHARED_FOLDER:
            raise ConfigError(
                f"node {one.slot.about.host} does not see {one.job.folder} as this process does, or may not write "
                "there. fix: use a folder that all nodes share under the same path, and go on there"
            )
        self._idle.append(one.slot)
        return Ended(one.job, ending)


def _connect(processors: int | None, insecure: bool) -> tuple[Any, bool]:
    """Return Ray, connected, and whether this call has connected it; ConfigError if it cannot, or must not.

    `processors` is None for the cluster of RAY_ADDRESS, and otherwise the most that this machine's own one may have.
    """
    address = os.environ.get(ADDRESS, "")
    if address.startswith(("ray://", "http://", "https://")):
        scheme = address.split("://")[0]
        raise ConfigError(
            f"{ADDRESS} begins with {scheme}://: expected HOST:PORT of the head, in a process of the cluster; a client "
            f"elsewhere loses the sweep with its connection. fix: {JOBS}"
        )
    alone = processors is not None
    if alone and "ray" not in sys.modules:  # Ray reads it when it is imported
        os.environ[LOOPBACK_ONLY] = "0"
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import ray
    except ImportError:
        raise ConfigError(f"on = 'ray' requires Ray, which is not installed. fix: {install('ray')}") from None
    if own := not ray.is_initialized():
        if alone and os.environ.get(LOOPBACK_ONLY) != "0":
            raise ConfigError(
                "Ray was imported before, and would listen to the network. fix: import it later, or set "
                f"{LOOPBACK_ONLY}=0 before Python starts"
            )
        if not alone and address != "auto":
            _check_reachable(address)
        _init(ray, address or "local", processors)
    head = ray.get_runtime_context().gcs_address
    if not insecure and not _is_loopback(head) and not _requires_token(head):
        if own:
            ray.shutdown()
        raise ConfigError(
            f"the Ray cluster at {head} is not shown to require a token, and whoever reaches its ports can run "
            "programs there. fix: start all its nodes with RAY_AUTH_MODE=token and one token (`ray get-auth-token "
            "--generate`), or pass insecure=True (--insecure) if nobody else reaches its network"
        )
    return ray, own


def _init(ray: Any, address: str, processors: int | None) -> None:
    """Connect to a cluster, or start one on the loopback interface with at most some of this machine's processors."""
    options: dict[str, Any] = {"address": address, "log_to_driver": False, "logging_level": "ERROR"}
    if processors is not None:
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        options |= {
            "num_cpus": min(processors, cores),
            "include_dashboard": False,
            "object_store_memory": STORE_BYTES,
        }
    try:
        with warnings.catch_warnings():
            # Ray starts programs of its own, in which nothing of JAX goes on
            warnings.filterwarnings("ignore", "os.fork", RuntimeWarning)
            ray.init(**options)
    except Exception as error:
        token = os.environ.get("RAY_AUTH_TOKEN") or "\0"
        raise ConfigError(
            f"Ray cannot be used at {address}: {_last_line(error).replace(token, '...')}. fix: run this on a node of "
            f"the cluster, with its token and its versions of Ray and Python: {JOBS}"
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
            f"{ADDRESS}: no head of a Ray cluster answers at {shown}{why}, expected HOST:PORT. fix: start the "
            f"cluster, or drop {ADDRESS} to use this machine alone"
        ) from None


def _is_loopback(address: str) -> bool:
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
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[-1] if lines else type(error).__name__).rstrip(".")


def _cause_of_loss(error: BaseException) -> str:
    """Say in a few words how Ray lost an actor."""
    text = str(error)
    if "low on memory" in text or "OutOfMemory" in type(error).__name__:
        return "ended as its node ran out of memory (memory_map reads the log from disk, more cpus mean fewer at once)"
    if "node" in text and "died" in text and "worker process" not in text:
        return "lost with its node"
    return "its process was killed"
