"""BCQ on imperfect demonstrations against BC, IQL and the demonstrator, paired over seeds, a log for each seed.

Fujimoto, Meger, Precup 2019, arXiv:1812.02900, the experiment on imperfect demonstrations: at each decision, with
chance 0.3 a uniformly random action, otherwise the demonstrator's with Gaussian noise whose deviation is 0.3 of half
the range, cut at the bounds. Pendulum is demonstrated by the built-in controller, Hopper by a linear policy that
augmented random search found (`benchmarks/hopper_demonstrator.py` in the history). Settings: BCQ's and BC's defaults,
IQL's locomotion preset; nothing was tuned on these logs. The paper trains for hundreds of thousands of updates; this
study takes fewer, so that it ends within minutes.
"""

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import numpy as np

import tidelog as tl
from benchmarks.keep import keep, kept, seed_interval
from benchmarks.mixed_quality import pendulum_controller
from benchmarks.problems import recorded
from benchmarks.spread import spread
from tidelog.envs import make, play
from tidelog.policies.rollout import COPIES

RANDOM, NOISE = 0.3, 0.3
SEEDS, PLAYED = 5, 50
COMMAND = "pytest -m slow tests/learns/test_studies.py -k 'imperfect and {}'"
ALGORITHMS = {"bcq": lambda: tl.BCQ(reward_scaling="none"), "iql": lambda: tl.IQL.preset("locomotion"), "bc": tl.BC}
RIVALS = ("bc", "iql", "demonstrator", "logger")


def hopper_demonstrator() -> Callable[[np.ndarray], np.ndarray]:
    """The kept policy of Hopper: observations [W, 11] to actions [W, 3] within the bounds."""
    found = kept("hopper_demonstrator")
    weights, mean, spread = (np.asarray(found[name]) for name in ("weights", "mean", "spread"))
    return lambda observation: np.clip((observation - mean) / spread @ weights.T, -1.0, 1.0).astype(np.float32)


class Task(NamedTuple):
    """An environment, who demonstrates it (observations [W, O] to actions [W, A]), decisions in a log, and updates."""

    environment: str
    demonstrator: Callable[[], Callable[[np.ndarray], np.ndarray]]
    decisions: int
    steps: int


TASKS = {
    "pendulum": Task("Pendulum-v1", lambda: pendulum_controller, 20_000, 10_000),
    "hopper": Task("Hopper-v5", hopper_demonstrator, 100_000, 10_000),
}


def disturbed(demonstrate, low: np.ndarray, high: np.ndarray):
    """The demonstrator with noise, or at times anything between the bounds [A]."""

    def act(observed, generator):
        action = demonstrate(observed.observation["observation"])
        noisy = action + NOISE * (high - low) / 2 * generator.standard_normal(action.shape)
        anything = generator.uniform(low, high, action.shape)
        chosen = np.where(generator.random((len(action), 1)) < RANDOM, anything, noisy)
        return np.clip(chosen, low, high).astype(np.float32), None

    return act


def imperfect_log(task: Task, seed: int) -> tl.Log:
    """Whole episodes that hold at least the task's decisions."""
    environment = make(task.environment, COPIES)
    space = environment.spec.action
    act = disturbed(task.demonstrator(), np.asarray(space.low), np.asarray(space.high))
    return recorded(environment, act, None, seed, steps=task.decisions)


def returns_of_one(name: str, seed: int) -> dict[str, float]:
    """Mean returns of everybody on one seed: all play the same starts."""
    task, demonstrate = TASKS[name], TASKS[name].demonstrator()
    log = imperfect_log(task, seed)

    def clean(observed, generator):
        return demonstrate(observed.observation["observation"]), None

    played = play(make(task.environment, COPIES), clean, PLAYED, 100 + seed, keep=False)
    found = {"logger": log.statistics().returns["mean"], "demonstrator": float(played.returns.mean())}
    for one, make_algorithm in ALGORITHMS.items():
        run = tl.fit(make_algorithm(), log, task.steps, seeds=[seed], scale="none", progress=False)
        found[one] = float(tl.rollout(run.policy(), task.environment, PLAYED, seed=100 + seed).mean())
    return found


def study(name: str = "pendulum", /) -> dict:
    """Every seed in a process of its own; mean returns, BCQ's paired differences, and intervals of both."""
    task = TASKS[name]
    with TemporaryDirectory() as folder:
        rows = spread([(returns_of_one, name, seed) for seed in range(SEEDS)], Path(folder))
    returns = {who: [row[who] for row in rows] for who in rows[0]}
    differences = {who: [b - other for b, other in zip(returns["bcq"], returns[who], strict=True)] for who in RIVALS}
    found = {
        "environment": task.environment, "decisions": task.decisions, "steps": task.steps, "played": PLAYED,
        "returns": returns, "intervals": {who: seed_interval(values) for who, values in returns.items()},
        "differences": differences,
        "difference_intervals": {who: seed_interval(values) for who, values in differences.items()},
    }  # fmt: skip
    keep(f"imperfect_{name}", COMMAND.format(name), found)
    return found
