"""A finite problem with a known optimum, and an actor that always takes the first action."""

import numpy as np

from tidelog.envs.tabular import Tabular


def idle(observed, generator):
    """The first action of every copy."""
    return np.zeros(len(next(iter(observed.observation.values()))), int), None


def chain(length: int, slip: float = 0.0) -> Tabular:
    """A corridor of `length` states; moves left (0) or right (1) from the left end; leaving on the right has reward 1.

    Each move is reversed with probability `slip`; the left end is a wall. Without slip the optimal value is
    `discount ** (length - 1)`.
    """
    transition = np.zeros((length + 1, 2, length + 1))
    for state in range(length):
        for action, right in ((0, slip), (1, 1.0 - slip)):
            transition[state, action, state + 1] += right
            transition[state, action, max(state - 1, 0)] += 1.0 - right
    transition[length, :, length] = 1.0
    reward = np.broadcast_to(np.eye(length + 1)[length], transition.shape)
    initial, final = np.eye(length + 1)[0], np.arange(length + 1) == length
    return Tabular(transition, reward, initial, final, name="chain", action_names=("left", "right"))
