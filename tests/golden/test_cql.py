"""CQL's losses on three samples and networks of one or two numbers, and discrete CQL's, computed by hand."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.algorithms.worlds import compiled
from tests.golden.lines import SPEC, LineCritic, batch, make_critic, numbers, plain
from tidelog import CQL, ConfigError, DiscreteCQL
from tidelog.algorithms import cql
from tidelog.algorithms.cql import soft_maximum
from tidelog.algorithms.sampling import Batch
from tidelog.algorithms.short_form import held_out_losses, step
from tidelog.networks.actors import Gaussian
from tidelog.networks.critics import Ensemble
from tidelog.types import Discrete, Spec, Transition, Vector


class NarrowActor(eqx.Module):
    """A Gaussian of mean p s and standard deviation 1/4."""

    p: jax.Array

    def __call__(self, observation, *, mask=None, dropout=None, key=None):
        return Gaussian(self.p * observation["s"], jnp.log(jnp.full(1, 0.25)))


HAND = CQL(
    alpha=2.0, samples=1, critic_loss="squared", optimiser=plain, entropy_learning_rate=0.5, actor_learning_rate=0.0,
    critic_learning_rate=0.1, tau=0.1, target_entropy=-2.0, critic_network=make_critic,
    actor_network=lambda spec, key: NarrowActor(jnp.array(0.125)),
)  # fmt: skip
BESIDE = 0.5 * math.log(2.0 * math.pi) - math.log(4.0)  # minus the log-density at the mean, of deviation 1/4


def close(found, expected):
    np.testing.assert_allclose(np.asarray(found), expected, rtol=3e-6, atol=2e-7)


@pytest.fixture(scope="module")
def parts():
    """The losses where every sample is 0 (of the policy, mean s / 8, and of the uniform distribution): its density at
    0 is that of s / 8, or of s' / 8. Critics s and 2 a, target critics s + a and 2 s.
    """
    with pytest.MonkeyPatch.context() as patch:

        def zeros(policy, key, count):
            at = jnp.zeros((count, *policy.mean.shape))
            return at, jax.vmap(policy.log_probability)(at)

        patch.setattr(cql, "several_samples", zeros)
        patch.setattr(jax.random, "uniform", lambda key, shape, **bounds: jnp.zeros(shape))
        state = HAND.init(SPEC, jax.random.key(0), 10)
        critics, targets = (
            Ensemble(tuple(LineCritic(jnp.array(w), jnp.array(u)) for w, u in pairs))
            for pairs in (((1.0, 0.0), (0.0, 2.0)), ((1.0, 1.0), (2.0, 0.0)))
        )
        state = state._replace(critic=critics, target_critic=targets, entropy=jnp.array(math.log(0.5)))
        return eqx.filter_jit(held_out_losses)(HAND, state, batch(), jax.random.key(0)), eqx.filter_jit(step)(
            HAND, state, batch()
        )


# log pi(0 | s) = -s**2 / 8 - BESIDE: -0.125, -0.5, -0.125 and -BESIDE; in s' -0.5, -0.125, -1.125 and -BESIDE.
NOW, AFTER = -np.asarray([0.125, 0.5, 0.125]) - BESIDE, -np.asarray([0.5, 0.125, 1.125]) - BESIDE


def test_the_entropys_weight_rises_where_the_policy_has_less_than_its_target(parts):
    # -log w (log pi + target): mean of log pi = -0.25 - BESIDE; -log 0.5 * (-0.25 - BESIDE - 2).
    losses, (state, feedback) = parts
    close(losses["entropy_loss"], math.log(2.0) * (-2.25 - BESIDE))
    close(state.entropy, math.log(0.5) + 0.5 * (-2.25 - BESIDE))  # here it has more than -2, so it falls
    close(feedback.metrics["entropy"], 0.25 + BESIDE)


def test_the_actor_reads_the_new_weight_and_the_smallest_critic(parts):
    # All of log pi is above log 1/2. min of Q(s, 0) = s and 0: 0, 0, -1; w log pi - min: 0.5 (-0.25 - BESIDE) + 1 / 3;
    # in the step with the new w.
    losses, (_, feedback) = parts
    close(losses["actor_loss"], 0.5 * (-0.25 - BESIDE) + 1 / 3)
    weight = 0.5 * math.exp(0.5 * (-2.25 - BESIDE))
    close(feedback.metrics["entropy_weight"], weight)
    close(feedback.metrics["actor_loss"], weight * (-0.25 - BESIDE) + 1 / 3)


def test_critics_by_hand(parts):
    # Target: min of s' and 2 s' = s' for s' > 0: y = 1 + 0.5 * 2, 0.5, 2. Critics s: 1, 2, -1, and 2 a: 1, 0, 2.
    # Errors -1, 1.5, -3 and -1, -0.5, 0: squares 1 + 2.25 + 9 + 1 + 0.25 = 13.5, a third each.
    # gap_e = Q_e(s, 0) + log mean (2, 1 / pi(0 | s), 1 / pi(0 | s')) - Q_e(s, a): Q_1 does not read the action, so its
    # gap is that logarithm, Q_2's less 2 a.
    losses, (state, feedback) = parts
    logs = np.log((2.0 + np.exp(-NOW) + np.exp(-AFTER)) / 3)
    gap = np.asarray([logs, logs - [1.0, 0.0, 2.0]])
    close(losses["critic_loss"], 13.5 / 3 + 2.0 * gap.sum(axis=0).mean())
    close(feedback.metrics["conservative_gap"], gap.mean())
    # The gap's slope in u is that of -Q_2(s, a): -mean a; of Q_1 in w 0. w_1: 2/3 (-1 + 3 + 3); u_1: 2/3 (-0.5 - 3) and
    # 2 * -0.5; w_2: 2/3 (-1 - 1); u_2: 2/3 * -0.5 and 2 * -0.5. Rate 0.1.
    found = [[one.w, one.u] for one in state.critic.members]
    close(found, [[1 - 1 / 3, 7 / 30 + 0.1], [2 / 15, 2 + 1 / 30 + 0.1]])


def test_the_soft_maximum_is_the_log_of_an_integral():
    # Of a constant 3 over [-1, 1]: log(2 exp 3). Values 0 and log 3 by densities 1/2: log mean(2, 6) = log 4.
    close(soft_maximum(jnp.full((1, 4, 1), 3.0), jnp.full((4, 1), -math.log(2.0))), [[3.0 + math.log(2.0)]])
    close(soft_maximum(jnp.array([[[0.0], [math.log(3.0)]]]), jnp.full((2, 1), -math.log(2.0))), [[math.log(4.0)]])


def test_the_density_of_a_sample_that_the_bounds_cut_is_infinite():
    wide = HAND.init(SPEC, jax.random.key(0), 1).actor({"s": numbers([40.0])})  # mean 5
    actions, logs = cql.several_samples(wide, jax.random.key(0), 200)
    assert (np.asarray(actions) > 1.0).all()
    # -log pi is BESIDE and half the square of a normal number: 0.5 on average, deviation 0.71
    assert -np.asarray(logs).mean() == pytest.approx(BESIDE + 0.5, abs=0.15)
    assert (np.asarray(cql.weightless_beyond(actions, logs)) == np.inf).all()
    inside = numbers([[1.0, -1.0]], [[0.0, 1.001]])  # [K, B, A]
    close(cql.weightless_beyond(inside, numbers([-3.0], [-2.0])), [[-3.0], [np.inf]])


def test_no_policy_has_more_entropy_than_the_uniform_distribution():
    # A density of 1/4 the width of the bounds has it; at 3 deviations its log-density is below log 1/2.
    state = HAND.init(SPEC, jax.random.key(0), 1)._replace(actor=NarrowActor(jnp.array(0.0)))
    with pytest.MonkeyPatch.context() as patch:
        far = lambda policy, key, count: (jnp.zeros((count, 3, 1)), jnp.full((count, 3), -3.0))  # noqa: E731
        patch.setattr(cql, "several_samples", far)
        losses, metrics = HAND.loss(state, batch(), jax.random.key(0))
    close(metrics["actor"]["entropy"], math.log(2.0))
    close(losses["actor"], -math.log(2.0) - 2 / 3)  # and the values 1, 2, -1 of actions 0


def test_a_policy_without_a_density_is_refused():
    with pytest.raises(ConfigError, match=r"CQL.actor_head = 'deterministic': expected a policy with a density"):
        CQL(actor_head="deterministic")


class Table(eqx.Module):
    """Values [B, A] by a vector of weights times s."""

    w: jax.Array

    def all_actions(self, observation):
        return observation["s"] * self.w


def test_discrete_cql_by_hand():
    # Q(s, .) = s (0, log 2, log 8), target s (3, 2, 1), which would choose otherwise.
    # Rows s = 1, a = 2, r = 1, s' = 1 and s = 1, a = 0, r = 0,
    # s' = -1; discount 0.5. The critic's best in s': action 2, then action 0 (of 0, -log 2, -log 8); with the mask
    # (1, 1, 0) of the first row action 1. y = 1 + 0.5 * 2, 0.5 * -3.
    # Q(s, a) = log 8 = 2.0794415, 0; errors 0.0794415, 1.5; Huber 0.0031555, 1.
    # Gap: log(1 + 2 + 8) - log 8 = 0.3184537; in row 2 without action 2: log 3 - 0 = 1.0986123.
    h = DiscreteCQL(alpha=2.0, optimiser=plain, critic_network=lambda spec, key: Table(numbers(0.0, 0.0, 0.0)))
    rows = Transition(
        observation={"s": numbers([1.0], [1.0])}, action=np.asarray([2, 0]), reward=numbers(1.0, 0.0),
        discount=numbers(0.5, 0.5), next_observation={"s": numbers([1.0], [-1.0])},
        mask=np.asarray([[True, True, True], [True, True, False]]),
        next_mask=np.asarray([[True, True, False], [True, True, True]]),
    )  # fmt: skip
    state = h.init(Spec({"s": Vector(1)}, Discrete(3), masked=True), jax.random.key(0), 10)
    online, target = (Table(jnp.asarray(w)) for w in ([0.0, math.log(2.0), math.log(8.0)], [3.0, 2.0, 1.0]))
    state, feedback = compiled(step)(h, state._replace(critic=online, target_critic=target), Batch(rows, np.arange(2)))
    errors = 0.5 * (math.log(8.0) - 2.0) ** 2 + 1.0
    gaps = math.log(11 / 8) + math.log(3.0)
    close(feedback.metrics["critic_loss"], (errors + 2.0 * gaps) / 2)
    close(feedback.metrics["conservative_gap"], gaps / 2)
    close(feedback.priority, [math.log(8.0) - 2.0, 1.5])
    # Slopes: of the gap softmax less 1 at the logged action, (1/11, 2/11, -3/11) + (-2/3, 2/3, 0) times 2 / 2; of the
    # errors (1 / 2, 0, 0.0794415 / 2). Rate 3e-4.
    slope = np.asarray([1 / 11 - 2 / 3 + 0.5, 2 / 11 + 2 / 3, -3 / 11 + (math.log(8.0) - 2.0) / 2])
    np.testing.assert_allclose((online.w - state.critic.w) / 3e-4, slope, atol=2e-3)  # of float32 differences
