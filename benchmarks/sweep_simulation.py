"""The driver of a sweep with a simulated cluster: its time and memory for 10,000 trials on 1,000 nodes, what is lost.

    python -m benchmarks sweep_simulation

Nothing is trained: a job writes the reports and the status that an attempt would, after a random time of a simulated
clock. One attempt in twenty is lost, most of them after a report, one in a hundred never ends until the stall watch
cancels it, one trial in a hundred diverges, and each minute one of the nodes is lost, with its job if it has one. With
halving by 3. At the end no trial is without an end, and the decisions are those of trials without any loss.
Results: benchmarks/results/sweep_simulation.json.
"""

import heapq
import json
import random
import resource
import shutil
import tempfile
import time
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from benchmarks.keep import keep
from tidelog._files import make_folders
from tidelog.sweeps import driver as driver_module
from tidelog.sweeps.driver import Driver
from tidelog.sweeps.job import Job, trial_folder
from tidelog.sweeps.plan import Halving, Plan, Status, Trial, TrialOptions, newest_attempt, read_decisions, write_status

METRIC, STEPS, STALL = "held_out/imitation_loss", 9_000, 900.0


def diverges(seed: int, trial: int) -> bool:
    return random.Random(f"{seed} {trial}").random() < 0.01


def loss_of(seed: int, trial: int, update: int) -> float:
    return random.Random(f"{seed} {trial} {update}").random()


