"""Updates a second of tidelog beside PyTorch: eager single-file scripts, the same by `torch.compile`, and d3rlpy.

`python -m benchmarks peers --peer-python PYTHON [--algorithms NAME ...] [--rounds 7] [--seconds 3] [--cores 0,1]`,
where PYTHON is that of an environment with torch, d3rlpy, gym, gymnasium and scikit-learn, on a machine with a C++
compiler; it needs no tidelog. tidelog's own ways are float32 and bfloat16 by XLA and, where tidelog-kernels is
installed, by native layers.
All ways of one algorithm wait in processes of their own and are measured in turn, in another order every round;
a ratio is that of one round. tidelog makes as many updates at once as in a training, those of half a second; scripts
and d3rlpy make one after another. `operations` are those of one update's matrix products, which show that sizes and
batches are the same: d3rlpy's differ where its losses do. Processor seconds depend least on others that use the
machine.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.keep import keep, median_and_range
from benchmarks.peer_scripts.turns import answer
from benchmarks.spread import words_of
from tidelog.networks.native import SWITCH, can_multiply

COMMAND = "python -m benchmarks peers --peer-python PYTHON"
NAMES = ("iql", "bcq", "discrete-bcq", "bc")
OWN = {  # native layers, and what `matmul_precision` is
    "tidelog": (False, "float32"),
    "native": (True, "float32"),
    "bfloat16": (False, "bfloat16"),
    "native-bfloat16": (True, "bfloat16"),
}
WAYS = (*OWN, "eager", "eager-bfloat16", "compile", "d3rlpy")
SCRIPT = Path(__file__).with_name("peer_scripts") / "peers_torch.py"


def work(name: str, native: bool, precision: str) -> None:
    """Be a process of tidelog: print facts, then a measurement for every line that is read."""
    os.environ[SWITCH] = str(int(native))
    from benchmarks.speed import ENTRIES, ceiling, log_for, operations, products_of, trainer_of

    assert can_multiply(precision) == native, "tidelog-kernels is not installed, or not for this processor"
    algorithm = replace(ENTRIES[name], matmul_precision=precision)
    log = log_for(algorithm)
    trainer = trainer_of(algorithm, log, 1)
    facts: dict[str, Any] = {"batch_size": algorithm.batch_size, "ceiling_gflops": ceiling() / 1e9}
    facts["operations_per_update"] = operations(products_of(algorithm, log))
    count = updates_of_a_call(trainer)
    answer(facts | {"updates_of_a_call": count}, lambda: trainer.advance(count))


def updates_of_a_call(trainer: Any) -> int:
    """Return how many updates a training makes at once: those of half a second."""
    from tidelog.training.run import CHUNK_SECONDS

    begun = time.perf_counter()
    done = trainer.advance(20)
    return max(1, round(done * CHUNK_SECONDS / (time.perf_counter() - begun)))


class Worker:
    """A process that measures when it is told to."""

    def __init__(self, command: list[str]) -> None:
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        self._process = subprocess.Popen(command, text=True, **pipes)
        self.facts = self._read()

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        for line in self._process.stdout:  # d3rlpy prints lines of its own
            if line.startswith("{"):
                found: dict[str, Any] = json.loads(line)
                return found
        raise RuntimeError(f"exit code {self._process.wait()}")

    def measure(self, seconds: float) -> dict[str, float]:
        """Return updates a second and a processor second of one measurement."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{seconds}\n")
        self._process.stdin.flush()
        found = self._read()
        return {f"a_{unit}": found["updates"] / found[f"{unit}s"] for unit in ("second", "processor_second")}

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait()


def commands_of(name: str, python: str) -> dict[str, list[str]]:
    """Return the command of each way of an algorithm."""
    return {way: words_of(work, name, *OWN[way]) if way in OWN else [python, str(SCRIPT), way, name] for way in WAYS}


def compared(commands: dict[str, list[str]], rounds: int, seconds: float) -> dict[str, Any]:
    """Return the rates of all ways of an algorithm, and the ratios of `tidelog` to each."""
    workers: dict[str, Worker] = {}
    failed: dict[str, str] = {}
    for way, command in commands.items():
        try:
            workers[way] = Worker(command)
        except RuntimeError as error:
            failed[way] = str(error)
    rows: list[dict[str, dict[str, float]]] = []
    for number in range(rounds):
        order = list(workers)[:: 1 if number % 2 else -1]
        rows.append({way: workers[way].measure(seconds) for way in order})
    for worker in workers.values():
        worker.close()
    found: dict[str, Any] = {"failed": failed}
    for way, worker in workers.items():
        found[way] = worker.facts
        for unit in ("a_second", "a_processor_second"):
            found[way][f"updates_{unit}"] = median_and_range([row[way][unit] for row in rows])
            found[way][f"tidelog_over_it_{unit}"] = median_and_range(
                [row["tidelog"][unit] / row[way][unit] for row in rows]
            )
        found[way]["over_it"] = {
            other: median_and_range([row[other]["a_second"] / row[way]["a_second"] for row in rows])
            for other in workers
        }
    return found


def keep_to(cores: str) -> int:
    """Keep this process and its children to processors such as 0 or 0,1, or to all; return how many they are."""
    if cores:
        os.sched_setaffinity(0, {int(core) for core in cores.split(",")})
    return len(os.sched_getaffinity(0))


def study(
    peer_python: str = sys.executable,
    algorithms: Sequence[str] = NAMES,
    rounds: int = 7,
    seconds: float = 3.0,
    cores: str = "",
) -> None:
    """Compare on these cores (default: all), and keep the results."""
    facts = {"cores": keep_to(cores), "rounds": rounds, "seconds": seconds}
    found = {}
    for name in algorithms:
        found[name] = compared(commands_of(name, peer_python), rounds, seconds)
        print(name, json.dumps(found[name]), flush=True)
    keep("peers" if facts["cores"] == 1 else "peers_all_cores", COMMAND, facts | {"algorithms": found})
