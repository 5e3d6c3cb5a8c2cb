"""The algorithms over a log beside behaviour cloning, on the project's own logs, as `tidelog train` sets them up.

Pendulum: the logs of `benchmarks/mixed_quality.py`; Hopper: the imperfect demonstrations of `benchmarks/imperfect.py`;
ICU-Sepsis: the clinicians' log of `benchmarks/icu_sepsis.py`, where the value of a policy is exact. Each seed has a log
of its own, which all algorithms learn from, and on Pendulum and Hopper the same starts; so differences are paired.
Settings are those of `tl.suggest`: for these logs layers of 64 and a learning rate of 0.001, for IQL the temperature
and for discrete BCQ the threshold that earn most on training episodes where that can be estimated, else the defaults of
the papers. Nothing was tuned on these logs: the study says how far that gets within few updates.

Each of (task, algorithm, seed) is a piece of its own and saved: a study that was stopped goes on.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import tidelog as tl
from benchmarks import icu_sepsis, imperfect, mixed_quality
from benchmarks.keep import keep, seed_interval
from benchmarks.spread import scratch, spread

SEEDS, PLAYED, STEPS = 5, 50, 5_000
HOPPER = 60_000  # decisions in a log
COMMAND = "python -m benchmarks algorithms"


class Task(NamedTuple):
    """A log for a seed, the worth of a policy that was learnt with a seed, and the algorithms."""

    log: Callable[[int], tl.Log]
    worth: Callable[[tl.Policy, int], float]
    algorithms: Sequence[str]


def returns_in(environment: str) -> Callable[[tl.Policy, int], float]:
    """The mean return of episodes in an environment."""
    return lambda policy, seed: float(tl.rollout(policy, environment, PLAYED, seed=100 + seed).mean())


def exact_value(policy: tl.Policy, seed: int) -> float:
    """The exact value of the most likely actions on ICU-Sepsis."""
    problem, _ = icu_sepsis.icu_sepsis()
    return float(problem.value_of(policy(problem.observations())))


CONTINUOUS = ("bc", "iql", "bcq", "td3-bc", "rebrac", "cql", "fql")
DISCRETE = ("bc", "iql", "discrete-bcq", "discrete-cql")
ALGORITHMS: dict[str, Callable[[], Any]] = {
    "bc": tl.BC,
    "iql": tl.IQL,
    "bcq": tl.BCQ,
    "td3-bc": tl.TD3BC,
    "rebrac": tl.ReBRAC,
    "cql": tl.CQL,
    "fql": tl.FQL,
    "discrete-bcq": tl.DiscreteBCQ,
    "discrete-cql": tl.DiscreteCQL,
}
TASKS = {
    "pendulum": Task(mixed_quality.pendulum_log, returns_in(mixed_quality.PENDULUM), CONTINUOUS),
    "icu-sepsis": Task(
        lambda seed: icu_sepsis.expert_log(*icu_sepsis.icu_sepsis(), icu_sepsis.EPISODES, seed),
        exact_value,
        DISCRETE,
    ),
    "hopper": Task(
        lambda seed: imperfect.imperfect_log(imperfect.TASKS["hopper"]._replace(decisions=HOPPER), seed),
        returns_in(imperfect.TASKS["hopper"].environment),
        CONTINUOUS,
    ),
}


def piece(task_name: str, algorithm: str, seed: int, steps: int) -> dict[str, float]:
    """The worth of the policy that one algorithm learns from the log of one seed, and the mean return of the log."""
    task = TASKS[task_name]
    log = task.log(seed)
    suggestion = tl.suggest(ALGORITHMS[algorithm], log)
    run = tl.fit(suggestion.algorithm, log, steps, seeds=[seed], eval_every=steps, progress=False)
    return {"worth": task.worth(run.policy(), seed), "logger": float(log.statistics().returns["mean"])}


def rows_of(pieces: dict[str, list[dict[str, float]]]) -> dict[str, Any]:
    """Of one task: the worth of each algorithm and of the log by seeds, and its paired difference to cloning."""
    worth = {name: [one["worth"] for one in several] for name, several in pieces.items()}
    worth["logger"] = [one["logger"] for one in pieces["bc"]]
    differences = {name: [a - b for a, b in zip(worth[name], worth["bc"], strict=True)] for name in worth}
    return {
        "worth": worth,
        "intervals": {name: seed_interval(values) for name, values in worth.items()},
        "differences": {name: seed_interval(values) for name, values in differences.items() if name != "bc"},
    }


def study(seeds: int = SEEDS, steps: int = STEPS, workers: int = 2) -> dict[str, Any]:
    """Learn the pieces that are left, task by task, and keep them."""
    tasks = {}
    for task, (*_, algorithms) in TASKS.items():
        calls = [(piece, task, one, seed, steps) for one in algorithms for seed in range(seeds)]
        found = spread(calls, scratch("algorithms"), workers)
        tasks[task] = rows_of({one: found[i * seeds : (i + 1) * seeds] for i, one in enumerate(algorithms)})
    keep("algorithms", COMMAND, {"played": PLAYED, "seeds": seeds, "steps": steps, "tasks": tasks})
    return tasks
