"""Estimates of a policy's mean reward from single decisions: every episode has one step.

`w = target / behaviour`; Q is a model's value of the logged action, V its mean over the target's actions:
- importance sampling `w r`, self-normalised, or clipped at a largest weight;
- the model alone, V, and doubly robust, `V + w (r - Q)` (Dudik, Langford & Li 2011, arXiv:1103.4601);
- doubly robust without weights above a threshold (Wang, Agarwal & Dudik 2017, arXiv:1612.01205), or with weights shrunk
  to `s w / (w^2 + s)` (Su et al. 2020, arXiv:1907.09623).

Limits: clipping at infinity is importance sampling, at 0 it gives 0; a threshold or a shrinkage of infinity is doubly
robust, of 0 the model alone.

Letters: `N` steps (and episodes), `A` actions.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tidelog.errors import ConfigError, SpecError
from tidelog.ope.estimators.ratios import Ratios, means, required_part, weights_of_steps
from tidelog.ope.evidence.evidence import Evidence, Floats


def ips(evidence: Evidence) -> Ratios:
    """Mean of weighted rewards."""
    return means(_weights(evidence) * evidence.reward)


def snips(evidence: Evidence) -> Ratios:
    """Weighted mean of rewards (Swaminathan & Joachims 2015)."""
    weights = _weights(evidence)
    return Ratios((weights * evidence.reward)[:, None], weights[:, None])


def clipped_ips(evidence: Evidence, largest: float = 10.0) -> Ratios:
    """Importance sampling with weights clipped at `largest`: less variance, and a bias towards 0."""
    return means(np.minimum(_weights(evidence), _at_least_0("largest", largest)) * evidence.reward)


def direct_method(evidence: Evidence) -> Ratios:
    """The model's mean value under the target policy."""
    _weights(evidence)
    return means(required_part(evidence, "model_target"))


def doubly_robust(evidence: Evidence) -> Ratios:
    """The model's value, corrected by weighted residuals."""
    return means(required_part(evidence, "model_target") + _weights(evidence) * _residuals(evidence))


def self_normalised_dr(evidence: Evidence) -> Ratios:
    """Doubly robust with self-normalised residuals."""
    weights = _weights(evidence)
    residuals = Ratios((weights * _residuals(evidence))[:, None], weights[:, None])
    return means(required_part(evidence, "model_target")).plus(residuals)


def switch_dr(evidence: Evidence, largest: float = 10.0) -> Ratios:
    """Doubly robust where the weight is at most `largest`, the model alone elsewhere."""
    weights = _weights(evidence)
    small = np.where(weights <= _at_least_0("largest", largest), weights, 0.0)
    return means(required_part(evidence, "model_target") + small * _residuals(evidence))


def dr_optimistic_shrinkage(evidence: Evidence, shrinkage: float = 100.0) -> Ratios:
    """Doubly robust with weights `s w / (w^2 + s)`, at most `sqrt(s) / 2`."""
    weights = _weights(evidence)
    if not np.isinf(_at_least_0("shrinkage", shrinkage)):
        weights = np.where(weights > 0, shrinkage * weights / np.maximum(weights**2 + shrinkage, 1e-300), 0.0)
    return means(required_part(evidence, "model_target") + weights * _residuals(evidence))


BANDIT: dict[str, Callable[[Evidence], Ratios]] = {
    "ips": ips,
    "snips": snips,
    "clipped_ips": clipped_ips,
    "direct_method": direct_method,
    "doubly_robust": doubly_robust,
    "self_normalised_dr": self_normalised_dr,
    "switch_dr": switch_dr,
    "dr_optimistic_shrinkage": dr_optimistic_shrinkage,
}


def _weights(evidence: Evidence) -> Floats:
    if evidence.horizon > 1:
        raise SpecError(
            f"bandit estimators support episodes of one step; the longest here has {evidence.horizon}. "
            "fix: use a sequential estimator, such as 'weighted_dr'"
        )
    return weights_of_steps(evidence)


def _residuals(evidence: Evidence) -> Floats:
    return np.asarray(evidence.reward - required_part(evidence, "model"))


def _at_least_0(name: str, value: float) -> float:
    if not value >= 0:
        raise ConfigError(f"{name} = {value}: expected at least 0")
    return value
