"""How often the bands of `tidelog.ope.risk` hold, on logs whose distributions of returns are known exactly.

For each problem and number of episodes many logs are drawn. A log counts as covered where the whole band of the policy
(of the behaviour policy, of their difference) contains the truth at every return, between the logged ones too. CVaR,
quantiles and the probability of a bad outcome are compared with the truth of returns cut at the lowest and highest
logged one, which is what their intervals are about; "cvar uncut" compares with the truth without that cut. "all" is
everything at once, for which the level is 95%. Shares have 95% Wilson intervals.

Seeds: log `s` of the i-th problem is drawn from `[1000 i + s, episodes]`. `benchmarks risk_bands [--logs 300]`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from scipy.special import ndtr
from scipy.stats import binom
from scipy.stats import t as student

from benchmarks.keep import keep, share
from tidelog.ope.evidence import Evidence
from tidelog.ope.intervals import Confidence
from tidelog.ope.risk import QUANTILES, Risk, Sample, bands_of, risk_of

COMMAND = "python -m benchmarks risk_bands"
LOGS, SIZES, REPLICATES, ALPHA = 300, (200, 500, 1_000, 5_000), 1000, 0.1
Curve = Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True, eq=False)
class Problem:
    """Steps, chances of the first of two actions under behaviour policy and target, and what an episode with k of them
    earns.
    """

    steps: int
    behavior_policy: float
    target: float
    draw: Callable[[np.random.Generator, np.ndarray], np.ndarray]  # k [E] -> returns [E]
    curve: Callable[[int, np.ndarray], np.ndarray]  # k, x -> P(return <= x | k)
    bad: float
    cluster: int = 1  # episodes of one patient, who shares a standard normal

    def truth(self, chance: float) -> Curve:
        chances = binom.pmf(np.arange(self.steps + 1), self.steps, chance)
        return lambda x: sum(p * self.curve(k, x) for k, p in enumerate(chances))


def normal(steps: int, extra: float = 0.0) -> dict[str, Any]:
    """An action of the first kind adds 0.4 and doubles the noise."""

    def spread(k: Any) -> Any:
        return np.sqrt(4.0 * k + (steps - k) + extra)

    return {
        "draw": lambda g, k: 0.4 * k + np.sqrt(spread(k) ** 2 - extra) * g.standard_normal(len(k)),
        "curve": lambda k, x: ndtr((x - 0.4 * k) / spread(k)),
        "bad": -2.0,
    }


def disaster(steps: int) -> dict[str, Any]:
    """Each action of the first kind earns 1, and an episode ends at -10 with a chance of 1% and 2% more an action."""

    def curve(k: int, x: np.ndarray) -> np.ndarray:
        low = 0.01 + 0.02 * k
        return low * (x >= -10) + (1 - low) * ndtr((x - k) / 0.5)

    def draw(g: np.random.Generator, k: np.ndarray) -> np.ndarray:
        return np.where(g.random(len(k)) < 0.01 + 0.02 * k, -10.0, k + 0.5 * g.standard_normal(len(k)))

    return {"draw": draw, "curve": curve, "bad": -10.0}


def heavy(steps: int) -> dict[str, Any]:
    """Student's t with three degrees of freedom around 0.5 an action of the first kind."""
    return {
        "draw": lambda g, k: 0.5 * k + g.standard_t(3, len(k)),
        "curve": lambda k, x: student.cdf(x - 0.5 * k, 3),
        "bad": -2.0,
    }


def counts(steps: int) -> dict[str, Any]:
    """Whole numbers: each of four tries succeeds with 30% and 10% more an action of the first kind."""
    most = 0.3 + 0.5 / steps
    chance = lambda k: 0.3 + (most - 0.3) * k  # noqa: E731
    return {
        "draw": lambda g, k: g.binomial(4, chance(k)).astype(float),
        "curve": lambda k, x: binom.cdf(np.floor(x + 1e-9), 4, chance(k)),
        "bad": 0.0,
    }


