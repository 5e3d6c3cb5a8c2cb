"""Advantages, returns and ratios by hand. Letters: `W` segments, `T` steps."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from tests.golden.lines import numbers
from tidelog.algorithms.ppg_common import standardise
from tidelog.losses.policy import categorical_divergence, gaussian_divergence, ratio_divergence, surrogate
from tidelog.losses.td import advantages, discount_of, discounted, lambda_returns, value_error
from tidelog.networks.actors import Categorical, Several

NO = [False] * 4
ALL = [True] * 4


def estimate(reward, value, following, terminated=NO, truncated=NO, valid=ALL, discount=0.5, trace=0.5):
    """One segment's advantages [T]."""
    rows = [numbers(row) for row in (reward, value, following)]
    flags = [np.asarray([row], bool) for row in (terminated, truncated, valid)]
    return np.asarray(eqx.filter_jit(advantages)(*rows, *flags, np.float32(discount), np.float32(trace)))[0]


def test_a_chain_without_an_end():
    # TD errors: 1 + .5*2 - 1 = 1; 0 + .5*4 - 2 = 0; 2 + .5*0 - 4 = -2; 1 + .5*6 - 0 = 4; decay .25
    # backwards: 4; -2 + .25*4 = -1; 0 + .25*-1 = -.25; 1 + .25*-.25 = .9375
    found = estimate([1, 0, 2, 1], [1, 2, 4, 0], [2, 4, 0, 6])
    np.testing.assert_allclose(found, [0.9375, -0.25, -1.0, 4.0])


def test_a_termination_bootstraps_nothing_and_a_truncation_what_truly_followed():
    # the second step ends: terminated 0 - 2 = -2, truncated 0 + .5*8 - 2 = 2 (V after it is 8, not the 4 of the reset)
    ends = [False, True, False, False]
    terminated = estimate([1, 0, 2, 1], [1, 2, 4, 0], [2, 8, 0, 6], terminated=ends)
    np.testing.assert_allclose(terminated, [1 + 0.25 * -2, -2.0, -1.0, 4.0])
    truncated = estimate([1, 0, 2, 1], [1, 2, 4, 0], [2, 8, 0, 6], truncated=ends)
    np.testing.assert_allclose(truncated, [1 + 0.25 * 2, 2.0, -1.0, 4.0])
    both = estimate([1, 0, 2, 1], [1, 2, 4, 0], [2, 8, 0, 6], terminated=ends, truncated=ends)
    np.testing.assert_allclose(both, terminated)


def test_a_row_that_only_restarts_is_0_and_cuts_the_chain():
    valid = [True, True, False, True]
    found = estimate([1, 0, 99, 1], [1, 2, 50, 0], [2, 4, 70, 6], valid=valid)
    np.testing.assert_allclose(found, [1.0, 0.0, 0.0, 4.0])
    same = estimate([1, 0, -7, 1], [1, 2, 3, 0], [2, 4, 5, 6], valid=valid)
    np.testing.assert_allclose(found, same)


def test_trace_1_is_the_discounted_return_and_trace_0_the_surprise():
    reward, value, following = [1, 1, 1, 1], [3, 1, 4, 1], [1, 4, 1, 5]
    whole = estimate(reward, value, following, trace=1.0)
    np.testing.assert_allclose(whole[0], 1 + 0.5 + 0.25 + 0.125 + 0.0625 * 5 - 3, rtol=1e-6)
    np.testing.assert_allclose(estimate(reward, value, following, trace=0.0), [-1.5, 2.0, -2.5, 2.5])


def test_discounted_sums_forget_at_ends_and_go_on_across_segments():
    reward, ended, always = numbers([1.0, 2.0, 3.0]), np.asarray([[False, True, False]]), np.ones((1, 3), bool)
    sums, last = eqx.filter_jit(discounted)(numbers(8.0), reward, ended, always, 0.5)
    np.testing.assert_allclose(sums, [[5.0, 4.5, 3.0]])
    np.testing.assert_allclose(last, [3.0])
    restarts = np.asarray([[True, False, True]])
    sums, last = eqx.filter_jit(discounted)(numbers(8.0), reward, ~always, restarts, 0.5)
    np.testing.assert_allclose(sums, [[5.0, 5.0, 5.5]])


