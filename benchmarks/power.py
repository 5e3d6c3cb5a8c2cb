"""How often an effect is shown: the verdict, beside a test that knows the problem.

One decision an episode, three kinds of cases, two actions; the policy always takes the second one. It is better than
the behaviour policy by `effect` standard deviations of the rewards. In a *test* the behaviour policy draws evenly; in a
*practice* it takes the second action in 30, 50 and 70% of the cases of a kind. Rewards are normal, or clicks (5%). The
verdict reads the propensities, or estimates them. The oracle is doubly robust with the true propensities and the true
mean rewards, and a normal interval.

`python -m benchmarks power [--logs 60] [--workers 2]`: 45 minutes; a stopped run goes on.
"""

from typing import Any

import numpy as np
from scipy.stats import norm

import tidelog as tl
from benchmarks.adversarial import REPLICATES, state
from benchmarks.adversarial_worlds import Bandit, normal
from benchmarks.keep import by_key, keep
from benchmarks.spread import scratch, spread

NAME, COMMAND = "power", "python -m benchmarks power"
EFFECTS, SIZES, ONE_SIDE, PIECE = (0.0, 0.1, 0.2, 0.5), (200, 1_000, 5_000), 0.025, 20
SECOND = {"test": np.full(3, 0.5), "practice": np.array([0.3, 0.5, 0.7])}  # probability of the second action, [C]
CELLS = [(logging, known, rewards) for logging, known in (("test", True), ("test", False), ("practice", True),
         ("practice", False)) for rewards in ("normal", "clicks")]  # fmt: skip


def problem(logging: str, rewards: str, effect: float) -> Bandit:
    """The behaviour policy, the policy and the mean rewards."""
    second = SECOND[logging]
    behavior_policy, worth = np.stack([1.0 - second, second], axis=1)[None], np.zeros((1, 3, 2))
    if rewards == "normal":
        worth += np.array([-0.5, 0.0, 0.5])[:, None]
        deviation, noise = float(np.sqrt(1.0 + 0.5**2 * 2 / 3)), normal(1.0)
    else:
        worth += np.array([0.03, 0.05, 0.07])[:, None]
        deviation, noise = float(np.sqrt(0.05 * 0.95)), normal(0.0)
    worth[..., 1] += effect * deviation / float((1.0 - second).mean())
    return Bandit(behavior_policy, np.tile([0.0, 1.0], (3, 1)), worth, noise)


def one_log(logging: str, known: bool, rewards: str, effect: float, episodes: int, seed: int) -> dict[str, Any]:
    """The verdict and the oracle on one log."""
    bandit = problem(logging, rewards, effect)
    generator = np.random.default_rng([seed, episodes, round(100 * effect)])
    rows = bandit.rows(generator, episodes)
    if rewards == "clicks":
        rows["reward"] = (generator.random(episodes) < rows["reward"]).astype(float)
    drawn = bandit.drawn(rows, "recorded" if known else "estimated")
    limits = tl.Limits(replicates=REPLICATES)
    verdict = tl.judge(drawn.policies[0], drawn.log, seed=seed, ledger=False, learnt_from="other data",
                       limits=limits, **drawn.arguments)  # fmt: skip
    action, reward, case = rows["action"], rows["reward"], rows["context"]
    weight = (action == 1) / rows["propensity"]
    rated, value = bandit.worth[0, case, action], bandit.worth[0, case, 1]
    parts = value + weight * (reward - rated) - reward
    oracle = parts.mean() > norm.isf(ONE_SIDE) * parts.std(ddof=1) / np.sqrt(episodes)
    return {"logging": logging, "propensities": "recorded" if known else "estimated", "rewards": rewards,
            "effect": effect, "episodes": episodes, "decision": verdict.decision, "oracle": bool(oracle)}  # fmt: skip


def some_logs(*cell: Any) -> list[dict[str, Any]]:
    """What is said of the logs of `PIECE` seeds from the last argument on."""
    *facts, first = cell
    logging, known, rewards, effect, episodes = facts
    return [one_log(logging, known, rewards, effect, episodes, seed) for seed in range(first, first + PIECE)]


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """How many of the logs of one cell show the effect to each."""
    decisions = [one["decision"] for one in rows]
    return {
        "logs": len(rows),
        "better": decisions.count("better"),
        "better_if_randomised": decisions.count("better if randomised"),
        "worse": decisions.count("worse"),
        "unsupported": decisions.count("unsupported"),
        "oracle": sum(one["oracle"] for one in rows),
    }


def study(logs: int = 60, workers: int = 2) -> list[dict[str, Any]]:
    """Judge every log, and keep the counts of each cell."""
    asked = [(*cell, effect, size, seed) for cell in CELLS for effect in EFFECTS for size in SIZES
             for seed in range(0, logs, PIECE)]  # fmt: skip
    rows = [
        row for part in spread([(some_logs, *one) for one in asked], scratch(NAME) / state(), workers) for row in part
    ]
    keys = ("logging", "propensities", "rewards", "effect", "episodes")
    cells = [{**dict(zip(keys, key, strict=True)), **summary(some)}
             for key, some in by_key(rows, lambda one: tuple(one[name] for name in keys))]  # fmt: skip
    keep(NAME, f"{COMMAND} --logs {logs}", {"logs": logs, "state": state(), "cells": cells})
    return cells
