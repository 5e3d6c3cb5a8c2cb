"""What is learnt with products of bfloat16 minus what is learnt with float32: 10 seeds, paired by log and seed.

The tasks of `benchmarks/algorithms.py`, with the algorithms as in their papers (layers of 256 and wider, where rounding
saves time) and not as `tl.suggest` sets them up. `python -m benchmarks rounding`; each (task, algorithm, seed,
precision) is a piece of its own and saved. It takes 30 minutes.
"""

from dataclasses import replace
from typing import Any

import tidelog as tl
from benchmarks.algorithms import ALGORITHMS, TASKS
from benchmarks.keep import keep, seed_interval
from benchmarks.spread import scratch, spread
from tidelog.networks import native

SEEDS, STEPS = 10, 5_000
PRECISIONS = ("float32", "bfloat16")
LEARNT = {"pendulum": ("bc", "iql", "bcq"), "icu-sepsis": ("bc", "iql", "discrete-bcq")}
COMMAND = "python -m benchmarks rounding"


def piece(task: str, algorithm: str, seed: int, precision: str, steps: int) -> float:
    """The worth of the policy that one algorithm learns from the log of one seed."""
    rounded = replace(ALGORITHMS[algorithm](), matmul_precision=precision)
    run = tl.fit(rounded, TASKS[task].log(seed), steps, seeds=[seed], eval_every=steps, progress=False)
    return TASKS[task].worth(run.policy(), seed)


def study(seeds: int = SEEDS, steps: int = STEPS, workers: int = 2) -> dict[str, Any]:
    """Learn the pieces that are left, and keep the paired differences."""
    rows = []
    for task, algorithm in ((task, one) for task, several in LEARNT.items() for one in several):
        calls = [(piece, task, algorithm, seed, one, steps) for one in PRECISIONS for seed in range(seeds)]
        worth = spread(calls, scratch("rounding"), workers)
        exact, rounded = worth[:seeds], worth[seeds:]
        gaps = [b - a for a, b in zip(exact, rounded, strict=True)]
        row = {"task": task, "algorithm": algorithm, "float32": seed_interval(exact)}
        rows.append(row | {"bfloat16": seed_interval(rounded), "difference": seed_interval(gaps)})
        print(rows[-1], flush=True)
    products = "native" if native.can_multiply(PRECISIONS[1]) else "XLA"
    content = {"seeds": seeds, "steps": steps, "products": products, "rows": rows}
    keep("rounding", COMMAND, content)
    return content
