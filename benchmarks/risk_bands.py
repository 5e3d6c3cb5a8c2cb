"""How often the bands of `tidelog.ope.risk` hold, on logs whose distributions of returns are known exactly.

For each problem and number of episodes many logs are drawn. A log counts as covered where the whole band of the policy
(of the logger, of their difference) contains the truth at every return, between the logged ones too. CVaR, quantiles
and the probability of a bad outcome are compared with the truth of returns cut at the lowest and highest logged one,
which is what their intervals are about; "cvar uncut" compares with the truth without that cut. "all" is everything at
once, for which the level is 95%. Shares have 95% Wilson intervals.

Two other bands stand beside it: of constant width (bootstrap of the largest unstandardised error), and at ten key
points with empirical Bernstein bounds (Maurer & Pontil 2009) after Chandak et al. 2021, split over points and sides.
Seeds: log `s` of the i-th problem is drawn from `[1000 i + s, episodes]`. `benchmarks risk_bands [--logs 300]`.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from scipy.special import ndtr
from scipy.stats import binom
from scipy.stats import t as student

from benchmarks.keep import keep
from tidelog.ope.estimators import log_weights
from tidelog.ope.evidence import Evidence
from tidelog.ope.intervals import Confidence, resampled_counts
from tidelog.ope.risk import QUANTILES, Risk, Sample, bands_of, summary

COMMAND = "python -m benchmarks risk_bands"
LOGS, SIZES, REPLICATES, ALPHA = 300, (200, 500, 1_000, 5_000), 1000, 0.1
Curve = Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True, eq=False)
class Problem:
    """Steps, chances of the first of two actions under logger and target, and what an episode with k of them earns."""

    steps: int
    logger: float
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


def log_of(problem: Problem, episodes: int, generator: np.random.Generator) -> tuple[Evidence, np.ndarray | None]:
    """A log of that many episodes, the whole return on the last step, and its clusters."""
    action = generator.random((episodes, problem.steps)) < problem.logger
    earned = problem.draw(generator, action.sum(1))
    clusters = None
    if problem.cluster > 1:
        clusters = np.arange(episodes) // problem.cluster
        earned = earned + generator.standard_normal(clusters[-1] + 1)[clusters]
    reward = np.zeros((episodes, problem.steps))
    reward[:, -1] = earned
    chance = lambda p: np.where(action, p, 1 - p).ravel()  # noqa: E731
    starts = np.arange(episodes + 1) * problem.steps
    return Evidence(starts, reward.ravel(), chance(problem.target), chance(problem.logger)), clusters


def cut(curve: Curve, low: float, high: float, points: int = 5_001) -> tuple[np.ndarray, np.ndarray]:
    """A known distribution function on a fine grid of returns, cut at both ends."""
    grid = np.linspace(low, high, points)
    values = curve(grid).copy()
    values[-1] = 1.0
    return grid, values


@cache
def uncut(problem: Problem) -> list[float]:
    """CVaR of target and logger, tails included."""
    return [cvar(*cut(problem.truth(chance), -200.0, 60.0, 500_001)) for chance in (problem.target, problem.logger)]


def cvar(grid: np.ndarray, values: np.ndarray) -> float:
    """CVaR of a distribution function on a grid."""
    mass = np.diff(np.minimum(values, ALPHA), prepend=0.0)
    return float(mass @ grid / ALPHA)


def whole_band(problem: Problem, sample: Sample, found: Any) -> dict[str, bool]:
    """Whether each band contains the truth at every return."""
    truths = [problem.truth(problem.target), problem.truth(problem.logger)]
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
    """What holds on one log, and how wide intervals are."""
    evidence, clusters = log_of(problem, episodes, np.random.default_rng([seed, episodes]))
    sure = Confidence(0.95, REPLICATES, seed % 2)
    sample = Sample.of(evidence, clusters)
    found = bands_of(sample, ALPHA, sure)
    risk = summary(sample, found, ALPHA, problem.bad, sure.level)
    covered = whole_band(problem, sample, found)
    truths = [problem.truth(problem.target), problem.truth(problem.logger)]
    grids = [cut(truth, risk.lowest, risk.highest) for truth in truths]
    step = float(grids[0][0][1] - grids[0][0][0])
    known = [cvar(*grid) for grid in grids]
    covered["cvar"] = inside(risk.cvar.policy, known[0], step) and inside(risk.cvar.logger, known[1], step)
    covered["cvar difference"] = inside(risk.cvar.difference, known[0] - known[1], 2 * step)
    far = uncut(problem)
    covered["cvar uncut"] = inside(risk.cvar.policy, far[0], step) and inside(risk.cvar.logger, far[1], step)
    covered["quantiles"] = all(_quantiles(risk, grids, step))
    bad = [float(truth(np.array([problem.bad]))[0]) for truth in truths]
    values = (*bad, bad[0] - bad[1])
    covered["bad outcome"] = all(inside(i, v, 1e-9) for i, v in zip(risk.probability or (), values, strict=True))
    covered["all"] = all(kept for name, kept in covered.items() if name != "cvar uncut")
    gap = risk.cvar.difference
    sign = known[0] - known[1]
    return {
        "covered": covered,
        "ess": risk.effective_sample_size,
        "critical": risk.critical,
        "width": gap.high - gap.low,
        "policy width": risk.cvar.policy.high - risk.cvar.policy.low,
        "shown": bool(gap.low > 0 or gap.high < 0),
        "wrong": bool((gap.low > 0 and sign < -2 * step) or (gap.high < 0 and sign > 2 * step)),
        "others": others(sample, evidence, sure, problem, risk),
    }


def _quantiles(risk: Risk, grids: list[Any], step: float) -> list[bool]:
    kept = []
    for share, compared in risk.quantiles:
        known = [float(grid[min(int(np.searchsorted(values, share)), len(grid) - 1)]) for grid, values in grids]
        for interval, value in zip(compared, (*known, known[0] - known[1]), strict=True):
            kept.append(inside(interval, value, 2 * step))
    assert len(kept) == 3 * len(QUANTILES)
    return kept


def others(sample: Sample, evidence: Evidence, sure: Confidence, problem: Problem, risk: Risk) -> dict[str, Any]:
    """Coverage of the policy's curve and width of its CVaR by a band of constant width and by bounds at key points."""
    truth = problem.truth(problem.target)(sample.values)
    bands = {"constant width": constant(sample, sure), "key points": key_points(evidence, sample)}
    found = {}
    for name, (low, high) in bands.items():
        kept = bool((low <= truth + 1e-9).all() and (truth <= high + 1e-9).all())
        ends = [_cvar_of(sample.values, curve) for curve in (high, low)]
        found[name] = {"covered": kept, "width": ends[1] - ends[0]}
    return found


