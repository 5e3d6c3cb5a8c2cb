"""How sharp a policy is: chosen by what it would earn on training episodes that its critic and its clone never saw.

A ladder leads from the clone of the behaviour policy to the greedy policy. For discrete actions no rung is trained:
critic and clone are fitted on one half of the training episodes, and on the other half the policy of temperature `t` is
`clone(a | s) min(exp(t (Q(s, a) - V(s))), cap)`, normalised: what advantage-weighted imitation tends to. For a support
threshold it is the action of the largest Q among those that the clone supports. Each rung's value is estimated doubly
robustly (`sequential.weighted_dr`) with recorded propensities, or with those of the clone. For continuous actions with
recorded propensities, a small population of temperatures learns in one compilation, and its values are estimated by
importance sampling step by step (`sequential.weighted_per_decision_is`).

A gain counts for who acts on it, and that is who reads *better*: the chosen rung has the largest product of the lower
limit of its gain over the clone, `gain - CAUTION * standard error` of the paired difference, and the probability that
the held-out episodes show a gain of that size (inference-aware policy optimisation, Bastani et al. 2025). A rung that
too few episodes speak for is not considered. Where no limit is above 0, it is the mildest rung.

Rewards are in deviations (`data/statistics.py`), so their unit has no part in the choice.

Letters: `N` steps, `M` stored observations, `E` episodes, `A` actions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import equinox as eqx
import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from tidelog.algorithms.iql import IQL
from tidelog.data.log import Log, is_tabular, number_observations
from tidelog.networks import native
from tidelog.ope.estimators import (
    LARGEST_LOG,
    LONGEST_PRODUCT,
    Ratios,
    log_weights,
    weighted_dr,
    weighted_per_decision_is,
)
from tidelog.ope.evidence import Evidence, atoms_of, clusters_of, episode_folds, fold_of_steps, without
from tidelog.ope.networks import in_chunks
from tidelog.ope.propensities import propensities_of
from tidelog.policies.policy import Policy
from tidelog.training.fit import fit
from tidelog.training.stores import is_mapped
from tidelog.types import Continuous, Discrete

Floats = NDArray[np.float64]
Tell: TypeAlias = Callable[[str, float], None]  # gets what is done, and the share of it that is
DOING = "choosing how sharp the policy is"
TEMPERATURES = (0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0)
TRAINED_TEMPERATURES = (0.3, 1.0, 3.0, 10.0, 30.0)  # of continuous actions
THRESHOLDS = (1.0, 0.6, 0.3, 0.1, 0.03, 0.01)
LADDERS = {"inverse temperature": TEMPERATURES, "support threshold": THRESHOLDS}  # by role, the mildest rung first
CAUTION = 0.5  # standard errors: of 0 to 2, what earned most on six generated worlds without following noise far
TWO_SIDED = 1.96  # standard errors of a judge's 95%
FOLDS = 2
FEWEST_EPISODES = 100
EFFECTIVE = 50  # episodes: of the training half, and of those that are held out for the judge
MOST_DECISIONS = 64_000
MOST_CELLS = 1 << 23  # decisions times actions
MOST_UPDATES, MOST_UPDATES_OF_ONE_STEP = 3_000, 1_500


@dataclass(frozen=True, eq=False)
class CrossFit:
    """Critic and clone on the episodes that they were not fitted on; rewards and values in deviations."""

    starts: NDArray[np.int64]  # [E + 1]
    reward: Floats  # [N]
    action: NDArray[np.int64]  # [N]
    propensity: Floats  # [N]: of the logged actions, recorded or estimated
    clone: Floats  # [N, A]
    q: Floats  # [N, A]
    advantage: Floats  # [N, A]
    clusters: NDArray[np.int64] | None  # [E]
    unit: float  # of rewards: a deviation, in the log's unit

    def evidence(self, target: Floats) -> Evidence:
        """Return the evidence on a policy [N, A]."""
        rows = np.arange(len(self.action))
        return Evidence(
            starts=self.starts,
            reward=self.reward,
            target=target[rows, self.action],
            behaviour=self.propensity,
            model=self.q[rows, self.action],
            model_target=(target * self.q).sum(axis=1),
            clusters=self.clusters,
        )

    def tempered(self, temperature: float, cap: float) -> Floats:
        """Return the policy [N, A] of advantage-weighted imitation at a temperature."""
        logs = np.minimum(temperature * self.advantage, math.log(cap) if cap > 0 else -LARGEST_LOG)
        logs = np.where(self.clone > 0, logs, -np.inf)
        weights = self.clone * np.exp(logs - logs.max(axis=1, keepdims=True))
        policy: Floats = weights / weights.sum(axis=1, keepdims=True)
        return policy

    def supported(self, threshold: float) -> Floats:
        """Return the policy [N, A] of the best action among those that the clone supports."""
        allowed = (self.clone >= threshold * self.clone.max(axis=1, keepdims=True)) & (self.clone > 0)
        best = np.where(allowed, self.q, -np.inf).argmax(axis=1)
        policy: Floats = np.eye(self.q.shape[1])[best]
        return policy


def no_progress(doing: str, share: float) -> None:
    """Show no progress."""


@native.off()
def cross_fit(log: Log, discount: float, updates: int, seed: int = 0, tell: Tell = no_progress) -> CrossFit:
    """Fit critic and clone on the other half of a log's episodes, for each half."""
    tell(DOING, 0.0)
    folds = episode_folds(log, FOLDS, seed)
    states = number_observations(log)
    known = propensities_of(log, folds, states=states if is_tabular(log, states) else None, seed=seed)
    of, position = fold_of_steps(log, folds), np.asarray(log.position)
    clone, algorithm = np.asarray(known.all_actions), _instrument(0.0, discount)
    q, v, reward, scales = np.zeros(clone.shape), np.zeros(log.steps), np.zeros(log.steps), []
    for fold in range(FOLDS):
        tell(DOING, (1 + 2 * fold) / (2 * FOLDS))
        run = fit(algorithm, log.take_episodes(without(folds, fold)), updates, [seed + fold], progress=False)
        policy, mine = run.policy(), of == fold
        q[mine], v[mine] = _values(policy, run.learners()[0].state.value, log, position[mine])
        reward[mine] = policy.scaler.reward(np.asarray(log.reward)[mine])
        scales.append(policy.scaler.reward_scale)
    return CrossFit(
        starts=np.asarray(log.starts, np.int64),
        reward=reward,
        action=np.asarray(log.action, np.int64),
        propensity=known.logged,
        clone=clone,
        q=q,
        advantage=q - v[:, None],
        clusters=clusters_of(log),
        unit=1.0 / float(np.mean(scales)),
    )


