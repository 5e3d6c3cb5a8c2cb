"""Small logs made for the judging tests."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from tidelog.ope.evidence import Evidence


def evidence_of(lengths: Sequence[int], **columns: Any) -> Evidence:
    """Evidence from episode lengths and columns over their steps."""
    discount = columns.pop("discount", 1.0)
    found = {name: np.asarray(values, np.float64) for name, values in columns.items()}
    return Evidence(np.concatenate([[0], np.cumsum(lengths)]), discount=discount, **found)


def bandit(rows: int = 200, seed: int = 0, **changes: Any) -> Evidence:
    """One-step episodes with three actions, random policies and a random model."""
    return random_log([1] * rows, seed, **changes)


def random_log(lengths: Sequence[int], seed: int = 0, discount: float = 1.0, **changes: Any) -> Evidence:
    """Random rewards, policies over three actions and model values."""
    generator, steps = np.random.default_rng(seed), int(np.sum(lengths))
    target_all, behaviour_all = generator.dirichlet([2.0] * 3, (2, steps))
    model_all = generator.normal(size=(steps, 3))
    action, row = generator.integers(3, size=steps), np.arange(steps)
    columns = {
        "reward": generator.normal(1.0, 1.0, steps),
        "target": target_all[row, action],
        "behaviour": behaviour_all[row, action],
        "model": model_all[row, action],
        "model_target": (target_all * model_all).sum(1),
        "target_all": target_all,
        "behaviour_all": behaviour_all,
        "model_all": model_all,
    }
    return evidence_of(lengths, discount=discount, **{**columns, **changes})
