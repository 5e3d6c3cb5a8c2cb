"""Dense layers as native code on x86-64, where the package `tidelog-kernels` is installed: one call of a network.

The loop of training chooses them (`in_training`). Policies that act elsewhere, held-out losses, exported files, and all
that a verdict or a suggestion trains for itself (`off`) do not use them. Where they cannot be used (another processor
or device, another type, JAX before 0.8), XLA does the same in its own order, and second derivatives are always XLA's.
Their bits depend neither on the number of threads nor on AVX2 or AVX-512.

Letters: `N` rows, `I` inputs, `O` outputs of a layer.
"""

from __future__ import annotations

import importlib
import math
import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, cast

import jax
import jax.numpy as jnp

from tidelog.errors import ConfigError

SWITCH = "TIDELOG_KERNELS"  # 0: XLA, also where native layers can be used
FLOAT32, BFLOAT16 = 1, 2  # what a processor multiplies natively
Layers = tuple[tuple[jax.Array, jax.Array], ...]  # weight [I, O] and bias [O] of each layer
Arrays = Sequence[jax.Array]
Shapes = Sequence[tuple[int, ...]]

_make: Any = getattr(jax, "make_user_context", None)
_chosen: Any = None if _make is None else _make(False)  # part of the key of a program
_off: ContextVar[bool] = ContextVar("off", default=False)


def level() -> int:
    """Return what native layers can multiply here: 0 nothing, `FLOAT32`, or `BFLOAT16` too."""
    return 0 if _off.get() or os.environ.get(SWITCH) == "0" else _best()


def can_multiply(precision: str) -> bool:
    """Return whether native layers can multiply with a `matmul_precision` here."""
    return level() >= (BFLOAT16 if precision == "bfloat16" else FLOAT32)


def resumes(products: str) -> bool:
    """Return whether a run that was trained with these products goes on natively: as it began, unless switched off."""
    return products == "native" and os.environ.get(SWITCH) != "0"


@contextmanager
def off() -> Iterator[None]:
    """Have runs that begin inside trained by XLA: what they are for does not hang on what is installed."""
    token = _off.set(True)
    try:
        yield
    finally:
        _off.reset(token)


@contextmanager
def in_training(precision: str | None) -> Iterator[None]:
    """Have dense layers of programs inside computed natively; None: by XLA. ConfigError where this process cannot."""
    if precision is None:
        yield
        return
    if not can_multiply(precision):
        flag = "avx512_bf16" if precision == "bfloat16" else "AVX2"
        raise ConfigError(
            f"this run was trained with native layers (tidelog-kernels) in {precision}, and this process has none",
            fix=f"install tidelog-kernels on a processor with {flag}, or set {SWITCH}=0: XLA rounds differently",
        )
    with _chosen(True):
        yield


def takes(x: jax.Array, layers: Layers) -> bool:
    """Return whether layers on these inputs [..., I] are computed natively."""
    if _chosen is None or not _chosen.value or x.ndim < 2:
        return False
    plain = all(weight.ndim == 2 and bias.shape == weight.shape[1:] for weight, bias in layers)
    return plain and all(one.dtype == jnp.float32 for one in (x, *(one for layer in layers for one in layer)))


def dense(x: jax.Array, layers: Layers, relu_last: bool) -> jax.Array:
    """Return layers of inputs [..., I] with ReLU between them, and after the last on request: [..., O]."""
    rows = _network(x.reshape(math.prod(x.shape[:-1]), x.shape[-1]), layers, relu_last)
    return rows.reshape(*x.shape[:-1], rows.shape[-1])


@cache
def _best() -> int:
    """Return what the installed package multiplies; where it cannot be used, a warning says why, once."""
    if _chosen is None or jax.default_backend() != "cpu":
        return 0
    try:
        kernels: Any = importlib.import_module("tidelog_kernels")
    except ImportError:
        return 0
    try:
        library, calls = kernels.load(), cast(Any, jax.ffi)
        best: int = library.tidelog_products()
        for name in ("tidelog_forward", "tidelog_backward") if best else ():
            calls.register_ffi_target(name, calls.pycapsule(getattr(library, name)), platform="cpu")
    except Exception as problem:  # the loader's, ctypes' and XLA's errors have no common class
        warnings.warn(
            f"tidelog-kernels cannot be used ({problem}): XLA computes dense layers. fix: install it again, or set "
            f"{SWITCH}=0",
            stacklevel=3,
        )
        return 0
    return best


@jax.tree_util.register_static
@dataclass(frozen=True)
class _Wanted:
    """What a gradient is asked for."""

    by_layers: bool
    by_input: bool


@partial(jax.custom_vjp, nondiff_argnums=(2,))
def _network(x: jax.Array, layers: Layers, relu_last: bool) -> jax.Array:
    return _forward(x, layers, relu_last, every=False)[0]


def _network_forwards(x: Any, layers: Any, relu_last: bool) -> tuple[jax.Array, Any]:
    wanted = _Wanted(any(one.perturbed for layer in layers for one in layer), x.perturbed)
    values = tuple((weight.value, bias.value) for weight, bias in layers)
    outputs = _outputs(x.value, values, relu_last)
    return outputs[-1], (x.value, values, outputs, wanted)