def _instrument(temperature: float, discount: float) -> IQL:
    return IQL(
        temperature=temperature,
        discount=discount,
        hidden=(64, 64),
        actor_learning_rate=1e-3,
        critic_learning_rate=1e-3,
        value_learning_rate=1e-3,
    )


def _values(policy: Policy, value: Any, log: Log, rows: NDArray[Any]) -> tuple[Floats, Floats]:
    """Return Q [N, A] and V [N] in scaled rewards, at stored observations [N]."""

    def ask(part: slice) -> tuple[Any, Any]:
        seen = {name: np.asarray(leaf[rows[part]]) for name, leaf in log.observation.items()}
        return _ask(policy.algorithm, policy.params, value, policy.scaler.observation(seen))

    q, v = in_chunks(ask, len(rows))
    return q, v


@eqx.filter_jit
def _ask(algorithm: Any, params: Any, value: Any, leaves: Any) -> tuple[Any, Any]:
    return algorithm.q_values(params, leaves), value(leaves)


class Rung(NamedTuple):
    """The estimate of a rung."""

    value: float  # of the setting
    gain: float  # of an episode over the clone
    error: float  # standard error of the gain
    effective: float  # share of the episodes

    @property
    def lowest(self) -> float:
        """The lower limit of the gain."""
        return self.gain - CAUTION * self.error

    def expected(self, more: float) -> float:
        """The lower limit times the probability of *better* from a judge with one episode where this had `more`."""
        error = self.error * math.sqrt(more)  # of the judge's difference
        spread = math.hypot(error, self.error)
        surplus = self.lowest - TWO_SIDED * error
        return self.lowest * (float(ndtr(surplus / spread)) if spread > 0.0 else float(surplus > 0.0))

    def reason(self, unit: float) -> str:
        """Return why this rung is chosen; `unit` is a deviation in the log's unit."""
        gain = f"{self.gain * unit:+.2g} an episode, standard error {self.error * unit:.1g}"
        where = "on training episodes that the critic did not learn from"
        if self.lowest > 0.0:
            return f"gains most over the behaviour policy ({gain}) {where}"
        return f"the mildest, because no gain is shown {where}: its policy is close to the behaviour policy"


def rungs(fitted: CrossFit, settings: Sequence[float], policy: Callable[[float], Floats]) -> list[Rung]:
    """Return the estimates of the policies of some settings, the mildest one first."""
    clone = fitted.evidence(fitted.clone)
    return [_rung(setting, fitted.evidence(policy(setting)), clone, weighted_dr) for setting in settings]


