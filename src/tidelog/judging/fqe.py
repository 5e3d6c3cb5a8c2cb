"""Fitted Q evaluation with networks: what following given policies is worth, learnt on the loop that trains policies.

Le, Voloshin, Yue 2019, "Batch Policy Learning under Constraints" (FQE); Voloshin et al. 2021, "Empirical Study of
Off-Policy Policy Evaluation for Reinforcement Learning". One update moves one critic with a head a policy:

| step | loss (per sample) | reads |
|---|---|---|
| critic | mean over policies `p` of `(Q_p(s, a) - r - discount V_p(s'))**2` | V: old target critic |
| target | moves by `target_rate` of its gap | **new** critic |

`V_p(s')` is the mean of `Qtarget_p(s', a')` over the actions `a'` that policy `p` takes in `s'`.

What each policy would do was computed beforehand for every stored observation and rides along as one more leaf of a
derived log, so that the loop needs to know nothing: probabilities of discrete actions, or `K` continuous actions, of
which each update reads one.

The estimand is the discounted return up to the recorded end: in the derived log every episode's last step is terminal.
Where any episode of the log is truncated the time is seen too, as the share of the longest episode that has passed,
since what is left to earn depends on it (Pardo et al. 2018, "Time Limits in Reinforcement Learning"). Rewards are
divided by the spread of the returns still to come, and values start at their mean: at discount 1, adding a constant to
every final reward adds it to every value, exactly. A one-step log makes this a regression of the reward.

Letters: `B` batch, `N` steps, `M` stored observations, `A` number of actions or action size, `P` policies, `K` draws.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from tidelog.acting.policy import CHUNK
from tidelog.algorithms.contract import Batch, Feedback, Keep, Phase
from tidelog.algorithms.draws import Draw, Row
from tidelog.algorithms.hyper import hyper, number, static
from tidelog.algorithms.optim import (
    OPTIMISERS,
    SCHEDULES,
    Schedule,
    Transformation,
    copied,
    cosine,
    descend,
    follow,
    optimiser_memory,
)
from tidelog.data import Log
from tidelog.data.scaling import Scaler
from tidelog.errors import DivergenceError
from tidelog.judging.folds import Ordinals, fold_of_steps, without
from tidelog.judging.tabular import Values
from tidelog.judging.target import Floats, Target, passed
from tidelog.networks.critic import Critic
from tidelog.networks.encode import Sight
from tidelog.networks.mlp import host_generator
from tidelog.training.cache import use_cache
from tidelog.training.stores import stores_of
from tidelog.training.trainer import Member, Trainer
from tidelog.types import Continuous, Discrete, Observation, Spec, Transition, Vector

ANSWERS, PASSED = "what the policies do", "time passed"  # leaves of the derived log
BATCH, FEWEST, MOST = 256, 2_000, 20_000  # updates of a fold, within these limits:
EPOCHS, SWEEPS = 20, 150  # so many passes, and so many updates for each step of the longest episode
WIDE = 5_000  # steps from which networks are wide
CHUNK_UPDATES = 500


class State(NamedTuple):
    """Everything that a resumed run needs."""

    critic: Critic
    target_critic: Critic
    memory: Any  # the optimiser's
    step: jax.Array  # int32: updates taken
    updates: jax.Array  # int32: updates planned, for the schedule
    key: jax.Array


class Acting(NamedTuple):
    """What rating reads."""

    critic: Critic


def followed_value(critic: Critic, row: Transition, policies: int, key: jax.Array) -> jax.Array:
    """What following each policy from what came next is worth by a critic, [B, P]."""
    answers = row.next_observation[ANSWERS]
    if critic.actions is not None:
        chances = answers.reshape(len(answers), policies, critic.actions)
        return jnp.sum(chances * critic.all_actions(row.next_observation), axis=-1)
    draws = answers.reshape(len(answers), policies, -1, row.action.shape[-1])  # [B, P, K, A]
    which = jax.random.randint(key, (len(answers), 1, 1, 1), 0, draws.shape[2])
    chosen = jnp.take_along_axis(draws, which, axis=2)[:, :, 0]
    worth = [critic(row.next_observation, chosen[:, p])[:, p] for p in range(policies)]
    return jnp.stack(worth, axis=-1)


def evaluation_loss(critic: Critic, batch: Batch, target: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Squared error against the targets [B, P], averaged over policies; also the values [B, P]."""
    q = critic(batch.data.observation, batch.data.action)
    if q.shape != target.shape:
        raise TypeError(f"values and targets must have one shape, found {q.shape} and {target.shape}")
    return batch.mean(jnp.mean(jnp.square(q - jax.lax.stop_gradient(target)), axis=-1)), q


