"""Encoders, actors, values and critics: shapes, ranges, and initialisation."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.algorithms.worlds import ACTIONS, KINDS, world
from tidelog.networks.actor import HEADS, Actor, GaussianHead, PointHead, StateGaussianHead, gaussian
from tidelog.networks.critic import Critic, Ensemble, Value
from tidelog.networks.distributions import Categorical, Gaussian, Point
from tidelog.networks.encode import Encoder, EncoderConfig
from tidelog.networks.mlp import Linear
from tidelog.types import Codes, Discrete, MultiDiscrete, Spec, Vector

SHAPE = {"hidden": (8,), "encoder_config": EncoderConfig(2, 8), "layer_norm": False}
SPECS = {kind: world(kind).spec for kind in KINDS}


def rng(seed=0):
    return np.random.default_rng(seed)


def seen(rows, seed=0):
    vitals = jax.random.normal(jax.random.key(seed), (rows, 4))
    return {"vitals": vitals, "ward": jax.random.randint(jax.random.key(seed + 1), (rows, 2), 0, 3)}


def actor_of(kind, head=gaussian, seed=0, **changes):
    return Actor.create(rng(seed), SPECS[kind], head=head, **(SHAPE | changes))


def differ(one, two):
    pairs = zip(jax.tree.leaves(one), jax.tree.leaves(two), strict=True)
    return any((np.asarray(a) != np.asarray(b)).any() for a, b in pairs)


def shapes(function, *inputs):
    return jax.tree.map(lambda array: array.shape, eqx.filter_eval_shape(function, *inputs))


@pytest.mark.parametrize("rows", [1, 5])
@pytest.mark.parametrize("kind", KINDS)
def test_shapes(kind, rows):
    observation = seen(rows)
    action = jnp.zeros(rows, int) if kind == "discrete" else jnp.zeros((rows, 2))
    assert shapes(Value.create(rng(), SPECS[kind], **SHAPE), observation) == (rows,)
    assert shapes(Ensemble.create(3, lambda: Critic.create(rng(), SPECS[kind], **SHAPE)), observation, action) == (
        3,
        rows,
    )
    actor = actor_of(kind)
    assert shapes(lambda: actor(observation).mode()) == action.shape
    assert shapes(lambda: actor(observation).sample(jax.random.key(0))) == action.shape
    for answer in ("log_probability", "imitation_error"):
        assert shapes(lambda answer=answer: getattr(actor(observation), answer)(action)) == (rows,)
    assert shapes(lambda: actor(observation).entropy()) == (rows,)


def test_a_discrete_critic_picks_from_all_its_actions():
    ensemble = Ensemble.create(2, lambda: Critic.create(rng(), SPECS["discrete"], **SHAPE))
    every = ensemble.all_actions(seen(6))
    assert every.shape == (2, 6, ACTIONS)
    action = jnp.array([0, 1, 2, 3, 0, 1])
    np.testing.assert_allclose(ensemble(seen(6), action), every[:, jnp.arange(6), action])


def test_a_continuous_critic_reads_the_action():
    critic = Critic.create(rng(), SPECS["continuous"], **SHAPE)
    assert (critic(seen(5), jnp.zeros((5, 2))) != critic(seen(5), jnp.ones((5, 2)))).all()


def test_an_encoder_of_codes_is_a_one_hot_product_with_its_tables():
    leaves = {"b": Codes((3, 4)), "a": Vector(2)}
    spec = Spec(leaves, Discrete(2))
    encoder = Encoder.create(rng(), spec, EncoderConfig(5, 8))
    observation = {"a": jnp.array([[1.0, 2.0]] * 12), "b": jnp.stack([jnp.arange(12) % 3, jnp.arange(12) % 4], axis=1)}
    first, second = encoder.tables["b"]
    assert (first.shape, second.shape) == ((3, 5), (4, 5))
    products = [
        jax.nn.one_hot(observation["b"][:, c], size) @ table
        for c, (size, table) in enumerate(((3, first), (4, second)))
    ]
    np.testing.assert_allclose(encoder(observation), jnp.concatenate([observation["a"], *products], axis=1), rtol=1e-6)
    assert encoder(observation).shape[1] == EncoderConfig(5, 8).size(spec) == 12


def test_a_lone_vector_passes_through():
    observation = {"a": jnp.ones((3, 2))}
    assert (
        Encoder.create(rng(), Spec({"a": Vector(2)}, Discrete(2)), EncoderConfig(5, 8))(observation) is observation["a"]
    )


def test_members_of_an_ensemble_differ():
    generator = rng()
    first, second = Ensemble.create(2, lambda: Critic.create(generator, SPECS["discrete"], **SHAPE)).members
    assert all((a != b).any() for a, b in zip(first.body.layers[0].weight, second.body.layers[0].weight, strict=True))


@pytest.mark.parametrize("head", HEADS)
def test_the_same_seed_makes_the_same_network_and_another_another(head):
    one, same, other = (actor_of("continuous", HEADS[head], seed) for seed in (1, 1, 2))
    assert not differ(one, same)
    assert differ(one, other)


@pytest.mark.parametrize("head", HEADS)
def test_means_stay_within_the_bounds(head):
    far = jax.tree.map(lambda leaf: 100.0 * leaf, seen(50))
    mean = eqx.filter_jit(actor_of("continuous", HEADS[head]))(far | {"ward": seen(50)["ward"]}).mode()
    assert float(jnp.abs(mean).max()) <= 1.0
    assert float(jnp.abs(mean).max()) > 0.99


def test_spreads_start_near_1_and_are_clipped():
    fixed = actor_of("continuous")(seen(4))
    assert isinstance(fixed, Gaussian)
    np.testing.assert_array_equal(fixed.log_std, 0.0)
    varying = actor_of("continuous", HEADS["state-gaussian"])(seen(4))
    assert 0 < float(jnp.abs(varying.log_std).max()) < 0.02
    flat = Linear(jnp.zeros((3, 2)), jnp.zeros(2))
    wild = jnp.array([-50.0, 50.0])
    np.testing.assert_array_equal(GaussianHead(flat, wild)(jnp.ones((4, 3))).log_std, [-5.0, 2.0])
    spread = Linear(jnp.zeros((3, 2)), wild)
    np.testing.assert_array_equal(StateGaussianHead(flat, spread)(jnp.ones((4, 3))).log_std, [[-5.0, 2.0]] * 4)


def test_a_point_has_no_density():
    point = PointHead(Linear(jnp.zeros((3, 2)), jnp.full(2, 0.5)))(jnp.ones((4, 3)))
    assert isinstance(point, Point)
    np.testing.assert_array_equal(point.mode(), point.sample(jax.random.key(0)))
    assert point.log_probability(point.mean) is None
    assert point.entropy() is None
    np.testing.assert_allclose(point.imitation_error(jnp.zeros((4, 2))), 2 * np.tanh(0.5) ** 2, rtol=1e-6)


def test_gaussian_samples_have_their_mean_and_spread():
    policy = Gaussian(jnp.tile(jnp.array([[0.5, -1.0]]), (20_000, 1)), jnp.log(jnp.array([0.5, 2.0])))
    sample = policy.sample(jax.random.key(0))
    np.testing.assert_allclose(sample.mean(0), [0.5, -1.0], atol=0.06)
    np.testing.assert_allclose(sample.std(0), [0.5, 2.0], rtol=0.03)


def test_an_actor_honours_its_mask_and_its_dropout():
    actor, observation = actor_of("discrete"), seen(6)
    mask = jnp.array([[True, False, True, False]] * 6)
    policy = actor(observation, mask=mask)
    assert isinstance(policy, Categorical)
    assert jnp.isneginf(policy.logits[:, 1]).all()
    np.testing.assert_array_equal(policy.logits[:, 0], actor(observation).logits[:, 0])
    dropped = actor(observation, dropout=0.5, key=jax.random.key(0))
    assert not jnp.allclose(dropped.logits, actor(observation).logits)
    with pytest.raises(TypeError, match="expected equal shapes"):
        actor(observation, mask=mask[:, :3])


@pytest.mark.parametrize("kind", KINDS)
def test_layer_norm_reaches_every_network(kind):
    shape = SHAPE | {"layer_norm": True}
    assert actor_of(kind, layer_norm=True).trunk.norms
    assert Value.create(rng(), SPECS[kind], **shape).body.norms
    assert Critic.create(rng(), SPECS[kind], **shape).body.norms


def test_actions_of_other_kinds_are_refused():
    spec = Spec({"s": Vector(2)}, MultiDiscrete((2, 2)))
    with pytest.raises(TypeError, match=r"Discrete or Continuous actions, got MultiDiscrete. fix: use one"):
        Actor.create(rng(), spec, head=gaussian, **SHAPE)
    with pytest.raises(TypeError, match=r"Discrete or Continuous actions, got MultiDiscrete. fix: use one"):
        Critic.create(rng(), spec, **SHAPE)
    assert Actor.create(rng(), Spec({"s": Vector(2)}, Discrete(3)), head=gaussian, **SHAPE)
