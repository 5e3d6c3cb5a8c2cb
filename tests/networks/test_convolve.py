"""Convolutions and pools with custom gradients agree with XLA's; pictures become features as IMPALA's do."""

from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tidelog import PPG
from tidelog.networks import pictures
from tidelog.networks.encoder import EncoderConfig, Picture
from tidelog.networks.pictures import (
    SMALL,
    Convolutions,
    Layer,
    Stack,
    by_size,
    features,
    impala,
    max_pool,
    nature,
)
from tidelog.types import Discrete, Image, Spec, Vector

LAYERS = {  # side, channels, out, kernel, stride, padding
    "first of a stack": (9, 3, 16, 3, 1, 1),
    "within a stack": (7, 8, 8, 3, 1, 1),
    "wider": (8, 8, 12, 3, 1, 1),
    "from few to many": (6, 16, 17, 3, 1, 1),
    "many": (6, 17, 17, 3, 1, 1),
    "a wide kernel": (7, 4, 4, 5, 1, 2),
    "a wide border": (5, 4, 4, 3, 1, 2),
    "an even kernel": (5, 3, 3, 2, 1, 1),
    "a wide even kernel": (5, 3, 3, 4, 1, 2),
    "strided": (12, 4, 8, 4, 2, 0),
    "no border": (6, 8, 8, 3, 1, 0),
    "one place": (4, 8, 4, 1, 1, 0),
}


def numbers(*shape, seed=0):
    return jnp.asarray(np.random.default_rng(seed).standard_normal(shape), jnp.float32)


def slopes_in_a_loop(function, *inputs):
    """Gradients of a weighted sum of squares, from within a compiled loop."""

    def loss(inputs):
        made = function(*inputs)
        return jnp.sum(jnp.square(made) * jnp.cos(jnp.arange(made.size)).reshape(made.shape))

    zeros = jax.tree.map(jnp.zeros_like, inputs)
    return jax.jit(lambda: jax.lax.fori_loop(0, 1, lambda i, found: jax.grad(loss)(inputs), zeros))()


@pytest.fixture
def elsewhere(monkeypatch):
    """The current trace is for another kind of device."""
    return lambda: monkeypatch.setattr(pictures, "on_cpu", lambda: False)


def agree(ours, theirs):
    for one, two in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        assert one.shape == two.shape
        assert np.abs(np.asarray(one) - np.asarray(two)).max() <= 1e-5 * max(1.0, float(jnp.abs(two).max()))


@pytest.mark.sample("within a stack")
@pytest.mark.parametrize("name", LAYERS)
def test_a_convolution_and_its_gradients_are_xlas(name, elsewhere):
    side, channels, out, kernel, stride, padding = LAYERS[name]
    x, weight = numbers(2, side, side + 1, channels), numbers(kernel**2 * channels, out, seed=1)

    def found():
        apply = partial(pictures.convolve, kernel=kernel, stride=stride, padding=padding)
        return jax.jit(apply)(x, weight), slopes_in_a_loop(apply, x, weight)

    ours = found()
    elsewhere()
    agree(ours, found())


@pytest.mark.sample("3-size0")
@pytest.mark.parametrize("size", [(6, 6), (7, 5), (1, 4)])
@pytest.mark.parametrize("levels", [None, 3])
def test_a_pool_and_its_gradient_are_xlas_also_between_equals(size, levels, elsewhere):
    x = numbers(2, *size, 3)
    x = x if levels is None else jnp.round(levels * jnp.tanh(x) / 2)  # most of them equal

    def found():
        return jax.jit(max_pool)(x), slopes_in_a_loop(max_pool, x)

    ours = found()
    elsewhere()
    agree(ours, found())


@pytest.fixture(scope="module")
def stacks():
    """Two narrow stacks, and eleven pictures with an odd side."""
    net = Convolutions.create(np.random.default_rng(0), Image(9, 12, 3), lambda image: (Stack(8), Stack(10, 1)))
    picture = np.random.default_rng(1).integers(0, 256, (11, 9, 12, 3)).astype(np.uint8)
    return net, jnp.asarray(picture)


