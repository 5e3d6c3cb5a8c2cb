"""Next-item losses, and mixtures of greedy and random actions, computed by hand."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.golden.lines import numbers
from tidelog.networks.actors import Categorical, EpsilonGreedy, EpsilonMode, Gaussian, Several
from tidelog.recommend.networks import Items
from tidelog.recommend.next_item import catalogue_scores, next_item_error, sampled_error
from tidelog.recommend.ranking import standardised
from tidelog.recommend.recommender_bcq import importance


def test_no_item_is_left_out_of_the_sum():
    # logits 0 for both items, 9 for no item: log(e^0 + e^0) - 0 = log 2, for every value at index 0
    items = Items(np.zeros((3, 1), np.float32), numbers([9.0, 0.0, 0.0])[0])
    error = jax.jit(next_item_error)(np.ones((1, 1, 1), np.float32), items, np.array([[1]]))
    assert error.item() == pytest.approx(math.log(2.0))


@pytest.mark.parametrize("states_of_each", [1, 3])
def test_the_gradient_of_all_scores_is_that_of_automatic_differentiation(states_of_each):
    generator = np.random.default_rng(0)
    shapes = ((2, states_of_each, 4), (9, 4), (9,), (2, states_of_each), (2, 3))
    states, vectors, bias, slope, chosen_slope = (np.float32(generator.standard_normal(shape)) for shape in shapes)
    chosen = np.array([[3, 3, 8], [1, 5, 3]])

    def plain(states, vectors, bias):
        logits = states @ vectors.T + bias
        of_chosen = np.broadcast_to(np.arange(3) if states_of_each == 3 else np.zeros(3, int), (2, 3))
        picked = logits[np.arange(2)[:, None], of_chosen, chosen]
        return (slope * jax.nn.logsumexp(logits[..., 1:], axis=-1)).sum() + (chosen_slope * picked).sum()

    def ours(*inputs):
        total, logit = catalogue_scores(*inputs, chosen)
        return (slope * total).sum() + (chosen_slope * logit).sum()

    gradients = [jax.jit(jax.value_and_grad(f, (0, 1, 2)))(states, vectors, bias) for f in (plain, ours)]
    for one, two in zip(*map(jax.tree.leaves, gradients), strict=True):
        np.testing.assert_allclose(one, two, atol=1e-5)


def test_a_sample_that_holds_every_other_item_once_is_the_whole_sum():
    # items 2 and 3 drawn once each: expected once each: -1 + log(e^1 + e^2 + e^3)
    error = jax.jit(sampled_error)(
        numbers(1.0), numbers([2.0, 3.0]), numbers(0.0, 0.0), np.zeros((1, 2), bool), np.ones(1, int)
    )
    assert error.item() == pytest.approx(math.log(math.e + math.e**2 + math.e**3) - 1.0, rel=1e-6)


def test_the_item_itself_in_the_sample_counts_once():
    error = jax.jit(sampled_error)(
        numbers(1.0), numbers([1.0, 3.0]), numbers(0.0, 0.0), np.array([[True, False]]), np.ones(1, int)
    )
    assert error.item() == pytest.approx(math.log(math.e + math.e**3) - 1.0, rel=1e-6)


def test_the_corrected_sample_has_the_gradient_of_the_whole_sum():
    rng = np.random.default_rng(0)
    logits, q = rng.standard_normal(40).astype(np.float32), np.arange(1.0, 41.0)
    q = (q / q.sum()).astype(np.float32)
    drawn = jax.jit(lambda q: jax.random.choice(jax.random.key(0), 40, (800_000,), p=q))(q)

    def by_sample(logits, drawn, expected):
        return sampled_error(logits[3:4], logits[None, drawn], expected, drawn[None] == 3, np.array([3]))[0]

    slope = jax.jit(jax.grad(by_sample))
    whole = np.asarray(jax.jit(jax.grad(lambda x: jax.nn.logsumexp(x) - x[3]))(logits))
    expected = np.log(q[drawn] * len(drawn))
    # at least 4.9 standard errors: a right sample fails for 1 in a million seeds
    np.testing.assert_allclose(slope(logits, drawn, expected), whole, atol=4e-3)
    uncorrected = slope(logits, drawn, np.zeros_like(expected))
    assert np.abs(uncorrected - whole).max() > 0.02


def test_importance_has_mean_1_and_the_wanted_ratio():
    # wanted 1/2, 1/2 and drawn 1/4, 3/4: ratio 2 to 2/3, scaled to a mean of 1
    weights = jax.jit(importance)(np.log(numbers(0.5, 0.5)), np.log(numbers(0.25, 0.75)))
    np.testing.assert_allclose(weights, [1.5, 0.5], rtol=1e-5)


def test_standardised_reads_marked_values_only():
    # 1 and 3: mean 2, deviation 1; 100 is not marked; equal values are 0
    marked = np.array([[True, True, False], [True] * 3])
    found = jax.jit(standardised)(numbers([1.0, 3.0, 100.0], [5.0, 5.0, 5.0]), marked)
    np.testing.assert_allclose(found, [[-1.0, 1.0, 0.0], [0.0, 0.0, 0.0]], atol=1e-6)


# Mixtures of greedy and random actions, by hand.


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
