"""How long a whole verdict takes, and how much memory: networks on 30,000 and 90,000 steps, and tables on large logs.

Each verdict is made in a process of its own; memory is the most that the process held, the log and all libraries
included. The bounds that were set before: 10,000 episodes of 10 steps within 30 seconds and 1,000,000 one-step rows
within 20 seconds, on two cores.
"""

import resource
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

import numpy as np

import tidelog as tl
from benchmarks.adversarial_worlds import Table, plain, several
from benchmarks.keep import keep, kept
from benchmarks.speed import synthetic_log

COMMAND = "python -m benchmarks verdict_speed"
REPEATS = 3
BOUNDS = {"10,000 episodes of 10 steps": 30.0, "1,000,000 one-step rows": 20.0}  # seconds


def by_networks(kind: str, steps: int, length: int) -> tuple[tl.Log, Any, dict[str, Any]]:
    """Episodes of this length, nothing known of the logger, and a policy that learnt from others of the same logger."""
    whole = synthetic_log(kind == "discrete")
    row = np.arange(whole.steps)
    log = tl.Log.from_arrays(**{**whole.to_arrays(), "episode": row // length, "truncated": row % length == length - 1})
    policy = tl.fit(
        tl.BC(), log.take_episodes(range(90_000 // length, 100_000 // length)), 100, progress=False
    ).policy()
    return log.take_episodes(range(steps // length)), policy, {"sample": True, "propensities": "estimated"}


def ten_steps(episodes: int = 10_000) -> tuple[tl.Log, Any, dict[str, Any]]:
    """Episodes of ten decisions among four actions in twenty contexts."""
    generator, shape = np.random.default_rng(0), (episodes, 10)
    context, action = generator.integers(0, 20, shape), generator.integers(0, 4, shape)
    reward = 0.3 * (action == 1) + generator.standard_normal(shape)
    log = several(context, action, reward, np.full(shape, 0.25), actions=4)
    return log, Table(np.tile([0.2, 0.4, 0.2, 0.2], (20, 1))), {}


def one_step(rows: int = 1_000_000) -> tuple[tl.Log, Any, dict[str, Any]]:
    """Rows that are episodes."""
    drawn = plain(0.05, 0.8).draw(np.random.default_rng(0), rows)
    return drawn.log, drawn.policies[0], {}


CASES: dict[str, tuple[Callable[..., tuple[tl.Log, Any, dict[str, Any]]], tuple[Any, ...]]] = {
    "30,000 steps, networks, discrete": (by_networks, ("discrete", 30_000, 500)),
    "30,000 steps, networks, continuous": (by_networks, ("continuous", 30_000, 500)),
    "90,000 steps, networks, discrete": (by_networks, ("discrete", 90_000, 1_000)),
    "90,000 steps, networks, continuous": (by_networks, ("continuous", 90_000, 1_000)),
    "10,000 episodes of 10 steps": (ten_steps, ()),
    "1,000,000 one-step rows": (one_step, ()),
}


def measured(name: str) -> dict[str, Any]:
    """Seconds of one verdict in this process, which has compiled nothing, and the most memory that it held."""
    make, arguments = CASES[name]
    log, policy, how = make(*arguments)
    before = _megabytes()
    begin, used = time.perf_counter(), time.process_time()
    verdict = tl.judge(policy, log, ledger=False, **how)
    seconds, used = time.perf_counter() - begin, time.process_time() - used
    found = {"processor_seconds": used, "decision": verdict.decision, "model": verdict.context["model"]}
    return {"seconds": seconds, "megabytes_before": before, "megabytes": _megabytes(), **found}


def _megabytes() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def study(repeats: int = REPEATS, only: str = "") -> dict[str, Any]:
    """Every case with `only` in its name, each time in a fresh process; other cases stay as they were kept."""
    found = kept("verdict_speed")["cases"] if only else {}
    for name in (name for name in CASES if only in name):
        rows = []
        for _ in range(repeats):
            with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
                rows.append(pool.submit(measured, name).result())
        keys = ("seconds", "processor_seconds", "megabytes")
        median = {key: statistics.median(row[key] for row in rows) for key in keys}
        found[name] = {"median": median, "bound_seconds": BOUNDS.get(name), "rows": rows}
        print(name, median, flush=True)
    ordered = {name: found[name] for name in dict.fromkeys([*CASES, *found]) if name in found}
    keep("verdict_speed", f"{COMMAND} --repeats {repeats}", {"repeats": repeats, "cases": ordered})
    return found
