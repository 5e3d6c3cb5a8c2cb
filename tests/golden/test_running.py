"""Discrete BCQ's running reward scale, by hand."""

import dataclasses

import equinox as eqx
import jax
import numpy as np
import pytest

from tests.algorithms.worlds import compiled, drawn, small, world
from tests.golden.lines import numbers
from tests.golden.test_filter import LIKELY, QT, ROWS, Q, hand, target_of
from tidelog.algorithms.core.running_statistics import Running, add_batch, deviation, empty_statistics
from tidelog.algorithms.core.sampling import Batch
from tidelog.algorithms.discrete_bcq import losses, step

close, equal = np.testing.assert_allclose, np.testing.assert_array_equal
LOG = world("discrete")
H = small("discrete-bcq", normalise_rewards=True, n_step=3)
added, spread_of = jax.jit(add_batch), jax.jit(deviation)


def rewards(*values, weight=None, valid=None):
    return Batch(ROWS._replace(reward=numbers(*values)), np.arange(len(values)), weight, valid)


def test_batches_are_merged_to_the_deviation_of_all_rewards():
    # 1, 3: mean 2, variance 1. With 5, 7: mean 4, variance (9 + 1 + 1 + 9) / 4 = 5.
    first = added(empty_statistics(), rewards(1.0, 3.0))
    close(first, [2.0, 2.0, 1.0])
    close(added(first, rewards(5.0, 7.0)), [4.0, 4.0, 5.0], rtol=1e-6)
    rng, running, seen = np.random.default_rng(0), empty_statistics(), []
    for size in (1, 7, 2, 64):
        seen += (values := list(rng.normal(100.0, 3.0, size)))
        running = added(running, rewards(*values))
    close(spread_of(running), np.std(seen), rtol=1e-3)


def test_weights_and_valid_steps_count():
    # 1 once, 3 three times: mean 2.5, variance (2.25 + 3 * 0.25) / 4 = 0.75. The rest does not count.
    close(added(empty_statistics(), rewards(1.0, 3.0, 9.0, weight=numbers(1.0, 3.0, 0.0))), [4.0, 2.5, 0.75])
    window = rewards([1.0, 3.0], [5.0, 100.0], valid=np.array([[True, True], [True, False]]))
    close(added(empty_statistics(), window), [3.0, 3.0, 8.0 / 3.0], rtol=1e-6)
    assert np.isfinite(added(empty_statistics(), rewards(1.0, weight=numbers(0.0)))).all()


@pytest.mark.parametrize("running", [empty_statistics(), Running(*numbers(9.0, -1.0, 0.0))])
def test_rewards_that_do_not_differ_stay_as_they_are(running):
    close(spread_of(running), 1.0)


def test_a_reward_is_divided_and_nothing_is_subtracted():
    # As in the filter's test 10 and 30 from what follows; rewards 1 and 0 over 2.
    h = small("discrete-bcq", threshold=0.3)
    state = hand(h, Q, LIKELY, QT)._replace(rewards=Running(*numbers(8.0, 5.0, 4.0)))
    close(target_of(h, state), [0.5 + 10.0, 30.0])


def test_updates_count_before_they_use_and_are_those_on_rewards_divided_beforehand():
    state, batch = H.init(LOG.spec, jax.random.key(0), 9), drawn(H, LOG)
    moved, feedback = compiled(step)(H, state, batch)
    spread = float(np.std(np.asarray(batch.data.reward)))
    close(feedback.metrics["reward_deviation"], spread, rtol=1e-5)
    plain = dataclasses.replace(H, normalise_rewards=False)
    divided = batch._replace(data=batch.data._replace(reward=np.asarray(batch.data.reward) / spread))
    other, _ = compiled(step)(plain, state._replace(rewards=None), divided)
    jax.tree.map(lambda a, b: close(a, b, atol=1e-6), moved.critic, other.critic)
    again, _ = compiled(step)(H, moved, drawn(H, LOG, 1))
    both = np.concatenate([np.asarray(drawn(H, LOG, seed).data.reward) for seed in (0, 1)])
    close(spread_of(again.rewards), np.std(both), rtol=1e-5)


def test_validation_reads_the_scale_and_does_not_move_it():
    state, batch = H.init(LOG.spec, jax.random.key(0), 9), drawn(H, LOG)
    told = state._replace(rewards=Running(*numbers(8.0, 0.0, 1e-4)))
    before = jax.tree.map(np.array, told.rewards)
    one, two = (eqx.filter_jit(losses)(H, s, batch, jax.random.key(0)) for s in (state, told))
    assert abs(float(one["q_loss"]) - float(two["q_loss"])) > 1.0
    jax.tree.map(equal, told.rewards, before)
    assert dataclasses.replace(H, normalise_rewards=False).init(LOG.spec, jax.random.key(0), 9).rewards is None
