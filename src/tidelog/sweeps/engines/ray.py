"""The engine of a Ray cluster: an actor for each job at once, which trains one job after another.

Text alone travels: a job as JSON to an actor, a line about its end back. What a job did is in its run folder, so a
cluster that is lost costs nothing but time. What an actor imports at its start does not
import JAX: it keeps to its processor cores first.
"""

from __future__ import annotations

import contextlib
import os
import platform
import signal
import time
import traceback
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from tidelog.errors import CheckpointError, ConfigError
from tidelog.folders import checksum
from tidelog.ray_cluster import ADDRESS, cause_of_loss, connect, installed, last_line, refuse_other_versions, this_node
from tidelog.schema import decode
from tidelog.sweeps.engines import Ended, Job
from tidelog.sweeps.worker import print_to_file

POOL_SECONDS = 5.0  # between two looks at the nodes of the cluster
SAVE_SECONDS = 30.0  # for a job to save after it is asked to end
MOST_CORES = 1_000
MOST_STARTS = 20  # actors in a row that are lost before their first job
NO_SHARED_FOLDER = "no shared folder"


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
        cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None
        node, versions = this_node(), installed(packages)
        return msgspec.json.encode(About(node, platform.node(), os.getpid(), cores, versions)).decode()

    def run(self, text: str, plan: str, sha256: str) -> str:
        """Run a job, and return how it ended; `NO_SHARED_FOLDER` if this node does not see the same `sweep.json`."""
        job = decode(text, Job, "the job")
        if not Path(plan).is_file() or checksum(Path(plan)) != sha256 or not os.access(job.folder, os.W_OK):
            return NO_SHARED_FOLDER
        os.environ["JAX_PLATFORMS"] = "cpu"
        if job.cores is not None:
            os.sched_setaffinity(0, job.cores)
        print_to_file(job)
        try:
            from tidelog.sweeps.engines.work import run_job

            return f"ended with code {run_job(job)}"
        except (KeyboardInterrupt, SystemExit):  # it has saved, as it was asked to
            return "ended by a signal"
        except Exception as error:
            traceback.print_exc()
            return f"ended with {type(error).__name__}"


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
        self._ray, self._own = connect(cpus * (workers or trials or MOST_CORES) if self._alone else None, insecure)
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
                f"a worker of the Ray cluster cannot start: {last_line(error)}. fix: install the same tidelog and Ray "
                "on all nodes"
            ) from error
        except errors.RayError as error:
            self._next_look, self._lost_starts = 0.0, self._lost_starts + 1
            if self._lost_starts >= MOST_STARTS:
                raise CheckpointError(
                    f"{MOST_STARTS} workers in a row were lost before their first job, the last one: "
                    f"{cause_of_loss(error)}. "
                    "fix: look at `ray status` and at Ray's logs of the nodes, then resume the sweep"
                ) from error
            return
        refuse_other_versions(about.host, about.versions, self._packages, ", then resume the sweep")
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
            return Ended(one.job, f"{cause_of_loss(error)} on node {one.slot.about.host}")
        if ending == NO_SHARED_FOLDER:
            raise ConfigError(
                f"node {one.slot.about.host} does not see {one.job.folder} as this process does, or may not write "
                "there. fix: use a folder that all nodes share under the same path, and go on there"
            )
        self._idle.append(one.slot)
        return Ended(one.job, ending)