def targets(h: FQE, state: State, row: Transition, key: jax.Array) -> jax.Array:
    """`r + discount V(s')` of the old target critic, less what all values start from: [B, P]."""
    later = h.centre + followed_value(state.target_critic, row, h.policies, key)
    return row.reward[:, None] + row.discount[:, None] * later - h.centre


def step(h: FQE, state: State, batch: Batch) -> tuple[State, Feedback]:
    """One update of the critic and its slow copy."""
    target = targets(h, state, batch.data, jax.random.fold_in(state.key, state.step))
    (loss, q), slope = eqx.filter_value_and_grad(evaluation_loss, has_aux=True)(state.critic, batch, target)
    rate = h.learning_rate * h.schedule(state.step / jnp.maximum(state.updates, 1))
    critic, memory = descend(h.optimiser, state.critic, slope, state.memory, rate, None)
    target_critic = follow(state.target_critic, critic, h.target_rate)
    moved = State(critic, target_critic, memory, state.step + 1, state.updates, state.key)
    return moved, Feedback({"evaluation_loss": loss, "q_mean": batch.average(jnp.mean(q, axis=-1)) + h.centre})


def losses(h: FQE, state: State, batch: Batch, key: jax.Array) -> dict[str, jax.Array]:
    """The loss of the critic as it stands, without a step."""
    return {"evaluation_loss": evaluation_loss(state.critic, batch, targets(h, state, batch.data, key))[0]}


def init(h: FQE, spec: Spec, key: jax.Array, updates: int) -> State:
    """A fresh critic, which does not see what the policies would do, and its copy."""
    network_key, training_key = jax.random.split(key)
    seen = {name: leaf for name, leaf in spec.observation.items() if name != ANSWERS}
    rated = replace(spec, observation=seen, rewards=h.policies)
    sight = Sight(h.embedding, h.hidden[0])
    critic = Critic.create(host_generator(network_key), rated, hidden=h.hidden, layer_norm=h.layer_norm, sight=sight)
    memory = optimiser_memory(h.optimiser, critic)
    return State(critic, copied(critic), memory, jnp.int32(0), jnp.int32(updates), training_key)


