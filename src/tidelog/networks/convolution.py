"""Pictures -> features: plain layers, or IMPALA's stacks. Letters: `B` batch, `H` height, `W` width, `C` channels.

IMPALA's stacks are those of Espeholt et al. 2018: a convolution, a pool that halves the picture, residual blocks. The
initialisation is that of openai/phasic-policy-gradient: the weights of every output have one norm, 1 in a stack's first
convolution and `(stacks * blocks)**-0.25` in its blocks (0.639 for three stacks of two), to bound the sum of blocks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.ad_checkpoint import checkpoint_name
from jax.sharding import PartitionSpec

from tidelog.networks import convolve
from tidelog.networks.convolve import PLACE, max_pool, places
from tidelog.networks.mlp import Linear
from tidelog.types import Image


class Layer(NamedTuple):
    """The shape of one convolution without padding, with ReLU after it."""

    channels: int
    kernel: int
    stride: int

    def size(self, side: int) -> int:
        """Return the size of a side after the layer."""
        return places(side, self.kernel, self.stride, 0)


class Stack(NamedTuple):
    """The shape of one stack of IMPALA: 3 by 3 convolutions, the first pooled, then residual blocks of two."""

    channels: int
    blocks: int = 2

    def size(self, side: int) -> int:
        """Return the size of a side after the stack."""
        return (side + 1) // 2


Shape: TypeAlias = Layer | Stack
Layers = Callable[[Image], tuple[Shape, ...]]

NATURE = (Layer(32, 8, 4), Layer(64, 4, 2), Layer(64, 3, 1))  # Mnih et al. 2015
SMALL = (Layer(16, 3, 2), Layer(32, 3, 2))
IMPALA = (Stack(16), Stack(32), Stack(32))  # Espeholt et al. 2018; Cobbe et al. 2020
CACHED = 8 * 64 * 64  # pixels per part on CPU: the stacks' outputs stay in its cache
SIDE_BY_SIDE = 2  # independent parts: XLA computes them on several threads
POOLED, INNER = "pooled", "inner"  # outputs of a stack: of its pool, and of its other convolutions
FEW_PIXELS = 512 * 64 * 64  # up to so many, all of them are saved for the gradient, else the inner ones are recomputed


def nature(image: Image) -> tuple[Shape, ...]:
    """Return the three layers of Mnih et al. 2015, for pictures of at least 36 by 36."""
    return NATURE


def small(image: Image) -> tuple[Shape, ...]:
    """Return two layers of 3 by 3, for pictures of at least 7 by 7."""
    return SMALL


def impala(image: Image) -> tuple[Shape, ...]:
    """Return the three residual stacks of IMPALA with 16, 32 and 32 channels, for pictures of any size."""
    return IMPALA


def by_size(image: Image) -> tuple[Shape, ...]:
    """Return `nature` for large enough pictures, else `small`."""
    return NATURE if min(image.height, image.width) >= 36 else SMALL


LAYERS: Mapping[str, Layers] = {"by-size": by_size, "nature": nature, "small": small, "impala": impala}


class Residual(eqx.Module):
    """A stack: [B, H, W, C] -> [B, H / 2, W / 2, channels]."""

    first: Linear
    blocks: tuple[tuple[Linear, Linear], ...]

    @classmethod
    def create(cls, generator: np.random.Generator, shape: Stack, channels: int, stacks: int) -> Residual:
        """Return weights of one norm per output and zero biases."""
        norm = (stacks * shape.blocks) ** -0.25
        first = Linear.normed(generator, 9 * channels, shape.channels, 1.0)
        inner = [Linear.normed(generator, 9 * shape.channels, shape.channels, norm) for _ in range(2 * shape.blocks)]
        return cls(first, tuple(zip(inner[::2], inner[1::2], strict=True)))

    def __call__(self, x: jax.Array) -> jax.Array:
        x = _named(max_pool(_convolved(self.first, x, 3, 1, 1)), POOLED)
        for before, after in self.blocks:
            inner = _named(_convolved(before, jax.nn.relu(x), 3, 1, 1), INNER)
            x = _named(x + _convolved(after, jax.nn.relu(inner), 3, 1, 1), INNER)
        return x


class Convolutions(eqx.Module):
    """Layers or stacks, with ReLU after the last: uint8 [..., H, W, C] -> [..., features]."""

    layers: tuple[Linear | Residual, ...]
    shapes: tuple[Shape, ...] = eqx.field(static=True)

    @classmethod
    def create(cls, generator: np.random.Generator, image: Image, layers: Layers) -> Convolutions:
        """Initialise layers orthogonally with gain sqrt 2, stacks as above; ValueError for too small pictures."""
        shapes = layers(image)
        stacks = sum(isinstance(shape, Stack) for shape in shapes)
        parts: list[Linear | Residual] = []
        channels = image.channels
        for shape in shapes:
            if isinstance(shape, Stack):
                parts.append(Residual.create(generator, shape, channels, stacks))
            else:
                parts.append(Linear.create(generator, shape.kernel**2 * channels, shape.channels))
            channels = shape.channels
        features(image, shapes)
        return cls(tuple(parts), shapes)

    def __call__(self, picture: jax.Array) -> jax.Array:
        leading = picture.shape[:-3]
        pictures = picture.reshape(-1, *picture.shape[-3:])
        return self._on_devices(pictures).reshape(*leading, -1)

    def _on_devices(self, pictures: jax.Array) -> jax.Array:
        """Return features [B, ...]; of stacks, devices that share the batch compute each those of its own pictures.

        XLA does not divide the loop over parts: without this, every device computes all of them.
        """
        mesh = jax.sharding.get_abstract_mesh()
        if not self.stacked or mesh.size < 2 or len(pictures) % mesh.size:
            return self._by_parts(pictures)
        everywhere, cut = PartitionSpec(), PartitionSpec(mesh.axis_names)  # type: ignore[no-untyped-call]
        own_features = jax.shard_map(
            Convolutions._by_parts, in_specs=(everywhere, cut), out_specs=cut, check_vma=False
        )  # unchecked: the gradient of `convolve` has no type that depends on devices
        features_: jax.Array = own_features(self, pictures)
        return features_

    def _by_parts(self, pictures: jax.Array) -> jax.Array:
        """Return features [B, ...] in parts where that is faster: stacks on CPU."""
        size = SIDE_BY_SIDE * max(1, CACHED // (pictures.shape[1] * pictures.shape[2]))
        if not (convolve.on_cpu() and self.stacked) or len(pictures) <= size:
            return self._features(pictures)
        parts = -(-len(pictures) // size)
        filled = jnp.pad(pictures, ((0, parts * size - len(pictures)), (0, 0), (0, 0), (0, 0)))

        def part_features(part: jax.Array) -> jax.Array:
            return jnp.concatenate([self._features(half) for half in jnp.split(part, SIDE_BY_SIDE)])

        few = pictures[..., 0].size <= FEW_PIXELS
        saved = jax.checkpoint_policies.save_only_these_names(PLACE, POOLED, *([INNER] if few else []))
        checkpointed = jax.checkpoint(part_features, policy=saved)
        features_: jax.Array = jax.lax.map(checkpointed, filled.reshape(parts, size, *pictures.shape[1:]))
        return features_.reshape(parts * size, -1)[: len(pictures)]

    @property
    def stacked(self) -> bool:
        """Return whether any layer is a stack."""
        return any(isinstance(shape, Stack) for shape in self.shapes)

    def _features(self, pictures: jax.Array) -> jax.Array:
        x = pictures.astype(jnp.float32) / 255.0
        for layer, shape in zip(self.layers, self.shapes, strict=True):
            if isinstance(layer, Residual) or isinstance(shape, Stack):
                x = layer(x)
            else:
                x = jax.nn.relu(_convolved(layer, x, shape.kernel, shape.stride, 0))
        return jax.nn.relu(x).reshape(len(x), -1)


def _named(x: jax.Array, name: str) -> jax.Array:
    """Return the array with a name by which it can be saved for the gradient."""
    named: jax.Array = checkpoint_name(x, name)  # type: ignore[no-untyped-call]
    return named


def _convolved(layer: Linear, x: jax.Array, kernel: int, stride: int, padding: int) -> jax.Array:
    return convolve.convolve(x, layer.weight, kernel, stride, padding) + layer.bias


def features(image: Image, shapes: tuple[Shape, ...]) -> int:
    """Return the number of features; ValueError where the picture is too small for the layers."""
    height, width, channels = image.height, image.width, image.channels
    for shape in shapes:
        height, width, channels = shape.size(height), shape.size(width), shape.channels
        if min(height, width) < 1:
            raise ValueError(
                f"a picture of {image.height} by {image.width} is too small for these convolutions; "
                'fix: use convolutions="small" or larger pictures'
            )
    return height * width * channels
