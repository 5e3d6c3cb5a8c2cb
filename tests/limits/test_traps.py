"""Mistakes of published versions of BCQ and discrete BCQ, each with a test that fails on it.

Other tests are next to their topics: targets of several states (golden/test_vae.py), unread targets and masks
(conformance), hidden states (limits/test_bcq_memory.py), softmax (limits/test_bcq.py), update order (golden).
"""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.algorithms.worlds import compiled, drawn, small, world
from tests.conformance.cases import CASES
from tidelog.algorithms.bcq import BCQ
from tidelog.algorithms.discrete_bcq import DiscreteBCQ, seeing, target_value
from tidelog.algorithms.optimisation import OPTIMISERS
from tidelog.algorithms.short_form import held_out_losses, step
from tidelog.losses.td import huber, squared
from tidelog.losses.vae import normal_divergence

close, equal = np.testing.assert_allclose, np.testing.assert_array_equal
LOG, MOVES = world("discrete"), world("continuous")


def fresh(h, log):
    return h.init(log.spec, jax.random.key(0), 10)


def gap(one, two):
    pairs = zip(jax.tree.leaves(one), jax.tree.leaves(two), strict=True)
    return max(float(np.abs(np.asarray(a) - np.asarray(b)).max()) for a, b in pairs)


def test_the_generators_divergence_is_a_mean_over_latents_unless_asked():
    h = small("bcq")
    state, batch = fresh(h, MOVES), drawn(small("bcq"), MOVES)
    size = state.latents.shape[1]
    assert size == 4
    told = eqx.filter_jit(held_out_losses)

    @eqx.filter_jit
    def divergence(generator, row):
        return normal_divergence(*generator.encode(row.observation, row.action))

    losses = told(h, state, batch, None)
    found = np.mean(divergence(state.generator, batch.data))
    close(losses["kl_loss"], found, rtol=1e-5)
    close(losses["generator_loss"], float(losses["reconstruction_loss"]) + 0.5 * found, rtol=1e-5)
    summed = told(dataclasses.replace(h, kl_reduction="sum"), state, batch, None)
    close(float(summed["generator_loss"]) - float(losses["generator_loss"]), 0.5 * (size - 1) * found, rtol=1e-4)


def test_targets_read_the_target_perturbation_and_not_the_one_that_learns():
    h = small("bcq", phi=1.0)
    state, batch = fresh(h, MOVES), drawn(h, MOVES)
    other = jax.tree.map(lambda leaf: np.asarray(leaf) + np.float32(0.5), state.perturbation)
    plain = compiled(step)(h, state, batch)[1].metrics["target_q"]
    close(compiled(step)(h, state._replace(perturbation=other), batch)[1].metrics["target_q"], plain, rtol=1e-6)
    moved = compiled(step)(h, state._replace(target_perturbation=other), batch)[1].metrics["target_q"]
    assert abs(float(moved - plain)) > 1e-5


def test_logits_of_imitation_are_of_both_signs():
    h = small("discrete-bcq")
    state = fresh(h, LOG)
    seen = {name: leaf[LOG.position] for name, leaf in LOG.observation.items()}
    logits = np.asarray(eqx.filter_jit(seeing(h.policy_params(state)))(seen).logits)
    assert float(logits.min()) < -1e-3
    assert float(logits.max()) > 1e-3
    assert (logits != 0.0).mean() > 0.99  # 0 of 20 other seeds fail, here and above


@pytest.mark.sample("None")
@pytest.mark.parametrize("recurrent_size", [None, 3])
def test_imitation_moves_nothing_of_q_and_q_nothing_of_imitation(recurrent_size):
    h = small("discrete-bcq", recurrent_size=recurrent_size, window=3, shared="never")
    state, batch = fresh(h, LOG), drawn(h, LOG)

    def slope(networks, batch, name):
        return jax.grad(lambda n: h.loss(state._replace(**n), batch, None)[1][name])(networks)

    def still(tree):
        return max(float(np.abs(leaf).max()) for leaf in jax.tree.leaves(tree)) == 0.0

    networks = {"critic": state.critic, "imitator": state.imitator}
    imitation, q = (eqx.filter_jit(slope)(networks, batch, name) for name in ("imitation_loss", "q_loss"))
    assert still(imitation["critic"])
    assert not still(imitation["imitator"])
    assert still(q["imitator"])
    assert not still(q["critic"])


def test_huber_is_on_unless_told_and_bounds_the_pull_of_large_errors():
    assert DiscreteBCQ().critic_loss is huber
    assert BCQ().critic_loss is squared
    state, batch = fresh(small("discrete-bcq"), LOG), drawn(small("discrete-bcq"), LOG)

    @eqx.filter_jit
    def slope(critic, h, batch):
        return jax.grad(lambda n: h.loss(state._replace(critic=n), batch, None)[1]["q_loss"])(critic)

    def pull(name, far):
        h = small("discrete-bcq", critic_loss=name)
        reward = np.full(batch.data.reward.shape, far, np.float32)
        found = slope(state.critic, h, batch._replace(data=batch.data._replace(reward=reward)))
        return float(np.abs(found.body.layers[-1].bias).sum())

    assert pull("huber", 2000.0) == pytest.approx(pull("huber", 1000.0), rel=1e-4)
    assert pull("squared", 2000.0) > 1.9 * pull("squared", 1000.0)