@hyper
class FQE:
    """Fitted Q evaluation of policies whose answers ride along in the log; learns no policy of its own."""

    discount: float = number(1.0, least=0.0, most=1.0)
    centre: float = number(0.0, help="what all values start from")
    policies: int = static(1, least=1, help="how many policies are evaluated at once, one head each")
    batch_size: int = static(BATCH, least=1)
    learning_rate: float = number(1e-3, least=0.0)
    schedule: Schedule = static(cosine, choices=SCHEDULES, help="factor on the rate, over the run's progress")
    optimiser: Transformation = static(OPTIMISERS["adam"], choices=OPTIMISERS, help="makes the direction of a step")
    target_rate: float = number(0.01, least=0.0, most=1.0, help="share of the gap that the target critic moves")
    hidden: tuple[int, ...] = static((128, 128), help="widths of hidden layers")
    embedding: int = static(16, least=1, help="width of a categorical column's table")
    layer_norm: bool = static(False)

    takes: ClassVar[tuple[type, ...]] = (Continuous, Discrete)

    def stores(self, spec: Spec) -> dict[str, Keep]:
        """The log with its rewards."""
        return {"log": Keep(("reward", "terminated"))}

    def phases(self) -> tuple[Phase, ...]:
        """One phase over transitions of the derived log."""
        return (Phase("fqe", Draw("log", self.batch_size, Row(1, self.discount)), step, losses),)

    def init(self, spec: Spec, key: jax.Array, updates: int) -> State:
        """A fresh critic for a run of `updates` steps."""
        return init(self, spec, key, updates)

    def acting(self, state: State) -> Acting:
        """The critic."""
        return Acting(state.critic)

    def start(self, acting: Acting, batch: int) -> None:
        """None: there is no memory."""

    def act(self, acting: Acting, observation: Observation, **how: Any) -> Any:
        """TypeError: this learns what policies are worth, and has none itself."""
        raise TypeError("fitted Q evaluation rates policies and is none: it cannot act")

    def distribution(self, acting: Acting, observation: Observation, mask: Any = None, carry: Any = None) -> None:
        """None: there is no policy."""

    def q_values(self, acting: Acting, observation: Observation) -> jax.Array | None:
        """Values of all actions under the first policy, [B, A]; None for continuous ones."""
        return None if acting.critic.actions is None else acting.critic.all_actions(observation)[:, 0] + self.centre


# From a log and policies to values.


@dataclass(frozen=True, eq=False)
class Derived:
    """A log as evaluation reads it: observations scaled, every end terminal, the policies' answers beside them."""

    log: Log
    scale: float  # rewards were divided by it
    centre: float  # mean return still to come, in scaled rewards


def derived(log: Log, policies: Sequence[Target], discount: float, learnt: Ordinals) -> Derived:
    """The log for these policies; scales come from the episodes `learnt` alone."""
    returns = to_go(np.asarray(log.reward, np.float64), log.starts, discount)[np.isin(np.asarray(log.episode), learnt)]
    scale = float(returns.std()) or 1.0
    leaves = Scaler.fit(log, episodes=learnt).observation({n: np.asarray(leaf) for n, leaf in log.observation.items()})
    last = np.zeros(log.steps, bool)
    last[log.starts[1:] - 1] = True
    more = {ANSWERS: _answers(policies, log)}
    if not np.asarray(log.terminated)[last].all():
        more[PASSED] = passed(log)
    spec = replace(
        log.spec,
        observation={**log.spec.observation, **{name: Vector(leaf.shape[1]) for name, leaf in more.items()}},
    )
    reward = (np.asarray(log.reward, np.float64) / scale).astype(np.float32)
    made = replace(
        log,
        spec=spec,
        observation={**leaves, **more},
        reward=reward,
        terminated=last,
        truncated=np.zeros(log.steps, bool),
        weight=None,
    )
    return Derived(made, scale, float(returns.mean() / scale))


def to_go(reward: Floats, starts: Any, discount: float) -> Floats:
    """Discounted returns [N] from each step to the end of its episode."""
    found, lengths = reward.copy(), np.diff(starts)
    for before in range(1, int(lengths.max())):
        rows = starts[1:][lengths > before] - 1 - before
        found[rows] += discount * found[rows + 1]
    return found


def network_values(
    log: Log,
    folds: Ordinals,
    candidates: Sequence[Sequence[Target]],
    discount: float = 1.0,
    seed: int = 0,
    progress: Callable[[float], None] | None = None,
) -> list[Values]:
    """Cross-fitted values of several policies: `candidates` holds, for each, one target a fold; folds side by side."""
    use_cache()
    count, shares = int(folds.max()) + 1, np.zeros(int(folds.max()) + 1)

    def one(fold: int) -> list[Values]:
        def tell(share: float) -> None:
            shares[fold] = share
            if progress is not None:
                progress(float(shares.mean()))

        policies = [targets[fold] for targets in candidates]
        rows = np.flatnonzero(fold_of_steps(log, folds) == fold)
        return fold_values(log, policies, without(folds, fold), rows, discount, seed + fold, tell)

    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(one, range(count)))
    return [_joined(log, folds, [values[p] for values in found]) for p in range(len(candidates))]


