"""What is learnt with products of bfloat16 minus what is learnt with float32: 10 seeds, paired by log and seed.

The tasks of `benchmarks/algorithms.py`, with the algorithms as in their papers (layers of 256 and wider, where rounding
saves time) and not as `tl.suggest` sets them up. `python -m benchmarks rounding [--tasks NAME ...] [--seeds 10]`; each
(task, algorithm, seed, precision) is a piece of its own and saved, and a whole study is kept. It takes 30 minutes.
"""

from collections.abc import Sequence
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


def study(
    *, tasks: Sequence[str] = tuple(LEARNT), seeds: int = SEEDS, steps: int = STEPS, workers: int = 2
) -> dict[str, Any]:
    """Learn the pieces that are left, and keep the paired differences."""
    rows = []
    for task in tasks:
        for algorithm in LEARNT[task]:
            keys = [(task, algorithm, seed, precision, steps) for seed in range(seeds) for precision in PRECISIONS]
            worth = spread([(piece, *key) for key in keys], scratch("rounding"), workers)
            exact, rounded = worth[::2], worth[1::2]
            gaps = [b - a for a, b in zip(exact, rounded, strict=True)]
            row = {"task": task, "algorithm": algorithm, "float32": seed_interval(exact)}
            rows.append(row | {"bfloat16": seed_interval(rounded), "difference": seed_interval(gaps)})
            print(rows[-1], flush=True)
    if set(tasks) == set(LEARNT) and (seeds, steps) == (SEEDS, STEPS):
        keep(
            "rounding",
            COMMAND,
            {
                "seeds": seeds,
                "steps": steps,
                "products": "native" if native.can_multiply(PRECISIONS[1]) else "XLA",
                "rows": rows,
            },
        )
    return {"rows": rows}
