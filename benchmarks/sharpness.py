"""Learn for the value, or for the verdict: two rules that choose a policy's sharpness on training episodes.

By value: the largest lower limit of the gain. By verdict: that limit times the probability that the held-out episodes
show it (`auto/sharpness.py`). Each log goes through `tidelog train iql` as the command does it, once where both rules
choose the same. Counted are how often something was *better*, how often wrongly, and the exact gain of what was
recommended (0 where that is to keep what you have), all in deviations of rewards. Problems of known means from
`benchmarks/league.py` and the clinic, each at two sizes; seeds that chose nothing.

`python -m benchmarks sharpness [--seeds 5] [--workers 2]`: 10 seconds a log and rule; a stopped run goes on.
"""

import os
from collections.abc import Sequence
from typing import Any
from unittest.mock import patch

import numpy as np

from benchmarks.default_path import Outcome, default_path
from benchmarks.keep import keep, seed_interval
from benchmarks.league import Split, clinic, generated
from benchmarks.spread import scratch, spread
from tidelog.auto import sharpness
from tidelog.auto.sharpness import Rung

NAME, COMMAND, FIRST_SEED = "sharpness", "python -m benchmarks sharpness", 50
SCRATCH = scratch(NAME)
SIZES = {"router": (1_500, 6_000), "offer": (1_500, 6_000), "dose": (500, 1_500), "clinic": (600, 1_500)}
RULES = ("by value", "by verdict")
FILES = {
    "policy-deterministic": "likeliest actions",
    "policy-sampled": "sampled actions",
    "best-single-action": "best single action",
    "small-rule": "small rule",
}  # verdicts of a run, by file


def by_value(rungs: Sequence[Rung], episodes: int, held_out: int) -> Rung | None:
    """The rung with the largest lower limit of its gain, the mildest where none is above 0."""
    enough = [one for one in rungs if one.effective * min(episodes, held_out) >= sharpness.EFFECTIVE]
    best = max(reversed(enough), key=lambda one: one.lowest, default=None)
    return best if best is None or best.lowest > 0.0 else enough[0]


def one_log(problem: str, size: int, seed: int) -> dict[str, Any]:
    """What both rules lead to on one log."""
    split = clinic(seed, size) if problem == "clinic" else generated(seed, problem, 1.0, 0.0, size)
    choices, ladder = dict[str, Any](dict.fromkeys(RULES)), sharpness.best_rung

    def both(*facts: Any) -> Rung | None:
        choices.update({"by value": by_value(*facts), "by verdict": ladder(*facts)})
        return choices["by value"]

    with patch.object(sharpness, "best_rung", both):
        first = default_path(split.log, SCRATCH / f"part-{os.getpid()}")
    row = {"problem": problem, "size": size, "seed": seed, "by value": result(first, split)}
    temperatures = [None if choices[rule] is None else choices[rule].value for rule in RULES]
    row |= {"temperatures": temperatures, "by verdict": row["by value"]}
    if temperatures[0] != temperatures[1]:
        words = ("--temperature", str(temperatures[1]))
        row["by verdict"] = result(default_path(split.log, SCRATCH / f"part-{os.getpid()}", *words), split)
    return row


def result(outcome: Outcome, split: Split) -> dict[str, Any]:
    """Whether something was *better*, or wrongly so, and the exact gain of what was recommended."""
    deviation = float(np.std(np.asarray(split.log.reward)))
    better = [FILES[name.rpartition("-")[0]] for name, decision in outcome.decisions.items() if decision == "better"]
    return {
        "better": bool(better),
        "wrong": any(split.value(outcome.candidates[name]) <= 0.0 for name in better),
        "gain": 0.0 if outcome.policy is None else split.value(outcome.policy) / deviation,
    }


def study(seeds: int = 5, workers: int = 2) -> dict[str, Any]:
    """Every log of every problem and size."""
    cells = [(problem, size) for problem, sizes in SIZES.items() for size in sizes]
    seeds_of_logs = range(FIRST_SEED, FIRST_SEED + seeds)
    calls = [(one_log, problem, size, seed) for problem, size in cells for seed in seeds_of_logs]
    rows = spread(calls, SCRATCH, workers)
    table = []
    for problem, size in cells:
        mine = [row for row in rows if (row["problem"], row["size"]) == (problem, size)]
        gains = {rule: [row[rule]["gain"] for row in mine] for rule in RULES}
        differences = [verdict - value for value, verdict in zip(gains["by value"], gains["by verdict"], strict=True)]
        table.append({
            "problem": problem, "size": size, "logs": len(mine),
            "other choice": sum(row["temperatures"][0] != row["temperatures"][1] for row in mine),
            **{f"better {rule}": sum(row[rule]["better"] for row in mine) for rule in RULES},
            **{f"wrong {rule}": sum(row[rule]["wrong"] for row in mine) for rule in RULES},
            **{f"gain {rule}": float(np.mean(gains[rule])) for rule in RULES},
            "difference": seed_interval(differences),
        })  # fmt: skip
    keep(NAME, COMMAND, {"seeds": seeds, "first_seed": FIRST_SEED}, table=table, logs=rows)
    return {f"{row['problem']} {row['size']}": row for row in table}