def test_elapsed_times_discount_what_follows_them():
    # hours 2, 1, 0, 3: discounts .25, .5, 1, .125. TD errors: 1 + .25*2 - 1 = .5; 0 + .5*4 - 2 = 0; 2 + 0 - 4 = -2;
    # 1 + .125*6 - 0 = 1.75; a trace of 1/2 a decision. Backwards: 1.75; -2 + .5*1.75; .25*-1.125; .5 + .125*-.28125
    hours = numbers([2.0, 1.0, 0.0, 3.0])
    discount = np.asarray(discount_of(jnp.float32(0.5), hours))
    np.testing.assert_allclose(discount, [[0.25, 0.5, 1.0, 0.125]])
    found = estimate([1, 0, 2, 1], [1, 2, 4, 0], [2, 4, 0, 6], discount=discount)
    np.testing.assert_allclose(found, [0.46484375, -0.28125, -1.125, 1.75])
    # sums: 8, already discounted, + 1 = 9; .25*9 + 2 = 4.25, an end; 3; a row of no decision keeps 3; then * .125
    reward, ended = numbers([1.0, 2.0, 3.0, 9.0]), np.asarray([[False, True, False, False]])
    valid = np.asarray([[True, True, True, False]])
    sums, last = eqx.filter_jit(discounted)(numbers(8.0), reward, ended, valid, 0.5, hours)
    np.testing.assert_allclose(sums, [[9.0, 4.25, 3.0, 3.0]])
    np.testing.assert_allclose(last, [3.0])  # after no time at all
    for elapsed, rest in ((numbers([2.0, 1.0, 3.0, 7.0]), 0.375), (numbers([1.0, 1.0, 1.0, 1.0]), 1.5)):
        np.testing.assert_allclose(discounted(numbers(8.0), reward, ended, valid, 0.5, elapsed)[1], [rest])


def test_the_surrogate_takes_the_worse_of_the_ratio_and_the_clipped_one():
    ratio = numbers(1.5, 1.5, 0.5, 0.5, 1.1)
    advantage = numbers(2.0, -2.0, 2.0, -2.0, 3.0)

    @jax.jit
    def found(log_ratio, advantage):
        slope = jax.vmap(jax.grad(lambda x, a: surrogate(x, a, 0.2)))(log_ratio, advantage)
        return surrogate(log_ratio, advantage, 0.2), surrogate(log_ratio, advantage, None), slope

    clipped, unclipped, slope = found(np.log(ratio), advantage)
    np.testing.assert_allclose(clipped, [-1.2 * 2, 1.5 * 2, -0.5 * 2, 0.8 * 2, -3.3], rtol=1e-6)
    np.testing.assert_allclose(unclipped, -ratio * advantage, rtol=1e-6)
    np.testing.assert_allclose(slope, [0.0, 3.0, -1.0, 0.0, -3.3], rtol=1e-6)
    np.testing.assert_allclose(jax.jit(ratio_divergence)(numbers(0.2, -0.4)), [0.02, 0.08], rtol=1e-6)


def test_values_that_are_clipped_count_by_the_larger_error():
    value, old, target = numbers(2.0, 0.1, 1.0), numbers(0.0, 0.0, 0.0), numbers(2.0, 1.0, -1.0)
    error = eqx.filter_jit(value_error)
    np.testing.assert_allclose(error(value, target, old, None), [0.0, 0.81, 4.0], rtol=1e-6)
    np.testing.assert_allclose(error(value, target, old, 0.5), [2.25, 0.81, 4.0], rtol=1e-6)


def test_divergences_are_old_first_over_the_full_distribution():
    old, new = np.log(numbers([0.5, 0.5])), np.log(numbers([0.25, 0.75]))
    expected = 0.5 * np.log(0.5 / 0.25) + 0.5 * np.log(0.5 / 0.75)
    divergence = jax.jit(categorical_divergence)
    np.testing.assert_allclose(divergence(old, new), [expected], rtol=1e-5)
    assert abs(float(np.asarray(divergence(new, old))[0]) - expected) > 1e-2
    # N(0, 1) to N(1, 2): log 2 + (1 + 1) / 8 - 1/2, in each of two dimensions
    log_std = np.log(numbers(2.0, 2.0))
    one = jax.jit(gaussian_divergence)(numbers([0.0, 0.0]), numbers(0.0, 0.0), numbers([1.0, 1.0]), log_std)
    np.testing.assert_allclose(one, [2 * (np.log(2) + 0.25 - 0.5)], rtol=1e-6)


def test_several_choices_add_up():
    logits = [np.log(numbers([0.5, 0.5])), np.log(numbers([0.2, 0.3, 0.5]))]
    both = Several(tuple(Categorical(one) for one in logits))
    other = Several((Categorical(logits[0] + numbers(1.0, 0.0)), Categorical(logits[1])))

    @eqx.filter_jit
    def answers(policy, other, action):
        alone = [choice.entropy() for choice in policy.choices]
        divergences = policy.divergence(other), policy.choices[0].divergence(other.choices[0])
        return policy.log_probability(action), (policy.entropy(), sum(alone)), divergences

    likely, (entropy, entropies), (divergence, first) = answers(both, other, np.asarray([[1, 2]]))
    np.testing.assert_allclose(likely, [np.log(0.25)], rtol=1e-6)
    np.testing.assert_allclose(entropy, entropies)
    np.testing.assert_allclose(divergence, first, rtol=1e-5, atol=1e-7)
    assert eqx.filter_eval_shape(both.sample, jax.random.key(0)).shape == (1, 2)
    assert eqx.filter_eval_shape(both.mode).shape == (1, 2)