def _network_backwards(relu_last: bool, kept: Any, slope: Any) -> tuple[Any, Any]:
    x, layers, outputs, wanted = kept
    dy = jnp.zeros(slope.shape, slope.dtype) if isinstance(slope, jax.custom_derivatives.SymbolicZero) else slope
    to_input, to_layers = _slopes(x, layers, outputs, dy, relu_last, wanted)
    return to_input, to_layers if wanted.by_layers else tuple((None, None) for _ in layers)


_network.defvjp(_network_forwards, _network_backwards, symbolic_zeros=True)


@partial(jax.custom_vjp, nondiff_argnums=(2,))
def _outputs(x: jax.Array, layers: Layers, relu_last: bool) -> list[jax.Array]:
    """Return the outputs of all layers."""
    return _forward(x, layers, relu_last, every=True)


_outputs.defvjp(
    lambda x, layers, relu_last: (_outputs(x, layers, relu_last), (x, layers)),
    lambda relu_last, kept, slopes: jax.vjp(partial(_plain, relu_last), *kept)[1](slopes),
)


@partial(jax.custom_vjp, nondiff_argnums=(4, 5))
def _slopes(
    x: jax.Array, layers: Layers, outputs: list[jax.Array], dy: jax.Array, relu_last: bool, wanted: _Wanted
) -> tuple[jax.Array | None, Layers]:
    """Return the gradients by x and by the layers, as far as they are wanted; `outputs` are those of all layers."""
    weights = [weight for weight, _ in layers]
    own = [shape for weight in weights for shape in (weight.shape, weight.shape[1:])] if wanted.by_layers else []
    slopes = _call(
        "tidelog_backward",
        lambda n: [*own, (n, len(weights[0]))] if wanted.by_input else own,
        [x, *(outputs if relu_last else outputs[:-1]), dy],
        weights,
        relu_last=relu_last,
        to_weights=wanted.by_layers,
        to_input=wanted.by_input,
    )
    return slopes[-1] if wanted.by_input else None, tuple(zip(slopes[::2], slopes[1::2], strict=False)) if own else ()


def _slopes_forwards(
    x: jax.Array, layers: Layers, outputs: list[jax.Array], dy: jax.Array, relu_last: bool, wanted: _Wanted
) -> Any:
    return _slopes(x, layers, outputs, dy, relu_last, wanted), (x, layers, outputs, dy)


def _slopes_backwards(relu_last: bool, wanted: _Wanted, kept: Any, slopes: Any) -> Any:
    """Differentiate the gradients once more, by XLA: as functions of x, the layers and dy, which give the outputs."""
    x, layers, outputs, dy = kept

    def gradients(x: jax.Array, layers: Layers, dy: jax.Array) -> tuple[jax.Array | None, Layers]:
        by_input, by_layers = jax.vjp(lambda *of: _plain(relu_last, *of)[-1], x, layers)[1](dy)
        return by_input if wanted.by_input else None, by_layers if wanted.by_layers else ()

    to_x, to_layers, to_dy = jax.vjp(gradients, x, layers, dy)[1](slopes)
    return to_x, to_layers, [jnp.zeros_like(one) for one in outputs], to_dy


_slopes.defvjp(_slopes_forwards, _slopes_backwards)


def _plain(relu_last: bool, x: jax.Array, layers: Layers) -> list[jax.Array]:
    """Return the outputs of all layers by XLA."""
    outputs = []
    for i, (weight, bias) in enumerate(layers):
        x = x @ weight + bias
        x = jax.nn.relu(x) if relu_last or i + 1 < len(layers) else x
        outputs.append(x)
    return outputs


def _forward(x: jax.Array, layers: Layers, relu_last: bool, every: bool) -> list[jax.Array]:
    """Return the outputs of every layer, or of the last."""
    sizes = [weight.shape[1] for weight, _ in (layers if every else layers[-1:])]
    arrays = [array for layer in layers for array in layer]
    return _call("tidelog_forward", lambda n: [(n, size) for size in sizes], [x], arrays, relu_last=relu_last)


def _call(
    name: str, shapes: Callable[[int], Shapes], rows: Arrays, layers: Arrays, **settings: bool
) -> list[jax.Array]:
    """Return the results of a native call, whose shapes are those for N rows [N, ...]; `layers` are not by row."""
    precision: str | None = jax.config.jax_default_matmul_precision  # type: ignore[attr-defined]

    def native(rows: Arrays, layers: Arrays) -> list[jax.Array]:
        results = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes(len(rows[0]))]  # type: ignore[no-untyped-call]
        call = jax.ffi.ffi_call(name, results, vmap_method="sequential")
        return list(call(*rows, *layers, rounded=precision == "bfloat16", **settings))

    calls = jax.custom_batching.custom_vmap(native)

    @calls.def_vmap
    def of_many(count: int, batched: Any, rows: Arrays, layers: Arrays) -> tuple[list[jax.Array], list[bool]]:
        """Take the rows of all as rows of one call, where they have the same layers and no gradient sums over rows."""
        if any(batched[1]) or settings.get("to_weights"):
            axes = jax.tree.map(lambda own: 0 if own else None, batched)
            results: list[jax.Array] = jax.vmap(native, in_axes=tuple(axes))(rows, layers)
        else:
            every = [x if own else jnp.repeat(x[None], count, axis=0) for x, own in zip(rows, batched[0], strict=True)]
            folded = native([x.reshape(count * x.shape[1], *x.shape[2:]) for x in every], layers)
            results = [x.reshape(count, every[0].shape[1], *x.shape[1:]) for x in folded]
        return results, [True] * len(results)

    return list(calls(list(rows), list(layers)))
