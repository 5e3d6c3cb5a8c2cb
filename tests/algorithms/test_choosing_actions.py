"""Mixtures of greedy and random actions, by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tidelog.networks.actors import Categorical, EpsilonGreedy, EpsilonMode, Gaussian, Several

VALUES = jnp.asarray([[1.0, 3.0, 2.0], [5.0, 1.0, 9.0]])
MARKED = jnp.asarray([[True, True, False], [True, True, False]])


def test_epsilon_greedy_spreads_epsilon_over_the_marked_actions():
    policy = EpsilonGreedy(VALUES, MARKED, 0.4)
    np.testing.assert_array_equal(policy.mode(), [1, 0])  # 9 is not marked
    np.testing.assert_allclose(policy.probabilities(), [[0.2, 0.8, 0.0], [0.8, 0.2, 0.0]], rtol=1e-6)
    action = jnp.asarray([1, 1])
    np.testing.assert_allclose(policy.imitation_error(action), -np.log([0.8, 0.2]), rtol=1e-6)
    entropy = -(0.2 * np.log(0.2) + 0.8 * np.log(0.8))  # an action of probability 0 adds nothing
    np.testing.assert_allclose(policy.entropy(), [entropy, entropy], rtol=1e-6)


def test_epsilon_mode_imitates_with_its_base():
    logits = jnp.log(jnp.asarray([[0.7, 0.2, 0.1]]))
    policy = EpsilonMode(Categorical(logits), 0.5)
    np.testing.assert_allclose(policy.probabilities(), [[0.85, 0.1, 0.05]], rtol=1e-6)
    np.testing.assert_allclose(policy.imitation_error(jnp.asarray([1])), [-np.log(0.2)], rtol=1e-6)
    np.testing.assert_allclose(policy.entropy(), Categorical(logits).entropy())


def test_a_mixture_of_continuous_actions_has_no_probabilities():
    policy = EpsilonMode(Gaussian(jnp.zeros((1, 2)), jnp.zeros(2)), 0.5)
    assert policy.log_probability(jnp.zeros((1, 2))) is None
    with pytest.raises(TypeError, match=r"continuous actions have no probabilities\. fix: use sample\(\) or discrete"):
        policy.probabilities()
    assert policy.sample(jax.random.key(0)).shape == (1, 2)


def test_the_imitation_error_of_several_choices_is_the_sum_of_theirs():
    one, two = (Categorical(jnp.log(jnp.asarray([row]))) for row in ([0.5, 0.5], [0.1, 0.3, 0.6]))
    found = Several((one, two)).imitation_error(jnp.asarray([[1, 2]]))
    np.testing.assert_allclose(found, [-np.log(0.5 * 0.6)], rtol=1e-6)
