"""Logs in which nothing matters, and policies that differ only by chance. Letters: `E` episodes, `A` actions."""

import numpy as np

from tidelog import Log
from tidelog.ope.estimators import Ratios, means

ACTIONS = 4


class Table:
    """A policy with fixed chances [S, A] in each of the log's states."""

    def __init__(self, chances):
        self.chances = np.asarray(chances, np.float64)

    def probabilities(self, observation, mask=None):
        return self.chances[next(iter(observation.values()))[:, 0]]


def noise(count=200, seed=0, **changes):
    """One decision an episode in five states, four actions at even odds, rewards that depend on nothing."""
    generator = np.random.default_rng(seed)
    columns = {
        "observation": generator.integers(0, 5, count),
        "action": generator.integers(0, ACTIONS, count),
        "reward": generator.standard_normal(count),
        "terminated": np.ones(count, bool),
        "propensity": np.full(count, 1 / ACTIONS),
        "episode": np.arange(count) + 100_000 * seed,
        "actions": ACTIONS,
    }
    return Log.from_arrays(**{**columns, **changes})


def random_policies(count, seed=0, concentration=2.0):
    """Policies whose chances were drawn without looking at any log."""
    drawn = np.random.default_rng([seed, 1]).dirichlet(np.full(ACTIONS, concentration), (count, 6))
    return [Table(chances) for chances in drawn]


def differences(count, policies, seed=0, effect=0.0):
    """Self-normalised differences from the behaviour policy on one log of noise, each policy worth `effect` more than
    it.
    """
    generator = np.random.default_rng(seed)
    reward, action = generator.standard_normal(count), generator.integers(0, ACTIONS, count)
    found = []
    for chances in generator.dirichlet(np.full(ACTIONS, 2.0), policies):
        weight = chances[action] * ACTIONS
        weighted = Ratios((weight * (reward + effect))[:, None], weight[:, None])
        found.append(weighted.minus(means(reward)))
    return found