@pytest.mark.full
def test_stacks_give_the_same_features_and_gradients_in_parts_and_on_other_devices(stacks, monkeypatch, elsewhere):
    net, picture = stacks

    def found(kept=1 << 20, saved=1 << 20):
        monkeypatch.setattr(pictures, "CACHED", kept)
        monkeypatch.setattr(pictures, "FEW_PIXELS", saved)

        def loss(net):
            made = net(picture)
            return jnp.sum(jnp.square(made)), made

        return eqx.filter_jit(eqx.filter_value_and_grad(loss, has_aux=True))(net)

    whole, parts, recomputed = found(), found(2 * 9 * 12), found(2 * 9 * 12, saved=0)
    elsewhere()
    agree(parts, whole)
    agree(recomputed, whole)
    agree(found(), whole)
    assert whole[0][1].shape == (11, features(Image(9, 12, 3), net.shapes)) == (11, 3 * 3 * 10)
    assert (whole[0][1] >= 0).all()


def test_more_outputs_are_kept_for_few_pictures(stacks, monkeypatch):
    net, picture = stacks
    many = jnp.tile(picture, (12, 1, 1, 1))
    monkeypatch.setattr(pictures, "CACHED", 9 * 12)

    def memory(pixels):
        monkeypatch.setattr(pictures, "FEW_PIXELS", pixels)
        slopes = eqx.filter_grad(lambda net: jnp.sum(jnp.square(net(many))))
        return eqx.filter_jit(slopes).lower(net).compile().compiled.memory_analysis().temp_size_in_bytes

    assert memory(many[..., 0].size) > 1.5 * memory(many[..., 0].size - 1)


def test_windows_of_pictures_keep_their_leading_axes() -> None:
    net = Convolutions.create(np.random.default_rng(0), Image(16, 16, 3), by_size)
    found = eqx.filter_jit(net)(np.zeros((2, 5, 16, 16, 3), np.uint8))
    assert found.shape == (2, 5, features(Image(16, 16, 3), SMALL))


def test_a_picture_that_is_too_small_is_refused() -> None:
    with pytest.raises(ValueError, match="too small"):
        Convolutions.create(np.random.default_rng(0), Image(16, 16, 3), nature)
    assert by_size(Image(84, 84, 4)) == (Layer(32, 8, 4), Layer(64, 4, 2), Layer(64, 3, 1))


def test_stacks_begin_as_in_the_reference():
    leaf = Image(16, 16, 3)
    picture = Picture.create(np.random.default_rng(0), leaf, EncoderConfig(2, 256, impala))
    assert picture.convolutions.shapes == (Stack(16), Stack(32), Stack(32))
    for stack in picture.convolutions.layers:
        assert np.linalg.norm(stack.first.weight, axis=0) == pytest.approx(1.0, abs=1e-5)
        assert len(stack.blocks) == 2
        for layer in (layer for block in stack.blocks for layer in block):
            assert np.linalg.norm(layer.weight, axis=0) == pytest.approx(0.639, abs=1e-3)
            assert not np.asarray(layer.bias).any()
    assert picture.dense.weight.shape == (2 * 2 * 32, 256)
    assert np.linalg.norm(picture.dense.weight, axis=0) == pytest.approx(1.4, abs=1e-5)


@pytest.mark.full
def test_pictures_and_numbers_are_seen_side_by_side_and_heads_begin_as_in_the_reference():
    spec = Spec({"picture": Image(8, 8, 3), "speed": Vector(2)}, Discrete(4))
    made = PPG.preset("procgen")
    network = PPG(hidden=made.hidden, convolutions=made.convolutions).init(spec, jax.random.key(0), 1).network
    for head in (network.head.linear, network.value, network.auxiliary):
        assert head.weight.shape[0] == 256 + 2
        assert np.linalg.norm(head.weight, axis=0) == pytest.approx(0.1, abs=1e-5)
    seen = {"picture": np.full((3, 8, 8, 3), 255, np.uint8), "speed": np.zeros((3, 2), np.float32)}
    moved = seen | {"speed": np.ones((3, 2), np.float32)}
    dark = seen | {"picture": np.zeros((3, 8, 8, 3), np.uint8)}
    logits = [eqx.filter_jit(network.policy)(one).logits for one in (seen, moved, dark)]
    assert logits[0].shape == (3, 4)
    assert (logits[0] != logits[1]).any()
    assert (logits[0] != logits[2]).any()
