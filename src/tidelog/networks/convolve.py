"""Convolution and pooling with fast gradients in a compiled loop. Letters: `B` batch, `H` height, `W` width.

Inside a loop on CPU, XLA uses a naive kernel for these gradients, many times slower (jax-ml/jax#12868). On CPU this
module therefore computes them from fast operations: forward convolutions and matrix products. A convolution of few
channels is slow in XLA also forwards; here it is one matrix product of each row's neighbours. Elsewhere all are XLA's
own. Weights are `[kernel * kernel * C, D]`, for `C` channels in and `D` out.
"""

from __future__ import annotations

from functools import partial, reduce
from typing import Any

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name

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
