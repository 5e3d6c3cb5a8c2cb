"""Unknown rewards of a log: the chance that a reward is known, rewards that stand in for unknown ones, and bounds.

Let `o` be 1 where the reward `r` of a step is known, `p(x, a)` the chance of that given observation and action, and
`m(x, a)` a model of the reward, both cross-fitted. The reward that the estimators read is

    m + o (r - m) / p,

the inverse-probability-weighted one with a control variate (Robins, Rotnitzky & Zhao 1994, "Estimation of regression
coefficients when some regressors are not always observed"). Its mean given `x` and `a` is that of `r` if rewards are
missing at random given `x` and `a`, and `p` or `m` is right; the difference between two policies then needs no other
change. Weights times `o / p` are what the support of such an estimate rests on.

No log can show that rewards are missing at random. Without the assumption each unknown reward may be the lowest or the
highest possible one (Manski 1990, "Nonparametric bounds on treatment effects"). A difference is the mean of `(w - 1) r`
over episodes of weight `w`: it is lowest where unknown rewards are the lowest ones for `w > 1`, and the highest ones
for `w < 1`. Both policies share these rewards, and the bound is sharp given the weights.

Letters: `N` steps, `E` episodes, `F` features, `A` actions.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tidelog.data.columns import AT_RANDOM
from tidelog.data.dependence import action_columns, balance_of, unknown_predictors, unknown_sentence
from tidelog.data.log import Log, is_tabular, number_observations, observed_columns
from tidelog.errors import LogError
from tidelog.ope.evidence import Evidence, Floats, Ordinals, episode_folds, fold_of_steps, observed_numbers
from tidelog.types import Discrete, Image

FOLDS, RIDGE, ROUNDS = 5, 1.0, 25
PRIOR = 2.0  # rows of an action's mean that each cell of a table starts with
LEAST = 0.02  # smallest chance of a known reward that a weight divides by
HARDLY = 0.1  # chance below which a reward is hardly ever known
MOST_FEATURES = 200


class MissingRewards(NamedTuple):
    """The unknown rewards of a judged log."""

    reward: Floats  # [N]: as logged, NaN where it is unknown
    chance: Floats  # [N]: cross-fitted probability that the reward is known
    at_random: bool  # whether the mapping states that rewards are missing at random
    sentence: str  # how many are unknown, after which actions, and what predicts it

    def of(self, evidence: Evidence) -> Evidence:
        """The evidence with these rewards beside those that stand in for them."""
        return replace(evidence, logged_reward=self.reward, known_chance=self.chance)


def with_stand_ins(log: Log, seed: int) -> tuple[Log, MissingRewards | None]:
    """The log with rewards in place of unknown ones, and what is unknown, if anything is; LogError if all of it is."""
    if log.reward_known is None or log.reward is None:
        return log, None
    if bool(np.all(log.reward_known)):
        return replace(log, reward_known=None, missing_reward=None), None
    known = np.asarray(log.reward_known)
    if not known.any():
        raise LogError("no reward of the judged episodes is known", fix="judge episodes whose rewards are known")
    folds = episode_folds(log, min(FOLDS, max(2, int(log.clusters.max(initial=0)) + 1)), seed)
    fold = fold_of_steps(log, folds)
    logged = np.asarray(log.reward, np.float64)
    chance, model = _models(log, known, np.where(known, logged, 0.0), fold)
    stand_in = model + np.where(known, (np.where(known, logged, 0.0) - model) / chance, 0.0)
    acted, space = np.asarray(log.action), log.spec.action
    candidates = [*action_columns(acted, is_words=isinstance(space, Discrete)), *observed_columns(log)]
    cause = balance_of(candidates, ~known, 2, clusters=log.clusters[np.asarray(log.episode)])
    said = unknown_sentence(~known, *((acted, space.names) if isinstance(space, Discrete) else (None, ())))
    missing = MissingRewards(
        np.where(known, logged, np.nan),
        chance,
        log.missing_reward == AT_RANDOM,
        f"{said}; {unknown_predictors(cause)}",
    )
    return replace(log, reward=stand_in.astype(np.float32), reward_known=None, missing_reward=None), missing


def _models(log: Log, known: NDArray[np.bool_], reward: Floats, fold: Ordinals) -> tuple[Floats, Floats]:
    """Cross-fitted chances [N] that rewards are known, and means [N] of known rewards."""
    chance, mean = np.empty(len(known)), np.empty(len(known))
    space = log.spec.action
    states = number_observations(log) if isinstance(space, Discrete) else None
    if isinstance(space, Discrete) and states is not None and is_tabular(log, states):
        action = np.unique(np.asarray(log.action), return_inverse=True)[1]  # declared actions may be many more
        cell = np.unique(states.stored[np.asarray(log.position)] * space.n + action, return_inverse=True)[1]
        for one in np.unique(fold):
            here, others = fold == one, fold != one
            chance[here] = _cell_means(known[others].astype(np.float64), cell, action, others)[here]
            shown = others & known
            mean[here] = _cell_means(reward[shown], cell, action, shown)[here]
    else:
        features = _features(log)
        for one in np.unique(fold):
            here, others = fold == one, fold != one
            chance[here] = _logistic(features[others], known[others], features[here])
            shown = others & known
            mean[here] = _linear(features[shown], reward[shown], features[here])
    return np.clip(chance, LEAST, 1.0), mean


def _cell_means(values: Floats, cell: Ordinals, action: Ordinals, rows: NDArray[np.bool_]) -> Floats:
    """[N]: the mean of `values`, which are of these rows, in each row's cell, drawn to the mean of its action."""
    overall = float(values.mean()) if len(values) else 0.0
    of_action = _drawn(values, action, rows, overall)
    return _drawn(values, cell, rows, of_action)


