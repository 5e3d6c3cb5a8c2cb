"""How long estimates with their intervals take, and how much memory: bandit logs and logs of long episodes.

Each case runs in a process of its own, whose anonymous memory (RssAnon) is sampled; the log itself is part of the peak.
"""

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.keep import keep
from benchmarks.spread import called, peak_memory
from tidelog.ope.estimators import SEQUENTIAL, Ratios, doubly_robust, snips, support_of
from tidelog.ope.evidence import Evidence
from tidelog.ope.intervals import Confidence, interval

COMMAND = "python -m benchmarks judging_speed"
REPLICATES, REPEATS = 1_000, 3
CASES: dict[str, tuple[Any, ...]] = {  # episodes, steps of each, estimators, seconds at most on two cores
    "bandit": (10_000_000, 1, {"snips": snips, "doubly_robust": doubly_robust}, 20.0),
    "sequential": (10_000, 100, SEQUENTIAL, 10.0),
    "sequential, long": (1_000, 1_000, SEQUENTIAL, None),
}


def random_evidence(episodes: int, steps: int) -> Evidence:
    """Random rewards and model values, weights near 1."""
    generator, rows = np.random.default_rng(0), episodes * steps
    return Evidence(
        np.arange(episodes + 1) * steps,
        generator.standard_normal(rows),
        generator.uniform(0.45, 0.55, rows),
        np.full(rows, 0.5),
        model=generator.standard_normal(rows),
        model_target=generator.standard_normal(rows),
    )


def measure(name: str) -> dict:
    """One case in this process: seconds of every estimate with its BCa interval, of support, and the peak of memory."""
    episodes, steps, estimators, ceiling = CASES[name]
    evidence = random_evidence(episodes, steps)
    with peak_memory() as peak:
        held = peak[0]
        seconds = {one: _seconds(lambda one=one: _estimated(estimators[one], evidence)) for one in estimators}
        seconds["support"] = _seconds(lambda: support_of(evidence))
    total = sum(seconds.values())
    found = {"seconds": total, "ceiling_seconds": ceiling, "each": seconds, "log_bytes": held, "peak_bytes": peak[0]}
    return {"episodes": episodes, "steps": episodes * steps, **found}


def _estimated(estimator: Callable[[Evidence], Ratios], evidence: Evidence) -> None:
    interval(estimator(evidence), "bca", Confidence(replicates=REPLICATES))


def _seconds(work: Callable[[], object]) -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def study() -> dict:
    """Every case, each the median of a few processes, kept."""
    cases = {}
    for name in CASES:
        runs = [called(measure, name) for _ in range(REPEATS)]
        middle = sorted(runs, key=lambda run: run["seconds"])[REPEATS // 2]
        cases[name] = {**middle, "runs": [run["seconds"] for run in runs]}
    content = {"replicates": REPLICATES, "interval": "bca", "cases": cases}
    keep("judging_speed", COMMAND, content)
    return content
