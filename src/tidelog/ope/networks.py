"""Values of fixed policies by networks, trained by the same loop as policies, and occupancy ratios by features."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from tidelog._machine import use_cache
from tidelog.algorithms.contract import Feedback, Phase, StoreSpec
from tidelog.algorithms.hyperparameters import field, hyperparameters
from tidelog.algorithms.optimisation import OPTIMISERS, copied, cosine, descend, init_opt_state, polyak_update
from tidelog.algorithms.sampling import Batch, NStep, Sampler
from tidelog.data.log import Log
from tidelog.data.statistics import Scaler, returns_to_go
from tidelog.errors import DivergenceError
from tidelog.networks import native
from tidelog.networks.critics import Critic
from tidelog.networks.encoder import EncoderConfig
from tidelog.networks.layers import host_generator
from tidelog.ope.evidence import (
    Floats,
    Ordinals,
    Target,
    Values,
    elapsed_share,
    ends_by_clock,
    fold_of_steps,
    join_folds,
    observed_numbers,
    without,
)
from tidelog.policies.policy import CHUNK
from tidelog.training.engine import Engine
from tidelog.training.loop import Member
from tidelog.training.stores import stores_of
from tidelog.types import Continuous, Hybrid, Spec, Transition, Vector

# Le, Voloshin, Yue 2019, "Batch Policy Learning under Constraints" (FQE); Voloshin et al. 2021, "Empirical Study of
# Off-Policy Policy Evaluation for Reinforcement Learning". One update trains one critic with one head per policy:
#
# | step | loss (per sample) | reads |
# |---|---|---|
# | critic | mean over policies `p` of `(Q_p(s, a) - r - discount V_p(s'))**2` | V: old target critic |
# | target | moves by `tau` of its gap | **new** critic |
#
# `V_p(s')` is the mean of `Qtarget_p(s', a')` over the actions `a'` that policy `p` takes in `s'`.
#
# Each policy's actions are computed in advance for every stored observation and stored as an additional leaf of a
# prepared log: probabilities of discrete actions, or `K` other actions (each update reads one of them).
#
# Letters: `B` batch, `A` number of actions or action size, `P` policies, `K` draws.

POLICY_ACTIONS = "what the policies do"  # leaf of the prepared log


class FQEState(NamedTuple):
    """Complete training state."""

    critic: Critic
    target_critic: Critic
    opt_state: Any
    step: jax.Array  # int32: updates done
    updates: jax.Array  # int32: updates planned, after which the learning rate is 0
    key: jax.Array


def next_value(critic: Critic, row: Transition, policies: int, key: jax.Array) -> jax.Array:
    """The critic's value of the next observation under each policy, [B, P]."""
    answers = row.next_observation[POLICY_ACTIONS]
    if critic.actions is not None:
        chances = answers.reshape(len(answers), policies, critic.actions)
        return jnp.sum(chances * critic.all_actions(row.next_observation), axis=-1)
    draws = answers.reshape(len(answers), policies, -1, row.action.shape[-1])  # [B, P, K, A]
    which = jax.random.randint(key, (len(answers), 1, 1, 1), 0, draws.shape[2])
    chosen = jnp.take_along_axis(draws, which, axis=2)[:, :, 0]
    values = [critic(row.next_observation, chosen[:, p])[:, p] for p in range(policies)]
    return jnp.stack(values, axis=-1)


