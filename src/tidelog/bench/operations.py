"""Count the matrix products of a compiled step: the unavoidable work of every implementation."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from typing import Any

import jax

Product = tuple[int, int, int]  # m, k, n of [m, k] @ [k, n]


def matrix_products(function: Any, *arguments: Any) -> Counter[Product]:
    """Return how often a function multiplies matrices of each shape, by one trace."""
    return Counter(_products(jax.make_jaxpr(function)(*arguments).jaxpr))


def _products(jaxpr: Any) -> Iterator[Product]:
    for equation in jaxpr.eqns:
        if equation.primitive.name == "dot_general":
            yield from _product(equation)
        for parameter in equation.params.values():
            inner = getattr(parameter, "jaxpr", parameter)
            if hasattr(inner, "eqns"):
                yield from _products(inner)


def _product(equation: Any) -> Iterator[Product]:
    (left_contracted, right_contracted), (left_batch, right_batch) = equation.params["dimension_numbers"]
    left, right = (variable.aval.shape for variable in equation.invars)
    k = math.prod(left[i] for i in left_contracted)
    m = math.prod(size for i, size in enumerate(left) if i not in (*left_contracted, *left_batch))
    n = math.prod(size for i, size in enumerate(right) if i not in (*right_contracted, *right_batch))
    for _ in range(math.prod(left[i] for i in left_batch)):
        yield m, k, n


def operations(products: Counter[Product]) -> int:
    """Return the number of multiplications and additions: the sum of 2 m k n."""
    return sum(2 * m * k * n * count for (m, k, n), count in products.items())
