"""The same log with actions, categories and features in another order."""

from dataclasses import replace

import numpy as np

from tidelog.types import Codes, Discrete, Vector

ACTIONS, WORDS, FEATURES = (3, 0, 5, 1, 4, 2), (1, 0), (2, 0, 3, 1)


def permuted(log):
    """Return the log as from a table, with its own order of names."""
    numeric, codes, action = log.spec.observation["numeric"], log.spec.observation["categorical"], log.spec.action
    leaves = {
        "numeric": Vector(4, tuple(numeric.names[i] for i in FEATURES)),
        "categorical": Codes((2,), codes.names, (tuple(codes.vocabularies[0][i] for i in WORDS),)),
    }
    observation = {
        "numeric": log.observation["numeric"][:, FEATURES],
        "categorical": np.argsort(WORDS)[log.observation["categorical"]].astype(np.int32),
    }
    spec = replace(log.spec, observation=leaves, action=Discrete(6, tuple(action.names[i] for i in ACTIONS)))
    return replace(log, spec=spec, observation=observation, action=np.argsort(ACTIONS)[log.action].astype(np.int32))
