"""Limits of the expectile: 1/2 is the value of the logging policy, near 1 the best of the logged actions."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from tests.envs.corridor import chain
from tidelog import IQL, Log
from tidelog.algorithms.contract import StoreSpec
from tidelog.algorithms.sampling import Batch, NStep
from tidelog.algorithms.short_form import step
from tidelog.data.statistics import Scaler
from tidelog.losses.imitation import pick
from tidelog.losses.td import expectile_error
from tidelog.networks.actors import Categorical
from tidelog.training.stores import stored

close = np.testing.assert_allclose


def test_one_half_is_half_the_squared_error():
    u = np.array([-3.0, -0.1, 0.0, 0.2, 5.0], np.float32)
    close(jax.jit(expectile_error)(u, 0.5), 0.5 * u**2, rtol=1e-6)
    close(jax.jit(jax.grad(lambda x: jnp.sum(expectile_error(x, 0.5))))(u), u, rtol=1e-6)


@pytest.mark.parametrize(
    ("expectile", "value"),
    [
        (0.5, 1.0),  # the mean: (0 + 1 + 1 + 2) / 4
        (0.9, 2.0 / 1.2),  # 0.9 (2 - v) = 0.1 (2 (v - 1) + v): 2 = v (0.9 + 0.3)
        (0.99, 2.0 / 1.02),  # 0.99 (2 - v) = 0.01 (2 (v - 1) + v): 2 = v (0.99 + 0.03)
    ],
)
def test_value_of_a_bandit_is_the_expectile_of_what_was_earned(expectile, value):
    # Action 0 earned 0 once, action 1 earned 1 twice, action 2 earned 2 once; action 3 was never tried.
    log = Log.from_arrays(
        observation=np.zeros((4, 1), int), action=[0, 1, 1, 2], reward=[0.0, 1.0, 1.0, 2.0], terminated=True, actions=4
    )
    state = solved(dataclasses.replace(TABULAR, expectile=expectile), log)
    close(state.value.values[0], value, rtol=1e-4)
    close(state.critic.members[0].values[0], [0.0, 1.0, 2.0, 0.0], atol=1e-3)


def every_move(length: int) -> Log:
    """The chain's states with both moves from each, once."""
    state, right = np.divmod(np.arange(2 * length), 2)
    following = np.where(right == 1, state + 1, np.maximum(state - 1, 0))
    final = following == length
    observation, then = state[:, None], np.minimum(following, length - 1)[:, None]
    return Log.from_arrays(
        observation=observation, next_observation=then, action=right, reward=final.astype(float), terminated=final,
        truncated=~final, episode=np.arange(2 * length),
    )  # fmt: skip


def chain_values(expectile: float) -> np.ndarray:
    """V = expectile max + (1 - expectile) min over the two moves: the expectile of two equally frequent numbers."""
    value = np.zeros(3)
    for _ in range(1000):
        left, right = 0.9 * value[[0, 0, 1]], np.array([0.9 * value[1], 0.9 * value[2], 1.0])
        value = expectile * np.maximum(left, right) + (1 - expectile) * np.minimum(left, right)
    return value


@pytest.mark.parametrize("expectile", [0.5, 0.8, 0.99])
def test_values_of_a_chain(expectile):
    state = solved(dataclasses.replace(TABULAR, expectile=expectile, discount=0.9), every_move(3))
    close(state.value.values, chain_values(expectile), rtol=1e-3)


def test_one_half_values_the_behavior_and_near_one_the_best():
    uniform = np.full((4, 2), 0.5)
    close(chain_values(0.5), chain(3).state_values(uniform, 0.9)[:3], rtol=1e-6)
    best = chain(3).state_values(chain(3).optimal(0.9)[1], 0.9)[:3]
    close(best, [0.81, 0.9, 1.0])
    state = solved(dataclasses.replace(TABULAR, expectile=0.99, discount=0.9), every_move(3))
    close(state.value.values, best, rtol=0.02)


def test_the_policy_is_the_behaviors_tilted_by_temperature_times_q():
    h = dataclasses.replace(TABULAR, expectile=0.9, discount=0.9, temperature=2.0)
    value = chain_values(0.9)
    left, right = 0.9 * value[[0, 0, 1]], np.array([0.9 * value[1], 0.9 * value[2], 1.0])
    odds = np.exp(2.0 * (right - left))  # the behaviour policy moved left as often as right
    chances = np.asarray(jax.jit(jax.nn.softmax)(solved(h, every_move(3)).actor.logits))
    close(chances[:, 1], odds / (1 + odds), rtol=1e-3)


# Networks that are tables: an algorithm's fixed point is then an exact number, without fitting error.


def state_of(observation):
    return observation["observation"][:, 0]


class StateTable(eqx.Module):
    """V(s), one number per state."""

    values: jax.Array

    def __call__(self, observation):
        return self.values[state_of(observation)]


class ActionTable(eqx.Module):
    """Q(s, a), one number per state and action."""

    values: jax.Array

    def __call__(self, observation, action):
        return pick(self.values[state_of(observation)], action)


class LogitTable(eqx.Module):
    """A policy of free logits, one per state and action."""

    logits: jax.Array

    def __call__(self, observation, *, mask=None, dropout=None, key=None):
        return Categorical(self.logits[state_of(observation)])


def plain() -> optax.GradientTransformation:
    """The gradient itself as update direction."""
    return optax.identity()


def value_table(spec, key):
    return StateTable(jnp.zeros(spec.observation["observation"].sizes[0]))


def action_table(spec, key):
    return ActionTable(jnp.zeros((spec.observation["observation"].sizes[0], spec.action.n)))


def logit_table(spec, key):
    return LogitTable(jnp.zeros((spec.observation["observation"].sizes[0], spec.action.n)))


TABULAR = IQL(
    optimiser=plain, value_learning_rate=1.0, critic_learning_rate=1.0, actor_learning_rate=1.0, num_critics=1,
    tau=0.5, actor_schedule="constant",
    actor_network=logit_table, critic_network=action_table, value_network=value_table,
)  # fmt: skip


@jax.jit
def _descend(h, state, batch, updates):
    return jax.lax.fori_loop(0, updates, lambda _, s: step(h, s, batch)[0], state)


@eqx.filter_jit
def _whole(unit, store, rows):
    return Batch(unit.gather(store, rows).data, rows)


def solved(h: IQL, log: Log, updates: int = 1500):
    """Return the state after many updates on the whole log at once, without sampling: the fixed point."""
    store = stored(log, StoreSpec(("reward", "terminated")), Scaler())
    rows = jnp.arange(len(log))
    batch = _whole(NStep(1, h.discount), store, rows)
    return _descend(h, h.init(log.spec, jax.random.key(0), updates), batch, updates)