PROBLEMS = {
    "one step, normal": Problem(1, 0.5, 0.8, **normal(1)),
    "one step, normal, rare action": Problem(1, 0.1, 0.6, **normal(1)),
    "one step, rare disaster": Problem(1, 0.5, 0.8, **disaster(1)),
    "one step, heavy tails": Problem(1, 0.5, 0.2, **heavy(1)),
    "one step, whole numbers": Problem(1, 0.5, 0.8, **counts(1)),
    "five steps, normal": Problem(5, 0.5, 0.7, **normal(5)),
    "five steps, normal, far": Problem(5, 0.5, 0.82, **normal(5)),
    "five steps, rare disaster": Problem(5, 0.5, 0.7, **disaster(5)),
    "five steps, whole numbers": Problem(5, 0.5, 0.3, **counts(5)),
    "one step, normal, five a patient": Problem(1, 0.5, 0.8, **normal(1, 1.0), cluster=5),
}


def log_of(problem: Problem, episodes: int, generator: np.random.Generator) -> Evidence:
    """A log of that many episodes, with the whole return on the last step."""
    action = generator.random((episodes, problem.steps)) < problem.behavior_policy
    earned = problem.draw(generator, action.sum(1))
    clusters = None
    if problem.cluster > 1:
        clusters = np.arange(episodes) // problem.cluster
        earned = earned + generator.standard_normal(clusters[-1] + 1)[clusters]
    reward = np.zeros((episodes, problem.steps))
    reward[:, -1] = earned
    chance = lambda p: np.where(action, p, 1 - p).ravel()  # noqa: E731
    starts = np.arange(episodes + 1) * problem.steps
    behaviour = chance(problem.behavior_policy)
    return Evidence(starts, reward.ravel(), chance(problem.target), behaviour, clusters=clusters)


def cut(curve: Curve, low: float, high: float, points: int = 5_001) -> tuple[np.ndarray, np.ndarray]:
    """A known distribution function on a fine grid of returns, cut at both ends."""
    grid = np.linspace(low, high, points)
    values = curve(grid).copy()
    values[-1] = 1.0
    return grid, values


@cache
def uncut(problem: Problem) -> list[float]:
    """CVaR of target and behaviour policy, tails included."""
    return [
        cvar(*cut(problem.truth(chance), -200.0, 60.0, 500_001)) for chance in (problem.target, problem.behavior_policy)
    ]


def cvar(grid: np.ndarray, values: np.ndarray) -> float:
    """CVaR of a distribution function on a grid."""
    mass = np.diff(np.minimum(values, ALPHA), prepend=0.0)
    return float(mass @ grid / ALPHA)


def whole_band(problem: Problem, sample: Sample, found: Any) -> dict[str, bool]:
    """Whether each band contains the truth at every return."""
    truths = [problem.truth(problem.target), problem.truth(problem.behavior_policy)]
    tiny = 1e-9 * max(1.0, np.abs(sample.values).max())
    here = [np.concatenate([[0.0], truth(sample.values)]) for truth in truths]
    before = [np.concatenate([truth(sample.values - tiny), [1.0]]) for truth in truths]
    covered = {}
    for name, band, at, left in zip(("policy", "logger"), found[:2], here, before, strict=True):
        covered[name] = bool((band.low <= at + 1e-9).all() and (left <= band.high + 1e-9).all())
    gaps = np.stack([here[0] - here[1], before[0] - before[1]])
    band = found.difference
    covered["difference"] = bool((band.low <= gaps.min(0) + 1e-9).all() and (gaps.max(0) <= band.high + 1e-9).all())
    return covered


def inside(interval: Any, value: float, slack: float) -> bool:
    return bool(interval.low - slack <= value <= interval.high + slack)