def test_forbidden_actions_keep_everything_finite():
    logits, mask = numbers([1.0, 2.0, 3.0]), np.asarray([[True, False, True]])

    def total(logits):
        policy = Categorical(jnp.where(mask, logits, -jnp.inf))
        old = Categorical(jax.lax.stop_gradient(policy.logits) + jnp.asarray([[0.5, 0.0, 0.0]]))
        return (policy.entropy() + old.divergence(policy) + policy.log_probability(jnp.asarray([2])))[0]

    value, slope = map(np.asarray, jax.jit(jax.value_and_grad(total))(logits))
    assert np.isfinite(value)
    assert np.isfinite(slope).all()
    assert slope[0, 1] == 0.0


def test_advantages_are_standardised_over_what_counts():
    values, valid = numbers([1.0, 3.0], [5.0, 100.0]), np.asarray([[True, True], [True, False]])
    found = np.asarray(jax.jit(standardise)(values, valid))
    np.testing.assert_allclose(found[valid], np.asarray([-2.0, 0.0, 2.0]) / np.sqrt(8 / 3), rtol=1e-5, atol=1e-7)


def targets(trace, control=None, discount=(0.5, 0.5, 0.5)):
    """Targets [T] of Q for rewards 1, 0, 2 and next values 2, 4, 6."""
    following = [2.0, 4.0, 6.0]
    rows = [numbers(row) for row in ([1, 0, 2], following, control or following, discount, trace)]
    return np.asarray(jax.jit(lambda_returns)(*rows))[0]


def test_targets_along_a_window():
    # lambda 1/2: 2 + .5*6 = 5; 0 + .5*(4 + .5*(5 - 4)) = 2.25; 1 + .5*(2 + .5*(2.25 - 2)) = 2.0625
    np.testing.assert_allclose(targets([0.5, 0.5, 0.0]), [2.0625, 2.25, 5.0])
    # the second step terminates: 1 + .5*(2 + .5*(0 - 2)) = 1.5
    np.testing.assert_allclose(targets([0.5, 0.5, 0.0], discount=[0.5, 0.0, 0.5]), [1.5, 0.0, 5.0])
    # lambda 0: one step, 1 + .5*2, 0 + .5*4, 2 + .5*6; lambda 1: all rewards, 0 + .5*5, 1 + .5*2.5
    np.testing.assert_array_equal(targets([0.0, 0.0, 0.0]), [2.0, 2.0, 5.0])
    np.testing.assert_array_equal(targets([1.0, 1.0, 0.0]), [2.25, 2.5, 5.0])


def test_targets_of_retrace():
    # Q of the next logged steps 3, 1; c = 1/2 min(1, pi / mu) = 1/2, 1/4:
    # 0 + .5*(4 + .25*(5 - 1)) = 2.5; 1 + .5*(2 + .5*(2.5 - 3)) = 1.875
    np.testing.assert_allclose(targets([0.5, 0.25, 0.0], [3.0, 1.0, 0.0]), [1.875, 2.5, 5.0])
    # mu = pi = (1/4, 3/4) over next actions with Q = 5, 1 and so V = 2, which lead to G = 7, 3: in the mean over them
    # the target is that of TD(lambda), 1 + .5*(2 + .5*(4 - 2)) = 2.5
    each = [1 + 0.5 * (2 + 0.5 * (g - q)) for q, g in ((5, 7), (1, 3))]
    assert 0.25 * each[0] + 0.75 * each[1] == 1 + 0.5 * (2 + 0.5 * (0.25 * 7 + 0.75 * 3 - 2)) == 2.5
    # two rewards [1, 2, 2], the second with lambda 0: 1 + .5*2 = 2; 1 + .5*(2 + .5*(2 - 5)) = 1.25 and 2
    one, two, five, half = (np.full((1, 2, 2), x, np.float32) for x in (1.0, 2.0, 5.0, 0.5))
    trace = np.asarray([[[0.5, 0.0], [0.0, 0.0]]], np.float32)
    np.testing.assert_allclose(jax.jit(lambda_returns)(one, two, five, half, trace), [[[1.25, 2.0], [2.0, 2.0]]])


def test_the_divergence_from_an_equal_policy_has_no_gradient():
    """Rounding would: the gradient is new minus old probabilities, from sums that are 1 but for a bit."""
    old = np.random.default_rng(0).standard_normal((200, 5)).astype(np.float32)
    old[::3, 1] = -np.inf  # forbidden
    new = old.copy()
    new[7] += np.asarray([1.0, 0, 0, 0, 0], np.float32)
    slope = np.asarray(jax.jit(jax.grad(lambda to: jnp.sum(categorical_divergence(old, to))))(new))
    chances = [np.exp(row[7]) / np.exp(row[7]).sum() for row in (new, old)]
    np.testing.assert_allclose(slope[7], chances[0] - chances[1], atol=1e-6)
    assert not np.delete(slope, 7, axis=0).any()
    moved = np.nextafter(old, np.float32(9.0), where=np.isfinite(old), out=old.copy())
    assert np.asarray(jax.jit(jax.grad(lambda to: jnp.sum(categorical_divergence(old, to))))(moved)).any()
