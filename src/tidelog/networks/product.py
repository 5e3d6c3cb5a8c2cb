"""Matrix products of layers: in float32, or of factors that are rounded to bfloat16 and added up in float32.

Processors with products of bfloat16 multiply about twice as much in the same time. Weights, states of optimisers, sums,
losses and targets stay float32. JAX's own setting `jax_default_matmul_precision` chooses: it is part of the key of
compiled programs, and `with rounded("bfloat16")` sets it for what is traced inside.

Letters: `N` rows, `I` inputs, `O` outputs, `B` batch, `T` steps.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import jax
import jax.numpy as jnp

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
