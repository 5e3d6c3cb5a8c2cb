"""Convolution and pooling whose gradients stay fast in a compiled loop. Letters: `B` batch, `H` height, `W` width.

Inside a loop XLA's gradients fall to a naive kernel on CPU, many times slower (jax-ml/jax#12868). So on CPU they are
put together here, of what is fast there: a forward convolution, and one matrix product of shifted views.
Elsewhere they are XLA's own. Weights are `[kernel * kernel * C, D]`, for `C` channels in and `D` out.
"""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp

_DIMENSIONS = ("NHWC", "HWIO", "NHWC")


def on_cpu() -> bool:
    """Whether what is traced now will run on a CPU."""
    return jax.default_backend() == "cpu"


def places(size: int, kernel: int, stride: int, padding: int) -> int:
    """How many places of a side of this size a kernel takes."""
    return (size + 2 * padding - kernel) // stride + 1


def convolve(x: jax.Array, weight: jax.Array, kernel: int, stride: int = 1, padding: int = 0) -> jax.Array:
    """[B, H, W, C] -> [B, H', W', D]; around the picture are `padding` zeros."""
    made: jax.Array = (_shifted if on_cpu() else _xla)(x, weight, kernel, stride, padding)
    return made


def max_pool(x: jax.Array) -> jax.Array:
    """The largest of each 3 by 3, every second place, nothing counted beyond the border: [B, H, W, C] -> half of each.

    The gradient goes to the first of equals.
    """
    if on_cpu():
        pooled: jax.Array = _largest(_largest(x, 2), 1)
        return pooled
    window, border = (1, 3, 3, 1), ((0, 0), (1, 1), (1, 1), (0, 0))
    made: jax.Array = jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, window, (1, 2, 2, 1), border)
    return made


def _xla(x: jax.Array, weight: jax.Array, kernel: int, stride: int, padding: int) -> jax.Array:
    shaped = weight.reshape(kernel, kernel, x.shape[-1], -1)
    border = ((padding, padding),) * 2
    return jax.lax.conv_general_dilated(x, shaped, (stride,) * 2, border, dimension_numbers=_DIMENSIONS)


# On CPU.


@partial(jax.custom_vjp, nondiff_argnums=(2, 3, 4))
def _shifted(x: jax.Array, weight: jax.Array, kernel: int, stride: int, padding: int) -> jax.Array:
    if stride > 1:
        return views(x, kernel, stride, padding) @ weight
    return _xla(x, weight, kernel, stride, padding)


def _forwards(
    x: jax.Array, weight: jax.Array, kernel: int, stride: int, padding: int
) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
    return _shifted(x, weight, kernel, stride, padding), (x, weight)


def _backwards(
    kernel: int, stride: int, padding: int, kept: tuple[jax.Array, jax.Array], slope: jax.Array
) -> tuple[jax.Array, jax.Array]:
    x, weight = kept
    if stride > 1 or 2 * padding != kernel - 1:
        return _of_views(x, weight, slope, kernel, stride, padding)
    shaped = weight.reshape(kernel, kernel, x.shape[-1], -1)
    turned = _hold(jnp.swapaxes(shaped[::-1, ::-1], 2, 3)).reshape(-1, x.shape[-1])
    if x.shape[-1] == slope.shape[-1]:
        return _of_slopes(x, turned, slope, kernel, padding)
    return _xla(slope, turned, kernel, 1, padding), _by_batch(x, slope, padding).reshape(weight.shape)


_shifted.defvjp(_forwards, _backwards)


def _of_views(
    x: jax.Array, weight: jax.Array, slope: jax.Array, kernel: int, stride: int, padding: int
) -> tuple[jax.Array, jax.Array]:
    """Both gradients through views of the input, for any stride."""
    seen, back = jax.vjp(lambda x: views(x, kernel, stride, padding), x)
    rows = slope.reshape(-1, slope.shape[-1])
    return back(slope @ weight.T)[0], seen.reshape(len(rows), -1).T @ rows