def _cvar_of(values: np.ndarray, curve: np.ndarray) -> float:
    mass = np.diff(np.minimum(curve, ALPHA), prepend=0.0)
    return float((mass @ values + (ALPHA - mass.sum()) * values[-1]) / ALPHA)


def constant(sample: Sample, sure: Confidence) -> tuple[np.ndarray, np.ndarray]:
    """The policy's curve [M] plus and minus the 95% quantile of its largest error."""
    levels = np.unique(np.linspace(1, len(sample.values), 150).astype(int))
    cell = np.searchsorted(levels, sample.place, side="right") + sample.unit * (len(levels) + 1)
    cells = sample.clusters * (len(levels) + 1)
    table = np.bincount(cell, sample.policy, cells).reshape(sample.clusters, -1)
    largest = []
    for drawn in resampled_counts(sample.clusters, sure.replicates, sure.seed):
        rising = np.cumsum(drawn.astype(float) @ table, axis=1)
        error = rising[:, :-1] / rising[:, -1:] - sample.policy_cdf[levels]
        largest.append(np.abs(error).max(1))
    half = float(np.quantile(np.concatenate(largest), sure.level))
    return np.maximum(sample.policy_cdf[1:] - half, 0.0), np.minimum(sample.policy_cdf[1:] + half, 1.0)


def bernstein(values: np.ndarray, most: float, error: float) -> tuple[float, float]:
    """Empirical Bernstein bound of the mean of values from 0 to `most` (Maurer & Pontil 2009, theorem 4)."""
    many, risk = len(values), np.log(4.0 / error)
    half = np.sqrt(2.0 * values.var(ddof=1) * risk / many) + 7.0 * (most + 2e-9) * risk / (3.0 * (many - 1))
    return float(values.mean() - half), float(values.mean() + half)


def key_points(evidence: Evidence, sample: Sample, points: int = 10) -> tuple[np.ndarray, np.ndarray]:
    """Bounds of the policy's curve [M] at key points by empirical Bernstein, joined as the curve can only rise."""
    weight = np.exp(log_weights(evidence))
    most = float(weight.max())
    at = np.unique(np.searchsorted(sample.policy_cdf[1:], np.linspace(0.5 / points, 1 - 0.5 / points, points)))
    low, high = np.zeros(len(sample.values)), np.ones(len(sample.values))
    for place in at[::-1]:
        end = bernstein(weight * (sample.place <= place), most, 0.05 / len(at))[1]
        high[: place + 1] = np.minimum(high[: place + 1], min(end, 1.0))
    for place in at:
        end = bernstein(weight * (sample.place <= place), most, 0.05 / len(at))[0]
        low[place:] = np.maximum(low[place:], max(end, 0.0))
    return low, high


def wilson(kept: int, many: int) -> list[float]:
    """Share with its 95% interval."""
    z, share = 1.96, kept / many
    middle, half = share + z * z / (2 * many), z * np.sqrt(share * (1 - share) / many + z * z / (4 * many * many))
    scale = 1 + z * z / many
    return [share, (middle - half) / scale, (middle + half) / scale]


def cell(name: str, episodes: int, logs: int) -> dict[str, Any]:
    """Coverage over many logs of one problem and size."""
    begin = time.perf_counter()
    found = [one(PROBLEMS[name], episodes, 1000 * list(PROBLEMS).index(name) + seed) for seed in range(logs)]
    covered = {what: wilson(sum(row["covered"][what] for row in found), logs) for what in found[0]["covered"]}
    medians = {
        what: float(np.median([row[what] for row in found])) for what in ("ess", "critical", "width", "policy width")
    }
    beside = {
        other: {
            "covered": wilson(sum(row["others"][other]["covered"] for row in found), logs),
            "policy width": float(np.median([row["others"][other]["width"] for row in found])),
        }
        for other in found[0]["others"]
    }
    row = {"problem": name, "episodes": episodes, "logs": logs, "covered": covered, **medians}
    row |= {"shown": float(np.mean([one["shown"] for one in found])), "wrong": int(sum(one["wrong"] for one in found))}
    row |= {"beside": beside, "seconds": time.perf_counter() - begin}
    print(name, episodes, {what: round(share[0], 3) for what, share in covered.items()}, medians, flush=True)
    return row


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
