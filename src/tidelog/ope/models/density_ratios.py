"""Occupancy ratios: visits of the target to a state and action over those of the log, one ratio per step.

Over long episodes, products of probability ratios put all weight on a few episodes; a marginal ratio does not grow with
the horizon (Liu et al. 2018, "Breaking the Curse of Horizon"). Here

    w(s, a) = sum_t discount^t P_target(s_t = s, a_t = a) / sum_t P_log(s_t = s, a_t = a),

with visits of an episode up to its recorded end, unnormalised; a discount of 1 needs no special case. The mean over
logged episodes of `sum_t w r` is the target's value.

* Table: both occupancies under the counted model, `d = start + discount P' d` (a sparse solve), times the ratio of the
  action's probabilities. If episodes are truncated, occupancies and ratios also depend on time.
* Functions: minimax weight learning, in its form for states (Uehara, Huang, Jiang 2020, "Minimax Weight and Q-Function
  Learning for Off-Policy Evaluation"): `w(s, a) = u(s) target(a given s) / logger(a given s)`, where u solves, for
  every f of a class: the logged sum of `u(s) f(s) - discount w(s, a) f(s')` equals the mean of `f(s0)`. With one linear
  class for u and f this is a linear solve; with one feature per state it is the table. The features are random ReLU
  features of the observation; a ridge penalty shrinks u towards 1, which for one-step episodes is importance sampling;
  negative ratios become 0. Time is an input if episodes are truncated. The learnt part does not depend on actions,
  whose ratio is known more precisely.

Both are cross-fitted: the ratios of an episode come from the other folds. Double reinforcement learning (Kallus and
Uehara 2020, "Double Reinforcement Learning for Efficient Off-Policy Evaluation in Markov Decision Processes") combines
them with a model: correct ratios repair wrong values and the reverse.

Letters: `N` steps, `M` stored observations, `E` episodes, `S` states, `B` rows of a block,
`T` steps of the longest episode, `D` features of the observation, `I` numbers in an observation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.linalg import spsolve

from tidelog.data.log import Log
from tidelog.data.scaling import Scaler
from tidelog.ope.estimators.ratios import Ratios, means, required_part
from tidelog.ope.evidence.evidence import Evidence
from tidelog.ope.evidence.folds import Ordinals, fold_of_steps, without
from tidelog.ope.evidence.target import Floats, Target, ends_by_clock, elapsed_share
from tidelog.ope.models.tabular import Counts, States, by_state, count_model, ends, truncations
from tidelog.types import Codes

FEATURES = 128  # D
RIDGE = 1e-3  # as a share of the mean sum of squares of a feature
ROWS = 4096  # in one block

Features = Callable[[Ordinals], Floats]  # of stored observations [B] -> [B, D]


def marginal_importance(evidence: Evidence) -> Ratios:
    """Mean over episodes of `sum_t w r`."""
    steps = required_part(evidence, "occupancy") * np.asarray(evidence.reward, np.float64)
    return means(np.add.reduceat(steps, evidence.starts[:-1]))


def double_reinforcement(evidence: Evidence) -> Ratios:
    """Mean over episodes of `V(s0) + sum_t w (r + discount V(s') - Q(s, a))`, with V = 0 after the recorded end."""
    value, rated = required_part(evidence, "model_target"), required_part(evidence, "model")
    after = np.append(value[1:], 0.0)
    after[evidence.starts[1:] - 1] = 0.0
    gap = np.asarray(evidence.reward, np.float64) + evidence.discount * after - rated
    corrections = np.add.reduceat(required_part(evidence, "occupancy") * gap, evidence.starts[:-1])
    return means(value[evidence.starts[:-1]] + corrections)


# Table.


def tabular_ratios(
    log: Log, states: States, folds: Ordinals, targets: Sequence[Target], behaviour: Floats, discount: float = 1.0
) -> Floats:
    """Cross-fitted ratios [N]; `targets` has one for each fold, `behaviour` [N] the propensities."""
    of, ratios = fold_of_steps(log, folds), np.zeros(log.steps)
    for fold, target in enumerate(targets):
        rows = np.flatnonzero(of == fold)
        state = _state_ratios(log, states, without(folds, fold), target, discount, rows)
        ratios[rows] = state * target.logged[rows] / behaviour[rows]
    return ratios


def _state_ratios(
    log: Log, states: States, learnt: Ordinals, target: Target, discount: float, rows: Ordinals
) -> Floats:
    """Ratios of visits to the states of some rows; 1 if the model has no logged visit to a state."""
    longest = int(np.diff(log.starts).max())
    model, cut = count_model(log, states, learnt), truncations(log, learnt, longest)
    policy, logger = (
        by_state(target, states, log.position),
        model.visits / np.maximum(model.visits.sum(1, keepdims=True), 1.0),
    )
    here = states.stored[np.asarray(log.position)]
    start = np.bincount(here[log.starts[:-1][learnt]], minlength=states.size) / len(learnt)
    if cut is None:
        by_target, by_log = (flow(model, p, start, g, longest) for p, g in ((policy, discount), (logger, 1.0)))
        return _over(by_target[here[rows]], by_log[here[rows]])
    step, ratios = np.asarray(log.step)[rows], np.ones(len(rows))
    flows = (layered_flow(model, p, start, g, cut) for p, g in ((policy, discount), (logger, 1.0)))
    for t, (by_target, by_log) in enumerate(zip(*flows, strict=True)):
        now = step == t
        ratios[now] = _over(by_target[here[rows[now]]], by_log[here[rows[now]]])
    return ratios


def flow(model: Counts, policy: Floats, start: Floats, discount: float, horizon: int) -> Floats:
    """Expected visits [S] of an episode with initial distribution `start` [S]; `horizon` visits if it never ends."""
    leads = model.chosen(policy) @ model.moves
    if discount == 1.0 and not ends(leads):
        return np.asarray(np.sum(list(layered_flow(model, policy, start, discount, np.zeros(horizon))), axis=0))
    visits = spsolve((sparse.eye_array(len(start)) - discount * leads.T).tocsc(), start)
    return np.asarray(np.maximum(np.atleast_1d(visits), 0.0))


def layered_flow(model: Counts, policy: Floats, start: Floats, discount: float, cut: Floats) -> Any:
    """Yield the visits [S] at each decision; `cut` [T] is the share truncated after each decision."""
    leads = (model.chosen(policy) @ model.moves).T.tocsr()
    visits = start
    for share in cut:
        yield visits
        visits = discount * (1.0 - share) * (leads @ visits)


def _over(visits: Floats, logged: Floats) -> Floats:
    return np.asarray(np.divide(visits, logged, out=np.ones(len(visits)), where=logged > 1e-12))


# Functions.


def feature_ratios(
    log: Log, folds: Ordinals, targets: Sequence[Target], behaviour: Floats, discount: float = 1.0, seed: int = 0
) -> Floats:
    """Cross-fitted ratios [N] from random features; `targets` has one for each fold, `behaviour` [N] as above."""
    of, ratios, position = fold_of_steps(log, folds), np.zeros(log.steps), np.asarray(log.position)
    for fold, target in enumerate(targets):
        learnt, rows = without(folds, fold), np.flatnonzero(of == fold)
        step = target.logged / behaviour
        features = random_features(_seen(log, learnt), seed)
        alpha = solved_weights(log, features, step, learnt, discount)
        state = 1.0 + np.concatenate([features(position[block]) @ alpha for block in _blocks(rows)])
        ratios[rows] = np.maximum(state, 0.0) * step[rows]
    return ratios


def solved_weights(
    log: Log, features: Features, step: Floats, learnt: Ordinals, discount: float = 1.0, ridge: float = RIDGE
) -> Floats:
    """Solve for `alpha` [D] of the state ratio `1 + features @ alpha`, from the moments of the episodes `learnt`.

    `step` [N] is target over behaviour. For every feature f, the sum over training steps of
    `ratio(s) (f(s) - discount step f(s'))` must equal the sum of `f(s0)` over episodes, with f = 0 after the end.
    """
    of = np.flatnonzero(np.isin(np.asarray(log.episode), learnt))
    position, following = np.asarray(log.position), np.asarray(log.next_position)
    on = np.ones(log.steps)
    on[log.starts[1:] - 1] = 0.0
    begin = features(position[log.starts[:-1][learnt]]).sum(0)
    moments, square = np.zeros((len(begin), len(begin))), 0.0
    for block in _blocks(of):
        now = features(position[block])
        gap = now - (discount * on[block] * step[block])[:, None] * features(following[block])
        moments += gap.T @ now
        begin -= gap.sum(0)
        square += float(np.square(now).sum())
    penalty = ridge * square / len(begin) * np.eye(len(begin))
    return np.asarray(np.linalg.lstsq(moments + penalty, begin, rcond=1e-12)[0])


def random_features(seen: NDArray[np.float32], seed: int) -> Features:
    """Features: a constant, the observation, and random ReLU features of it (Rahimi and Recht 2008)."""
    generator, width = np.random.default_rng([seed, 6]), seen.shape[1]
    plain = min(width, FEATURES // 2)
    directions = generator.standard_normal((width, FEATURES - plain - 1)) / np.sqrt(width)
    offsets = generator.uniform(-1.0, 1.0, FEATURES - plain - 1)

    def features(stored: Ordinals) -> Floats:
        x = np.asarray(seen[stored], np.float64)
        return np.concatenate([np.ones((len(x), 1)), x[:, :plain], np.maximum(x @ directions + offsets, 0.0)], axis=1)

    return features


def _blocks(rows: Ordinals) -> list[Ordinals]:
    return np.array_split(rows, -(-len(rows) // ROWS))


def _seen(log: Log, learnt: Ordinals) -> NDArray[np.float32]:
    """[M, I]: scaled numbers, one-hot codes, images divided by 255, and the time if episodes end by it."""
    leaves = Scaler.fit(log, episodes=learnt).observation({n: np.asarray(leaf) for n, leaf in log.observation.items()})
    parts = []
    for name, leaf in sorted(leaves.items()):
        kind = log.spec.observation[name]
        if isinstance(kind, Codes):
            parts += [np.eye(size, dtype=np.float32)[leaf[:, c]] for c, size in enumerate(kind.sizes)]
        else:
            flat = leaf.reshape(len(leaf), -1).astype(np.float32)
            parts.append(flat / 255.0 if leaf.dtype == np.uint8 else flat)
    if ends_by_clock(log):
        parts.append(elapsed_share(log))
    return np.concatenate(parts, axis=1)
