"""The algorithms of `examples/` against behaviour cloning, paired over seeds, each seed with a log of its own.

TD3+BC learns from the mixed Pendulum logs of `benchmarks/pendulum.py`, CQL from the mixed CartPole logs of
`benchmarks/cartpole.py` (seeds 40 on). Everything is at its defaults; observations are standardised, as TD3+BC's paper
does. Nothing was tuned on these logs. `python -m benchmarks own_algorithms`
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import tidelog as tl
from benchmarks import cartpole, pendulum
from benchmarks.keep import keep, seed_interval
from benchmarks.spread import side_by_side
from examples.cql import CQL
from examples.td3_bc import TD3BC

SEEDS, PLAYED = 5, 50
COMMAND = "python -m benchmarks own_algorithms"


class Task(NamedTuple):
    """An algorithm, its environment, a log for a seed, and the number of updates."""

    algorithm: Callable[[], Any]
    environment: str
    log: Callable[[int], tl.Log]
    first_log: int
    steps: int


TASKS = {
    "td3-bc": Task(TD3BC, pendulum.ENVIRONMENT, pendulum.mixed_log, 0, pendulum.STEPS),
    "cql": Task(CQL, cartpole.ENVIRONMENT, cartpole.mixed_log, 40, cartpole.STEPS),
}


def returns_of_one(name: str, seed: int) -> dict[str, float]:
    """Mean returns on one seed: both play the same starts."""
    task = TASKS[name]
    log = task.log(task.first_log + seed)
    found = {"logger": log.statistics().returns["mean"]}
    for one, algorithm in {name: task.algorithm(), "bc": tl.BC()}.items():
        run = tl.fit(algorithm, log, task.steps, seeds=[seed], scale="standard", progress=False)
        found[one] = float(tl.rollout(run.policy(), task.environment, PLAYED, seed=100 + seed).mean())
    return found


def study() -> dict[str, Any]:
    """Every seed in a process of its own; mean returns, paired differences, and intervals of both."""
    found: dict[str, Any] = {"episodes": PLAYED}
    for name, task in TASKS.items():
        rows = side_by_side(returns_of_one, [(name, seed) for seed in range(SEEDS)])
        returns = {who: [row[who] for row in rows] for who in rows[0]}
        difference = [own - cloned for own, cloned in zip(returns[name], returns["bc"], strict=True)]
        found[name] = {
            "environment": task.environment,
            "steps": task.steps,
            "returns": returns,
            "intervals": {who: seed_interval(values) for who, values in returns.items()},
            "difference": difference,
            "interval": seed_interval(difference),
        }
    keep("own_algorithms", COMMAND, found)
    return found
