"""How often chance alone makes a policy better or worse where few episodes earn, with and without permutations.

One decision an episode; the logger is uniform, the target prefers some actions (log-normal preferences of a given
spread), and clicks depend on nothing, so that the true difference is 0. Counted are deciding intervals on one side of
0, before any limit on support; at a level of 95% each side should be reached in 2.5 of a hundred logs.
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
PROBLEMS = [  # rows, share of clicks, actions, spread of the target's preferences
    (5000, 0.005, 20, 0.3), (5000, 0.005, 20, 1.0), (5000, 0.02, 20, 1.0), (1000, 0.02, 20, 1.0), (250, 0.1, 20, 1.0),
    (1000, 0.02, 2, 1.0), (60, 0.5, 20, 1.0),
]  # fmt: skip


def clicked(rows: int, rate: float, actions: int, spread: float, seed: int) -> Evidence:
    """A log of clicks that depend on nothing, under a target that differs from its uniform logger."""
    generator = np.random.default_rng([rows, actions, seed])
    preferences = np.exp(spread * generator.standard_normal((rows, actions)))
    target = preferences[:, 0] / preferences.sum(1)
    reward = (generator.random(rows) < rate).astype(np.float64)
    mean = np.full(rows, reward.mean())
    return Evidence(np.arange(rows + 1), reward, target, np.full(rows, 1 / actions), model=mean, model_target=mean)


def counted(rows: int, rate: float, actions: int, spread: float, logs: int) -> dict[str, Any]:
    """Intervals on each side of 0 over the logs of a problem, by the bootstrap alone and by what decides."""
    sides = {name: {"better": 0, "worse": 0} for name in ("bootstrap", "deciding")}
    for seed in range(logs):
        case = Case(clicked(rows, rate, actions, spread, seed), None, Reuse(None, None, None), Limits())
        for name, found in (("bootstrap", case.between(case.deciding_ratios)), ("deciding", case.difference("wdr"))):
            sides[name]["better"] += found.low > 0
            sides[name]["worse"] += found.high < 0
    row = {"rows": rows, "rate": rate, "actions": actions, "spread": spread, "logs": logs, **sides}
    print(row, flush=True)
    return row


def main(logs: int = LOGS) -> None:
    """Count, and keep what was counted."""
    keep("rare_clicks", COMMAND, {"rows": [counted(*problem, logs) for problem in PROBLEMS]})


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
