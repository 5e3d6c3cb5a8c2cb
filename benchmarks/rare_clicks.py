"""How often chance alone makes a policy better or worse where few episodes earn, with and without permutations.

The logger is uniform, the target prefers some actions (log-normal preferences of a given spread), and clicks depend on
nothing, so that the true difference is 0. Episodes of 60 steps are judged by ratios of visits. Counted are deciding
intervals on one side of 0, before any limit on support; at a level of 95% each side should be reached in 2.5 of a
hundred logs.
`python -m benchmarks.rare_clicks`.
"""

import sys
from typing import Any

import numpy as np

from benchmarks.keep import keep
from tidelog.ope.evidence.evidence import Evidence
from tidelog.ope.verdict.checks import Reuse
from tidelog.ope.verdict.decide import Case
from tidelog.ope.verdict.limits import Limits

COMMAND = "python -m benchmarks.rare_clicks"
LOGS = 1000
PROBLEMS = [  # rows, share of clicks, actions, spread of the target's preferences, steps of an episode
    (5000, 0.005, 20, 0.3, 1), (5000, 0.005, 20, 1.0, 1), (5000, 0.02, 20, 1.0, 1), (1000, 0.02, 20, 1.0, 1),
    (250, 0.1, 20, 1.0, 1), (1000, 0.02, 2, 1.0, 1), (60, 0.5, 20, 1.0, 1),
    (5000, 0.005, 20, 0.3, 5), (24_000, 0.001, 20, 0.3, 60), (24_000, 0.001, 20, 1.0, 60),
]  # fmt: skip


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


def counted(rows: int, rate: float, actions: int, spread: float, steps: int, logs: int) -> dict[str, Any]:
    """Intervals on each side of 0 over the logs of a problem, by the bootstrap alone and by what decides."""
    sides = {name: {"better": 0, "worse": 0} for name in ("bootstrap", "deciding")}
    for seed in range(logs):
        case = Case(clicked(rows, rate, actions, spread, steps, seed), None, Reuse(None, None, None), Limits())
        found = {"bootstrap": case.between(case.deciding_ratios), "deciding": case.difference(case.deciding)}
        for name, ends in found.items():
            sides[name]["better"] += bool(ends.low > 0)
            sides[name]["worse"] += bool(ends.high < 0)
    row = {"rows": rows, "rate": rate, "actions": actions, "spread": spread, "steps": steps, "logs": logs, **sides}
    print(row, flush=True)
    return row


def main(logs: int = LOGS) -> None:
    """Count, and keep what was counted."""
    keep("rare_clicks", COMMAND, {"rows": [counted(*problem, logs) for problem in PROBLEMS]})


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
