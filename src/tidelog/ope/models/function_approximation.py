"""Values by networks and occupancy ratios by random features, for logs with many different observations.

Both are cross-fitted: the numbers of an episode come from the other folds.

Values: fitted Q evaluation (`fqe.py`) on a log prepared for it. The estimand is the discounted return up to the
recorded end: in the prepared log every episode's last step is terminal. If episodes end by time, the elapsed share of
the longest episode is an input too, because the remaining return depends on it (Pardo et al. 2018, "Time Limits in
Reinforcement Learning"). Rewards are divided by the standard deviation of the returns to go, and values start at their
mean: at discount 1, a constant added to every final reward is added exactly to every value. On a one-step log this is a
regression of the reward.

Occupancy ratios (`tabular.py` defines them): minimax weight learning, in its form for states (Uehara, Huang, Jiang
2020, "Minimax Weight and Q-Function Learning for Off-Policy Evaluation"):
`w(s, a) = u(s) target(a given s) / logger(a given s)`, where u solves, for every f of a class: the logged sum of
`u(s) f(s) - discount w(s, a) f(s')` equals the mean of `f(s0)`. With one linear class for u and f this is a linear
solve; with one feature per state it is the table. The features are random ReLU features of the observation; a ridge
penalty shrinks u towards 1, which for one-step episodes is importance sampling; negative ratios become 0. Time is an
input if episodes are truncated. The learnt part does not depend on actions, whose ratio is known more precisely.

Letters: `N` steps, `M` stored observations, `E` episodes, `A` number of actions or action size, `P` policies,
`K` draws, `B` rows of a block, `D` features of the observation, `I` numbers in an observation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from tidelog.data.log import Log
from tidelog.data.scaling import Scaler
from tidelog.errors import DivergenceError
from tidelog.networks.critic import Critic
from tidelog.ope.evidence.episodes import (
    Ordinals,
    elapsed_share,
    ends_by_clock,
    fold_of_steps,
    observed_numbers,
    without,
)
from tidelog.ope.evidence.evidence import Floats, Target
from tidelog.ope.models.fqe import FQE, POLICY_ACTIONS
from tidelog.ope.models.tabular import Values, join_folds
from tidelog.policies.policy import CHUNK
from tidelog.training.engine.cache import use_cache
from tidelog.training.engine.engine import Engine
from tidelog.training.engine.members import Member
from tidelog.training.engine.stores import stores_of
from tidelog.types import Continuous, Vector

PASSED = "time passed"  # leaf of the prepared log
FEWEST, MOST = 2_000, 20_000  # limits of a fold's number of updates
EPOCHS, SWEEPS = 20, 150  # passes over the log, and updates per step of the longest episode
WIDE = 5_000  # smallest number of steps for wide networks
CHUNK_UPDATES = 500
FEATURES = 128  # D
RIDGE = 1e-3  # as a share of the mean sum of squares of a feature
ROWS = 4096  # in one block

Features = Callable[[Ordinals], Floats]  # of stored observations [B] -> [B, D]


@dataclass(frozen=True, eq=False)
class EvaluationLog:
    """Log for evaluation: scaled observations, terminal ends, and the policies' actions as a leaf."""

    log: Log
    scale: float  # divisor of the rewards
    centre: float  # mean return to go, in scaled rewards


def evaluation_log(log: Log, policies: Sequence[Target], discount: float, learnt: Ordinals) -> EvaluationLog:
    """The log prepared for these policies; scales come only from the episodes `learnt`."""
    returns = returns_to_go(np.asarray(log.reward, np.float64), log.starts, discount)[
        np.isin(np.asarray(log.episode), learnt)
    ]
    scale = float(returns.std()) or 1.0
    leaves = Scaler.fit(log, episodes=learnt).observation({n: np.asarray(leaf) for n, leaf in log.observation.items()})
    last = np.zeros(log.steps, bool)
    last[log.starts[1:] - 1] = True
    more = {POLICY_ACTIONS: _answers(policies, log)}
    if ends_by_clock(log):
        more[PASSED] = elapsed_share(log)
    spec = replace(
        log.spec,
        observation={**log.spec.observation, **{name: Vector(leaf.shape[1]) for name, leaf in more.items()}},
    )
    reward = (np.asarray(log.reward, np.float64) / scale).astype(np.float32)
    prepared = replace(
        log,
        spec=spec,
        observation={**leaves, **more},
        reward=reward,
        terminated=last,
        truncated=np.zeros(log.steps, bool),
        weight=None,
    )
    return EvaluationLog(prepared, scale, float(returns.mean() / scale))