def _of_slopes(
    x: jax.Array, turned: jax.Array, slope: jax.Array, kernel: int, padding: int
) -> tuple[jax.Array, jax.Array]:
    """Both gradients through the same views of the slope, where the picture keeps its size."""
    channels, out = x.shape[-1], slope.shape[-1]
    seen = _hold(views(slope, kernel, 1, padding)).reshape(-1, kernel * kernel * out)
    product = _hold(_hold(x.reshape(-1, channels).T) @ seen).reshape(channels, kernel, kernel, out)
    inward = (seen @ turned).reshape(x.shape)
    return inward, jnp.transpose(product[:, ::-1, ::-1], (1, 2, 0, 3)).reshape(-1, out)


def _by_batch(x: jax.Array, slope: jax.Array, padding: int) -> jax.Array:
    """The weight's gradient [kernel, kernel, C, D] as a convolution whose channels are the batch."""
    inputs, outputs = _hold(jnp.transpose(x, (3, 1, 2, 0))), _hold(jnp.transpose(slope, (1, 2, 0, 3)))
    border = ((padding, padding),) * 2
    found = jax.lax.conv_general_dilated(inputs, outputs, (1, 1), border, dimension_numbers=_DIMENSIONS)
    return jnp.transpose(found, (1, 2, 0, 3))


def _hold(x: jax.Array) -> jax.Array:
    """The array, computed as it stands: XLA would fold what comes before it into a slower kernel."""
    held: jax.Array = jax.lax.optimization_barrier(x)  # type: ignore[no-untyped-call]
    return held


def views(x: jax.Array, kernel: int, stride: int, padding: int) -> jax.Array:
    """[B, H, W, C] -> [B, H', W', kernel * kernel * C]: what each place of the kernel sees."""
    height, width = (places(size, kernel, stride, padding) for size in x.shape[1:3])
    down, right = (height - 1) * stride + 1, (width - 1) * stride + 1
    padded = jnp.pad(x, ((0, 0), (padding, padding), (padding, padding), (0, 0))) if padding else x
    seen = [padded[:, i : i + down : stride, j : j + right : stride] for i in range(kernel) for j in range(kernel)]
    return jnp.concatenate(seen, axis=-1)


@partial(jax.custom_vjp, nondiff_argnums=(1,))
def _largest(x: jax.Array, axis: int) -> jax.Array:
    """The largest of each three along an axis, every second place."""
    first, second, third = _threes(x, axis)
    return jnp.maximum(jnp.maximum(first, second), third)


def _largest_forwards(x: jax.Array, axis: int) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
    first, second, third = _threes(x, axis)
    larger = jnp.maximum(first, second)
    place = jnp.where(third > larger, 2, jnp.where(second > first, 1, 0)).astype(jnp.int8)
    size = jnp.zeros((x.shape[axis], 0), jnp.int8)  # only its shape is read
    return jnp.maximum(larger, third), (place, size)


def _largest_backwards(axis: int, kept: tuple[jax.Array, jax.Array], slope: jax.Array) -> tuple[jax.Array]:
    """Even places take from the middle of a three, odd ones from the end of one and the beginning of the next."""
    place, size = kept
    first, second, third = (jnp.where(place == i, slope, 0.0) for i in range(3))
    ahead = jax.lax.slice_in_dim(first, 1, None, axis=axis)
    odd = third + jnp.pad(ahead, [(0, int(i == axis)) for i in range(slope.ndim)])
    both = jnp.stack([second, odd], axis + 1)
    flat = both.reshape(*slope.shape[:axis], -1, *slope.shape[axis + 1 :])
    return (jax.lax.slice_in_dim(flat, 0, size.shape[0], axis=axis),)


_largest.defvjp(_largest_forwards, _largest_backwards)


def _threes(x: jax.Array, axis: int) -> list[jax.Array]:
    size = x.shape[axis]
    count = (size + 1) // 2
    border = [(1, 2 * count - size) if i == axis else (0, 0) for i in range(x.ndim)]
    padded = jnp.pad(x, border, constant_values=-jnp.inf)
    return [jax.lax.slice_in_dim(padded, i, i + 2 * count - 1, 2, axis) for i in range(3)]
