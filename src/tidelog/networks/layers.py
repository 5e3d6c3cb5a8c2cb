"""Arrays and keys of the host, and layers: dense, normalised, recurrent. Letters: `B` batch, `T` time."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from tidelog._machine import one_thread
from tidelog.networks import native

# NumPy arrays on the device without a compilation: `jax.numpy.asarray` compiles a program for every new shape.
#
# Seen with JAX 0.10.2: `asarray`, `array` and `zeros` of NumPy values each compile such a program, `device_put` does
# not. It keeps the memory of a NumPy array that is aligned, so what is put there is always a copy that nobody else
# holds.


def from_host(values: Any) -> jax.Array:
    """Return a copy of an array on the device; float64 becomes float32, as everywhere in JAX."""
    array: jax.Array = jax.device_put(np.array(values))
    return array


def float32(values: np.ndarray[Any, Any]) -> jax.Array:
    """Return a copy of an array on the device as float32, cast on the host."""
    array: jax.Array = jax.device_put(values.astype(np.float32))
    return array


def int32(values: np.ndarray[Any, Any]) -> jax.Array:
    """Return a copy of an array on the device as int32, cast on the host."""
    array: jax.Array = jax.device_put(values.astype(np.int32))
    return array


def zeros(*shape: int) -> jax.Array:
    """Return float32 zeros of a shape on the device."""
    array: jax.Array = jax.device_put(np.zeros(shape, np.float32))
    return array


def scalar(value: int) -> jax.Array:
    """Return an int32 scalar on the device."""
    array: jax.Array = jax.device_put(np.int32(value))
    return array


def duplicate(array: jax.Array) -> jax.Array:
    """Return a copy of an array of the device in its own buffer; keys too."""
    copy: jax.Array = jax.device_put(array, may_alias=False)
    return copy


def normal(key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    """Return the numbers of `jax.random.normal`, drawn as one row.

    XLA unrolls the loops over small last axes on CPU: the noise of one update of BCQ took 5 s to compile.
    """
    return jax.random.normal(key, (math.prod(shape),)).reshape(shape)


# The random keys of `jax.random`, computed on the host.
#
# `jax.random.key`, `split` and `fold_in` outside a program compile a program each: 0.4 s of a start with an empty
# compilation cache, 0.1 s with a filled one. The keys are equal to the last bit.

ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
PARITY = 0x1BD11BDA


def new_key(seed: int) -> jax.Array:
    """Return `jax.random.key(seed)`."""
    config: Any = jax.config
    usual = config.jax_default_prng_impl == "threefry2x32" and not config.jax_random_seed_offset
    return _wrapped(np.array([0, seed], np.uint32)) if usual and 0 <= seed < 2**31 else jax.random.key(seed)


def split_keys(key: jax.Array, count: int) -> tuple[jax.Array, ...]:
    """Return the keys of `jax.random.split`."""
    if not _is_computed_here(key):
        split: tuple[jax.Array, ...] = _split(key, count)
        return split
    pairs = _threefry(key, np.array([np.zeros(count), np.arange(count)], np.uint32)).T
    return tuple(_wrapped(pair) for pair in pairs)


def fold_in(key: jax.Array, number: int) -> jax.Array:
    """Return `jax.random.fold_in(key, number)`."""
    if not _is_computed_here(key):
        return jax.random.fold_in(key, number)
    return _wrapped(_threefry(key, np.array([[0], [number]], np.uint32)).ravel())


def _is_computed_here(key: jax.Array) -> bool:
    """Return whether a key is known to the host, and of JAX's default generator."""
    partitionable = jax.config.jax_threefry_partitionable  # type: ignore[attr-defined]
    return not isinstance(key, jax.core.Tracer) and partitionable and str(jax.random.key_impl(key)) == "threefry2x32"


def _wrapped(data: NDArray[np.uint32]) -> jax.Array:
    key: jax.Array = jax.random.wrap_key_data(jax.device_put(np.array(data)))
    return key