def expected(trials: int, seed: int, halving: Halving) -> list[list[int]]:
    """Which trials go on at each rung, if none is lost."""
    promoted, update = [list(range(trials))], halving.steps
    while update < STEPS:
        compared = promoted[-1]
        whole = [trial for trial in compared if not diverges(seed, trial)]
        best = sorted(whole, key=lambda trial: (loss_of(seed, trial, update), trial))
        promoted.append(sorted(best[: max(1, len(compared) // halving.factor)]))
        update *= halving.factor
    return promoted[1:]


class SimulatedCluster:
    """A pool on a simulated clock, which its `wait` moves on; `nodes` run one job each."""

    def __init__(self, nodes: int, seed: int, lost: float, frozen: float, node_seconds: float | None) -> None:
        self.now, self._nodes, self._seed = 0.0, nodes, seed
        self._lost, self._frozen, self._node_seconds = lost, frozen, node_seconds
        self._events: list[tuple[float, int, Job, bool]] = []
        self._running: dict[tuple[int, int], Future[None]] = {}
        self._dice = random.Random(seed)
        self.jobs = self.losses = self.cancelled = self.writes_of_older = 0
        self._next_node = node_seconds or 0.0

    def clock(self) -> float:
        """The simulated time in seconds."""
        return self.now

    def free(self) -> bool:
        return len(self._running) < self._nodes

    def submit(self, function: Any, job: Job, *rest: Any) -> Future[None]:
        self.jobs += 1
        future: Future[None] = Future()
        self._running[job.number, job.attempt] = future
        draw, seconds = self._dice.random(), min(600.0, 60.0 * self._dice.lognormvariate(1.0, 0.5))
        if draw >= self._frozen:
            lost = draw < self._frozen + self._lost
            heapq.heappush(self._events, (self.now + seconds, self.jobs, job, lost))
        return future

    def wait(self, futures: Any, seconds: float, when: str) -> SimpleNamespace:
        """Move the clock on until jobs end, as `concurrent.futures.wait` does with the real one."""
        until = self.now + seconds
        done: set[Future[None]] = set()
        if self._node_seconds and self.now >= self._next_node:
            self._next_node = self.now + self._node_seconds
            if (node := self._dice.randrange(self._nodes)) < len(self._running):
                done.add(self._lose(sorted(self._running)[node]))
        while self._events and self._events[0][0] <= until:
            at, _, job, lost = heapq.heappop(self._events)
            until = min(until, max(at, self.now))
            key = (job.number, job.attempt)
            if key not in self._running:
                continue
            if lost:
                done.add(self._lose(key))
                if self._dice.random() < 0.9:
                    self._report(job, job.until - 1)
            else:
                future = self._running.pop(key)
                self._finish(job)
                future.set_result(None)
                done.add(future)
        self.now = until
        return SimpleNamespace(done=done)

    def cancel(self, future: Future[None]) -> None:
        self.cancelled += 1
        self._running = {key: one for key, one in self._running.items() if one is not future}

    def _lose(self, key: tuple[int, int]) -> Future[None]:
        future = self._running.pop(key)
        future.set_exception(RuntimeError("lost"))
        self.losses += 1
        return future

    def close(self) -> None:
        self._running.clear()

    def _finish(self, job: Job) -> None:
        """Write what an attempt leaves: reports, and the status."""
        folder = trial_folder(Path(job.folder), job.number)
        if newest_attempt(folder) != job.attempt:
            self.writes_of_older += 1
            return
        if diverges(self._seed, job.number):
            write_status(folder, Status(job.attempt, "diverged", 1, "a loss became NaN"))
            return
        self._report(job, job.until)
        write_status(folder, Status(job.attempt, "complete" if job.until == STEPS else "standing", job.until))

    def _report(self, job: Job, update: int) -> None:
        run = trial_folder(Path(job.folder), job.number) / "run"
        make_folders(run)
        with (run / "metrics.jsonl").open("a") as file:
            loss = loss_of(self._seed, job.number, job.until)
            file.write(json.dumps({"update": update, "member": 0, "seed": 0, METRIC: loss}) + "\n")


def simulate(folder: Path, trials: int, cluster: SimulatedCluster, halving: Halving | None) -> Driver:
    """Drive a sweep to its end on a simulated cluster; trials that failed are tried again."""
    options = TrialOptions(
        steps=STEPS, seeds=[0], every=1_000, held_out=0.2, selection_share=0.25, split_seed=0, evaluate={}, scale=None,
        best=METRIC, patience=None, warm_start=None, save_seconds=30.0, keep=3, together=None,
    )  # fmt: skip
    listed = [Trial("bc", {"learning_rate": number / trials}) for number in range(trials)]
    plan = Plan(trials=listed, options=options, halving=halving, origin={"source": "log"}, fingerprint="0" * 64, cpus=1,
                stall_seconds=STALL)  # fmt: skip
    plan.write(folder)
    clock, wait = driver_module.time, driver_module.wait
    driver_module.time = SimpleNamespace(monotonic=cluster.clock)  # type: ignore[assignment]
    driver_module.wait = cluster.wait  # type: ignore[assignment]
    try:
        while True:
            driver = Driver(folder, cluster)
            driver.run(False)
            if not any(status.state == "failed" for status in driver.statuses.values()) or halving is not None:
                return driver
    finally:
        driver_module.time, driver_module.wait = clock, wait


def facts(driver: Driver, cluster: SimulatedCluster) -> dict[str, Any]:
    """What became of the trials."""
    states = [status.state for status in driver.statuses.values()]
    stopped = driver._stopped
    ended = sum(
        trial in stopped or (trial in driver.statuses and driver.statuses[trial].state != "standing")
        for trial in range(len(driver.plan.trials))
    )
    return {
        "simulated_hours": cluster.now / 3600,
        "jobs": cluster.jobs,
        "lost": cluster.losses,
        "cancelled": cluster.cancelled,
        "ended": ended,
        "states": {state: states.count(state) for state in sorted(set(states))},
        "stopped": len(stopped),
        "writes_of_older": cluster.writes_of_older,
    }


def study(trials: int = 10_000, nodes: int = 1_000) -> dict[str, Any]:
    """Simulate, and keep the facts."""
    work = Path(tempfile.mkdtemp(prefix="simulation", dir="/dev/shm" if Path("/dev/shm").is_dir() else None))
    content: dict[str, Any] = {"trials": trials, "nodes": nodes}
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    try:
        cluster, halving = (
            SimulatedCluster(nodes, 0, lost=0.05, frozen=0.01, node_seconds=60.0),
            Halving(3, 1_000),
        )
        begun, processor = time.monotonic(), time.process_time()
        driver = simulate(work / "sweep", trials, cluster, halving)
        seconds, processor = time.monotonic() - begun, time.process_time() - processor
        promoted = [decision.promoted for decision in read_decisions(work / "sweep")]
    finally:
        shutil.rmtree(work)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    content |= {
        **facts(driver, cluster),
        "decisions_as_expected": promoted == expected(trials, 0, halving),
        "seconds": round(seconds, 1),
        "processor_seconds": round(processor, 1),
        "milliseconds_per_job": round(1e3 * processor / cluster.jobs, 2),
        "share_of_simulated_time": round(processor / cluster.now, 4),
        "memory_mb": round((peak - before) / 1024, 1),
    }
    keep("sweep_simulation", "python -m benchmarks sweep_simulation", content)
    return content
