"""The support filter and discrete BCQ's losses, computed by hand."""

import equinox as eqx
import jax
import numpy as np
import pytest

from tests.algorithms.worlds import compiled, drawn, small, world
from tests.golden.lines import numbers
from tidelog.algorithms.discrete_bcq import target_value
from tidelog.algorithms.sampling import Batch
from tidelog.algorithms.short_form import held_out_losses, step
from tidelog.losses.imitation import mean_square
from tidelog.support import best, supported
from tidelog.training.loop import as_arrays
from tidelog.types import Transition

close, equal = np.testing.assert_allclose, np.testing.assert_array_equal


def marked(logits, threshold, mask=None):
    return eqx.filter_jit(supported)(logits, np.float32(threshold), mask)


LOGITS = np.log(numbers([0.5, 0.3, 0.15, 0.05]))  # 1, 0.6, 0.3, 0.1 of the largest


@pytest.mark.parametrize(
    ("threshold", "kept"),
    [
        (0.0, [1, 1, 1, 1]),
        (0.09, [1, 1, 1, 1]),
        (0.29, [1, 1, 1, 0]),
        (0.31, [1, 1, 0, 0]),
        (0.61, [1, 0, 0, 0]),
        (1.0, [1, 0, 0, 0]),
    ],
)
def test_likelihoods_are_relative_to_the_largest(threshold, kept):
    equal(marked(LOGITS, threshold), [np.array(kept, bool)])
    equal(marked(LOGITS + 7.0, threshold), [np.array(kept, bool)])


def test_the_mask_comes_before_the_largest():
    # Without action 0 the largest is 0.3: 0.5 and 0.1667 of it are left.
    mask = np.array([[False, True, True, True]])
    equal(marked(LOGITS, 0.3, mask), [[False, True, True, False]])
    equal(marked(LOGITS, 0.0, mask), mask)
    equal(marked(LOGITS, 1.0, mask), [[False, True, False, False]])


def test_equals_are_kept_at_threshold_1_and_raw_logits_are_compared():
    equal(marked(numbers([2.0, 2.0, 1.0]), 1.0), [[True, True, False]])
    equal(marked(numbers([-2.0, -4.0, -9.0]), 0.3), [[True, False, False]])  # all 0 behind a ReLU
    chosen, among = jax.jit(best), np.array([[True, True, False]])
    close(chosen(numbers([1.0, 5.0, 9.0]), among), [1])
    close(chosen(numbers([-7.0, -3.0, -1.0]), among), [1])  # not by multiplication
    close(chosen(numbers([-1e9, -2e9, 0.0]), among), [0])  # nor by subtraction


def test_the_penalty_is_a_mean_over_allowed_actions():
    logits, mask = numbers([1.0, -2.0, 3.0]), np.array([[True, True, False]])
    close(jax.jit(mean_square)(logits), [14 / 3], rtol=1e-6)
    close(jax.jit(mean_square)(logits, mask), [2.5])
    slope = jax.jit(jax.grad(lambda x: mean_square(x, mask)[0]))(logits)
    close(slope, [[1.0, -2.0, 0.0]])  # 2 x / 2


class Fixed(eqx.Module):
    """The same values or logits as rows of a table, by the observed number."""

    rows: jax.Array

    def all_actions(self, observation):
        return self.rows[observation["s"][:, 0].astype(int)]

    def __call__(self, observation, mask=None):
        return self

    @property
    def logits(self):
        return self.rows


def hand(h, critic, imitator, target):
    state = small("discrete-bcq").init(world("discrete").spec, jax.random.key(0), 1)
    critic, imitator, target = (Fixed(numbers(*rows)) for rows in (critic, imitator, target))
    return state._replace(critic=critic, imitator=imitator, target_critic=target)


def target_of(h, state):
    return eqx.filter_jit(target_value)(as_arrays(h), state, ROWS)


