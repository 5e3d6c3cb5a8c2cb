"""Results of judging: estimates with their support, and the verdict; all can be written as JSON.

Letters: `E` episodes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from tidelog.errors import ConfigError, nearest
from tidelog.ope.estimators.risk import Risk
from tidelog.policies.statistics import Interval

Decision = Literal["better", "worse", "no difference shown", "unsupported"]


@dataclass(frozen=True)
class Support:
    """How much information the log has about the target policy."""

    episodes: int
    effective_sample_size: float  # (sum w)**2 / sum w**2 over episode weights
    largest_weight: float  # the largest share of one episode in the sum of weights
    mean_weight: float  # close to 1 if propensities are right and support is complete
    mean_weight_error: float  # its standard error
    pareto_k: float  # tail index of the weights; above 1/2 they have no variance, above 0.7 no useful mean
    clipped_share: float  # share of episodes whose weight was clipped
    unsupported_mass: float | None  # mean share of the target's actions that the logger (nearly) never took
    horizon: int  # steps of the longest episode


@dataclass(frozen=True, eq=False)
class Estimate:
    """Result of one estimator; the mean of `contributions` [E] is the estimate."""

    name: str
    estimate: float
    low: float
    high: float
    method: str  # of the interval
    level: float
    support: Support
    estimated: bool  # whether propensities were estimated
    contributions: NDArray[np.float64]
    note: str = ""

    @property
    def interval(self) -> Interval:
        """The estimate with the ends of its interval."""
        return Interval(self.estimate, self.low, self.high)

    def to_json(self) -> dict[str, Any]:
        """All fields except the contributions."""
        content = asdict(self)
        del content["contributions"]
        return content


class Estimates(Sequence[Estimate]):
    """Table of estimates, by position or by name."""

    def __init__(self, rows: Sequence[Estimate]) -> None:
        self._rows = tuple(rows)

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[Estimate]:
        return iter(self._rows)

    def __getitem__(self, which: Any) -> Any:
        if not isinstance(which, str):
            return self._rows[which]
        by_name = {row.name: row for row in self._rows}
        if which not in by_name:
            raise ConfigError(f"unknown estimate '{which}': {nearest(which, by_name)}")
        return by_name[which]

    def rows(self) -> list[list[str]]:
        """Cells of a printed table: name, estimate, interval, effective sample size, largest weight, note."""
        return [
            [
                row.name,
                f"{row.estimate:.4g}",
                f"{row.low:.4g} to {row.high:.4g}",
                f"{row.support.effective_sample_size:,.1f}",
                f"{row.support.largest_weight:.1%}",
                row.note,
            ]
            for row in self._rows
        ]


OVERLAP_UNKNOWN = (
    "it is unknown whether the policy learnt from these episodes; if it did, it looks better than it is. "
    "fix: if it did not, say so (learnt_from='other data', --learnt-from 'other data')"
)


@dataclass(frozen=True, eq=False)
class Verdict:
    """Conclusion about a policy from held-out episodes of another decision maker."""

    decision: Decision
    reasons: tuple[str, ...]  # one sentence each, the deciding one first
    paragraph: str  # summary for a decision maker
    estimand: str  # the estimated quantity: horizon, discount, truncation, which policy
    deciding: str  # name of the estimate that decides
    difference: Interval  # policy minus logger, on the same episodes
    logger: Interval  # the logger's mean return
    difference_from_bc: Interval | None  # policy minus behaviour cloning
    estimates: Estimates
    support: Support
    level: float
    episodes: int
    weights: NDArray[np.float64]  # [E]: episode weights, for charts
    context: Mapping[str, Any] = field(default_factory=dict)  # policy, log, seed, reuse, versions
    risk: Risk | None = None  # return distributions of policy and logger
    risk_reason: str | None = None  # why there is no risk
    bound: Interval | None = None  # the difference for the worst to the best return of unshown decisions

    @property
    def blocks_gate(self) -> tuple[str, ...]:
        """Reasons why a gate stays closed, one sentence each; empty for *better* without objections."""
        if self.decision != "better":
            return (f"the verdict is '{self.decision}'",)
        return (OVERLAP_UNKNOWN,) if self.context.get("overlap_unknown") else ()

    @property
    def looks(self) -> int:
        """Number of earlier looks at these episodes in the ledger."""
        return int(self.context.get("judged_before", 0))

    def to_json(self) -> dict[str, Any]:
        """Plain dictionaries and lists; numbers that are not finite become None."""
        content = {
            "decision": self.decision,
            "reasons": list(self.reasons),
            "paragraph": self.paragraph,
            "estimand": self.estimand,
            "deciding": self.deciding,
            "difference": self.difference._asdict(),
            "logger": self.logger._asdict(),
            "difference_from_bc": None if self.difference_from_bc is None else self.difference_from_bc._asdict(),
            "estimates": [row.to_json() for row in self.estimates],
            "support": asdict(self.support),
            "bound": None if self.bound is None else self.bound._asdict(),
            "level": self.level,
            "episodes": self.episodes,
            "weights": weight_histogram(self.weights),
            "context": dict(self.context),
            "risk": None if self.risk is None else self.risk.to_json(),
            "risk_reason": self.risk_reason,
        }
        plain: dict[str, Any] = _plain(content)
        return plain


def percent(level: float) -> str:
    """Level in percent, with two significant digits of its error: 95%, 97.5%, 99.9943%."""
    error = 100.0 * (1.0 - level)
    digits = max(0, 1 - math.floor(math.log10(error)))
    return f"{100.0 - error:.{digits}f}".rstrip("0").rstrip(".") + "%" if digits else f"{100.0 - error:.0f}%"


NARROW = 1e-4  # decades; narrower ranges would have equal bin edges in 64 bits


def weight_histogram(weights: NDArray[np.float64]) -> dict[str, Any]:
    """Histogram of episode weights: number of exact zeros, and 40 bins of the decimal logarithm of the others."""
    positive = weights[weights > 0]
    if not len(positive):
        return {"zeros": len(weights), "counts": [], "log10_edges": []}
    logs = np.round(np.log10(positive), 6)  # weights that differ only by rounding are equal
    narrow = np.ptp(logs) < NARROW
    limits = (float(logs.min()) - 0.5, float(logs.max()) + 0.5) if narrow else None
    counts, edges = np.histogram(logs, 40, limits)
    return {"zeros": int((weights == 0).sum()), "counts": counts.tolist(), "log10_edges": edges.tolist()}


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float | np.floating):
        return float(value) if np.isfinite(value) else None
    if isinstance(value, np.integer):
        return int(value)
    return value
