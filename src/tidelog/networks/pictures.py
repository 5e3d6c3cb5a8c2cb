"""Convolutions for pictures: layers, and gradients that are fast in a compiled loop on CPU."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial, reduce
from typing import Any, NamedTuple, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.ad_checkpoint import checkpoint_name
from jax.sharding import PartitionSpec

from tidelog.networks import native
from tidelog.networks.layers import Linear
from tidelog.types import Image

# Convolution and pooling with fast gradients in a compiled loop. Letters: `B` batch, `H` height, `W` width.
#
# Inside a loop on CPU, XLA uses a naive kernel for these gradients, many times slower (jax-ml/jax#12868). On CPU this
# module therefore computes them from fast operations: forward convolutions and matrix products. A convolution of few
# channels is slow in XLA also forwards; here it is one matrix product of each row's neighbours. Elsewhere all are XLA's
# own. Weights are `[kernel * kernel * C, D]`, for `C` channels in and `D` out.

PLACE = "place"  # the places of the maxima, saved for the gradient of a pool
_FEW_CHANNELS = 16  # up to so many channels a matrix product of rows is faster than XLA's convolution
_DIMENSIONS = ("NHWC", "HWIO", "NHWC")


def on_cpu() -> bool:
    """Return whether the traced computation runs on a CPU."""
    return jax.default_backend() == "cpu"


def places(size: int, kernel: int, stride: int, padding: int) -> int:
    """Return the number of kernel positions along a side of this size."""
    return (size + 2 * padding - kernel) // stride + 1


def convolve(x: jax.Array, weight: jax.Array, kernel: int, stride: int = 1, padding: int = 0) -> jax.Array:
    """[B, H, W, C] -> [B, H', W', D]; the border has `padding` zeros."""
    outputs: jax.Array = (_shifted if on_cpu() else _xla)(x, weight, kernel, stride, padding)
    return outputs


def max_pool(x: jax.Array) -> jax.Array:
    """Maximum over 3 by 3 with stride 2, without values beyond the border: [B, H, W, C] -> half of H and W.

    The gradient goes to the first of equal values.
    """
    if on_cpu():
        pooled: jax.Array = _largest(_largest(x, 2), 1)
        return pooled
    window, border = (1, 3, 3, 1), ((0, 0), (1, 1), (1, 1), (0, 0))
    outputs: jax.Array = jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, window, (1, 2, 2, 1), border)
    return outputs


def _xla(x: jax.Array, weight: jax.Array, kernel: int, stride: int, padding: int) -> jax.Array:
    shaped = weight.reshape(kernel, kernel, x.shape[-1], -1)
    border = ((padding, padding),) * 2
    return jax.lax.conv_general_dilated(x, shaped, (stride,) * 2, border, dimension_numbers=_DIMENSIONS)


# On CPU.


@partial(jax.custom_vjp, nondiff_argnums=(2, 3, 4))
def _shifted(x: jax.Array, weight: jax.Array, kernel: int, stride: int, padding: int) -> jax.Array:
    if stride > 1:
        return views(x, kernel, stride, padding) @ weight
    if max(x.shape[-1], weight.shape[-1]) <= _FEW_CHANNELS:
        return _of_rows(_neighbours(x, kernel, padding), weight, kernel)
    return _xla(x, weight, kernel, stride, padding)


def _forwards(
    x: jax.Array, weight: jax.Array, kernel: int, stride: int, padding: int
) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
    return _shifted(x, weight, kernel, stride, padding), (x, weight)


def _backwards(
    kernel: int, stride: int, padding: int, residuals: tuple[jax.Array, jax.Array], gradient: jax.Array
) -> tuple[jax.Array, jax.Array]:
    x, weight = residuals
    if stride > 1 or 2 * padding != kernel - 1:
        return _of_views(x, weight, gradient, kernel, stride, padding)
    shaped = weight.reshape(kernel, kernel, x.shape[-1], -1)
    flipped = _hold(jnp.swapaxes(shaped[::-1, ::-1], 2, 3)).reshape(-1, x.shape[-1])
    if x.shape[-1] == gradient.shape[-1] <= _FEW_CHANNELS:
        return _of_gradients(x, flipped, gradient, kernel, padding)
    return _shifted(gradient, flipped, kernel, 1, padding), _by_batch(x, gradient, padding).reshape(weight.shape)


_shifted.defvjp(_forwards, _backwards)


def _neighbours(x: jax.Array, kernel: int, padding: int) -> jax.Array:
    """[B, H, W, C] -> [B, H + 2 * padding, W', kernel * C]: each place beside its neighbours in the row."""
    width = places(x.shape[2], kernel, 1, padding)
    padded = jnp.pad(x, ((0, 0), (padding, padding), (padding, padding), (0, 0)))
    beside: jax.Array = _hold(jnp.concatenate([padded[:, :, i : i + width] for i in range(kernel)], axis=-1))
    return beside


def _of_rows(rows: jax.Array, weight: jax.Array, kernel: int) -> jax.Array:
    """Return the convolution [B, H', W', D] of `_neighbours`: all products of a row, then sums over rows."""
    wide, out = rows.shape[-1], weight.shape[-1]
    height = places(rows.shape[1], kernel, 1, 0)
    by_neighbour = _hold(jnp.swapaxes(weight.reshape(kernel, wide, out), 0, 1)).reshape(wide, kernel * out)
    products = _hold(rows.reshape(-1, wide) @ by_neighbour).reshape(*rows.shape[:3], kernel, out)
    summed: jax.Array = reduce(jnp.add, [products[:, i : i + height, :, i] for i in range(kernel)])
    return summed


def _of_views(
    x: jax.Array, weight: jax.Array, gradient: jax.Array, kernel: int, stride: int, padding: int
) -> tuple[jax.Array, jax.Array]:
    """Return both gradients through views of the input, for any stride."""
    seen, back = jax.vjp(lambda x: views(x, kernel, stride, padding), x)
    rows = gradient.reshape(-1, gradient.shape[-1])
    return back(gradient @ weight.T)[0], seen.reshape(len(rows), -1).T @ rows


def _of_gradients(
    x: jax.Array, flipped: jax.Array, gradient: jax.Array, kernel: int, padding: int
) -> tuple[jax.Array, jax.Array]:
    """Return both gradients from the same neighbours of the output gradient, where the picture keeps its size."""
    channels, out = x.shape[-1], gradient.shape[-1]
    beside = _neighbours(gradient, kernel, padding)
    padded = jnp.pad(x, ((0, 0), (2 * padding, 2 * padding), (0, 0), (0, 0)))
    seen = _hold(jnp.concatenate([padded[:, i : i + beside.shape[1]] for i in range(kernel)], axis=-1))
    product = _hold(seen.reshape(-1, kernel * channels).T @ beside.reshape(-1, kernel * out))
    by_place = product.reshape(kernel, channels, kernel, out)[:, :, ::-1]
    return _of_rows(beside, flipped, kernel), jnp.swapaxes(by_place, 1, 2).reshape(-1, out)


def _by_batch(x: jax.Array, gradient: jax.Array, padding: int) -> jax.Array:
    """Return the weight's gradient [kernel, kernel, C, D] as a convolution whose channels are the batch."""
    inputs, outputs = _hold(jnp.transpose(x, (3, 1, 2, 0))), _hold(jnp.transpose(gradient, (1, 2, 0, 3)))
    border = ((padding, padding),) * 2
    weights = jax.lax.conv_general_dilated(inputs, outputs, (1, 1), border, dimension_numbers=_DIMENSIONS)
    return jnp.transpose(weights, (1, 2, 0, 3))


def _hold(x: Any) -> Any:
    """Return arrays behind a barrier: without it XLA fuses the operations before into a slower kernel."""
    return jax.lax.optimization_barrier(x)  # type: ignore[no-untyped-call]


def views(x: jax.Array, kernel: int, stride: int, padding: int) -> jax.Array:
    """[B, H, W, C] -> [B, H', W', kernel * kernel * C]: the inputs of every kernel position."""
    height, width = (places(size, kernel, stride, padding) for size in x.shape[1:3])
    down, right = (height - 1) * stride + 1, (width - 1) * stride + 1
    padded = jnp.pad(x, ((0, 0), (padding, padding), (padding, padding), (0, 0))) if padding else x
    seen = [padded[:, i : i + down : stride, j : j + right : stride] for i in range(kernel) for j in range(kernel)]
    return jnp.concatenate(seen, axis=-1)


@partial(jax.custom_vjp, nondiff_argnums=(1,))
def _largest(x: jax.Array, axis: int) -> jax.Array:
    """Maximum of each three along an axis, stride 2."""
    first, second, third = _triples(x, axis)
    return jnp.maximum(jnp.maximum(first, second), third)


def _largest_forwards(x: jax.Array, axis: int) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
    first, second, third = _triples(x, axis)
    larger = jnp.maximum(first, second)
    last = (third > larger).astype(jnp.int8)  # sums: XLA would read the constants of a selection from memory
    place = (second > first).astype(jnp.int8) + last + last
    pooled, place = _hold((jnp.maximum(larger, third), place))
    size = jnp.zeros((x.shape[axis], 0), jnp.int8)  # only its shape is read
    return pooled, (checkpoint_name(place, PLACE), size)  # type: ignore[no-untyped-call]


def _largest_backwards(axis: int, residuals: tuple[jax.Array, jax.Array], gradient: jax.Array) -> tuple[jax.Array]:
    """Even positions get the middle of a three, odd ones the end of one and the beginning of the next."""
    place, size = residuals
    first, second, third = (jnp.where(there, gradient, 0.0) for there in (place == 0, place == 1, place > 1))
    ahead = jax.lax.slice_in_dim(first, 1, None, axis=axis)
    odd = third + jnp.pad(ahead, [(0, int(i == axis)) for i in range(gradient.ndim)])
    both = jnp.stack([second, odd], axis + 1)
    flat = both.reshape(*gradient.shape[:axis], -1, *gradient.shape[axis + 1 :])
    return (jax.lax.slice_in_dim(flat, 0, size.shape[0], axis=axis),)


_largest.defvjp(_largest_forwards, _largest_backwards)


def _triples(x: jax.Array, axis: int) -> list[jax.Array]:
    size = x.shape[axis]
    count = (size + 1) // 2
    border = [(1, 2 * count - size) if i == axis else (0, 0) for i in range(x.ndim)]
    padded = jnp.pad(x, border, constant_values=-jnp.inf)
    return [jax.lax.slice_in_dim(padded, i, i + 2 * count - 1, 2, axis) for i in range(3)]


# Pictures -> features: plain layers, or IMPALA's stacks. Letters: `B` batch, `H` height, `W` width, `C` channels.
#
# IMPALA's stacks are those of Espeholt et al. 2018: a convolution, a pool that halves the picture, residual blocks. The
# initialisation is that of openai/phasic-policy-gradient: the weights of every output have one norm, 1 in a stack's
# first convolution and `(stacks * blocks)**-0.25` in its blocks (0.639 for three stacks of two), to bound the sum of
# blocks.


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
        if not (on_cpu() and self.stacked) or len(pictures) <= size:
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
            elif native.takes(x, own := ((layer.weight, layer.bias),)):  # a layer of the inputs of each position
                x = native.dense(views(x, shape.kernel, shape.stride, 0), own, relu_last=True)
            else:
                x = jax.nn.relu(_convolved(layer, x, shape.kernel, shape.stride, 0))
        return jax.nn.relu(x).reshape(len(x), -1)


def _named(x: jax.Array, name: str) -> jax.Array:
    """Return the array with a name by which it can be saved for the gradient."""
    named: jax.Array = checkpoint_name(x, name)  # type: ignore[no-untyped-call]
    return named


def _convolved(layer: Linear, x: jax.Array, kernel: int, stride: int, padding: int) -> jax.Array:
    return convolve(x, layer.weight, kernel, stride, padding) + layer.bias


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
