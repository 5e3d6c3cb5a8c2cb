"""Encoders, actors, values and critics: shapes, ranges, initialisation, and nodes of a recipe."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.algorithms.worlds import ACTIONS, KINDS, world
from tidelog.errors import ExportError
from tidelog.networks import critics, phasic, recipe
from tidelog.networks.actors import (
    HEADS,
    Actor,
    Categorical,
    Gaussian,
    GaussianHead,
    Point,
    PointHead,
    StateGaussianHead,
    gaussian,
)
from tidelog.networks.critics import Critic, Ensemble, Generator, Perturbation
from tidelog.networks.encoder import Encoder, EncoderConfig
from tidelog.networks.layers import MLP, Linear
from tidelog.networks.phasic import Trunk
from tidelog.networks.pictures import Stack
from tidelog.recommend import networks
from tidelog.types import Codes, Discrete, Spec, Vector

SHAPE = {"hidden": (8,), "encoder_config": EncoderConfig(2, 8), "layer_norm": False}
SPECS = {kind: world(kind).spec for kind in KINDS}


def rng(seed=0):
    return np.random.default_rng(seed)


def seen(rows, seed=0):
    generator = rng(seed)
    vitals = generator.standard_normal((rows, 4)).astype(np.float32)
    return {"vitals": vitals, "ward": generator.integers(0, 3, (rows, 2))}


def actor_of(kind, head=gaussian, seed=0, **changes):
    return Actor.create(rng(seed), SPECS[kind], head=head, **(SHAPE | changes))


def test_a_discrete_critic_picks_from_all_its_actions():
    ensemble = Ensemble.create(2, lambda: Critic.create(rng(), SPECS["discrete"], **SHAPE))
    every = np.asarray(eqx.filter_jit(ensemble.all_actions)(seen(6)))
    assert every.shape == (2, 6, ACTIONS)
    action = np.array([0, 1, 2, 3, 0, 1])
    np.testing.assert_allclose(eqx.filter_jit(ensemble)(seen(6), action), every[:, np.arange(6), action])


def test_a_continuous_critic_reads_the_action():
    critic = eqx.filter_jit(Critic.create(rng(), SPECS["continuous"], **SHAPE))
    zero, one = (np.asarray(critic(seen(5), np.full((5, 2), number, np.float32))) for number in (0.0, 1.0))
    assert (zero != one).all()


def test_an_encoder_of_codes_is_a_one_hot_product_with_its_tables():
    leaves = {"b": Codes((3, 4)), "a": Vector(2)}
    spec = Spec(leaves, Discrete(2))
    encoder = Encoder.create(rng(), spec, EncoderConfig(5, 8))
    codes = np.stack([np.arange(12) % 3, np.arange(12) % 4], axis=1)
    observation = {"a": np.array([[1.0, 2.0]] * 12, np.float32), "b": codes}
    first, second = encoder.tables["b"]
    assert (first.shape, second.shape) == ((3, 5), (4, 5))
    products = [
        np.eye(size, dtype=np.float32)[codes[:, c]] @ np.asarray(table)
        for c, (size, table) in enumerate(((3, first), (4, second)))
    ]
    found = eqx.filter_jit(encoder)(observation)
    np.testing.assert_allclose(found, np.concatenate([observation["a"], *products], axis=1), rtol=1e-6)
    assert found.shape[1] == EncoderConfig(5, 8).size(spec) == 12


def test_a_lone_vector_passes_through():
    observation = {"a": jnp.ones((3, 2))}
    assert (
        Encoder.create(rng(), Spec({"a": Vector(2)}, Discrete(2)), EncoderConfig(5, 8))(observation) is observation["a"]
    )


def test_members_of_an_ensemble_differ():
    generator = rng()
    first, second = Ensemble.create(2, lambda: Critic.create(generator, SPECS["discrete"], **SHAPE)).members
    one, two = (np.asarray(member.body.layers[0].weight) for member in (first, second))
    assert all((a != b).any() for a, b in zip(one, two, strict=True))


@pytest.mark.sample("gaussian")
@pytest.mark.parametrize("head", HEADS)
def test_means_stay_within_the_bounds(head):
    observation = seen(50)
    far = observation | {"vitals": np.float32(100.0) * observation["vitals"]}
    mean = eqx.filter_jit(actor_of("continuous", HEADS[head]))(far).mode()
    assert float(np.abs(mean).max()) <= 1.0
    assert float(np.abs(mean).max()) > 0.99  # 0 of 61 other seeds fail


def test_spreads_start_near_1_and_are_clipped():
    fixed = eqx.filter_jit(actor_of("continuous"))(seen(4))
    assert isinstance(fixed, Gaussian)
    np.testing.assert_array_equal(fixed.log_std, 0.0)
    varying = eqx.filter_jit(actor_of("continuous", HEADS["state-gaussian"]))(seen(4))
    assert 0 < float(np.abs(varying.log_std).max()) < 0.02  # 0 of 42 other seeds fail
    weight = np.asarray(HEADS["state-gaussian"](rng(), 8, 2).log_std.weight, np.float64)
    np.testing.assert_allclose(weight.T @ weight, 1e-6 * np.eye(2), atol=1e-12)  # orthogonal columns times 1e-3
    features, flat = np.ones((4, 3), np.float32), Linear(np.zeros((3, 2), np.float32), np.zeros(2, np.float32))
    wild = np.array([-50.0, 50.0], np.float32)
    np.testing.assert_array_equal(eqx.filter_jit(GaussianHead(flat, wild))(features).log_std, [-5.0, 2.0])
    spread = Linear(np.zeros((3, 2), np.float32), wild)
    found = eqx.filter_jit(StateGaussianHead(flat, spread))(features)
    np.testing.assert_array_equal(found.log_std, [[-5.0, 2.0]] * 4)


def test_a_point_has_no_density():
    layer = Linear(np.zeros((3, 2), np.float32), np.full(2, 0.5, np.float32))
    point = eqx.filter_jit(PointHead(layer))(np.ones((4, 3), np.float32))
    assert isinstance(point, Point)
    np.testing.assert_array_equal(point.mode(), point.sample(jax.random.key(0)))
    assert point.log_probability(point.mean) is None
    assert point.entropy() is None
    error = jax.jit(Point.imitation_error)(point, np.zeros((4, 2), np.float32))
    np.testing.assert_allclose(error, 2 * np.tanh(0.5) ** 2, rtol=1e-6)


def test_gaussian_samples_have_their_mean_and_spread():
    mean, log_std = np.array([[0.5, -1.0]] * 20_000, np.float32), np.log(np.array([0.5, 2.0], np.float32))
    sample = np.asarray(jax.jit(Gaussian.sample)(Gaussian(mean, log_std), jax.random.key(0)))
    # 4.2 and 6 standard errors: a right sampler fails for 2 in 100,000 seeds
    np.testing.assert_allclose(sample.mean(0), [0.5, -1.0], atol=0.06)
    np.testing.assert_allclose(sample.std(0), [0.5, 2.0], rtol=0.03)


def test_an_actor_honours_its_mask_and_its_dropout():
    actor, observation = actor_of("discrete"), seen(6)
    mask = np.array([[True, False, True, False]] * 6)
    compiled = eqx.filter_jit(actor)
    policy = compiled(observation, mask=mask)
    assert isinstance(policy, Categorical)
    logits, plain = np.asarray(policy.logits), np.asarray(compiled(observation).logits)
    assert np.isneginf(logits[:, 1]).all()
    np.testing.assert_array_equal(logits[:, 0], plain[:, 0])
    dropped = compiled(observation, dropout=0.5, key=jax.random.key(0))
    assert not np.allclose(dropped.logits, plain)
    with pytest.raises(TypeError, match="expected equal shapes"):
        compiled(observation, mask=mask[:, :3])


def test_a_phasic_network_has_one_head_a_part_and_their_quantities_add():
    shape = {"hidden": (8,), "activation": jnp.tanh, "layer_norm": False, "encoder_config": EncoderConfig(2, 8)}
    one, two = (phasic.create(phasic.dual, rng(seed), SPECS["hybrid"], **shape) for seed in (0, 1))
    assert [type(head).__name__ for head in one.head.heads] == ["MeanHead", "LogitsHead", "LogitsHead"]

    @eqx.filter_jit
    def quantities(one, two, observation, key):
        policy, other = one.policy(observation), two.policy(observation)
        action = policy.sample(key)
        own = (action[:, :1], action[:, 1:3].astype(int), action[:, 3].astype(int))
        each = [[part.log_probability(a) for part, a in zip(policy.parts, own, strict=True)]]
        each += [[part.entropy() for part in policy.parts]]
        each += [[a.divergence(b) for a, b in zip(policy.parts, other.parts, strict=True)]]
        whole = policy.log_probability(action), policy.entropy(), policy.divergence(other)
        return action, policy.mode(), [part.mode().reshape(5, -1) for part in policy.parts], whole, each

    action, mode, modes, whole, each = quantities(one, two, seen(5), jax.random.key(0))
    assert action.shape == (5, 4)
    assert set(np.unique(action[:, 1:3])) <= {0.0, 1.0, 2.0}
    for quantity, parts in zip(whole, each, strict=True):
        np.testing.assert_allclose(quantity, np.sum(parts, axis=0), rtol=1e-5)
        assert quantity.shape == (5,)
    np.testing.assert_array_equal(mode, np.concatenate(modes, axis=1))


def test_a_critic_reads_codes_one_hot_and_numbers_as_they_are():
    action = jnp.array([[-0.5, 2.0, 0.0, 1.0], [0.25, 0.0, 1.0, 0.0]])
    spec = SPECS["hybrid"].action
    assert critics.action_codes(spec) == (0, 3, 3, 2)
    assert critics.input_size(spec) == 9
    expected = [[-0.5, 0, 0, 1, 1, 0, 0, 0, 1], [0.25, 1, 0, 0, 0, 1, 0, 1, 0]]
    np.testing.assert_array_equal(critics.as_input(action, critics.action_codes(spec)), expected)
    critic = Critic.create(rng(), SPECS["hybrid"], **SHAPE)
    scaled = critic.in_unit(2.0, 3.0)  # keeps the codes
    one, two = eqx.filter_jit(lambda: (critic(seen(2), action), scaled(seen(2), action)))()
    np.testing.assert_allclose(two, 2.0 * one + 3.0, rtol=1e-5)


def test_wrong_inputs_of_a_network_are_a_mistake_of_the_algorithm_and_named():
    flat, recurrent = (
        Encoder.create(rng(), SPECS["discrete"], EncoderConfig(2, 8, recurrent_size=size)) for size in (None, 3)
    )
    with pytest.raises(TypeError, match=r"a recurrent network reads windows\. fix: pass real \[B, T\]"):
        recurrent({name: leaf[None] for name, leaf in seen(3).items()})
    with pytest.raises(TypeError, match=r"a feed-forward network reads steps, not segments\. fix: set recurrent_size"):
        flat.further(jnp.zeros((1, 3, 3)), seen(3))
    sizes = {"hidden": (8,), "encoder_config": EncoderConfig(2, 8)}
    with pytest.raises(
        TypeError, match=r"a perturbation moves Continuous or Hybrid actions, got Discrete\. fix: use these"
    ):
        Perturbation.create(rng(), SPECS["discrete"], **sizes)
    with pytest.raises(
        TypeError, match=r"a generator makes Continuous or Hybrid actions, got Discrete\. fix: use these"
    ):
        Generator.create(rng(), SPECS["discrete"], latent=2, **sizes)
    network = phasic.Phasic(None, None, None, Trunk(recurrent, None), None, False, False)
    start = phasic.SegmentStart(jnp.zeros((1, 3), bool), jnp.zeros((1, 3)))
    with pytest.raises(TypeError, match=r"own recurrent unit, got no state\. fix: pass SegmentStart\(value=\.\.\.\)"):
        network.values_of_segment(seen(3), seen(3), start)


# Networks as nodes of a recipe: custom parts are refused by name.


LAYER = Linear(np.zeros((2, 2), np.float32), np.zeros(2, np.float32))


class Custom:
    """A module of the user."""


def own_activation(x):
    return x


@pytest.mark.parametrize(
    ("node", "name"),
    [
        (lambda: recipe.mlp(MLP.create(np.random.default_rng(0), (2, 2), activation=own_activation)), "function"),
        (lambda: recipe._convolution(LAYER, Stack(8)), "Linear"),
        (lambda: recipe.network(Custom()), "Custom"),
        (lambda: recipe.imitator(Custom()), "Custom"),
        (lambda: recipe.imitator(Actor(None, None, Custom())), "Actor"),
        (lambda: recipe.likely(Custom()), "Custom"),
        (lambda: recipe.likely(Actor(None, MLP.create(np.random.default_rng(0), (2, 2)), Custom())), "Custom"),
        (lambda: networks._body(Custom()), "Custom"),
    ],
)
def test_a_custom_module_is_refused_by_name(monkeypatch, node, name):
    monkeypatch.setattr(recipe, "encoder", lambda part: {})
    expected = rf"^{name} is a custom module; only the JAX runtime can run it.* fix: use the networks of tidelog$"
    with pytest.raises(ExportError, match=expected):
        node()


def test_an_array_of_a_recipe_belongs_to_the_policy():
    owner = {"weight": np.zeros(2)}
    assert recipe.named([owner], owner) == [{"weight": {"array": "['weight']"}}]
    with pytest.raises(ExportError, match=r"an array outside policy_params\. fix: add it to policy_params\(\)"):
        recipe.named({"weight": np.zeros(2)}, owner)
