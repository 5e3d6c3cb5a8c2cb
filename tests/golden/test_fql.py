"""FQL's losses on three samples and networks of one or two numbers, computed by hand."""

from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.golden.lines import SPEC, LineCritic, batch, column, make_critic, plain
from tidelog import FQL
from tidelog.algorithms import fql
from tidelog.algorithms.fql import integrated
from tidelog.algorithms.short_form import step
from tidelog.networks.critics import Ensemble


class LineFlow(eqx.Module):
    """The velocity w s + u t, whatever the point is."""

    w: jax.Array
    u: jax.Array

    def __call__(self, observation, point, time=0.0):
        return self.w * observation["s"] + self.u * time


HAND = FQL(
    alpha=2.0, flow_steps=2, learning_rate=0.1, tau=0.1, optimiser=plain, critic_network=make_critic,
    flow_network=lambda spec, key: LineFlow(jnp.array(0.0), jnp.array(1.0)),
    policy_network=lambda spec, key: LineFlow(jnp.array(0.25), jnp.array(0.0)),
)  # fmt: skip


def close(found, expected):
    np.testing.assert_allclose(np.asarray(found), expected, rtol=2e-6, atol=1e-7)


@pytest.fixture(scope="module", params=["mean", "min"])
def moved(request):
    """One step where every noise is 0.2 and every time 0.5. Critics s and 2 a, target critics s + a and 2 s."""
    h = replace(HAND, q_aggregate=request.param)
    state = h.init(SPEC, jax.random.key(0), 10)
    critics, targets = (
        Ensemble(tuple(LineCritic(jnp.array(w), jnp.array(u)) for w, u in pairs))
        for pairs in (((1.0, 0.0), (0.0, 2.0)), ((1.0, 1.0), (2.0, 0.0)))
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fql, "normal", lambda key, shape: jnp.full(shape, 0.2))
        patch.setattr(jax.random, "uniform", lambda key, shape: jnp.full(shape, 0.5))
        return request.param, eqx.filter_jit(step)(h, state._replace(critic=critics, target_critic=targets), batch())


def test_critics_read_the_policy_in_the_next_observation(moved):
    # mu(s') = 0.5, 0.25, 0.75. Target critics 2.5, 1.25, 3.75 and 4, 2, 6: mean 3.25, 1.625, smallest 2.5, 1.25.
    # y = 1 + 1.625, 0.8125, 2; or 2.25, 0.625, 2. Critics 1, 2, -1 and 1, 0, 2.
    name, (_, feedback) = moved
    mean = 2 * 1.625**2 + 1.1875**2 + 0.8125**2 + 9.0
    smallest = 2 * 1.25**2 + 1.375**2 + 0.625**2 + 9.0
    close(feedback.metrics["critic_loss"], (mean if name == "mean" else smallest) / 3)


def test_the_flow_learns_the_way_from_noise_to_the_logged_actions(moved):
    # v = 0.5; a - x_0 = 0.3, -0.2, 0.8: errors 0.04, 0.49, 0.09. Slopes of v: 0.4, 1.4, -0.6 times s, and times 0.5.
    _, (state, feedback) = moved
    close(feedback.metrics["flow_loss"], 0.62 / 3)
    close([state.flow.w, state.flow.u], [-0.1 * (0.4 + 2.8 + 0.6) / 3, 1.0 - 0.1 * 0.5 * 1.2 / 3])


def test_the_flow_reads_the_point_between_noise_and_action(monkeypatch):
    # v = x_t = (1 - 1/4) 0.2 + a / 4, a = 0.5, 0, 1: 0.275, 0.15, 0.4; of a - 0.2 = 0.3, -0.2, 0.8
    monkeypatch.setattr(fql, "normal", lambda key, shape: jnp.full(shape, 0.2))
    monkeypatch.setattr(jax.random, "uniform", lambda key, shape: jnp.full(shape, 0.25))
    state = HAND.init(SPEC, jax.random.key(0), 10)._replace(flow=FlowOfPoint(jnp.array(0.0)))
    losses, _ = eqx.filter_jit(HAND.loss)(state, batch(), jax.random.key(0))
    close(losses["flow"], (0.025**2 + 0.35**2 + 0.4**2) / 3)


@pytest.mark.parametrize(("normalise", "size", "expected"), [(False, 1, 0.5), (False, 2, 0.25), (True, 2, 0.5)])
def test_the_policy_is_near_the_flow_and_has_high_values(monkeypatch, normalise, size, expected):
    # flow(s, 0.2) = 0.2 + (0 + 0.5) / 2 = 0.45; mu = 0.25, 0.5, -0.25: squared distances 0.04, 0.0025, 0.49.
    # Q: mean of s and 2 a = 0.75, 1.5, -0.75, over `size`: mean 0.5, mean size 1, over `size`.
    monkeypatch.setattr(fql, "normal", lambda key, shape: jnp.full(shape, 0.2))
    critics = ((1.0 / size, 0.0), (0.0, 2.0 / size))
    critics = Ensemble(tuple(LineCritic(jnp.array(w), jnp.array(u)) for w, u in critics))
    h = replace(HAND, normalise_q=normalise)
    state = h.init(SPEC, jax.random.key(0), 10)._replace(critic=critics)
    losses, metrics = eqx.filter_jit(h.loss)(state, batch(), jax.random.key(0))
    close(losses["policy"], 2.0 * 0.5325 / 3 - expected)
    close(metrics["policy"]["distance_to_flow"], 0.5325 / 3)


def test_the_flow_takes_euler_steps_and_is_clipped():
    # v = t: from 0.2 in four steps 0.2 + (0 + 0.25 + 0.5 + 0.75) / 4 = 0.575; from 0.8 it would be 1.175.
    flow, row = LineFlow(jnp.array(0.0), jnp.array(1.0)), batch().data
    close(jax.jit(lambda noise: integrated(flow, row, noise, 4))(column(0.2, 0.8, -2.0)), column(0.575, 1.0, -1.0))


def test_acting_is_the_one_step_policy_of_0_or_of_noise():
    state = HAND.init(SPEC, jax.random.key(0), 1)
    state = state._replace(policy=FlowOfPoint(jnp.array(0.5)))
    params, seen = HAND.policy_params(state), {"s": column(1.0, 4.0)}
    close(HAND.act(params, seen).action, column(0.5, 1.0))
    drawn = np.asarray([HAND.act(params, seen, key=jax.random.key(seed)).action for seed in range(200)])
    assert drawn[:, 0].std() == pytest.approx(0.6734, abs=0.07)  # of N(0.5, 1) cut at -1 and 1: by quadrature
    assert HAND.act(params, seen).log_probability is None


class FlowOfPoint(eqx.Module):
    """The point plus w s."""

    w: jax.Array

    def __call__(self, observation, point, time=0.0):
        return point + self.w * observation["s"]
