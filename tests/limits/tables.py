"""Networks that are tables: an algorithm's fixed point is then an exact number, without fitting error."""

import equinox as eqx
import jax
import jax.numpy as jnp
import optax

from tidelog import IQL, Log
from tidelog.algorithms.contract import StoreSpec
from tidelog.algorithms.sampling import Batch, NStep
from tidelog.algorithms.short_form import step
from tidelog.data.statistics import Scaler
from tidelog.losses.imitation import pick
from tidelog.networks.actors import Categorical
from tidelog.training.stores import stored


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
