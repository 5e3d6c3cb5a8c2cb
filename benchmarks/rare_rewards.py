"""How often a verdict sees a difference where there is none, on logs whose rewards are rare or long-tailed.

Logs of one decision among four, a target that is worth exactly what the logger is. Support is whole everywhere: only
how few episodes earned something can mislead. Counted are verdicts under several limits on how many episodes make the
variance of the difference; at a level of 95% each side should be said in 2.5 of a hundred.
`python -m benchmarks.rare_rewards`.
"""

import sys
from dataclasses import replace
from typing import Any

import numpy as np

from benchmarks.keep import keep
from tidelog.data.log import Log
from tidelog.ope.decide import Case, apply_limits, evaluate, reuse_of
from tidelog.ope.estimate import Supports
from tidelog.ope.policies import as_policy
from tidelog.ope.policy_evidence import evidence_of
from tidelog.ope.verdict import Limits

COMMAND = "python -m benchmarks.rare_rewards"
LIMITS = (0.0, 4.0, 6.0, 8.0, 10.0)
LOGS = 200
FAVOURITE, MILD = 0.9, 0.4  # how likely the target takes the first of four


def clicks(rate: float) -> Any:
    """Rewards of 1, so rarely."""
    return lambda generator, rows: (generator.random(rows) < rate).astype(np.float64)


PROBLEMS: dict[str, tuple[Any, int, float]] = {
    "clicks, 0.4%, 1,000 rows": (clicks(0.004), 1000, FAVOURITE),
    "clicks, 1%, 600 rows": (clicks(0.01), 600, FAVOURITE),
    "clicks, 2%, 1,000 rows, close to the logger": (clicks(0.02), 1000, MILD),
    "clicks, 5%, 1,000 rows": (clicks(0.05), 1000, FAVOURITE),
    "log-normal, 300 rows, close to the logger": (lambda g, rows: np.exp(2.0 * g.standard_normal(rows)), 300, MILD),
    "normal, 60 rows": (lambda g, rows: g.standard_normal(rows), 60, MILD),
    "normal, 200 rows": (lambda g, rows: g.standard_normal(rows), 200, FAVOURITE),
}


class Prefers:
    """Takes the first of four actions so often, the others alike."""

    def __init__(self, first: float) -> None:
        self.first = first

    def probabilities(self, observation: Any, mask: Any = None) -> np.ndarray:
        rest = (1.0 - self.first) / 3.0
        return np.tile([self.first, rest, rest, rest], (len(next(iter(observation.values()))), 1))


def one(name: str, seed: int) -> tuple[float, list[str]]:
    """How many episodes make the variance of a log's difference, and the decision under each limit."""
    draw, rows, first = PROBLEMS[name]
    generator = np.random.default_rng([seed, list(PROBLEMS).index(name)])
    log = Log.from_arrays(
        observation=generator.standard_normal((rows, 2)), action=generator.integers(0, 4, rows),
        reward=draw(generator, rows), terminated=np.ones(rows, bool), propensity=np.full(rows, 0.25),
    )  # fmt: skip
    known = as_policy(Prefers(first), log.spec)
    found = evidence_of(known, log, sample=True, seed=seed, cloning=False)
    limits = Limits()
    case = Case(found.policy, None, reuse_of(known, log), limits, seed)
    seen = evaluate(case, Supports(found.policy))
    made = [apply_limits(seen, replace(limits, earning_episodes=least), case.reuse)[0] for least in LIMITS]
    return seen.earning, [str(decision) for decision in made]


def counted(name: str, logs: int) -> dict[str, Any]:
    """Decisions over many logs of a problem, by limit."""
    found = [one(name, seed) for seed in range(logs)]
    by_limit = {}
    for place, least in enumerate(LIMITS):
        said = [decisions[place] for _, decisions in found]
        by_limit[f"{least:g}"] = {kind: said.count(kind) for kind in ("better", "worse", "unsupported")}
    row = {"problem": name, "logs": logs, "earning_median": float(np.median([e for e, _ in found])), "limits": by_limit}
    print(row, flush=True)
    return row


def main(logs: int = LOGS) -> None:
    """Count, and keep what was counted."""
    keep("rare_rewards", COMMAND, {"rows": [counted(name, logs) for name in PROBLEMS]})


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
