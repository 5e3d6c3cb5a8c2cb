"""BCQ's arithmetic by hand: divergence, reconstruction, the mix of critics, perturbation, and its target."""

import dataclasses
import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.algorithms.worlds import compiled
from tests.golden.lines import SPEC, LineCritic, column, numbers, plain
from tidelog import BCQ
from tidelog.algorithms import bcq
from tidelog.algorithms.bcq import UpdateNoise, differences, target_value
from tidelog.algorithms.sampling import Batch
from tidelog.algorithms.short_form import step
from tidelog.errors import SpecError
from tidelog.losses.td import between
from tidelog.losses.vae import mean_over_latents, normal_divergence, reconstruction_error, sum_over_latents
from tidelog.networks.critics import Ensemble, Generator, Perturbation, perturb
from tidelog.networks.encoder import EncoderConfig
from tidelog.types import Continuous, Discrete, Hybrid, Spec, Transition, Vector

close = np.testing.assert_allclose


class LineGenerator:
    """Mean a, log-std ln 2, decodes to z."""

    def encode(self, observation, action):
        return action, jnp.full(action.shape, math.log(2.0))

    def decode(self, observation, latent):
        return latent


jax.tree_util.register_static(LineGenerator)


class LinePerturbation(LineGenerator):
    """Always half of the direction."""

    def __call__(self, observation, action):
        return jnp.full(action.shape, 0.5)


jax.tree_util.register_static(LinePerturbation)

HAND = BCQ(
    phi=0.2, mix=0.75, latent=1, target_samples=2, kl_weight=0.5, optimiser=plain,
    generator_network=lambda spec, key: LineGenerator(), perturbation_network=lambda spec, key: LinePerturbation(),
    critic_network=lambda spec, key: LineCritic(jnp.array(1.0), jnp.array(0.0)),
)  # fmt: skip


def two_rows(weight=None):
    """s = 1, 2; a = 0.5, -0.5; r = 1, 0; discount 0.5, 0.5; s' = 2, -3."""
    rows = Transition(
        observation={"s": column(1.0, 2.0)},
        action=column(0.5, -0.5),
        reward=numbers(1.0, 0.0),
        discount=numbers(0.5, 0.5),
        next_observation={"s": column(2.0, -3.0)},
    )
    return Batch(rows, np.arange(2), weight)


def test_divergence_by_hand():
    # -1/2 (1 + 2 ln 2 - 1 - 4) = 2 - ln 2; at mean 0, std 1: 0. Mean of both, and sum.
    mean, log_std = numbers([1.0, 0.0]), numbers([math.log(2.0), 0.0])
    found = jax.jit(normal_divergence)(mean, log_std)
    close(found, [[2.0 - math.log(2.0), 0.0]], rtol=1e-6)
    close(mean_over_latents(found), [1.0 - math.log(2.0) / 2], rtol=1e-6)
    close(sum_over_latents(found), [2.0 - math.log(2.0)], rtol=1e-6)


def test_a_generator_of_parts_has_logits_of_codes():
    # outputs (0, ln 1, ln 2, ln 1): the number tanh 0 = 0, and the second code with probability 2 / 4
    outputs = numbers([0.0, 0.0, math.log(2.0), 0.0])
    mixed = Generator(lambda seen: seen, None, lambda inputs: jnp.tile(outputs, (len(inputs), 1)), codes=(0, 3))
    seen, latent = jnp.zeros((2, 1)), jnp.zeros((2, 1))
    close(mixed.decode(seen, latent), [[0.0, 1.0]] * 2)
    # the number 0.5 is 0.25 away; codes 1 and 0 have -ln 1/2 and -ln 1/4: the mean of both numbers
    error = mixed.error(seen, latent, numbers([0.5, 1.0], [0.5, 0.0]))
    close(error, [(0.25 + math.log(2.0)) / 2, (0.25 + math.log(4.0)) / 2], rtol=1e-6)