def _threefry(key: jax.Array, counts: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """Return the hash [2, N] of counts [2, N]: Threefry-2x32 with 20 rounds (Salmon et al. 2011)."""
    first, second = np.asarray(jax.random.key_data(key))[:, None]  # [1] each: the sums of scalars would warn
    keys = (first, second, first ^ second ^ np.uint32(PARITY))
    x, y = counts[0] + first, counts[1] + second
    for i in range(5):
        for rotation in ROTATIONS[i % 2]:
            x = x + y
            y = x ^ (y << np.uint32(rotation) | y >> np.uint32(32 - rotation))
        x, y = x + keys[(i + 1) % 3], y + keys[(i + 2) % 3] + np.uint32(i + 1)
    return np.stack([x, y])


@partial(jax.jit, static_argnums=1)
def _split(key: jax.Array, count: int) -> tuple[jax.Array, ...]:
    return tuple(jax.random.split(key, count))


# Matrix products of layers: in float32, or of factors that are rounded to bfloat16 and added up in float32.
#
# Processors with products of bfloat16 multiply about twice as much in the same time. Weights, states of optimisers,
# sums, losses and targets stay float32. JAX's own setting `jax_default_matmul_precision` chooses: it is part of the key
# of compiled programs, and `with rounded("bfloat16")` sets it for what is traced inside.
#
# Letters: `N` rows, `I` inputs, `O` outputs, `B` batch, `T` steps.

WIDE = 128  # a narrower weight has its gradient faster in float32
PRODUCTS: Mapping[str, str] = {"float32": "float32", "bfloat16": "bfloat16"}


def rounded(products: str) -> AbstractContextManager[Any]:
    """Return a context for tracing in which the factors of layers' products are of this type, a key of `PRODUCTS`."""
    return jax.default_matmul_precision("bfloat16") if products == "bfloat16" else nullcontext()


def product(x: jax.Array, weight: jax.Array) -> jax.Array:
    """`x @ weight`: [..., I] and [I, O] -> [..., O]; of segments [B, T, I] the steps are rows."""
    rows = x.reshape(-1, x.shape[-1]) if x.ndim > 2 else x
    if jax.config.jax_default_matmul_precision == "bfloat16":  # type: ignore[attr-defined]
        outputs = _of_rounded(jnp.atleast_2d(rows), weight)
    else:
        outputs = _of_many_rows(rows, weight) if x.ndim > 2 else rows @ weight
    return outputs.reshape(*x.shape[:-1], outputs.shape[-1])


@jax.custom_vjp
def _of_many_rows(x: jax.Array, weight: jax.Array) -> jax.Array:
    return x @ weight


def _forwards(x: jax.Array, weight: jax.Array) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
    return x @ weight, (x, weight)


def _backwards(residuals: tuple[jax.Array, jax.Array], gradient: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Compute the weight's gradient from an explicit transpose: over 2,048 rows, 2 to 8 times as fast on CPU."""
    x, weight = residuals
    hold = jax.lax.optimization_barrier  # without it XLA folds both transposes into the product
    return gradient @ weight.T, hold(hold(gradient.T) @ x).T  # type: ignore[no-untyped-call]


_of_many_rows.defvjp(_forwards, _backwards)


@jax.custom_vjp
def _of_rounded(x: jax.Array, weight: jax.Array) -> jax.Array:
    return _multiply(_round(x), _round(weight))


def _round(x: jax.Array) -> jax.Array:
    return x.astype(jnp.bfloat16)


def _multiply(left: jax.Array, right: jax.Array) -> jax.Array:
    """Return the product [N, O] in float32 of [N, I] and [I, O] in bfloat16."""
    return jax.lax.dot(left, right, preferred_element_type=jnp.float32)


def _transposed(x: jax.Array) -> jax.Array:
    """Return [I, N] of [N, I], as a copy: XLA on CPU has no product of bfloat16 factors that lie transposed."""
    return jnp.moveaxis(x[:, None], 0, 2).reshape(x.shape[1], x.shape[0])


def _forwards_rounded(x: jax.Array, weight: jax.Array) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
    return _of_rounded(x, weight), (x, weight)


def _backwards_rounded(factors: tuple[jax.Array, jax.Array], gradient: jax.Array) -> tuple[jax.Array, jax.Array]:
    x, weight = factors
    slope = _round(gradient)
    to_weight = _multiply(_round(_transposed(x)), slope) if min(weight.shape) >= WIDE else x.T @ gradient
    return _multiply(slope, _round(_transposed(weight))), to_weight


_of_rounded.defvjp(_forwards_rounded, _backwards_rounded)


# Dense layers on whole batches, with weights `[in, out]`, initialised on the host.
#
# Measured on CPU, `x @ w + b` with `w: [in, out]` is about 20% faster than `vmap` over a layer with `[out, in]`, and
# NumPy initialises a set of networks in a tenth of the time of JAX leaf by leaf.

Activation = Callable[[jax.Array], jax.Array]
ACTIVATIONS: Mapping[str, Activation] = {
    "relu": jax.nn.relu,
    "tanh": jnp.tanh,
    "gelu": jax.nn.gelu,  # by the tanh of Hendrycks and Gimpel 2016
    "silu": jax.nn.silu,
    "elu": jax.nn.elu,
    "leaky-relu": jax.nn.leaky_relu,  # slope 0.01 below 0
}
MakeLinear = Callable[[np.random.Generator, int, int], "Linear"]


def host_generator(key: jax.Array) -> np.random.Generator:
    """Return a NumPy generator that depends only on the JAX key."""
    return np.random.default_rng(np.asarray(jax.random.key_data(key)).ravel().tolist())


def orthogonal(generator: np.random.Generator, inputs: int, outputs: int, gain: float) -> jax.Array:
    """Return a random matrix [inputs, outputs] with orthonormal rows or columns times `gain` (Saxe et al. 2014)."""
    tall = generator.standard_normal((max(inputs, outputs), min(inputs, outputs)))
    with one_thread("blas"):  # where others compute too, its threads wait for each other
        q, r = np.linalg.qr(tall)
    q = q * np.sign(np.diag(r))
    return float32(gain * (q if inputs >= outputs else q.T))


class Linear(eqx.Module):
    """`x @ weight + bias`: [..., in] -> [..., out]."""

    weight: jax.Array  # [in, out]
    bias: jax.Array  # [out]

    @classmethod
    def create(cls, generator: np.random.Generator, inputs: int, outputs: int, gain: float = math.sqrt(2.0)) -> Linear:
        """Return a layer with orthogonal weights times `gain` and zero biases."""
        return cls(orthogonal(generator, inputs, outputs, gain), zeros(outputs))

    @classmethod
    def normed(cls, generator: np.random.Generator, inputs: int, outputs: int, norm: float) -> Linear:
        """Return uniform weights, scaled to this norm per output, and zero biases (openai/phasic-policy-gradient)."""
        weight = generator.uniform(-1.0, 1.0, (inputs, outputs))
        return cls(float32(norm * weight / np.linalg.norm(weight, axis=0)), zeros(outputs))

    @classmethod
    def uniform(cls, generator: np.random.Generator, inputs: int, outputs: int) -> Linear:
        """Return weights and biases uniform on `[-1, 1] / sqrt(inputs)`: PyTorch's initialisation."""
        bound = 1.0 / math.sqrt(inputs)
        weight, bias = (generator.uniform(-bound, bound, shape) for shape in ((inputs, outputs), outputs))
        return cls(float32(weight), float32(bias))

    def __call__(self, x: jax.Array) -> jax.Array:
        if native.takes(x, ((self.weight, self.bias),)):
            return native.dense(x, ((self.weight, self.bias),), relu_last=False)
        return product(x, self.weight) + self.bias


class LayerNorm(eqx.Module):
    """Normalise the last axis, then scale and shift it (Ba et al. 2016)."""

    scale: jax.Array  # [features]
    shift: jax.Array  # [features]

    def __call__(self, x: jax.Array) -> jax.Array:
        centred = x - jnp.mean(x, axis=-1, keepdims=True)
        variance = jnp.mean(jnp.square(centred), axis=-1, keepdims=True)
        return centred * jax.lax.rsqrt(variance + 1e-6) * self.scale + self.shift


class MLP(eqx.Module):
    """Dense layers, each followed by layer norm (optional), activation and dropout (optional): [..., in] -> [..., out].

    The last layer has none of them unless `activate_last`.
    """

    layers: tuple[Linear, ...]
    norms: tuple[LayerNorm, ...]  # empty: no layer norm
    activation: Activation = eqx.field(static=True, default=jax.nn.relu)
    activate_last: bool = eqx.field(static=True, default=False)

    @classmethod
    def create(
        cls,
        generator: np.random.Generator,
        sizes: tuple[int, ...],
        *,
        layer_norm: bool = False,
        activate_last: bool = False,
        linear: MakeLinear | None = None,
        activation: Activation = jax.nn.relu,
    ) -> MLP:
        """Return layers of widths `sizes`, from input to output; `linear` creates a layer (default: orthogonal)."""
        layers = tuple((linear or Linear.create)(generator, a, b) for a, b in itertools.pairwise(sizes))
        hidden = sizes[1:] if activate_last else sizes[1:-1]
        norms = tuple(LayerNorm(float32(np.ones(w)), zeros(w)) for w in hidden) if layer_norm else ()
        return cls(layers, norms, activation, activate_last)

    def with_outputs(self, factor: float, constant: Any) -> MLP:
        """Return layers whose outputs are `factor * output + constant`, the constant a number or [out], in float64."""
        last = self.layers[-1]
        weight, bias = np.asarray(last.weight, np.float64) * factor, np.asarray(last.bias, np.float64) * factor
        layers = (*self.layers[:-1], Linear(float32(weight), float32(bias + constant)))
        return MLP(layers, self.norms, self.activation, self.activate_last)

    def __call__(
        self, x: jax.Array, *, dropout: jax.Array | float | None = None, key: jax.Array | None = None
    ) -> jax.Array:
        if (layers := self._native(x, (), dropout, key)) is not None:
            return native.dense(x, layers, self.activate_last)
        for i, layer in enumerate(self.layers):
            x = layer(x)
            if i == len(self.layers) - 1 and not self.activate_last:
                return x
            if self.norms:
                x = self.norms[i](x)
            x = self.activation(x)
            if dropout is not None and key is not None:
                x = drop(x, dropout, jax.random.fold_in(key, i))
        return x

    def then(
        self, last: Linear, x: jax.Array, *, dropout: jax.Array | float | None = None, key: jax.Array | None = None
    ) -> jax.Array:
        """Return the outputs of one more layer: `last(self(x))`, of native layers as one call."""
        if self.activate_last and (layers := self._native(x, (last,), dropout, key)) is not None:
            return native.dense(x, layers, relu_last=False)
        return last(self(x, dropout=dropout, key=key))

    def _native(
        self, x: jax.Array, more: tuple[Linear, ...], dropout: jax.Array | float | None, key: jax.Array | None
    ) -> native.Layers | None:
        """Return all layers if native ones compute the same: dense layers with nothing but ReLU between them."""
        every, dropped = (*self.layers, *more), dropout is not None and key is not None
        if self.norms or self.activation is not jax.nn.relu or dropped or {type(one) for one in every} != {Linear}:
            return None
        layers = tuple((one.weight, one.bias) for one in every)
        return layers if native.takes(x, layers) else None


def drop(x: jax.Array, rate: jax.Array | float, key: jax.Array) -> jax.Array:
    """Set each entry to 0 with probability `rate` and scale up the rest (Srivastava et al. 2014).

    16 random bits an entry take half the time of 32, and move the probability by less than 1e-5, which the scale knows.
    """
    width = x.shape[-1]
    pairs = jax.random.bits(key, (*x.shape[:-1], (width + 1) // 2), jnp.uint32)
    numbers = jnp.concatenate([pairs & 0xFFFF, pairs >> 16], axis=-1)[..., :width]
    dropped = jnp.round(jnp.float32(rate) * 2**16)  # of the 2^16 numbers
    return jnp.where(numbers >= dropped.astype(jnp.uint32), x / (1.0 - dropped / 2**16), 0.0)


# A gated recurrent unit on batches (Cho et al. 2014). Letters: `B` batch, `T` time, `F` features, `H` width.


class GRU(eqx.Module):
    """A unit with state [B, H]; the three gates (reset, update, candidate) share one matrix in each direction."""

    inward: jax.Array  # [F, 3H]
    recurrent: jax.Array  # [H, 3H]
    bias: jax.Array  # [3H]
    candidate_bias: jax.Array  # [H]: inside the reset gate

    @classmethod
    def create(cls, generator: np.random.Generator, inputs: int, width: int) -> GRU:
        """Return a unit with orthogonal weights and zero biases."""
        inward = jnp.concatenate([orthogonal(generator, inputs, width, 1.0) for _ in range(3)], axis=1)
        recurrent = jnp.concatenate([orthogonal(generator, width, width, 1.0) for _ in range(3)], axis=1)
        return cls(inward, recurrent, zeros(3 * width), zeros(width))

    @property
    def width(self) -> int:
        """Return the size of the state."""
        return self.recurrent.shape[0]

    def initial_state(self, batch: int) -> jax.Array:
        """Return the initial state: zeros [B, H]."""
        return jnp.zeros((batch, self.width))

    def __call__(self, carry: jax.Array, x: jax.Array) -> jax.Array:
        """One step: carry [..., H] and features [..., F] -> the new carry [..., H]."""
        return self._step(carry, x @ self.inward + self.bias)

    def unroll(self, x: jax.Array, real: jax.Array) -> jax.Array:
        """All steps of windows: features [B, T, F], real [B, T] -> carries [B, T, H].

        A window starts from zeros; a step that is not real sets zeros, so an episode within the window also starts
        from zeros.
        """
        projected = x @ self.inward + self.bias

        def step(carry: jax.Array, now: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
            gates, there = now
            after = jnp.where(there[:, None], self._step(carry, gates), 0.0)
            return after, after

        inputs = jnp.swapaxes(projected, 0, 1), jnp.swapaxes(real, 0, 1)
        _, carries = jax.lax.scan(step, self.initial_state(x.shape[0]), inputs)
        return jnp.swapaxes(carries, 0, 1)

    def follow(self, carry: jax.Array, x: jax.Array, first: jax.Array) -> jax.Array:
        """All steps of segments: from carry [B, H], features [B, T, F] -> carries [B, T, H].

        A step that is `first` [B, T] of its episode starts from zeros.
        """
        projected = x @ self.inward + self.bias

        def step(carry: jax.Array, now: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
            gates, begins = now
            after = self._step(jnp.where(begins[:, None], 0.0, carry), gates)
            return after, after

        inputs = jnp.swapaxes(projected, 0, 1), jnp.swapaxes(first, 0, 1)
        _, carries = jax.lax.scan(step, carry, inputs)
        return jnp.swapaxes(carries, 0, 1)

    def _step(self, carry: jax.Array, projected: jax.Array) -> jax.Array:
        in_reset, in_update, in_candidate = jnp.split(projected, 3, axis=-1)
        from_reset, from_update, from_candidate = jnp.split(carry @ self.recurrent, 3, axis=-1)
        reset = jax.nn.sigmoid(in_reset + from_reset)
        update = jax.nn.sigmoid(in_update + from_update)
        candidate = jnp.tanh(in_candidate + reset * (from_candidate + self.candidate_bias))
        return update * carry + (1.0 - update) * candidate