def fold_values(
    log: Log,
    policies: Sequence[Target],
    learnt: Ordinals,
    rows: Ordinals,
    discount: float,
    seed: int,
    tell: Callable[[float], None],
) -> list[Values]:
    """Values of each policy at some rows, by a critic learnt on the episodes `learnt`."""
    made = derived(log, policies, discount, learnt)
    mine = made.log.take_episodes(learnt)
    width = 128 if mine.steps >= WIDE else 64
    h = FQE(discount=discount, centre=made.centre, policies=len(policies), hidden=(width, width))
    critic = trained(h, mine, updates_for(mine), seed, tell)
    return _rated(critic, made, rows, len(policies))


def updates_for(log: Log) -> int:
    """How many updates a critic takes on a log: enough passes, and enough for values to travel along an episode."""
    longest = int(np.diff(log.starts).max())
    return int(np.clip(max(EPOCHS * log.steps // BATCH, SWEEPS * longest), FEWEST, MOST))


def trained(h: FQE, log: Log, updates: int, seed: int, tell: Callable[[float], None] | None = None) -> Critic:
    """The critic after so many updates on a derived log; DivergenceError where its loss is not finite."""
    trainer = Trainer.fresh([Member(0, h, seed)], log.spec, stores_of(h, log, Scaler()), updates)
    while trainer.update < updates:
        trainer.advance(CHUNK_UPDATES)
        for _, at in trainer.failures():
            raise DivergenceError(
                f"fitted Q evaluation became NaN or infinite at update {at}: rewards or features of extreme scale, or "
                "a discount of 1 on very long episodes; scale them, or judge with model='none'"
            )
        if tell is not None:
            tell(trainer.update / updates)
    critic: Critic = h.acting(trainer.learners[0].state).critic
    return critic


def _answers(policies: Sequence[Target], log: Log) -> np.ndarray[Any, Any]:
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
            raise TypeError("a policy to be evaluated has probabilities or actions")
    return np.concatenate(parts, axis=1).astype(np.float32)


def _rated(critic: Critic, made: Derived, rows: Ordinals, policies: int) -> list[Values]:
    log, logged, mean, every = made.log, [], [], []
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
        return np.asarray((np.concatenate(parts)[:, p] + made.centre) * made.scale)

    return [
        Values(joined(logged, p), joined(mean, p), None if every[0] is None else joined(every, p))
        for p in range(policies)
    ]


@eqx.filter_jit
def _rate(critic: Critic, seen: Any, action: Any, policies: int) -> tuple[Any, Any, Any]:
    """Values of given actions [B, P], of the policies [B, P], and of all discrete actions [B, P, A]."""
    answers = jnp.asarray(seen[ANSWERS])
    if critic.actions is not None:
        every = critic.all_actions(seen)
        chances = answers.reshape(every.shape)
        return critic(seen, action), jnp.sum(chances * every, axis=-1), every
    draws = answers.reshape(len(answers), policies, -1, action.shape[-1])
    worth = [jax.vmap(lambda a: critic(seen, a), 1, 1)(draws[:, p])[..., p].mean(1) for p in range(policies)]
    return critic(seen, action), jnp.stack(worth, axis=-1), None


def _joined(log: Log, folds: Ordinals, found: Sequence[Values]) -> Values:
    """The values of all rows from those of each fold's rows."""
    of = fold_of_steps(log, folds)
    back = np.argsort(np.concatenate([np.flatnonzero(of == fold) for fold in range(len(found))]))
    columns = [
        None if any(x is None for x in column) else np.concatenate(column)[back] for column in zip(*found, strict=True)
    ]
    return Values(*columns)  # type: ignore[arg-type]
