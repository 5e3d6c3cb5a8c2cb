"""Updates a second of several seeds: one on all cores, four in one run, and two in processes of one core each.

`python -m benchmarks.several_seeds [--rounds 7] [--seconds 3]`, on a machine that does nothing else. The ways of an
algorithm wait in processes of their own and are measured in turn, in another order every round; a rate is the sum over
seeds, and a ratio that of one round. What two processes reach is what the processor can give to seeds that share
nothing.
"""

import argparse
import os
import statistics
import subprocess
import sys
import time
from typing import Any

from benchmarks.keep import keep

COMMAND = "python -m benchmarks.several_seeds"
NAMES = ("iql", "bcq", "discrete-bcq", "discrete-bcq-1024", "bc")
WAYS = {"one": (1, "all"), "four": (4, "all"), "first": (1, "first"), "second": (1, "second")}  # seeds, cores


def work(name: str, seeds: int) -> None:
    """Be a process that measures for some seconds for each line that it reads."""
    from tidelog.bench.speed import entry_of, synthetic_log, trainer_of

    trainer = trainer_of(entry_of(name).algorithm, synthetic_log(entry_of(name).discrete), seeds)
    trainer.advance(20)
    print("ready", flush=True)
    for line in sys.stdin:
        done, begin = 0, time.perf_counter()
        while (taken := time.perf_counter() - begin) < float(line):
            done += seeds * trainer.advance(20)
        print(done / taken, flush=True)


class Worker:
    """A process on some cores."""

    def __init__(self, name: str, seeds: int, cores: list[int]) -> None:
        command = [sys.executable, "-m", "benchmarks.several_seeds", "--work", name, "--seeds", str(seeds)]
        before = os.sched_getaffinity(0)
        os.sched_setaffinity(0, cores)
        try:
            self._process = subprocess.Popen(command, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        finally:
            os.sched_setaffinity(0, before)
        self._line()

    def begin(self, seconds: float) -> None:
        """Let it measure."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{seconds}\n")
        self._process.stdin.flush()

    def rate(self) -> float:
        """Return what it measured: updates a second, summed over its seeds."""
        return float(self._line())

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait()

    def _line(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"exit code {self._process.wait()}")
        return line


def measured(name: str, rounds: int, seconds: float) -> dict[str, Any]:
    """Return the rates of an algorithm's ways, and the ratios of their rounds."""
    cores = sorted(os.sched_getaffinity(0))
    half = len(cores) // 2
    placed = {"all": cores, "first": cores[:half], "second": cores[half:]}
    workers = {way: Worker(name, seeds, placed[where]) for way, (seeds, where) in WAYS.items()}
    rows = []
    for number in range(rounds):
        row = {}
        for together in [("one",), ("four",), ("first", "second")][:: 1 if number % 2 else -1]:
            for way in together:
                workers[way].begin(seconds)
            row["_and_".join(together)] = sum(workers[way].rate() for way in together)
        rows.append(row)
    for worker in workers.values():
        worker.close()
    found = {way: _spread([row[way] for row in rows]) for way in rows[0]}
    found |= {
        f"{way}_over_one": _spread([row[way] / row["one"] for row in rows]) for way in ("four", "first_and_second")
    }
    found["four_over_two_processes"] = _spread([row["four"] / row["first_and_second"] for row in rows])
    print(name, {way: round(one["median"], 2) for way, one in found.items()}, flush=True)
    return found


def _spread(values: list[float]) -> dict[str, float]:
    return {"median": statistics.median(values), "min": min(values), "max": max(values)}


def main() -> None:
    """Measure, and keep the results."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--work", help=argparse.SUPPRESS)
    parser.add_argument("--seeds", type=int, default=1, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.work:
        work(given.work, given.seeds)
        return
    facts = {"rounds": given.rounds, "seconds": given.seconds, "cores": len(os.sched_getaffinity(0))}
    found = {name: measured(name, given.rounds, given.seconds) for name in NAMES}
    keep("several_seeds", COMMAND, {**facts, "load_after": os.getloadavg(), "algorithms": found})


if __name__ == "__main__":
    main()
