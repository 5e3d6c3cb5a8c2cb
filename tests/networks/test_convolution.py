"""Convolutions as matrix products agree with XLA's, forward and backward."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tidelog.networks import pictures
from tidelog.networks.pictures import SMALL, Convolutions, Layer, by_size, features, nature
from tidelog.types import Image


def reference(net: Convolutions, picture: jax.Array) -> jax.Array:
    """The same layers through XLA's convolution."""
    x = picture.astype(jnp.float32) / 255.0
    for layer, shape in zip(net.layers, net.shapes, strict=True):
        kernel = layer.weight.reshape(shape.kernel, shape.kernel, x.shape[-1], shape.channels)
        numbers = ("NHWC", "HWIO", "NHWC")
        x = jax.lax.conv_general_dilated(x, kernel, (shape.stride,) * 2, "VALID", dimension_numbers=numbers)
        x = jax.nn.relu(x + layer.bias)
    return x.reshape(len(x), -1)


@pytest.mark.full
@pytest.mark.parametrize("image", [Image(16, 16, 3), Image(37, 40, 1)])
def test_values_and_gradients_are_those_of_xla(image: Image) -> None:
    net = Convolutions.create(np.random.default_rng(0), image, by_size)
    shape = (2, image.height, image.width, image.channels)
    picture = np.random.default_rng(1).integers(0, 256, shape).astype(np.uint8)
    np.testing.assert_allclose(net(picture), reference(net, jnp.asarray(picture)), atol=1e-5, rtol=0)
    assert net(picture).shape == (2, features(image, net.shapes))

    def loss(net, apply):
        return jnp.sum(jnp.square(apply(net)))

    ours = eqx.filter_grad(loss)(net, lambda n: n(picture))
    theirs = eqx.filter_grad(loss)(net, lambda n: reference(n, jnp.asarray(picture)))
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        np.testing.assert_allclose(a, b, rtol=5e-5, atol=5e-5)


@pytest.mark.sample("3-1")
@pytest.mark.parametrize(("kernel", "padding"), [(2, 1), (4, 2), (3, 1)])
def test_a_kernel_that_changes_the_size_has_gradients_too(kernel, padding) -> None:
    x, weight = (
        np.random.default_rng(i).standard_normal(shape).astype(np.float32)
        for i, shape in enumerate(((2, 5, 6, 3), (kernel, kernel, 3, 3)))
    )
    numbers = ("NHWC", "HWIO", "NHWC")

    def ours(x, weight):
        return pictures._shifted(x, weight.reshape(-1, 3), kernel, 1, padding)

    def theirs(x, weight):
        return jax.lax.conv_general_dilated(x, weight, (1, 1), ((padding,) * 2,) * 2, dimension_numbers=numbers)

    def with_gradients(apply):
        def both(x, weight, slope):
            found, back = jax.vjp(apply, x, weight)
            return found, back(slope)

        return jax.jit(both)

    shape = jax.eval_shape(theirs, x, weight).shape
    slope = np.random.default_rng(2).standard_normal(shape).astype(np.float32)
    one, two = (with_gradients(apply)(x, weight, slope) for apply in (ours, theirs))
    np.testing.assert_allclose(one[0], two[0], atol=1e-5)
    for a, b in zip(one[1], two[1], strict=True):
        np.testing.assert_allclose(a, b, atol=5e-5)


def test_windows_of_pictures_keep_their_leading_axes() -> None:
    net = Convolutions.create(np.random.default_rng(0), Image(16, 16, 3), by_size)
    found = eqx.filter_jit(net)(np.zeros((2, 5, 16, 16, 3), np.uint8))
    assert found.shape == (2, 5, features(Image(16, 16, 3), SMALL))


def test_a_picture_that_is_too_small_is_refused() -> None:
    with pytest.raises(ValueError, match="too small"):
        Convolutions.create(np.random.default_rng(0), Image(16, 16, 3), nature)
    assert by_size(Image(84, 84, 4)) == (Layer(32, 8, 4), Layer(64, 4, 2), Layer(64, 3, 1))