def one(problem: Problem, episodes: int, seed: int) -> dict[str, Any]:
    """What holds on one log, and whether a CVaR difference has the wrong sign."""
    evidence = log_of(problem, episodes, np.random.default_rng([seed, episodes]))
    sure = Confidence(0.95, REPLICATES, seed % 2)
    sample = Sample.of(evidence)
    found = bands_of(sample, ALPHA, sure)
    risk = risk_of(evidence, alpha=ALPHA, bad_outcome=problem.bad, confidence=sure)
    covered = whole_band(problem, sample, found)
    truths = [problem.truth(problem.target), problem.truth(problem.behavior_policy)]
    grids = [cut(truth, risk.lowest, risk.highest) for truth in truths]
    step = float(grids[0][0][1] - grids[0][0][0])
    known = [cvar(*grid) for grid in grids]
    covered["cvar"] = inside(risk.cvar.policy, known[0], step) and inside(risk.cvar.behavior_policy, known[1], step)
    covered["cvar difference"] = inside(risk.cvar.difference, known[0] - known[1], 2 * step)
    far = uncut(problem)
    covered["cvar uncut"] = inside(risk.cvar.policy, far[0], step) and inside(risk.cvar.behavior_policy, far[1], step)
    covered["quantiles"] = all(_quantiles(risk, grids, step))
    bad = [float(truth(np.array([problem.bad]))[0]) for truth in truths]
    values = (*bad, bad[0] - bad[1])
    covered["bad outcome"] = all(inside(i, v, 1e-9) for i, v in zip(risk.probability or (), values, strict=True))
    covered["all"] = all(kept for name, kept in covered.items() if name != "cvar uncut")
    gap, sign = risk.cvar.difference, known[0] - known[1]
    wrong = (gap.low > 0 and sign < -2 * step) or (gap.high < 0 and sign > 2 * step)
    return {"covered": covered, "wrong": bool(wrong)}


def _quantiles(risk: Risk, grids: list[Any], step: float) -> list[bool]:
    kept = []
    for level, *compared in risk.quantiles:
        known = [float(grid[min(int(np.searchsorted(values, level)), len(grid) - 1)]) for grid, values in grids]
        for interval, value in zip(compared, (*known, known[0] - known[1]), strict=True):
            kept.append(inside(interval, value, 2 * step))
    assert len(kept) == 3 * len(QUANTILES)
    return kept


def wilson(kept: int, many: int) -> list[float]:
    """Share with its 95% interval."""
    counted = share(kept, many)
    return [counted[part] for part in ("share", "low", "high")]


def cell(name: str, episodes: int, logs: int) -> dict[str, Any]:
    """Coverage over many logs of one problem and size."""
    found = [one(PROBLEMS[name], episodes, 1000 * list(PROBLEMS).index(name) + seed) for seed in range(logs)]
    covered = {what: wilson(sum(row["covered"][what] for row in found), logs) for what in found[0]["covered"]}
    print(name, episodes, {what: round(at[0], 3) for what, at in covered.items()}, flush=True)
    wrong = int(sum(one["wrong"] for one in found))
    return {"problem": name, "episodes": episodes, "logs": logs, "covered": covered, "wrong": wrong}


def pooled(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Coverage over all problems, by number of episodes."""
    found = []
    for episodes in SIZES:
        here = [row for row in rows if row["episodes"] == episodes]
        many = sum(row["logs"] for row in here)
        kept = {what: round(sum(row["covered"][what][0] * row["logs"] for row in here)) for what in here[0]["covered"]}
        wrong = wilson(sum(row["wrong"] for row in here), many)
        covered = {what: wilson(count, many) for what, count in kept.items()}
        found.append({"episodes": episodes, "logs": many, "covered": covered, "wrong sign of cvar difference": wrong})
    return found


def study(logs: int = LOGS) -> None:
    """Draw, count, and keep what was counted; logs of 5,000 episodes are half as many."""
    rows = [cell(name, size, logs if size < 5_000 else logs // 2) for name in PROBLEMS for size in SIZES]
    keep("risk_bands", COMMAND, {"level": 0.95, "alpha": ALPHA, "pooled": pooled(rows)}, rows=rows)