def returns_to_go(reward: Floats, starts: Any, discount: float) -> Floats:
    """Discounted returns [N] from each step to the end of its episode."""
    returns, lengths = reward.copy(), np.diff(starts)
    for before in range(1, int(lengths.max())):
        rows = starts[1:][lengths > before] - 1 - before
        returns[rows] += discount * returns[rows + 1]
    return returns


def network_values(
    log: Log,
    folds: Ordinals,
    candidates: Sequence[Sequence[Target]],
    discount: float = 1.0,
    seed: int = 0,
    progress: Callable[[float], None] | None = None,
) -> list[Values]:
    """Cross-fitted values of several policies; `candidates` has one target per fold for each. Folds run in parallel."""
    use_cache()
    count = int(folds.max()) + 1
    shares = np.zeros(count)

    def of_fold(fold: int) -> list[Values]:
        def tell(share: float) -> None:
            shares[fold] = share
            if progress is not None:
                progress(float(shares.mean()))

        return fold_values(log, folds, fold, [targets[fold] for targets in candidates], discount, seed, tell)

    with ThreadPoolExecutor(2) as pool:
        by_fold = list(pool.map(of_fold, range(count)))
    return [join_folds(log, folds, found) for found in zip(*by_fold, strict=True)]


def fold_values(
    log: Log,
    folds: Ordinals,
    fold: int,
    targets: Sequence[Target],
    discount: float = 1.0,
    seed: int = 0,
    tell: Callable[[float], None] | None = None,
) -> list[Values]:
    """Values of several policies at a fold's rows, by a critic trained on the others; `targets` has one of each."""
    learnt, rows = without(folds, fold), np.flatnonzero(fold_of_steps(log, folds) == fold)
    evaluation = evaluation_log(log, targets, discount, learnt)
    mine = evaluation.log.take_episodes(learnt)
    width = 128 if mine.steps >= WIDE else 64
    config = FQE(discount=discount, centre=evaluation.centre, policies=len(targets), hidden=(width, width))
    critic = train_critic(config, mine, updates_for(mine), seed + fold, tell)
    return _rated(critic, evaluation, rows, len(targets))


