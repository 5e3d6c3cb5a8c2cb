"""Dense layers as native code on x86-64, where the package `tidelog-kernels` is installed: one call of a network.

A loop of training chooses them (`in_training`); policies that act, verdicts and exported files do not use them. Where
they cannot be used (another processor or device, another type, JAX before 0.8), XLA does the same in its own order.
Their bits depend neither on the number of threads nor on AVX2 or AVX-512.

Letters: `N` rows, `I` inputs, `O` outputs of a layer.
"""

from __future__ import annotations

import importlib
import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
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


@cache
def level() -> int:
    """Return what native layers can multiply in this process: 0 nothing, `FLOAT32`, or `BFLOAT16` too.

    Where the package is installed and cannot be used, a warning says why, once.
    """
    if os.environ.get(SWITCH) == "0" or _chosen is None or jax.default_backend() != "cpu":
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
            f"tidelog-kernels cannot be used ({problem}): XLA computes dense layers. fix: install it again with this "
            f"version of JAX, or set {SWITCH}=0",
            stacklevel=2,
        )
        return 0
    return best


def products() -> str:
    """Return what computes the dense layers of training in this process: "native" or "XLA"."""
    return "native" if level() else "XLA"


def resumes(products: str) -> bool:
    """Return whether a run that was trained with these products goes on natively: as it began, unless switched off."""
    return products == "native" and os.environ.get(SWITCH) != "0"


@contextmanager
def in_training(native: bool) -> Iterator[None]:
    """Have dense layers of programs inside computed natively; ConfigError where this process cannot."""
    if not native:
        yield
        return
    if not level():
        raise ConfigError(
            "this run was trained with native layers (tidelog-kernels), and this process has none",
            fix=f"install tidelog-kernels on a processor with AVX2, or set {SWITCH}=0: XLA rounds differently",
        )
    with _chosen(True):
        yield


def takes(x: jax.Array) -> bool:
    """Return whether layers on these inputs [..., I] are computed natively."""
    if _chosen is None or not _chosen.value or x.ndim < 2 or x.dtype != jnp.float32:
        return False
    return not _rounded() or level() == BFLOAT16


def dense(x: jax.Array, layers: Layers, relu_last: bool) -> jax.Array:
    """Return layers of inputs [..., I] with ReLU between them, and after the last on request: [..., O]."""
    rows = _network(x.reshape(-1, x.shape[-1]), layers, relu_last)
    return rows.reshape(*x.shape[:-1], rows.shape[-1])


def _rounded() -> bool:
    precision: str | None = jax.config.jax_default_matmul_precision  # type: ignore[attr-defined]
    return precision == "bfloat16"


def _call(
    name: str, shapes: Callable[[int], Shapes], rows: Arrays, layers: Arrays, **settings: bool
) -> list[jax.Array]:
    """Return the results of a native call, whose shapes are those for N rows [N, ...]; `layers` are not by row."""

    def native(rows: Arrays, layers: Arrays) -> list[jax.Array]:
        results = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes(len(rows[0]))]  # type: ignore[no-untyped-call]
        call = jax.ffi.ffi_call(name, results, vmap_method="sequential")
        return list(call(*rows, *layers, rounded=_rounded(), **settings))

    calls = jax.custom_batching.custom_vmap(native)

    @calls.def_vmap
    def of_many(count: int, batched: Any, rows: Arrays, layers: Arrays) -> tuple[list[jax.Array], list[bool]]:
        """Take the rows of all as rows of one call, where they have the same layers and no gradient sums over rows."""
        if any(batched[1]) or settings.get("to_weights"):
            axes = jax.tree.map(lambda own: 0 if own else None, batched)
            results: list[jax.Array] = jax.vmap(native, in_axes=tuple(axes))(rows, layers)
        else:
            every = [x if own else jnp.repeat(x[None], count, axis=0) for x, own in zip(rows, batched[0], strict=True)]
            folded = native([x.reshape(-1, *x.shape[2:]) for x in every], layers)
            results = [x.reshape(count, -1, *x.shape[1:]) for x in folded]
        return results, [True] * len(results)

    return list(calls(list(rows), list(layers)))


def _outputs(x: jax.Array, layers: Layers, relu_last: bool, every: bool) -> list[jax.Array]:
    sizes = [weight.shape[1] for weight, _ in (layers if every else layers[-1:])]
    arrays = [array for layer in layers for array in layer]
    return _call("tidelog_forward", lambda n: [(n, size) for size in sizes], [x], arrays, relu_last=relu_last)


@partial(jax.custom_vjp, nondiff_argnums=(2,))
def _network(x: jax.Array, layers: Layers, relu_last: bool) -> jax.Array:
    return _outputs(x, layers, relu_last, every=False)[0]


def _forwards(x: Any, layers: Any, relu_last: bool) -> tuple[jax.Array, Any]:
    """Keep the inputs of all layers, and whether anything is differentiated by the layers and by x."""
    values = tuple((weight.value, bias.value) for weight, bias in layers)
    outputs = _outputs(x.value, values, relu_last, every=True)
    by_layers = any(array.perturbed for layer in layers for array in layer)
    rows = [x.value, *(outputs if relu_last else outputs[:-1])]
    return outputs[-1], (rows, [weight for weight, _ in values], _Static((by_layers, x.perturbed)))


def _backwards(relu_last: bool, kept: Any, slope: Any) -> tuple[Any, Any]:
    rows, weights, wanted = kept
    by_layers, by_input = wanted.value
    dy = jnp.zeros(slope.shape, slope.dtype) if isinstance(slope, jax.custom_derivatives.SymbolicZero) else slope
    own = [shape for weight in weights for shape in (weight.shape, weight.shape[1:])] if by_layers else []
    inputs = weights[0].shape[0]
    slopes = _call(
        "tidelog_backward",
        lambda n: [*own, (n, inputs)] if by_input else own,
        [*rows, dy],
        weights,
        relu_last=relu_last,
        to_weights=by_layers,
        to_input=by_input,
    )
    pairs = [(slopes[2 * i], slopes[2 * i + 1]) if by_layers else (None, None) for i in range(len(weights))]
    return slopes[-1] if by_input else None, tuple(pairs)


_network.defvjp(_forwards, _backwards, symbolic_zeros=True)


@jax.tree_util.register_static
class _Static:
    """A constant beside arrays."""

    def __init__(self, value: tuple[bool, bool]) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Static) and self.value == other.value

    def __hash__(self) -> int:
        return hash(self.value)
