"""Logs played by policies whose every probability is known, and those policies as objects that act."""

from functools import cache

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from tidelog import BC, Log, Policy
from tidelog.algorithms.bc import BCState
from tidelog.data.statistics import Scaler
from tidelog.envs import TabularEnvironment, play
from tidelog.envs.tabular import Tabular
from tidelog.envs.treatment import clinician, treatment
from tidelog.networks.actors import Categorical
from tidelog.policies.rollout import log_of
from tidelog.support import allow


class Tabled(eqx.Module):
    """A policy of free logits, one a state and action; states are told by what is seen of them."""

    shown: jax.Array  # [S, F]
    logits: jax.Array  # [S, A]

    def __call__(self, observation, *, mask=None, dropout=None, key=None):
        state = jnp.argmin(jnp.abs(flat(observation)[:, None] - self.shown).sum(-1), axis=1)
        return Categorical(allow(self.logits[state], mask))


def flat(observation):
    """All leaves side by side, [B, F]."""
    return jnp.concatenate([jnp.asarray(leaf, jnp.float32) for _, leaf in sorted(observation.items())], axis=1)


def policy_of(problem: Tabular, chances) -> Policy:
    """Probabilities [S, A] as a policy that acts on what the problem shows."""
    shown, logits = flat(problem.observations()), jnp.log(jnp.asarray(chances, jnp.float32))
    return Policy(BC(), problem.spec, Scaler(), BCState(Tabled(shown, logits)))


def played(problem: Tabular, chances, episodes: int, seed: int = 0) -> Log:
    """Episodes played by probabilities [S, A], which are recorded."""
    environment = TabularEnvironment(problem, min(episodes, 500))

    def act(observed, generator):
        state = environment._state
        action = (chances[state].cumsum(1) > generator.random((len(state), 1))).argmax(1)
        return action.astype(np.int32), chances[state, action]

    return log_of(environment.spec, play(environment, act, episodes, seed))


def random_problem(states: int = 6, actions: int = 3, seed: int = 0, **changes) -> Tabular:
    """A problem whose last state is final and reached from everywhere."""
    rng = np.random.default_rng(seed)
    transition = rng.dirichlet(np.ones(states), (states, actions))
    transition[-1] = np.eye(states)[-1]
    initial = np.append(rng.dirichlet(np.ones(states - 1)), 0.0)
    reward = rng.standard_normal((states, actions, states))
    return Tabular(transition, reward, initial, np.arange(states) == states - 1, name="random", **changes)


def random_policy(problem: Tabular, seed: int = 1):
    """Probabilities [S, A]."""
    return np.random.default_rng(seed).dirichlet(np.ones(problem.actions), problem.states)


@cache
def treated(episodes: int = 3_000, seed: int = 2) -> Log:
    """Treatments logged by the clinician."""
    return played(treatment(), clinician(), episodes, seed)


def better():
    """Between the clinician and the optimum of the treatment problem, [S, A]."""
    return 0.5 * clinician() + 0.5 * treatment().optimal()[1]
