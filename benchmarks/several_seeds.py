"""Updates a second of several seeds: one on all cores, four in one run, and two in processes of one core each.

`python -m benchmarks.several_seeds [--rounds 7] [--seconds 3]`, on a machine that does nothing else. A call is as long
as in a training, half a second: at its end the seeds wait for the slowest. The ways of an algorithm wait in processes
of their own and are measured in turn, in another order every round; a rate is the sum over seeds, and a ratio that of
one round. What two processes reach is what the processor can give to seeds that share nothing.
"""

import argparse
import os
import sys
from typing import Any

from benchmarks.keep import keep
from benchmarks.peers import Worker, answer, median_and_range, updates_of_a_call

COMMAND = "python -m benchmarks.several_seeds"
NAMES = ("iql", "bcq", "discrete-bcq", "discrete-bcq-1024", "bc")
WAYS = {"one": (1, "all"), "four": (4, "all"), "first": (1, "first"), "second": (1, "second")}  # seeds, cores


def work(name: str, seeds: int) -> None:
    """Be a process that measures for some seconds for each line that it reads."""
    from benchmarks.speed import entry_of, synthetic_log, trainer_of

    trainer = trainer_of(entry_of(name).algorithm, synthetic_log(entry_of(name).discrete), seeds)
    count = updates_of_a_call(trainer)
    answer({"seeds": seeds, "updates_of_a_call": count}, lambda: seeds * trainer.advance(count))


def worker(name: str, seeds: int, cores: list[int]) -> Worker:
    """Start a process on some cores."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        return Worker([sys.executable, "-m", "benchmarks.several_seeds", "--work", name, "--seeds", str(seeds)])
    finally:
        os.sched_setaffinity(0, before)


def measured(name: str, rounds: int, seconds: float) -> dict[str, Any]:
    """Return the rates of an algorithm's ways, and the ratios of their rounds."""
    cores = sorted(os.sched_getaffinity(0))
    half = len(cores) // 2
    placed = {"all": cores, "first": cores[:half], "second": cores[half:]}
    workers = {way: worker(name, seeds, placed[where]) for way, (seeds, where) in WAYS.items()}
    rows = []
    for number in range(rounds):
        row = {}
        for together in [("one",), ("four",), ("first", "second")][:: 1 if number % 2 else -1]:
            for way in together:
                workers[way].begin(seconds)
            taken = [workers[way].result() for way in together]
            row["_and_".join(together)] = sum(one["updates"] / one["seconds"] for one in taken)
        rows.append(row)
    for one in workers.values():
        one.close()
    found = {way: median_and_range([row[way] for row in rows]) for way in rows[0]}
    found |= {
        f"{way}_over_one": median_and_range([row[way] / row["one"] for row in rows])
        for way in ("four", "first_and_second")
    }
    found["four_over_two_processes"] = median_and_range([row["four"] / row["first_and_second"] for row in rows])
    print(name, {way: round(one["median"], 2) for way, one in found.items()}, flush=True)
    return found


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
