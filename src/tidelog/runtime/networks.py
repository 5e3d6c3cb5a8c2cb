"""Network computations from a recipe's nodes: mappings of plain values and arrays.

`xp` is NumPy, or `jax.numpy` where the same lines are traced for ONNX. Letters: `B` batch, `F` features, `H` width of a
recurrent unit, `C` channels; leading axes before the last are free.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeAlias

import numpy as np

from tidelog.errors import SpecError

Array: TypeAlias = Any
Node: TypeAlias = Mapping[str, Any]

ACTIVATIONS: Mapping[str, Callable[[Any, Array], Array]] = {
    "relu": lambda xp, x: xp.maximum(x, 0.0),
    "tanh": lambda xp, x: xp.tanh(x),
}


@contextmanager
def refuse_overflow() -> Iterator[None]:
    """Raise SpecError where NumPy computes a number that is not finite."""
    try:
        with np.errstate(over="raise", invalid="raise", divide="raise"):
            yield
    except FloatingPointError as error:
        raise SpecError(
            f"the policy computes numbers that are not finite ({error}), expected observations like those of its log. "
            "fix: correct values that are far too large"
        ) from error


def linear(node: Node, x: Array) -> Array:
    """`x @ weight + bias`: [..., in] -> [..., out]."""
    flat = x.reshape(-1, x.shape[-1]) @ node["weight"] + node["bias"]
    return flat.reshape(*x.shape[:-1], flat.shape[-1])


def layer_norm(xp: Any, node: Node, x: Array) -> Array:
    """Normalise the last axis, then scale and shift it."""
    centred = x - xp.mean(x, axis=-1, keepdims=True)
    variance = xp.mean(xp.square(centred), axis=-1, keepdims=True)
    return centred / xp.sqrt(variance + 1e-6) * node["scale"] + node["shift"]


def mlp(xp: Any, node: Node, x: Array) -> Array:
    """Dense layers, each followed by layer norm (where there is one) and activation: [..., in] -> [..., out]."""
    last = len(node["layers"]) - 1
    for i, layer in enumerate(node["layers"]):
        x = linear(layer, x)
        if i == last and not node["activate_last"]:
            return x
        if node["norms"]:
            x = layer_norm(xp, node["norms"][i], x)
        x = ACTIVATIONS[node["activation"]](xp, x)
    return x


def gru(xp: Any, node: Node, carry: Array, x: Array) -> Array:
    """One step of a gated recurrent unit: carry [B, H] and features [B, F] -> the new carry [B, H]."""
    width = node["recurrent"].shape[0]
    inward, recurrent = x @ node["inward"] + node["bias"], carry @ node["recurrent"]
    reset = _sigmoid(xp, inward[:, :width] + recurrent[:, :width])
    update = _sigmoid(xp, inward[:, width : 2 * width] + recurrent[:, width : 2 * width])
    candidate = xp.tanh(inward[:, 2 * width :] + reset * (recurrent[:, 2 * width :] + node["candidate_bias"]))
    return update * carry + (1.0 - update) * candidate


def _sigmoid(xp: Any, x: Array) -> Array:
    return 0.5 * (xp.tanh(0.5 * x) + 1.0)  # no overflow on either side


def picture(xp: Any, node: Node, pixels: Array) -> Array:
    """Convolutions and a dense layer, each with ReLU: uint8 [B, height, width, C] -> [B, F]."""
    x = pixels.astype(xp.float32) / 255.0
    for layer in node["layers"]:
        if layer["kind"] == "stack":
            x = _stack(xp, layer, x)
        else:
            x = xp.maximum(linear(layer, _views(xp, x, layer["kernel"], layer["stride"])), 0.0)
    return xp.maximum(linear(node["dense"], xp.maximum(x, 0.0).reshape(x.shape[0], -1)), 0.0)


def _stack(xp: Any, node: Node, x: Array) -> Array:
    """A convolution with pooling, then residual blocks: [B, H, W, C] -> [B, H / 2, W / 2, D]."""
    x = _pool(xp, _same(xp, node["first"], x))
    for block in node["blocks"]:
        inner = _same(xp, block["first"], xp.maximum(x, 0.0))
        x = x + _same(xp, block["second"], xp.maximum(inner, 0.0))
    return x


def _same(xp: Any, node: Node, x: Array) -> Array:
    """A 3 by 3 convolution that keeps the picture's size."""
    return linear(node, _views(xp, xp.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0))), 3, 1))


def _pool(xp: Any, x: Array) -> Array:
    """Maximum over 3 by 3, stride 2."""
    lowest = xp.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)), constant_values=-3e38)
    down, right = x.shape[1], x.shape[2]
    largest = lowest[:, 0:down:2, 0:right:2]
    for i in range(3):
        for j in range(3):
            largest = xp.maximum(largest, lowest[:, i : i + down : 2, j : j + right : 2])
    return largest


def _views(xp: Any, x: Array, kernel: int, stride: int) -> Array:
    """Inputs of every kernel position: [B, H, W, C] -> [B, H', W', kernel * kernel * C]."""
    down, right = (size - kernel + 1 for size in x.shape[1:3])
    seen = [x[:, i : i + down : stride, j : j + right : stride] for i in range(kernel) for j in range(kernel)]
    return xp.concatenate(seen, axis=-1)


def encode(xp: Any, node: Node, leaves: Mapping[str, Array], carry: Array | None) -> tuple[Array, Array | None]:
    """Return features [B, F] of scaled observations, and the new recurrent state [B, H]."""
    parts: list[Array] = []
    for leaf in node["leaves"]:
        seen = leaves[leaf["name"]]
        if leaf["tables"]:
            parts += [table[seen[:, c]] for c, table in enumerate(leaf["tables"])]
        else:
            parts.append(seen if leaf["picture"] is None else picture(xp, leaf["picture"], seen))
    features = parts[0] if len(parts) == 1 else xp.concatenate(parts, axis=-1)
    if node["gru"] is None:
        return features, None
    carried = gru(xp, node["gru"], carry, features)
    return carried, carried