@native.off()
def population_fit(
    log: Log, temperatures: Sequence[float], discount: float, updates: int, seed: int = 0, tell: Tell = no_progress
) -> tuple[list[Rung], float]:
    """Return estimates of policies of continuous actions, each trained on the other half of a log's episodes.

    The number is the unit of their rewards in the log's.
    """
    folds = episode_folds(log, FOLDS, seed)
    of, seen, action = fold_of_steps(log, folds), log.transitions.observation, np.asarray(log.action)
    several = [_instrument(temperature, discount) for temperature in (0.0, *temperatures)]
    densities, reward, scales = np.zeros((len(several), log.steps)), np.zeros(log.steps), []
    for fold in range(FOLDS):
        tell(DOING, fold / FOLDS)
        run = fit(several, log.take_episodes(without(folds, fold)), updates, [seed + fold], progress=False)
        mine = of == fold
        there = {name: leaf[mine] for name, leaf in seen.items()}
        for member in range(len(several)):
            logs = run.policy(member=member).log_probability(there, action[mine])
            densities[member, mine] = np.exp(np.asarray(logs, np.float64))
        reward[mine] = run.record.scaler.reward(np.asarray(log.reward)[mine])
        scales.append(run.record.scaler.reward_scale)
    starts, logged = np.asarray(log.starts, np.int64), np.asarray(log.propensity, np.float64)
    atoms = atoms_of(log)
    if atoms is not None:  # none of these policies takes them
        densities[:, atoms.lie_on(action).any(axis=1)] = 0.0
    evidence = [Evidence(starts, reward, one, logged, clusters=clusters_of(log)) for one in densities]
    pairs = zip(temperatures, evidence[1:], strict=True)
    found = [_rung(value, one, evidence[0], weighted_per_decision_is) for value, one in pairs]
    return found, 1.0 / float(np.mean(scales))


def _rung(setting: float, evidence: Evidence, clone: Evidence, estimator: Callable[[Evidence], Ratios]) -> Rung:
    """Return the estimate of a policy beside that of the clone."""
    one, other = (estimator(part).clustered(part.clusters) for part in (evidence, clone))
    parts, logs = one.minus(other).contributions, log_weights(evidence)
    weights = np.exp(logs - max(float(logs.max()), -LARGEST_LOG))
    effective = float(weights.sum() ** 2 / max(float((weights**2).sum()), 1e-300)) / len(weights)
    return Rung(setting, float(parts.mean()), float(parts.std() / math.sqrt(len(parts))), effective)


def best_rung(found: Sequence[Rung], episodes: int, held_out: int) -> Rung | None:
    """Return the rung with the largest expected gain of who acts on the verdict, where enough episodes speak for it.

    Where no lower limit is above 0 it is the mildest of them; None where there is none.
    """
    enough = [one for one in found if one.effective * min(episodes, held_out) >= EFFECTIVE and math.isfinite(one.gain)]
    if not enough:
        return None
    shown, more = [one for one in enough if one.lowest > 0.0], episodes / max(held_out, 1)
    # of equal ones the widest: a trained clone has errors
    return max(reversed(shown), key=lambda one: one.expected(more)) if shown else enough[0]


def obstacle(log: Log, longest: int, episodes: int) -> str | None:
    """Return why no rung can be evaluated on a log, or None."""
    if log.hindsight is not None:
        return "goals were chosen by what happened after the decisions"
    if isinstance(log.spec.action, Continuous) and log.propensity is None:
        return "actions are continuous, and no propensities are recorded"
    if not isinstance(log.spec.action, Discrete | Continuous):
        return "a decision has several actions"
    if log.reward is None or log.spec.rewards is not None:
        return "the log has several rewards" if log.reward is not None else "the log has no rewards"
    if longest > LONGEST_PRODUCT:
        return f"episodes have up to {longest:,} decisions, at most {LONGEST_PRODUCT} can be weighed"
    if episodes < FEWEST_EPISODES:
        return f"{episodes:,} training episodes, at least {FEWEST_EPISODES} are needed"
    if is_mapped(log):
        return "the log stays on disk"
    return None


def some_episodes(log: Log, episodes: NDArray[np.int64], seed: int = 0) -> Log:
    """Return the log of these episodes, or of as many random ones as are evaluated in seconds."""
    actions = log.spec.action.n if isinstance(log.spec.action, Discrete) else 1
    most = min(MOST_DECISIONS, MOST_CELLS // actions)
    lengths = np.diff(log.starts)[episodes]
    if lengths.sum() <= most:
        return log.take_episodes(episodes)
    order = np.random.default_rng([seed, 7]).permutation(len(episodes))
    count = max(int(np.searchsorted(lengths[order].cumsum(), most, side="right")), 2)
    return log.take_episodes(np.sort(episodes[order[:count]]))
