"""The estimators by name, and a table of their estimates of a policy's value, with intervals and support.

Letters: `N` steps, `E` episodes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tidelog._text import three_digits
from tidelog.data.log import Log, with_declaration
from tidelog.errors import ConfigError, SpecError, nearest
from tidelog.ope import estimators
from tidelog.ope.estimators import (
    Estimate,
    Estimates,
    Ratios,
    Support,
    means,
    occupancy_support,
    required_part,
    support_of,
)
from tidelog.ope.evidence import Evidence, check_kind, check_seed
from tidelog.ope.intervals import METHODS, MOST_GROUPS, Confidence, interval
from tidelog.ope.policies import as_policy, is_sampled
from tidelog.ope.policy_evidence import evidence_of
from tidelog.ope.propensities import with_file_read
from tidelog.threads import one_thread

IMPOSSIBLE = "outside the range that an episode can earn"
CLIP = 10.0  # largest weight of the estimators that clip weights
NEEDS = {
    "model": "a model of action values (model='none' was set, or this log supports none)",
    "occupancy": "occupancy ratios, which cannot be estimated on this log",
}


@dataclass(frozen=True)
class Estimator:
    """An estimator of a policy's value: its function, its inputs, and where it applies."""

    ratios: Callable[[Evidence], Ratios]
    what: str
    paper: str
    needs: tuple[str, ...] = ()  # required parts of the evidence
    steps: str = "any"  # "one": only episodes of one step; "several": listed only for longer episodes
    vetoes: bool = False  # may contradict, because a constant added to every reward changes no difference
    largest: float = np.inf  # largest weight, if it clips weights
    uses_occupancy: bool = False  # uses occupancy ratios, not products along episodes


def fqe(evidence: Evidence) -> Ratios:
    """The model's value of each episode's first observation, under the target policy."""
    return means(required_part(evidence, "model_target")[evidence.starts[:-1]])


_Q, _VISITS = ("model",), ("model", "occupancy")
ESTIMATORS: dict[str, Estimator] = {
    "ips": Estimator(estimators.ips, "reward times weight", "Horvitz & Thompson 1952", (), "one"),
    "snips": Estimator(estimators.snips, "ips over the sum of weights", "Swaminathan & Joachims 2015", (), "one", True),
    "clipped_ips": Estimator(
        lambda e: estimators.clipped_ips(e, CLIP),
        f"ips, weights clipped at {CLIP:g}",
        "Ionides 2008",
        (),
        "one",
        largest=CLIP,
    ),
    "dm": Estimator(estimators.direct_method, "the model alone", "Dudik, Langford & Li 2011", _Q, "one", True),
    "switch_dr": Estimator(
        lambda e: estimators.switch_dr(e, CLIP),
        f"dr where the weight is at most {CLIP:g}, else dm",
        "Wang, Agarwal & Dudik 2017",
        _Q,
        "one",
        largest=CLIP,
    ),
    "dros": Estimator(estimators.dr_optimistic_shrinkage, "dr, large weights shrunk", "Su et al. 2020", _Q, "one"),
    "is": Estimator(
        estimators.trajectory_is, "return times the episode's weight", "Precup, Sutton & Singh 2000", (), "several"
    ),
    "wis": Estimator(estimators.wis, "is over the sum of weights", "Precup, Sutton & Singh 2000", (), "several", True),
    "pdis": Estimator(
        estimators.per_decision_is, "reward times the weight so far", "Precup, Sutton & Singh 2000", (), "several"
    ),
    "wpdis": Estimator(
        estimators.weighted_per_decision_is, "pdis, each step over its sum", "Thomas 2015", (), "several", True
    ),
    "dr": Estimator(estimators.sequential_dr, "model, corrected by residuals", "Jiang & Li 2016", _Q),
    "wdr": Estimator(estimators.weighted_dr, "dr, each step over its sum", "Thomas & Brunskill 2016", _Q, vetoes=True),
    "fqe": Estimator(fqe, "the model's value of initial states", "Le, Voloshin & Yue 2019", _Q, "several", True),
    "mwl": Estimator(
        estimators.marginal_importance,
        "rewards weighted by occupancy ratios",
        "Uehara, Huang & Jiang 2020",
        ("occupancy",),
        "several",
        uses_occupancy=True,
    ),
    "drl": Estimator(
        estimators.double_reinforcement,
        "model, corrected by occupancy ratios",
        "Kallus & Uehara 2020",
        _VISITS,
        "several",
        True,
        uses_occupancy=True,
    ),
}


