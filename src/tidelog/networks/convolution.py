"""Pictures -> features, as matrix products of shifted views. Letters: `B` batch, `H` height, `W` width, `C` channels.

Gradients of XLA's convolution fall to a naive kernel on CPU inside a compiled loop, 43 times slower
(jax-ml/jax#12868); shifted views and one matrix product stay fast there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from tidelog.networks.mlp import Linear
from tidelog.types import Image


class Layer(NamedTuple):
    """The shape of one convolution."""

    channels: int
    kernel: int
    stride: int


NATURE = (Layer(32, 8, 4), Layer(64, 4, 2), Layer(64, 3, 1))  # Mnih et al. 2015
SMALL = (Layer(16, 3, 2), Layer(32, 3, 2))


def nature(image: Image) -> tuple[Layer, ...]:
    """The three layers of Mnih et al. 2015, for pictures of at least 36 by 36."""
    return NATURE


def small(image: Image) -> tuple[Layer, ...]:
    """Two layers of 3 by 3, for pictures of at least 7 by 7."""
    return SMALL


def by_size(image: Image) -> tuple[Layer, ...]:
    """`nature` where the picture is large enough for it, else `small`."""
    return NATURE if min(image.height, image.width) >= 36 else SMALL


Layers = Callable[[Image], tuple[Layer, ...]]
LAYERS: Mapping[str, Layers] = {"by-size": by_size, "nature": nature, "small": small}


class Convolutions(eqx.Module):
    """Convolutions without padding, each followed by ReLU: uint8 [..., H, W, C] -> [..., features]."""

    layers: tuple[Linear, ...]
    shapes: tuple[Layer, ...] = eqx.field(static=True)

    @classmethod
    def create(cls, generator: np.random.Generator, image: Image, layers: Layers) -> Convolutions:
        """Orthogonal kernels of gain sqrt 2, zero biases; ValueError where the picture is too small."""
        shapes = layers(image)
        inputs = (image.channels, *(shape.channels for shape in shapes))
        kernels = [
            Linear.create(generator, shape.kernel**2 * before, shape.channels)
            for before, shape in zip(inputs, shapes, strict=False)
        ]
        features(image, shapes)
        return cls(tuple(kernels), shapes)

    def __call__(self, picture: jax.Array) -> jax.Array:
        leading = picture.shape[:-3]
        x = picture.reshape(-1, *picture.shape[-3:]).astype(jnp.float32) / 255.0
        for layer, shape in zip(self.layers, self.shapes, strict=True):
            x = jax.nn.relu(layer(_views(x, shape)))
        return x.reshape(*leading, -1)


def _views(x: jax.Array, shape: Layer) -> jax.Array:
    """[B, H, W, C] -> [B, H', W', kernel * kernel * C]: what each place of the kernel sees."""
    height, width = (_places(size, shape) for size in x.shape[1:3])
    reach_down, reach_right = (height - 1) * shape.stride + 1, (width - 1) * shape.stride + 1
    seen = [
        x[:, i : i + reach_down : shape.stride, j : j + reach_right : shape.stride]
        for i in range(shape.kernel)
        for j in range(shape.kernel)
    ]
    return jnp.concatenate(seen, axis=-1)


def _places(size: int, shape: Layer) -> int:
    return (size - shape.kernel) // shape.stride + 1


def features(image: Image, shapes: tuple[Layer, ...]) -> int:
    """How many features come out; ValueError where the picture is too small for the layers."""
    height, width, channels = image.height, image.width, image.channels
    for shape in shapes:
        height, width, channels = _places(height, shape), _places(width, shape), shape.channels
        if min(height, width) < 1:
            raise ValueError(f"a picture of {image.height} by {image.width} is too small for these convolutions")
    return height * width * channels
