"""One update of behaviour cloning on three samples and a network of one number, computed by hand."""

import numpy as np
from jax import random

from tests.algorithms.worlds import compiled
from tests.golden.lines import SPEC, batch, make_actor, numbers, plain
from tidelog import BC
from tidelog.algorithms.short_form import step

HAND = BC(optimiser=plain, learning_rate=0.1, actor_network=make_actor)


def moved(weight=None):
    return compiled(step)(HAND, HAND.init(SPEC, random.key(0), 100), batch(weight))


def test_bc_step():
    # Means 0.5, 1, -0.5; a - mean = 0, -1, 1.5; -log pi = 0.9189385 + 0, 0.5, 1.125: mean 0.9189385 + 1.625 / 3.
    # Slope in p: mean of -(a - mean) s = (0 + 2 + 1.5) / 3; p = 0.5 - 0.1 * 3.5 / 3.
    state, feedback = moved()
    np.testing.assert_allclose(feedback.metrics["imitation_loss"], 1.4606052, rtol=1e-6)
    np.testing.assert_allclose(state.actor.p, 0.38333333, rtol=1e-6)


def test_bc_step_with_sample_weights():
    # weights 0, 1, 2: slope (0 + 2 + 3) / 3; loss (1.4189385 + 2 * 2.0439385) / 3
    state, feedback = moved(numbers(0.0, 1.0, 2.0))
    np.testing.assert_allclose(feedback.metrics["imitation_loss"], 1.8356052, rtol=1e-6)
    np.testing.assert_allclose(state.actor.p, 0.5 - 0.5 / 3, rtol=1e-6)