@one_thread("blas")  # as tidelog.judge
def estimate(
    policy: Any,
    log: Log,
    names: Sequence[str] | str | None = None,
    sample: bool | None = None,
    propensities: Any = None,
    seed: int = 0,
    *,
    discount: float = 1.0,
    bandwidth: float | None = None,
    model: str = "auto",
    method: str = "bca",
    level: float = 0.95,
    replicates: int = 1000,
    progress: Callable[[str, float], None] | None = None,
) -> Estimates:
    """Estimate a policy's value, one row per estimator with interval and support; `names` None: all that apply.

    `policy` is a tidelog policy, any object with `probabilities(observation, mask)`, or a fitted scikit-learn
    estimator; `sample` None evaluates a policy
    in its declared way of acting, else by its most likely actions. Raises ConfigError for an unknown name, SpecError if
    policy and log do not fit or a named estimator cannot be computed on this log.

    Example:
        >>> log = tl.collect("treatment", episodes=200, seed=0)
        >>> policy = tl.fit(tl.BC(hidden=(16,)), log, steps=20).policy()
        >>> found = tl.estimate(policy, log, ["wis", "dr"], sample=True, model="tabular")
        >>> [row.name for row in found]
        ['wis', 'dr']
        >>> found["wis"].low < found["wis"].estimate < found["wis"].high
        True
    """
    chosen = check_names([names] if isinstance(names, str) else names)
    check_seed(seed)
    confidence = Confidence(level, replicates, seed)
    if method not in METHODS or method == "bernstein":
        raise ConfigError(f"method = {method!r}: {nearest(str(method), set(METHODS) - {'bernstein'})}")
    check_kind(log)
    needed = {part for name in chosen or ESTIMATORS for part in ESTIMATORS[name].needs}
    known = as_policy(policy, log.spec)
    log, propensities = with_declaration(log, propensities)
    evidence = evidence_of(
        known,
        log,
        sample=is_sampled(known, sample),
        discount=discount,
        propensities=with_file_read(propensities, log),
        model=model_of(model, "model" in needed),
        seed=seed,
        bandwidth=bandwidth,
        cloning=False,
        tests=False,
        progress=progress,
    ).policy
    return table(evidence, chosen, method, confidence)


def table(
    evidence: Evidence, names: Sequence[str] | None, method: str = "bca", confidence: Confidence | None = None
) -> Estimates:
    """Estimates on this evidence; SpecError if a named estimator cannot be computed."""
    for name in names or ():
        obstacle = obstacle_of(name, evidence)
        if obstacle:
            raise SpecError(f"'{name}' {obstacle}")
    listed = names or [name for name in ESTIMATORS if is_listed(name, evidence)]
    supports = Supports(evidence)
    return Estimates([row(name, evidence, supports, method, confidence or Confidence()) for name in listed])


def row(
    name: str, evidence: Evidence, supports: Supports, method: str, confidence: Confidence, groups: int = MOST_GROUPS
) -> Estimate:
    """One estimator's estimate on this evidence."""
    ratios = ESTIMATORS[name].ratios(evidence)
    resampled = ratios.clustered(evidence.clusters).grouped(groups)
    ends, support = interval(resampled, method, confidence), supports.of(name)
    how = f"{method}, {confidence.replicates:,} replicates" if method in ("bca", "percentile") else method
    note = "no weight is left at some step"
    if np.isfinite(ends.estimate):
        low, high = map(three_digits, possible_returns(evidence))
        note = "" if is_possible(ends.estimate, evidence) else f"{IMPOSSIBLE} ({low} to {high})"
    return Estimate(name, *ends, how, confidence.level, support, evidence.estimated, ratios.contributions, note)


def possible_returns(evidence: Evidence) -> tuple[float, float]:
    """Lowest and highest return of an episode with a length and rewards within the ranges of the log."""
    powers = np.cumsum(evidence.discount ** np.arange(evidence.horizon))[[int(evidence.lengths.min()) - 1, -1]]
    return float((evidence.reward.min() * powers).min()), float((evidence.reward.max() * powers).max())


def is_possible(estimate: float, evidence: Evidence) -> bool:
    """Whether an episode of the log's lengths and rewards can earn an estimate; of one that is no number nothing."""
    low, high = possible_returns(evidence)
    return not np.isfinite(estimate) or low - evidence.rounding <= estimate <= high + evidence.rounding


class Supports:
    """Support of each estimator on the same evidence; shared measures are computed once."""

    def __init__(self, evidence: Evidence) -> None:
        self._evidence, self._products = evidence, support_of(evidence)
        self._occupancy = None if evidence.occupancy is None else occupancy_support(evidence)

    def of(self, name: str) -> Support:
        """Support of one estimator."""
        estimator = ESTIMATORS[name]
        if estimator.uses_occupancy and self._occupancy is not None:
            return self._occupancy
        if np.isfinite(estimator.largest):
            return replace(self._products, clipped_share=support_of(self._evidence, largest=CLIP).clipped_share)
        return self._products


def check_names(names: Sequence[str] | None) -> list[str] | None:
    """The names without repeats; ConfigError for an unknown estimator."""
    if names is None:
        return None
    for name in names:
        if name not in ESTIMATORS:
            raise ConfigError(f"unknown estimator '{name}': {nearest(str(name), ESTIMATORS)}")
    if not names:
        raise ConfigError("no estimator was named", f"one or more of {', '.join(ESTIMATORS)}")
    return list(dict.fromkeys(names))


def obstacle_of(name: str, evidence: Evidence) -> str | None:
    """Why an estimator cannot be computed on this evidence; None if it can."""
    estimator = ESTIMATORS[name]
    if estimator.steps == "one" and evidence.horizon > 1:
        return f"supports episodes of one step; the longest here has {evidence.horizon}. fix: use 'wis' or 'wdr'"
    missing = [part for part in estimator.needs if getattr(evidence, part) is None]
    return f"needs {NEEDS[missing[0]]}" if missing else None


def is_listed(name: str, evidence: Evidence) -> bool:
    """Whether the table of this evidence lists an estimator."""
    return obstacle_of(name, evidence) is None and not (ESTIMATORS[name].steps == "several" and evidence.horizon == 1)


def model_of(asked: str, needed: bool) -> str | None:
    """The `model` argument of `evidence_of`: "auto" is None (chosen by the log), or "none" if no model is needed."""
    if asked == "auto":
        return None if needed else "none"
    return asked
