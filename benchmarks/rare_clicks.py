"""How often chance alone makes a policy better or worse where few episodes earn, with and without permutations.

The logger is uniform, the target prefers some actions (log-normal preferences of a given spread), and clicks depend on
nothing, so that the true difference is 0. Episodes of 60 steps are judged by ratios of visits. Where users are
clusters, each was shown one action throughout, and few of them click at all. Counted are deciding intervals on one side
of 0, before any limit on support; at a level of 95% each side should be reached in 2.5 of a hundred logs.
`python -m benchmarks.rare_clicks`.
"""

import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.keep import keep
from tidelog.ope.decide import Case, Reuse
from tidelog.ope.evidence import Evidence
from tidelog.ope.verdict import Limits

COMMAND = "python -m benchmarks.rare_clicks"
LOGS = 1000
PROBLEMS = [  # rows, share of clicks, actions, spread of the target's preferences, steps of an episode
    (5000, 0.005, 20, 0.3, 1), (5000, 0.005, 20, 1.0, 1), (5000, 0.02, 20, 1.0, 1), (1000, 0.02, 20, 1.0, 1),
    (250, 0.1, 20, 1.0, 1), (1000, 0.02, 2, 1.0, 1), (60, 0.5, 20, 1.0, 1),
    (5000, 0.005, 46, 2.0, 1), (5000, 0.005, 20, 0.3, 5), (24_000, 0.001, 20, 0.3, 60), (24_000, 0.001, 20, 1.0, 60),
]  # fmt: skip
OF_USERS = [  # users, rows of each, share of clicks, share of users who click, spread of the target's preferences
    (250, 20, 0.005, 0.1, 0.3), (250, 20, 0.005, 0.1, 1.0), (1000, 5, 0.005, 0.1, 1.0), (50, 100, 0.02, 0.1, 1.0),
    (1000, 5, 0.02, 0.5, 1.0),
]  # fmt: skip
ACTIONS = 20  # shown to users


def clicked(rows: int, rate: float, actions: int, spread: float, steps: int, seed: int) -> Evidence:
    """A log of clicks that depend on nothing, under a target that differs from its uniform logger."""
    generator = np.random.default_rng([rows, actions, seed])
    preferences = np.exp(spread * generator.standard_normal((rows, actions)))
    target = preferences[:, 0] / preferences.sum(1)
    reward = (generator.random(rows) < rate).astype(np.float64)
    left = reward.mean() * np.tile(np.arange(steps, 0, -1), rows // steps)
    return Evidence(
        np.arange(0, rows + 1, steps), reward, target, np.full(rows, 1 / actions),
        model=left, model_target=left, occupancy=target * actions,
    )  # fmt: skip


def clicked_by_users(users: int, each: int, rate: float, clickers: float, spread: float, seed: int) -> Evidence:
    """A log of users who click or not whatever they are shown, one action each; users are its clusters."""
    generator = np.random.default_rng([users, each, seed])
    preferences = np.exp(spread * generator.standard_normal((users, ACTIONS)))
    target = np.repeat(preferences[:, 0] / preferences.sum(1), each)
    chance = np.repeat(np.where(generator.random(users) < clickers, rate / clickers, 0.0), each)
    reward = (generator.random(users * each) < chance).astype(np.float64)
    left = np.full(users * each, reward.mean())
    return Evidence(
        np.arange(users * each + 1), reward, target, np.full(users * each, 1 / ACTIONS),
        model=left, model_target=left, clusters=np.repeat(np.arange(users), each),
    )  # fmt: skip


def counted(problem: dict[str, Any], log: Callable[..., Evidence], logs: int) -> dict[str, Any]:
    """Intervals on each side of 0 over the logs of a problem, by the bootstrap alone and by what decides."""
    sides = {name: {"better": 0, "worse": 0} for name in ("bootstrap", "deciding")}
    for seed in range(logs):
        case = Case(log(*problem.values(), seed), None, Reuse(None, None, None), Limits())
        found = {"bootstrap": case.between(case.deciding_ratios), "deciding": case.difference(case.deciding)}
        for name, ends in found.items():
            sides[name]["better"] += bool(ends.low > 0)
            sides[name]["worse"] += bool(ends.high < 0)
    row = {**problem, "logs": logs, **sides}
    print(row, flush=True)
    return row


def main(logs: int = LOGS) -> None:
    """Count, and keep what was counted."""
    names = ("rows", "rate", "actions", "spread", "steps")
    rows = [counted(dict(zip(names, problem, strict=True)), clicked, logs) for problem in PROBLEMS]
    names = ("users", "rows of each", "rate", "users who click", "spread")
    of_users = [counted(dict(zip(names, problem, strict=True)), clicked_by_users, logs) for problem in OF_USERS]
    keep("rare_clicks", COMMAND, {"rows": rows, "of users": of_users})


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