@pytest.mark.sample("discrete-bcq")
@pytest.mark.parametrize("name", ["bcq", "discrete-bcq"])
def test_n_steps_are_summed_into_what_the_target_reads(name):
    log = LOG if name == "discrete-bcq" else MOVES
    one, three = small(name), small(name, n_step=3)
    short, long = drawn(one, log).data, drawn(three, log).data
    rows, reward, discount = np.asarray(drawn(three, log).rows), np.asarray(long.reward), np.asarray(long.discount)
    for b, row in enumerate(rows):
        last = min(row + 2, log.reach[row])
        wanted = sum(0.99**k * log.reward[row + k] for k in range(last - row + 1))
        close(reward[b], wanted, rtol=1e-4, atol=1e-5)
        close(discount[b], 0.99 ** (last - row + 1) * (1.0 - log.terminated[last]), rtol=1e-5)
    assert gap(short.reward, long.reward) > 0.1
    (phase,) = three.phases()
    told = [compiled(phase.step)(three, fresh(three, log), drawn(h, log))[1].metrics["target_q"] for h in (one, three)]
    assert abs(float(told[0] - told[1])) > 1e-4


@pytest.mark.full
@pytest.mark.parametrize("name", ["bcq", "discrete-bcq"])
def test_priorities_are_td_errors_and_change_what_is_drawn(name):
    case, *_ = [case for case in CASES if case.name == name]
    case = case.but(priority_exponent=1.0)
    state, batch = case.init(), case.batch()
    _, told = case.step(state, batch)
    assert told.priority.shape == (16,)
    assert len(np.unique(np.asarray(told.priority))) > 4
    if name == "discrete-bcq":
        q = state.critic(batch.data.observation, batch.data.action)
        close(told.priority, jnp.abs(q - target_value(case.algorithm, state, batch.data)), rtol=1e-4, atol=1e-5)
    trainer = case.trainer((case.algorithm, 0))
    before = np.array(trainer.learners[0].orders[case.phase.name].tree.levels[0])
    trainer.advance(3)
    assert np.abs(np.asarray(trainer.learners[0].orders[case.phase.name].tree.levels[0]) - before).max() > 0.1


def test_the_mask_is_read_in_the_target_and_in_the_cross_entropy():
    h = small("discrete-bcq", threshold=0.0)
    state, batch = fresh(h, LOG), drawn(h, LOG)
    open_after = batch._replace(data=batch.data._replace(next_mask=np.ones_like(batch.data.next_mask)))
    open_now = batch._replace(data=batch.data._replace(mask=np.ones_like(batch.data.mask)))
    plain = compiled(step)(h, state, batch)[1].metrics
    assert abs(float(compiled(step)(h, state, open_after)[1].metrics["target_q"] - plain["target_q"])) > 1e-4
    imitation = compiled(step)(h, state, open_now)[1].metrics["imitation_loss"]
    assert float(imitation) > float(plain["imitation_loss"]) + 1e-3


def test_the_atari_preset_is_the_papers():
    h = DiscreteBCQ.preset("atari")
    assert (h.learning_rate, h.batch_size, h.copy_period, h.tau, h.epsilon) == (6.25e-5, 32, 8000, None, 0.001)
    assert (h.threshold, h.logit_penalty, h.discount, h.double, h.critic_loss) == (0.3, 0.01, 0.99, True, huber)
    assert h.optimiser is OPTIMISERS["adam-atari"]
    direction, _ = jax.jit(lambda slope: h.optimiser().update(slope, h.optimiser().init(jnp.array(0.0))))(1e-4)
    close(direction, 1e-4 / (1e-4 + 1.5e-4), rtol=1e-4)  # Adam's first step is g / (abs(g) + epsilon)


@pytest.mark.full
def test_layers_start_as_pytorchs_do():
    # Uniform on 1 / sqrt(inputs), biases too, of Q, imitator, generator, perturbation and critics.
    # A right layer has 50 weights or more, and none above 0.8 of that for at most 1 in 70,000 seeds.
    for name, log in (("discrete-bcq", LOG), ("bcq", MOVES)):
        state = fresh(small(name, hidden=(50, 50)), log)
        network = state.critic if name == "discrete-bcq" else state.critic.members[0]
        for layer in network.body.layers:
            bound = 1.0 / np.sqrt(layer.weight.shape[0])
            assert 0.8 * bound < float(jnp.abs(layer.weight).max()) <= bound
            assert 0.0 < float(jnp.abs(layer.bias).max()) <= bound
    head = fresh(small("discrete-bcq", hidden=(50,)), LOG).imitator.head
    assert 0.8 / np.sqrt(50) < float(jnp.abs(head.weight).max()) <= 1.0 / np.sqrt(50)
    assert fresh(small("bcq"), MOVES).latents.shape[1] == 2 * len(MOVES.spec.action.low)