def updates_for(log: Log) -> int:
    """Number of a critic's updates on a log: enough passes, and enough for values to propagate along an episode."""
    longest = int(np.diff(log.starts).max())
    return int(np.clip(max(EPOCHS * log.steps // FQE().batch_size, SWEEPS * longest), FEWEST, MOST))


def train_critic(config: FQE, log: Log, updates: int, seed: int, tell: Callable[[float], None] | None = None) -> Critic:
    """Train a critic on a prepared log for this number of updates; DivergenceError if its loss is not finite."""
    trainer = Engine.fresh([Member(0, config, seed)], log.spec, stores_of(config, log, Scaler()), updates)
    while trainer.update < updates:
        trainer.advance(CHUNK_UPDATES)
        for _, at in trainer.failures():
            raise DivergenceError(
                f"fitted Q evaluation became NaN or infinite at update {at}; usual causes are rewards or features of "
                "extreme scale, or a discount of 1 on very long episodes. fix: scale them, or use model='none'"
            )
        if tell is not None:
            tell(trainer.update / updates)
    critic: Critic = config.policy_params(trainer.learners[0].state).critic
    return critic


def _answers(policies: Sequence[Target], log: Log) -> NDArray[np.float32]:
    """[M, P * A] probabilities, or [M, P * K * A] actions in [-1, 1]."""
    space, parts = log.spec.action, []
    draws = max((one.actions.shape[1] for one in policies if one.actions is not None), default=0)
    for one in policies:
        if one.probabilities is not None:
            parts.append(one.probabilities)
        elif one.actions is not None and isinstance(space, Continuous):
            acted = np.resize(one.actions.swapaxes(0, 1), (draws, *one.actions[:, 0].shape)).swapaxes(0, 1)
            parts.append(space.to_unit(acted).reshape(len(acted), -1))
        else:
            raise TypeError("an evaluated policy needs probabilities or actions")
    return np.concatenate(parts, axis=1).astype(np.float32)


def _rated(critic: Critic, evaluation: EvaluationLog, rows: Ordinals, policies: int) -> list[Values]:
    log, logged, mean, every = evaluation.log, [], [], []
    space = log.spec.action
    action = np.asarray(space.to_unit(log.action) if isinstance(space, Continuous) else log.action)
    for start in range(0, len(rows), CHUNK):
        now = rows[start : start + CHUNK]
        seen = {name: leaf[np.asarray(log.position)[now]] for name, leaf in log.observation.items()}
        one, two, three = _rate(critic, seen, action[now], policies)
        logged.append(np.asarray(one, np.float64))
        mean.append(np.asarray(two, np.float64))
        every.append(None if three is None else np.asarray(three, np.float64))

    def joined(parts: list[Any], p: int) -> Floats:
        return np.asarray((np.concatenate(parts)[:, p] + evaluation.centre) * evaluation.scale)

    return [
        Values(joined(logged, p), joined(mean, p), None if every[0] is None else joined(every, p))
        for p in range(policies)
    ]


@eqx.filter_jit
def _rate(critic: Critic, seen: Any, action: Any, policies: int) -> tuple[Any, Any, Any]:
    """Values of the logged actions [B, P], of the policies [B, P], and of all discrete actions [B, P, A]."""
    answers = jnp.asarray(seen[POLICY_ACTIONS])
    if critic.actions is not None:
        every = critic.all_actions(seen)
        chances = answers.reshape(every.shape)
        return critic(seen, action), jnp.sum(chances * every, axis=-1), every
    draws = answers.reshape(len(answers), policies, -1, action.shape[-1])
    values = [jax.vmap(lambda a: critic(seen, a), 1, 1)(draws[:, p])[..., p].mean(1) for p in range(policies)]
    return critic(seen, action), jnp.stack(values, axis=-1), None


def feature_ratios(
    log: Log, folds: Ordinals, targets: Sequence[Target], behaviour: Floats, discount: float = 1.0, seed: int = 0
) -> Floats:
    """Cross-fitted ratios [N] from random features; `targets` has one per fold, `behaviour` [N] the propensities."""
    of, ratios = fold_of_steps(log, folds), np.zeros(log.steps)
    for fold, target in enumerate(targets):
        ratios[of == fold] = fold_ratios(log, folds, fold, target, behaviour, discount, seed)
    return ratios


def fold_ratios(
    log: Log, folds: Ordinals, fold: int, target: Target, behaviour: Floats, discount: float = 1.0, seed: int = 0
) -> Floats:
    """Ratios at a fold's rows, by the moments of the other folds."""
    learnt, rows = without(folds, fold), np.flatnonzero(fold_of_steps(log, folds) == fold)
    step, position = target.logged / behaviour, np.asarray(log.position)
    seen = observed_numbers(log, learnt)
    if ends_by_clock(log):
        seen = np.concatenate([seen, elapsed_share(log)], axis=1)
    features = random_features(seen, seed)
    alpha = solved_weights(log, features, step, learnt, discount)
    state = 1.0 + np.concatenate([features(position[block]) @ alpha for block in _blocks(rows)])
    return np.asarray(np.maximum(state, 0.0) * step[rows])


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
