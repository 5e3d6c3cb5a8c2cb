"""Both BCQs at the limits of their hyper-parameters; neither ever leaves the support."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from tests.algorithms.worlds import compiled, drawn, small, world
from tidelog import ConfigError
from tidelog.algorithms.bcq import clipped_normal, target_value
from tidelog.algorithms.bcq import drawn as noise_of
from tidelog.algorithms.discrete_bcq import seeing
from tidelog.algorithms.short_form import step
from tidelog.losses.td import huber
from tidelog.networks.actors import EpsilonGreedy
from tidelog.support import best, supported
from tidelog.training.loop import as_arrays
from tidelog.types import Image

equal, close = np.testing.assert_array_equal, np.testing.assert_allclose
LOG, MOVES = world("discrete"), world("continuous")
SEEN = {name: leaf[LOG.position] for name, leaf in LOG.observation.items()}
SHOWN = {name: leaf[MOVES.position] for name, leaf in MOVES.observation.items()}
ALLOWED = LOG.action_mask[LOG.position]
RANDOM = 10_000


def fresh(h, log, seed=0):
    return h.init(log.spec, jax.random.key(seed), 10)


def after(h, log, updates=5):
    state = fresh(h, log)
    for update in range(updates):
        state, _ = compiled(h.phases()[0].step)(h, state, drawn(h, log, update))
    return state


@eqx.filter_jit
def acted(h, params, seen, mask=None, key=None):
    """Return what `h.act` returns, from one program."""
    return h.act(params, seen, mask=mask, key=key)


def target_of(h, state, row, latents):
    return eqx.filter_jit(target_value)(as_arrays(h), state, row, latents)


# Continuous.


@pytest.mark.full
def test_phi_0_acts_exactly_as_the_generator():
    h = small("bcq", phi=0.0, samples=1)
    state = after(h, MOVES)
    found = h.act(h.policy_params(state), SHOWN).action
    latent = jnp.broadcast_to(state.latents, (len(MOVES), state.latents.shape[1]))
    equal(found, state.generator.decode(SHOWN, latent))


@pytest.mark.full
def test_every_action_is_a_candidate_and_the_first_critics_best():
    h = small("bcq", samples=7)
    state = after(h, MOVES)
    found = h.act(h.policy_params(state), SHOWN).action
    latents = jnp.broadcast_to(state.latents[:, None], (7, len(MOVES), state.latents.shape[1]))
    made = [state.generator.decode(SHOWN, z) for z in latents]
    made = [jnp.clip(a + 0.05 * state.perturbation(SHOWN, a), -1, 1) for a in made]
    rated = jnp.stack([state.critic.members[0](SHOWN, a) for a in made])
    wanted = jnp.stack(made)[jnp.argmax(rated, axis=0), jnp.arange(len(MOVES))]
    close(found, wanted, atol=1e-6)


@pytest.mark.full
def test_a_small_phi_moves_by_no_more_than_phi():
    h = small("bcq", phi=0.05, samples=1)
    state = after(h, MOVES)
    params, still = h.policy_params(state), dataclasses.replace(h, phi=0.0)
    far, near = (np.asarray(acted(as_arrays(each), params, SHOWN).action) for each in (h, still))
    assert 0.0 < float(np.abs(far - near).max()) <= 0.05 + 1e-6


@pytest.mark.parametrize(("mix", "reduce"), [(1.0, np.min), (0.0, np.max), (0.5, np.mean)])
def test_the_mix_is_the_minimum_the_maximum_or_the_mean(mix, reduce):
    h = small("bcq", mix=mix, phi=0.0, target_samples=1)
    state, batch = fresh(h, MOVES), drawn(h, MOVES)
    noise = eqx.filter_jit(noise_of)(as_arrays(h), state, batch, jax.random.key(1))
    row = batch.data
    action = eqx.filter_jit(state.generator.decode)(row.next_observation, np.asarray(noise.after)[0])
    q = np.asarray(eqx.filter_jit(state.target_critic)(row.next_observation, action))
    wanted = np.asarray(row.reward) + np.asarray(row.discount) * reduce(q, axis=0)
    close(target_of(h, state, row, noise.after), wanted, rtol=1e-5, atol=1e-6)


def test_latents_are_cut():
    h = small("bcq", latent_clip=0.3)
    drawn_latents = clipped_normal(h, jax.random.key(0), (1000,))
    assert float(np.abs(drawn_latents).max()) == pytest.approx(0.3)
    assert float(np.abs(fresh(h, MOVES).latents).max()) <= 0.3 + 1e-6


@pytest.mark.full
def test_a_delay_keeps_perturbation_and_targets_but_not_critics_and_generator():
    h = small("bcq", policy_delay=2)
    state, start = after(h, MOVES, 1), fresh(h, MOVES)
    for name in ("perturbation", "target_perturbation", "target_critic"):
        jax.tree.map(equal, getattr(state, name), getattr(start, name))
    jax.tree.map(equal, state.opt_states["perturbation"], start.opt_states["perturbation"])
    for name in ("critic", "generator"):
        moved = jax.tree.map(lambda a, b: float(jnp.abs(a - b).max()), getattr(state, name), getattr(start, name))
        assert max(jax.tree.leaves(moved)) > 1e-4
    later = after(h, MOVES, 2)
    moved = jax.tree.map(lambda a, b: float(jnp.abs(a - b).max()), later.perturbation, start.perturbation)
    assert max(jax.tree.leaves(moved)) > 1e-4


def test_the_target_reads_the_new_generator_and_the_perturbation_the_new_critic():
    h = small("bcq", num_critics=1, latent_clip=0.4)
    state, batch = fresh(h, MOVES), drawn(h, MOVES)
    seen, action = batch.data.observation, batch.data.action
    noise = eqx.filter_jit(noise_of)(as_arrays(h), state, batch, jax.random.fold_in(state.key, state.step))
    new, feedback = compiled(step)(h, state, batch)
    target = np.asarray(target_of(h, state._replace(generator=new.generator), batch.data, noise.after))
    q = np.asarray(eqx.filter_jit(state.critic)(seen, action))[0]
    critic_loss = float(feedback.metrics["critic_loss"])
    close(critic_loss, np.mean(np.square(q - target)), rtol=1e-5)
    stale = np.asarray(target_of(h, state, batch.data, noise.after))
    assert abs(float(np.mean(np.square(q - stale)) - critic_loss)) > 1e-5
    proposed = np.asarray(eqx.filter_jit(new.generator.decode)(seen, noise.now))
    direction = np.asarray(eqx.filter_jit(state.perturbation)(seen, proposed))
    chosen = np.clip(proposed + 0.05 * direction, -1, 1)
    new_q = eqx.filter_jit(new.critic.members[0])(seen, chosen)
    close(feedback.metrics["perturbation_loss"], -np.mean(new_q), rtol=1e-5)


@pytest.mark.full
def test_a_row_acts_alone_as_in_company_and_large_batches_are_cut_up():
    h = small("bcq", samples=5)
    state = after(h, MOVES, 1)
    many = {name: np.concatenate([leaf] * 12)[:600] for name, leaf in SHOWN.items()}
    together = h.act(h.policy_params(state), many).action
    assert together.shape == (600, 2)
    for row in (0, 255, 256, 599):
        alone = h.act(h.policy_params(state), {name: leaf[row : row + 1] for name, leaf in many.items()}).action
        close(alone[0], together[row], atol=1e-5)
    sampled = h.act(h.policy_params(state), many, key=jax.random.key(0)).action
    same_row = len(MOVES)
    assert (np.asarray(sampled[0]) != np.asarray(sampled[same_row])).any()
    close(together[0], together[same_row], atol=1e-6)


# Discrete.


@eqx.filter_jit
def double_dqn(critic, target_critic, batch, memory, rate):
    """One update of double Q-learning, written out."""
    row = batch.data
    picked = jnp.argmax(jnp.where(row.next_mask, critic.all_actions(row.next_observation), -jnp.inf), axis=1)
    rows = jnp.arange(len(picked))
    target = row.reward + row.discount * target_critic.all_actions(row.next_observation)[rows, picked]

    def loss(critic):
        return jnp.mean(huber(critic.all_actions(row.observation)[rows, row.action] - target))

    slope = eqx.filter_grad(loss)(critic)
    direction, memory = optax.scale_by_adam().update(slope, memory)
    critic = eqx.apply_updates(critic, jax.tree.map(lambda d: -rate * d, direction))
    target_critic = jax.tree.map(lambda t, n: 0.995 * t + 0.005 * n, target_critic, critic)
    return critic, target_critic, memory, jnp.mean(target)


def test_threshold_0_is_double_q_learning():
    h = small("discrete-bcq", threshold=0.0, shared="never")
    state = fresh(h, LOG)
    critic, slow = state.critic, state.target_critic
    memory = optax.scale_by_adam().init(eqx.filter(critic, eqx.is_inexact_array))
    for update in range(4):
        batch = drawn(h, LOG, update)
        state, feedback = compiled(step)(h, state, batch)
        critic, slow, memory, target = double_dqn(critic, slow, batch, memory, 1e-2)
        close(feedback.metrics["target_q"], target, rtol=1e-5)
        jax.tree.map(lambda found, want: close(found, want, rtol=1e-4, atol=1e-5), state.critic, critic)


def test_threshold_1_is_greedy_cloning_with_ties_by_q():
    h = small("discrete-bcq", threshold=1.0)
    params = h.policy_params(after(h, LOG))
    found = acted(as_arrays(h), params, SEEN, ALLOWED).action
    logits = np.asarray(eqx.filter_jit(seeing(params))(SEEN).logits)
    equal(found, np.argmax(np.where(ALLOWED, logits, -np.inf), axis=1))
    likely = eqx.filter_jit(supported)(np.array([[2.0, 2.0, 1.0]], np.float32), 1.0)
    tied = EpsilonGreedy(np.array([[1.0, 3.0, 9.0]], np.float32), likely, 0.0)
    equal(eqx.filter_jit(EpsilonGreedy.mode)(tied), [1])


@eqx.filter_jit
def chosen_with_probability(values, kept, epsilon, key):
    """Return the best action and a random one, each with its log-probability."""
    policy = EpsilonGreedy(values, kept, epsilon)
    return [(action, policy.log_probability(action)) for action in (policy.mode(), policy.sample(key))]


@pytest.mark.sample("1.0-0.0", "10000.0-0.3")
@pytest.mark.parametrize("threshold", [0.0, 0.1, 0.3, 1.0])
@pytest.mark.parametrize("scale", [1.0, 1e4])
def test_never_an_unsupported_or_masked_action(threshold, scale):
    rng = np.random.default_rng(0)
    logits = (scale * rng.standard_normal((RANDOM, 5))).astype(np.float32)
    values = (scale * rng.standard_normal((RANDOM, 5)) - 10 * scale).astype(np.float32)
    mask = rng.random((RANDOM, 5)) < 0.5
    mask[np.arange(RANDOM), rng.integers(0, 5, RANDOM)] = True
    kept = np.asarray(eqx.filter_jit(supported)(logits, jnp.float32(threshold), mask))
    assert kept.any(axis=1).all()
    rows = np.arange(RANDOM)
    for epsilon in (0.0, 0.5, 1.0):
        for action, log_probability in chosen_with_probability(values, kept, jnp.float32(epsilon), jax.random.key(0)):
            assert kept[rows, action].all()
            assert mask[rows, action].all()
            assert np.isfinite(log_probability).all()
    log_odds = np.where(mask, logits, -np.inf)
    chosen = np.asarray(eqx.filter_jit(best)(values, kept))
    if threshold:
        assert (log_odds[rows, chosen] - log_odds.max(1) >= np.log(threshold) - 1e-5 * scale).all()


@pytest.mark.parametrize("threshold", [0.0, 1.0])
def test_no_nan_at_either_end(threshold):
    h = small("discrete-bcq", threshold=threshold)
    state = after(h, LOG, 8)
    for leaf in jax.tree.leaves((state.critic, state.imitator, state.target_critic)):
        assert np.isfinite(leaf).all()


def test_epsilon_is_over_supported_actions():
    policy = EpsilonGreedy(np.array([[1.0, 2.0, 3.0, 4.0]], np.float32), np.array([[True, True, True, False]]), 0.3)
    close(eqx.filter_jit(EpsilonGreedy.probabilities)(policy), [[0.1, 0.1, 0.8, 0.0]], rtol=1e-6)
    h = small("discrete-bcq", threshold=1.0, epsilon=1.0)
    params = h.policy_params(after(h, LOG))
    sampled = acted(as_arrays(h), params, SEEN, ALLOWED, jax.random.key(0)).action
    equal(sampled, acted(as_arrays(h), params, SEEN, ALLOWED).action)


@pytest.mark.full
def test_a_shared_trunk_for_pictures_and_the_same_target():
    spec = dataclasses.replace(LOG.spec, observation={"picture": Image(40, 40, 1)}, masked=False)
    shared = small("discrete-bcq", convolutions="small")
    state = shared.init(spec, jax.random.key(0), 1)
    assert state.imitator.encoder is None
    picture = np.random.default_rng(0).integers(0, 256, (3, 40, 40, 1)).astype(np.uint8)
    assert shared.act(shared.policy_params(state), {"picture": picture}).action.shape == (3,)
    apart = dataclasses.replace(shared, shared="never").init(spec, jax.random.key(0), 1)
    assert apart.imitator.encoder is not None
    assert after(small("discrete-bcq"), LOG, 0).imitator.encoder is not None
    jax.tree.map(equal, state.critic, apart.critic)


def test_two_target_modes_are_refused_with_the_mend():
    with pytest.raises(
        ConfigError, match=r"tau = 0\.005 and DiscreteBCQ\.copy_period = 8000: .* make one of them None"
    ):
        small("discrete-bcq", copy_period=8000)
    assert small("discrete-bcq", copy_period=8000, tau=None).copy_period == 8000


@pytest.mark.full
def test_q_is_no_softmax_and_may_be_anything():
    weights, rest = eqx.partition(fresh(small("discrete-bcq"), LOG).critic, eqx.is_inexact_array)
    values = eqx.combine(jax.tree.map(lambda leaf: 10.0 * leaf, weights), rest).all_actions(SEEN)
    assert float(values.min()) < 0.0 < 1.0 < float(values.max())
    assert float(jnp.std(values.sum(axis=1))) > 0.1