def test_a_perturbation_moves_numbers_and_no_codes():
    space = Hybrid((("gear", Discrete(3)), ("steer", Continuous((-1.0,), (1.0,)))))
    spec = Spec({"s": Vector(1)}, space)
    made = Perturbation.create(np.random.default_rng(0), spec, hidden=(4,), encoder_config=EncoderConfig(1, 4))
    direction = eqx.filter_jit(made)({"s": column(1.0, 2.0)}, numbers([2.0, 0.95], [1.0, -0.5]))
    assert (direction[:, 0] == 0.0).all()
    assert (jnp.abs(direction[:, 1]) > 0.0).all()
    moved = perturb(numbers([2.0, 0.95], [1.0, -0.5]), numbers([0.0, 1.0], [0.0, 1.0]), 0.1, (3, 0))
    close(moved, [[2.0, 1.0], [1.0, -0.4]], rtol=1e-6)  # 0.95 + 0.1 is cut at 1, a code of 2 is not
    close(differences(numbers([2.0, 0.5]), numbers([0.0, 0.2]), (3, 0)), [[1.0, 0.3]], rtol=1e-6)
    both = Spec({"s": Vector(1)}, Hybrid((("gear", Discrete(3)), ("horn", Discrete(2)))))
    with pytest.raises(SpecError, match=r"BCQ moves continuous numbers, and no part of this action has one\. fix: use"):
        Perturbation.create(np.random.default_rng(0), both, hidden=(4,), encoder_config=EncoderConfig(1, 4))


def test_reconstruction_is_a_mean_over_dimensions():
    error = jax.jit(reconstruction_error)
    close(error(numbers([1.0, 0.0]), numbers([0.0, 0.5])), [0.625])  # (1 + 0.25) / 2
    with pytest.raises(TypeError, match="expected equal shapes"):
        reconstruction_error(np.ones((2, 1)), np.ones(2))


def test_between_is_a_share_of_the_smallest():
    values = numbers([1.0, 5.0], [3.0, 1.0])
    close(jax.jit(between)(values, 0.75), [1.5, 2.0])  # 0.75 + 0.75, 0.75 + 1.25


def losses_with(monkeypatch, posterior, now, weight=None, **networks):
    """Return the losses and metrics of `HAND` with these latents."""
    monkeypatch.setattr(bcq, "drawn", lambda *inputs: UpdateNoise(posterior, numbers([[0.0], [0.0]]), now))
    state = HAND.init(SPEC, jax.random.key(0), 10)._replace(**networks)
    return eqx.filter_jit(HAND.loss)(state, two_rows(weight), None)


def test_generator_loss_by_hand(monkeypatch):
    # z = a + 2 noise = 1.5, -0.5 and decodes to itself: errors 1, 0. KL: -1/2 (1 + 2 ln 2 - 1/4 - 4) = 1.625 - ln 2.
    noise = column(0.5, 0.0)
    losses, metrics = losses_with(monkeypatch, noise, noise)
    parts = metrics["generator"]
    divergence = 1.625 - math.log(2.0)
    close(parts["reconstruction_loss"], 0.5)
    close(parts["kl_loss"], divergence, rtol=1e-6)
    close(losses["generator"], 0.5 + 0.5 * divergence, rtol=1e-6)
    weighted, _ = losses_with(monkeypatch, noise, noise, numbers(2.0, 0.0))
    close(weighted["generator"], 1.0 + 0.5 * divergence, rtol=1e-6)


def test_target_by_hand_and_states_with_other_next_values_have_other_targets():
    # Candidates z = 0.1, -0.3 in both rows, moved by 0.2 * 0.5: 0.2, -0.2.
    # Target critics s + a and 2 s - a. Row 1, s' = 2: (2.2, 3.8) and (1.8, 4.2): 0.75 * 2.2 + 0.25 * 3.8 = 2.6, 2.4.
    # Row 2, s' = -3: (-2.8, -6.2) and (-3.2, -5.8): 0.75 * -6.2 - 0.25 * 2.8 = -5.35, -4.35 - 0.8 = -5.15.
    # The best: 2.6 and -5.15. y = 1 + 1.3, 0 - 2.575.
    state = HAND.init(SPEC, jax.random.key(0), 10)
    targets = Ensemble((LineCritic(jnp.array(1.0), jnp.array(1.0)), LineCritic(jnp.array(2.0), jnp.array(-1.0))))
    state = state._replace(target_critic=targets)
    latents = numbers([[0.1], [0.1]], [[-0.3], [-0.3]])
    found = eqx.filter_jit(target_value)(HAND, state, two_rows().data, latents)
    close(found, [2.3, -2.575], rtol=1e-6)


