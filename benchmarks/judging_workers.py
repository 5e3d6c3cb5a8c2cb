"""Verdicts whose models are fitted by 1 or 2 processes of their own, beside verdicts of one process.

`python -m benchmarks.judging_workers`. Logs of 45,000 steps in episodes of 10, by tables and by networks, 1 and 4
policies. The ways take turns, round by round, after a first round that is not counted, and only ratios of one round
are compared. Processor seconds are those of all processes of a verdict. The verdicts of 1 and of 2 workers are compared
in all their fields.
"""

import argparse
import json
import os
import resource
import time
from statistics import median
from typing import Any

import numpy as np

import tidelog as tl
from benchmarks.adversarial_worlds import Table
from benchmarks.keep import RESULTS, keep, kept
from benchmarks.verdict_speed import by_networks, ten_steps

COMMAND = "python -m benchmarks.judging_workers"
STEPS, LENGTH, ROUNDS = 45_000, 10, 2
POLICIES = (1, 4)
WAYS = {"no workers": None, "1 worker": 1, "2 workers": 2}


def tables(policies: int) -> tuple[tl.Log, list[Any], dict[str, Any]]:
    """Four actions in twenty contexts."""
    log, _, how = ten_steps(STEPS // LENGTH)
    chances = [[0.2, 0.3 + 0.03 * one, 0.3 - 0.03 * one, 0.2] for one in range(policies)]
    return log, [Table(np.tile([chance], (20, 1))) for chance in chances], how


def networks(policies: int) -> tuple[tl.Log, list[Any], dict[str, Any]]:
    """A logger about whom nothing is known, and policies that learnt from other episodes of the same logger."""
    whole, _, how = by_networks("discrete", 100_000, LENGTH)
    others = whole.take_episodes(range(STEPS // LENGTH, 100_000 // LENGTH))
    run = tl.fit(tl.BC(), others, 100, seeds=policies, progress=False)
    log = whole.take_episodes(range(STEPS // LENGTH))
    return log, [run.policy(member=one) for one in range(policies)], how


KINDS = {"tables": tables, "networks": networks}


def judged(log: tl.Log, policies: list[Any], how: dict[str, Any], workers: int | None) -> tuple[dict[str, float], str]:
    """The wall and processor seconds of a verdict, and its fields as text."""
    begun, before = time.perf_counter(), _processor()
    found = tl.judge(policies, log, ledger=False, learnt_from="other data", progress=False, workers=workers, **how)
    spent = {"seconds": time.perf_counter() - begun, "processor_seconds": _processor() - before}
    return spent, json.dumps([{**one.to_json(), "weights": np.asarray(one.weights).tobytes().hex()} for one in found])


def _processor() -> float:
    both = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(one.ru_utime + one.ru_stime for one in both)


def measured(kind: str, policies: int, rounds: int) -> dict[str, Any]:
    """All ways in turns, with what each took in every round."""
    log, known, how = KINDS[kind](policies)
    found: dict[str, list[dict[str, float]]] = {way: [] for way in WAYS}
    texts: dict[str, str] = {}
    for number in range(rounds + 1):  # the first one compiles
        for way, workers in WAYS.items():
            spent, texts[way] = judged(log, known, how, workers)
            found[way] += [spent] if number else []
    facts: dict[str, Any] = {"rows": log.steps, "rounds": rounds, "equal": texts["1 worker"] == texts["2 workers"]}
    for way, several in found.items():
        seconds = [one["seconds"] for one in several]
        ratios = sorted(b["seconds"] / a["seconds"] for a, b in zip(several, found["no workers"], strict=True))
        facts[way] = {
            "rows_a_second": log.steps / median(seconds),
            "seconds": seconds,
            "processor_seconds": median(one["processor_seconds"] for one in several),
            "time_ratio": [median(ratios), ratios[0], ratios[-1]],
        }
    return facts


def main() -> None:
    """Measure, keep and print; other cases stay as they were kept."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--only", default="", help="measure only the cases with this in their names")
    chosen = parser.parse_args()
    there = kept("judging_workers")["cases"] if (RESULTS / "judging_workers.json").exists() else {}
    names = {f"{kind}, {count}": (kind, count) for kind in KINDS for count in POLICIES}
    for name, case in names.items():
        if chosen.only in name:
            there[name] = measured(*case, chosen.rounds)
            print(name, json.dumps(there[name]), flush=True)
            ordered = {one: there[one] for one in names if one in there}
            keep("judging_workers", COMMAND, {"load": os.getloadavg()[0], "cases": ordered})


if __name__ == "__main__":
    main()