def _drawn(values: Floats, group: Ordinals, rows: NDArray[np.bool_], prior: Any) -> Floats:
    size = int(group.max()) + 1
    count = np.bincount(group[rows], minlength=size)[group]
    total = np.bincount(group[rows], values, minlength=size)[group]
    return np.asarray((total + PRIOR * prior) / (count + PRIOR))


def _features(log: Log) -> Floats:
    """[N, F]: a constant and the observation, of each action apart where actions are discrete; standardised."""
    action, space = np.asarray(log.action), log.spec.action
    numbers = np.zeros((log.steps, 0))
    if not any(isinstance(leaf, Image) for leaf in log.spec.observation.values()):
        numbers = observed_numbers(log)[np.asarray(log.position)].astype(np.float64)
    if isinstance(space, Discrete):
        distinct, codes, count = np.unique(action, return_inverse=True, return_counts=True)
        often = np.argsort(-count, kind="stable")[: MOST_FEATURES // 2]
        place = np.full(len(distinct), len(often))
        place[often] = np.arange(len(often))
        taken = np.eye(len(often) + 1)[place[codes]]
        apart = taken.shape[1] * (numbers.shape[1] + 1) <= MOST_FEATURES
        mixed = [taken * column[:, None] for column in numbers.T] if apart else [numbers[:, : MOST_FEATURES // 2]]
        return _standardised(np.concatenate([taken, *mixed], axis=1))
    wide = action.reshape(len(action), -1).astype(np.float64)
    return _standardised(np.concatenate([numbers[:, : MOST_FEATURES // 2], wide, np.square(wide)], axis=1))


def _standardised(columns: Floats) -> Floats:
    spread = columns.std(axis=0)
    kept = spread > 0
    scaled = (columns[:, kept] - columns[:, kept].mean(axis=0)) / spread[kept]
    return np.concatenate([np.ones((len(columns), 1)), scaled], axis=1)


def _linear(features: Floats, values: Floats, asked: Floats) -> Floats:
    """Ridge regression: predictions at the features that are asked about."""
    if not len(values):
        return np.zeros(len(asked))
    gram = features.T @ features + RIDGE * np.diag([0.0, *np.ones(features.shape[1] - 1)])
    return np.asarray(asked @ np.linalg.solve(gram, features.T @ values))


def _logistic(features: Floats, happened: NDArray[np.bool_], asked: Floats) -> Floats:
    """Logistic regression with a ridge penalty by Newton's method: probabilities at the features asked about."""
    weights, penalty = np.zeros(features.shape[1]), RIDGE * np.ones(features.shape[1])
    for _ in range(ROUNDS):
        share = 1.0 / (1.0 + np.exp(-np.clip(features @ weights, -30.0, 30.0)))
        slope = features.T @ (happened - share) - penalty * weights
        curvature = (features * (share * (1.0 - share))[:, None]).T @ features + np.diag(penalty)
        step = np.linalg.solve(curvature, slope)
        weights = weights + step
        if np.abs(step).max() < 1e-8:
            break
    return np.asarray(1.0 / (1.0 + np.exp(-np.clip(asked @ weights, -30.0, 30.0))))


def known_factors(evidence: Evidence) -> Floats:
    """[E]: one over the chance that a reward is known where it is, else 0; in an episode the mean of its steps."""
    logged, chance = np.asarray(evidence.logged_reward), np.asarray(evidence.known_chance)
    factor = np.where(np.isnan(logged), 0.0, 1.0 / chance)
    return np.asarray(np.add.reduceat(factor, evidence.starts[:-1]) / evidence.lengths)


def hardly_known(evidence: Evidence, *, visits: bool) -> float:
    """The share of decisions whose reward is hardly ever known, of the policy or of the present practice if more."""
    rare = np.asarray(evidence.known_chance) < HARDLY
    weights = np.maximum(1.0 + _excess(evidence, visits), 0.0)
    return max(float(rare.mean()), float(rare @ weights / max(weights.sum(), 1e-300)))


def extreme_rewards(
    evidence: Evidence,
    low: float | None,
    high: float | None,
    *,
    best: bool,
    visits: bool = False,
    other: Evidence | None = None,
) -> Floats:
    """Rewards [N] in which unknown ones make the difference from the behaviour policy lowest, or highest (`best`).

    `other` is the evidence about another policy, from which the difference is taken instead. `low` and `high` are the
    possible returns of an episode, None for the known rewards' own; they bound single decisions, and in longer episodes
    every reward lies among the known ones. `visits`: occupancy ratios weigh rewards.
    """
    logged = np.asarray(evidence.logged_reward)
    shown, single = logged[~np.isnan(logged)], evidence.horizon == 1
    least = float(shown.min()) if low is None or not single else low
    most = float(shown.max()) if high is None or not single else high
    excess = _excess(evidence, visits) - (0.0 if other is None else _excess(other, visits))
    return np.where(np.isnan(logged), np.where((excess > 0) == best, most, least), logged)


def _excess(evidence: Evidence, visits: bool) -> Floats:
    """[N]: by how much the weight of a reward under the policy exceeds that under the present practice, 1.

    Products are divided by their mean over all episodes, in which an ended one keeps its last weight.
    """
    if visits and evidence.occupancy is not None:
        return np.asarray(evidence.occupancy - 1.0)
    ratio = np.asarray(evidence.target, np.float64) / evidence.behaviour
    excess, weights = np.empty(len(ratio)), np.ones(evidence.episodes)
    for step in range(evidence.horizon):
        going = np.flatnonzero(evidence.lengths > step)
        rows = evidence.starts[:-1][going] + step
        weights[going] = np.minimum(weights[going] * ratio[rows], 1e300)
        excess[rows] = weights[going] / max(float(weights.mean()), 1e-300) - 1.0
    return excess