def test_each_critic_is_pulled_to_the_target_of_its_own_row():
    h = dataclasses.replace(HAND, latent_clip=0.0, num_critics=1)
    state = h.init(SPEC, jax.random.key(0), 10)
    # Latents are cut to 0; target critic s. y = 1 + 0.5 * 2, 0.5 * -3; Q = 1, 2; errors -1, 3.5.
    moved_state, feedback = compiled(step)(h, state, two_rows())
    close(feedback.priority, [1.0, 3.5])
    close(feedback.metrics["critic_loss"], 6.625)  # (1 + 12.25) / 2
    close(feedback.metrics["target_q"], 0.25)
    # slope in w: mean of 2 error s = -1 + 7 = 6; in u: mean of 2 error a = -0.5 - 1.75.
    (critic,) = moved_state.critic.members
    close([critic.w, critic.u], [1.0 - 0.006, 0.00225], rtol=1e-5)


def test_perturbation_loss_reads_the_first_critic_alone(monkeypatch):
    # A latent decodes to itself: proposed 0.3, 0.95 + 0.2 * 0.5 = 0.4, cut at 1; critic s + 2 a = 1.8, 4.
    # Logged actions 0.5, -0.5: distances 0.1 and 1.5.
    critics = Ensemble((LineCritic(jnp.array(1.0), jnp.array(2.0)), LineCritic(jnp.array(9.0), jnp.array(9.0))))
    losses, metrics = losses_with(monkeypatch, column(0.0, 0.0), column(0.3, 0.95), critic=critics)
    close(losses["perturbation"], -2.9)
    close(metrics["perturbation"]["distance_to_log"], 0.8, rtol=1e-6)
    close(metrics["perturbation"]["perturbation_size"], 0.1, rtol=1e-6)


def test_a_perturbation_has_one_output_a_dimension():
    spec = Spec({"s": Vector(1)}, Continuous((-1.0,) * 3, (1.0,) * 3))
    made = Perturbation.create(np.random.default_rng(0), spec, hidden=(8,), encoder_config=EncoderConfig(2, 8))
    action = np.zeros((5, 3), np.float32)
    direction = np.asarray(eqx.filter_jit(made)({"s": column(*range(5))}, action))
    assert direction.shape == (5, 3)
    assert len(np.unique(direction[1])) == 3
    with pytest.raises(TypeError, match="one shape"):
        perturb(action, direction[:, :1], 0.05)
    close(jax.jit(perturb)(numbers(0.99, -0.2), numbers(1.0, -1.0), 0.05), [1.0, -0.25], rtol=1e-6)


def test_the_generators_spread_is_clamped_and_its_latents_are_split():
    made = Generator.create(np.random.default_rng(0), SPEC, hidden=(8,), latent=2, encoder_config=EncoderConfig(2, 8))
    huge = jax.tree.map(lambda leaf: np.asarray(leaf) * np.float32(1e4), made)
    mean, log_std = eqx.filter_jit(huge.encode)({"s": column(1.0, -1.0)}, column(0.5, -0.5))
    assert mean.shape == log_std.shape == (2, 2)
    assert set(np.asarray(log_std).ravel().tolist()) <= {-4.0, 15.0}
    assert float(np.abs(mean).max()) > 15.0
    assert float(np.abs(eqx.filter_jit(huge.decode)({"s": column(1.0, -1.0)}, mean)).max()) <= 1.0