def evaluation_loss(critic: Critic, batch: Batch, target: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Squared error against the targets [B, P], averaged over policies; also the values [B, P]."""
    q = critic(batch.data.observation, batch.data.action)
    if q.shape != target.shape:
        raise TypeError(f"values and targets have shapes {q.shape} and {target.shape}: expected equal shapes")
    return batch.mean(jnp.mean(jnp.square(q - jax.lax.stop_gradient(target)), axis=-1)), q


def targets(config: FQE, state: FQEState, row: Transition, key: jax.Array) -> jax.Array:
    """`r + discount V(s')` with the old target critic, minus `centre`: [B, P]."""
    later = config.centre + next_value(state.target_critic, row, config.policies, key)
    return row.reward[:, None] + row.discount[:, None] * later - config.centre


def step(config: FQE, state: FQEState, batch: Batch) -> tuple[FQEState, Feedback]:
    """One update of the critic and the target critic."""
    target = targets(config, state, batch.data, jax.random.fold_in(state.key, state.step))
    (loss, q), slope = eqx.filter_value_and_grad(evaluation_loss, has_aux=True)(state.critic, batch, target)
    rate = config.learning_rate * cosine(state.step / jnp.maximum(state.updates, 1))
    critic, opt_state = descend(OPTIMISERS["adam"], state.critic, slope, state.opt_state, rate, None)
    target_critic = polyak_update(state.target_critic, critic, config.tau)
    moved = FQEState(critic, target_critic, opt_state, state.step + 1, state.updates, state.key)
    return moved, Feedback({"evaluation_loss": loss, "q_mean": batch.average(jnp.mean(q, axis=-1)) + config.centre})


def losses(config: FQE, state: FQEState, batch: Batch, key: jax.Array) -> dict[str, jax.Array]:
    """The critic's loss, without an update."""
    return {"evaluation_loss": evaluation_loss(state.critic, batch, targets(config, state, batch.data, key))[0]}


@hyperparameters
class FQE:
    """Fitted Q evaluation of policies whose actions are stored in the log; it trains no policy."""

    discount: float = field(1.0, least=0.0, most=1.0)
    centre: float = field(0.0, help="constant added to all values")
    policies: int = field(1, least=1, help="number of policies evaluated together, one head each")
    batch_size: int = field(256, least=1)
    learning_rate: float = field(1e-3, least=0.0)
    tau: float = field(0.01, least=0.0, most=1.0, help="Polyak rate of the target critic")
    hidden: tuple[int, ...] = field((128, 128), help="widths of hidden layers")
    embedding: int = field(16, least=1, help="width of a categorical column's embedding")

    def stores(self, spec: Spec) -> dict[str, StoreSpec]:
        """The log with its rewards."""
        return {"log": StoreSpec(("reward", "terminated"))}

    def phases(self) -> tuple[Phase, ...]:
        """One phase over transitions of the prepared log."""
        return (Phase("fqe", Sampler("log", self.batch_size, NStep(1, self.discount)), step, losses),)

    def init(self, spec: Spec, key: jax.Array, updates: int) -> FQEState:
        """Initial critic, which does not read the policies' actions, and its copy."""
        network_key, training_key = jax.random.split(key)
        seen = {name: leaf for name, leaf in spec.observation.items() if name != POLICY_ACTIONS}
        rated = replace(spec, observation=seen, rewards=self.policies)
        encoder_config = EncoderConfig(self.embedding, self.hidden[0])
        critic = Critic.create(host_generator(network_key), rated, hidden=self.hidden, encoder_config=encoder_config)
        opt_state = init_opt_state(OPTIMISERS["adam"], critic)
        return FQEState(critic, copied(critic), opt_state, jnp.int32(0), jnp.int32(updates), training_key)


# Both values and ratios are cross-fitted: the numbers of an episode come from the other folds.
#
# Values: fitted Q evaluation on a log prepared for it. The estimand is the discounted return up to the
# recorded end: in the prepared log every episode's last step is terminal. If episodes end by time, the elapsed share of
# the longest episode is an input too, because the remaining return depends on it (Pardo et al. 2018, "Time Limits in
# Reinforcement Learning"). Rewards are divided by the standard deviation of the returns to go, and values start at
# their mean: at discount 1, a constant added to every final reward is added exactly to every value. On a one-step log
# this is a regression of the reward.
#
# Occupancy ratios (`tabular.py` defines them): minimax weight learning, in its form for states (Uehara, Huang, Jiang
# 2020, "Minimax Weight and Q-Function Learning for Off-Policy Evaluation"): `w(s, a) = u(s) target(a given s) /
# behavior_policy(a given s)`, where u solves, for every f of a class: the logged sum of `u(s) f(s) - discount w(s, a)
# f(s')` equals the mean of `f(s0)`. With one linear class for u and f this is a linear solve; with one feature per
# state it is the table. The features are random ReLU features of the observation; a ridge penalty shrinks u towards 1,
# which for one-step episodes is importance sampling; negative ratios become 0. Time is an input if episodes are
# truncated. The learnt part does not depend on actions, whose ratio is known more precisely.
#
# Letters: `N` steps, `M` stored observations, `E` episodes, `A` number of actions or action size, `P` policies,
# `K` draws, `B` rows of a block, `D` features of the observation, `I` numbers in an observation.

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
    returns = returns_to_go(np.asarray(log.reward, np.float64), log.starts, log.step_discounts(discount))[
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
        """Values at a fold's rows, by a critic trained on the other folds."""

        def tell(share: float) -> None:
            shares[fold] = share
            if progress is not None:
                progress(float(shares.mean()))

        targets, learnt = [policy[fold] for policy in candidates], without(folds, fold)
        rows = np.flatnonzero(fold_of_steps(log, folds) == fold)
        evaluation = evaluation_log(log, targets, discount, learnt)
        mine = evaluation.log.take_episodes(learnt)
        width = 128 if mine.steps >= WIDE else 64
        config = FQE(discount=discount, centre=evaluation.centre, policies=len(targets), hidden=(width, width))
        # enough passes, and enough updates for values to propagate along an episode
        wanted = max(EPOCHS * mine.steps // config.batch_size, SWEEPS * int(np.diff(mine.starts).max()))
        critic = train_critic(config, mine, int(np.clip(wanted, FEWEST, MOST)), seed + fold, tell)
        return _rated(critic, evaluation, rows, len(targets))

    with ThreadPoolExecutor(2) as pool:
        by_fold = list(pool.map(of_fold, range(count)))
    return [join_folds(log, folds, values) for values in zip(*by_fold, strict=True)]


@native.off()
def train_critic(config: FQE, log: Log, updates: int, seed: int, tell: Callable[[float], None] | None = None) -> Critic:
    """Train a critic on a prepared log for this number of updates; DivergenceError if its loss is not finite."""
    learner: Any = config  # of the contract it has what training reads: it acts nowhere
    trainer = Engine.fresh([Member(0, learner, seed)], log.spec, stores_of(learner, log, Scaler()), updates)
    while trainer.update < updates:
        trainer.advance(CHUNK_UPDATES)
        for _, at in trainer.failures():
            raise DivergenceError(
                f"fitted Q evaluation became NaN or infinite at update {at}; usual causes are rewards or "
                "features of extreme scale, or a discount of 1 on very long episodes",
                fix="scale them, or use model='none'",
            )
        if tell is not None:
            tell(trainer.update / updates)
    critic: Critic = trainer.learners[0].state.critic
    return critic


def _answers(policies: Sequence[Target], log: Log) -> NDArray[np.float32]:
    """[M, P * A] probabilities, or [M, P * K * A] actions in network units."""
    space, parts = log.spec.action, []
    draws = max((one.actions.shape[1] for one in policies if one.actions is not None), default=0)
    for one in policies:
        if one.probabilities is not None:
            parts.append(one.probabilities)
        elif one.actions is not None:
            acted = np.resize(one.actions.swapaxes(0, 1), (draws, *one.actions[:, 0].shape)).swapaxes(0, 1)
            acted = space.to_unit(acted) if isinstance(space, Continuous | Hybrid) else acted
            parts.append(acted.reshape(len(acted), -1))
        else:
            raise TypeError("an evaluated policy needs probabilities or actions")
    return np.concatenate(parts, axis=1).astype(np.float32)


def in_chunks(ask: Callable[[slice], tuple[Any, ...]], rows: int) -> tuple[Any, ...]:
    """What a compiled function answers about all rows, as float64: it is asked about `CHUNK` of them at a time."""
    parts = [ask(slice(start, start + CHUNK)) for start in range(0, rows, CHUNK)]
    return tuple(
        None if column[0] is None else np.concatenate([np.asarray(part, np.float64) for part in column])
        for column in zip(*parts, strict=True)
    )


def _rated(critic: Critic, evaluation: EvaluationLog, rows: Ordinals, policies: int) -> list[Values]:
    log, space = evaluation.log, evaluation.log.spec.action
    action = np.asarray(space.to_unit(log.action) if isinstance(space, Continuous | Hybrid) else log.action)

    def ask(part: slice) -> tuple[Any, ...]:
        seen = {name: leaf[np.asarray(log.position)[rows[part]]] for name, leaf in log.observation.items()}
        return _rate(critic, seen, action[rows[part]], policies)

    logged, mean, every = in_chunks(ask, len(rows))

    def of_policy(values: Any, p: int) -> Floats:
        return np.asarray((values[:, p] + evaluation.centre) * evaluation.scale)

    return [
        Values(of_policy(logged, p), of_policy(mean, p), None if every is None else of_policy(every, p))
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
    position, ratios = np.asarray(log.position), np.zeros(log.steps)
    for fold, target in enumerate(targets):
        learnt, rows = without(folds, fold), np.flatnonzero(fold_of_steps(log, folds) == fold)
        step, seen = target.logged / behaviour, observed_numbers(log, learnt)
        if ends_by_clock(log):
            seen = np.concatenate([seen, elapsed_share(log)], axis=1)
        features = random_features(seen, seed)
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
    on = np.full(log.steps, log.step_discounts(discount))
    on[log.starts[1:] - 1] = 0.0
    begin = features(position[log.starts[:-1][learnt]]).sum(0)
    moments, square = np.zeros((len(begin), len(begin))), 0.0
    for block in _blocks(of):
        now = features(position[block])
        gap = now - (on[block] * step[block])[:, None] * features(following[block])
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