ROWS = Transition(
    observation={"s": numbers([0.0], [1.0])},
    action=np.array([0, 2]),
    reward=numbers(1.0, 0.0),
    discount=numbers(0.5, 0.5),
    next_observation={"s": numbers([0.0], [1.0])},
    mask=np.array([[True, True, True], [False, True, True]]),
    next_mask=np.array([[True, True, True], [False, True, True]]),
)
Q, QT = [[1.0, 2.0, 9.0], [8.0, 3.0, 4.0]], [[10.0, 20.0, 30.0], [40.0, 50.0, 60.0]]
LIKELY = np.log(numbers([0.5, 0.4, 0.1], [0.8, 0.15, 0.05])).tolist()


def test_target_by_hand():
    # Row 1: 0.5 and 0.4 are supported, Q says 1: 20. Row 2: 0 is forbidden; 0.05 / 0.15 >= 0.3, Q says 2: 60.
    h = small("discrete-bcq", threshold=0.3)
    close(target_of(h, hand(h, Q, LIKELY, QT)), [1.0 + 10.0, 30.0])
    # At 0.5 only action 1 is left in row 2. Two states, two targets.
    h = small("discrete-bcq", threshold=0.5)
    close(target_of(h, hand(h, Q, LIKELY, QT)), [11.0, 25.0])


def test_without_double_the_target_critic_chooses():
    h = small("discrete-bcq", threshold=0.3, double=False)
    turned = [[30.0, 20.0, 10.0], [40.0, 60.0, 50.0]]
    close(target_of(h, hand(h, Q, LIKELY, turned)), [16.0, 30.0])
    double = small("discrete-bcq", threshold=0.3)
    close(target_of(double, hand(double, Q, LIKELY, turned)), [11.0, 25.0])


def test_loss_by_hand():
    # Nothing follows: the targets are the rewards, 2 and 2.5.
    # Q(s, a) = 1, 4 against 2, 2.5: 0.5 and 1.5 - 0.5. Cross-entropy: -ln 0.5, and 0.05 of 0.2: -ln 0.25.
    h = small("discrete-bcq", threshold=0.3)
    state = hand(h, Q, LIKELY, QT)
    last = ROWS._replace(reward=numbers(2.0, 2.5), discount=numbers(0.0, 0.0))
    losses, metrics = eqx.filter_jit(h.loss)(state, Batch(last, np.arange(2)), None)
    (loss,) = losses.values()
    close(metrics["q_loss"], 0.75)
    close(metrics["imitation_loss"], 1.5 * np.log(2.0), rtol=1e-6)
    squares = np.square(np.log([0.5, 0.4, 0.1])).mean() + np.square(np.log([0.15, 0.05])).mean()
    close(metrics["logit_loss"], squares / 2, rtol=1e-6)
    close(loss, 0.75 + 1.5 * np.log(2.0) + 0.01 * squares / 2, rtol=1e-6)
    close(metrics["supported_actions"], 2.0)
    close(metrics["filtered_share"], 0.5)  # Q's 9 in row 1; in row 2 the 8 is forbidden, and 4 is supported
    weighted = eqx.filter_jit(held_out_losses)(h, state, Batch(last, np.arange(2), numbers(2.0, 0.0)), None)
    close(weighted["loss"], 0.5 + np.log(2.0) + 0.01 * np.square(np.log([0.5, 0.4, 0.1])).mean(), rtol=1e-6)


def test_target_modes():
    log = world("discrete")

    def after(updates, **changes):
        h = small("discrete-bcq", **changes)
        state = h.init(log.spec, jax.random.key(0), 9)
        for update in range(updates):
            state, _ = compiled(step)(h, state, drawn(h, log, update))
        return state

    start = after(0)
    fixed = after(2, tau=None, copy_period=3)
    jax.tree.map(equal, fixed.target_critic, start.target_critic)
    copied = after(3, tau=None, copy_period=3)
    jax.tree.map(equal, copied.target_critic, copied.critic)
    assert after(1, tau=None).target_critic is None
    one = after(1, tau=0.25)

    def check(found, t, n):
        close(found, 0.75 * np.asarray(t) + 0.25 * np.asarray(n), atol=1e-6)

    jax.tree.map(check, one.target_critic, start.target_critic, one.critic)
