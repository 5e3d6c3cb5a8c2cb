"""A recipe: the computation of a policy's actions, as plain nodes with named arrays. Unknown nodes are refused.

In a manifest an array is `{"array": name}`; `restore_arrays` inserts the arrays of the weights file. Every other
mapping is a node with a `kind`, and has exactly the fields of that kind.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from tidelog.errors import CheckpointError, nearest
from tidelog.runtime.networks import ACTIVATIONS
from tidelog.types import Continuous, Discrete, Spec

NumpyArray = np.ndarray[Any, Any]
Recipe = Mapping[str, Any]

FIELDS: Mapping[str, frozenset[str]] = {
    kind: frozenset(fields.split())
    for kind, fields in {
        "recipe": "act values carry",
        "likely": "encoder trunk head epsilon",
        "supported": "critic imitator threshold epsilon",
        "greedy": "values epsilon",
        "candidates": "generator perturbation critic latents clip reach",
        "smallest": "critics weights",
        "imitator": "encoder trunk head",
        "network": "encoder body",
        "ranking": "catalogue reader repeats critic generation threshold history width q_weight repeat_share",
        "repeats": "age event gate match length",
        "catalogue": "weight bias tower features",
        "counted_catalogue": "weight bias tower features successors",
        "successors": "items counts totals trust event gate",
        "reader": "events empty body norm profile",
        "timed_reader": "events empty body norm profile gaps",
        "user_reader": "events empty body norm profile gaps users",
        "mean": "linear",
        "recurrent": "unit linear",
        "attention": "positions blocks",
        "attention_block": "before queries keys values out between wide narrow heads",
        "pair": "state item body",
        "generation": "outward perturbation phi latents",
        "encoder": "leaves gru",
        "leaf": "name tables picture",
        "picture": "layers dense",
        "convolution": "weight bias kernel stride",
        "stack": "first blocks",
        "block": "first second",
        "gru": "inward recurrent bias candidate_bias",
        "mlp": "layers norms activation activate_last",
        "linear": "weight bias",
        "norm": "scale shift",
        "logits": "linear",
        "several": "linear sizes",
        "gaussian": "mean log_std squashed range",
        "point": "mean",
    }.items()
}


def _number(least: float, most: float) -> Callable[[Any], bool]:
    return lambda value: type(value) in (int, float) and least <= value <= most


def _whole(least: int, most: int) -> Callable[[Any], bool]:
    return lambda value: type(value) is int and least <= value <= most


def _array(dimensions: int) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, np.ndarray) and value.dtype == np.float32 and value.ndim == dimensions


def _integers(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.dtype == np.int32 and value.ndim == 2


def _numbers(value: Any) -> bool:
    return isinstance(value, list) and all(_number(-1e9, 1e9)(one) for one in value) and len(value) > 0


VALUES: Mapping[str, Callable[[Any], bool]] = {  # checks of fields that are neither nodes nor lists of nodes
    **dict.fromkeys(("weight", "inward", "recurrent", "latents", "events", "positions", "match", "counts"), _array(2)),
    **dict.fromkeys(
        ("bias", "candidate_bias", "scale", "shift", "empty", "age", "event", "gate", "totals", "trust"), _array(1)
    ),
    "items": _integers,
    **dict.fromkeys(("kernel", "stride", "heads"), _whole(1, 64)),
    **dict.fromkeys(("history", "width", "length"), _whole(1, 1 << 14)),
    **dict.fromkeys(("activate_last", "squashed"), lambda value: type(value) is bool),
    **dict.fromkeys(("clip", "reach", "phi", "q_weight"), _number(0.0, 1e9)),
    "activation": lambda value: isinstance(value, str) and value in ACTIVATIONS,
    "carry": _whole(0, 1 << 20),
    "epsilon": lambda value: value is None or _number(0.0, 1.0)(value),
    "users": _array(2),
    **dict.fromkeys(("profile", "features", "gaps"), lambda value: value is None or _array(2)(value)),
    "log_std": lambda value: isinstance(value, Mapping) or _array(1)(value),
    "name": lambda value: isinstance(value, str),
    "range": lambda value: _numbers(value) and len(value) == 2,
    "sizes": lambda value: isinstance(value, list) and all(_whole(1, 1 << 20)(one) for one in value) and len(value) > 0,
    "tables": lambda value: isinstance(value, list) and all(_array(2)(one) for one in value),
    **dict.fromkeys(("threshold", "repeat_share"), _number(0.0, 1.0)),
    "weights": lambda value: value is None or _numbers(value),
}


class Noise(NamedTuple):
    """The noise of a policy's samples: `shape` of a row, or for candidates of the whole array."""

    kind: str  # "gumbel", "normal" or "latents"
    shape: tuple[int, ...]
    clip: float = math.inf  # limit of latents


def noise_of(recipe: Recipe, spec: Spec) -> Noise | None:
    """Return the noise of a recipe's policy, or None."""
    act, space = recipe["act"], spec.action
    if act["kind"] == "candidates":
        return Noise("latents", tuple(act["latents"].shape), act["clip"])
    if isinstance(space, Continuous):
        return Noise("normal", (space.size,)) if act["head"]["kind"] == "gaussian" else None
    return Noise("gumbel", (space.n if isinstance(space, Discrete) else sum(space.sizes),))


def no_noise(recipe: Recipe, noise: Noise) -> NumpyArray:
    """Return the noise of the most likely action, of one row: zeros, or for candidates their own latents [C, 1, L]."""
    if noise.kind == "latents":
        return np.asarray(recipe["act"]["latents"], np.float32)[:, None]
    return np.zeros((1, *noise.shape), np.float32)


def restore_arrays(node: Any, arrays: Mapping[str, NumpyArray], where: str) -> Any:
    """Return a node of a manifest with its arrays; CheckpointError names an unknown part."""
    if isinstance(node, list):
        return [restore_arrays(item, arrays, where) for item in node]
    if not isinstance(node, Mapping):
        return node
    if set(node) == {"array"}:
        if str(node["array"]) not in arrays:
            raise CheckpointError(
                f"{where} needs the array {node['array']!r}, not in the weights. fix: export the policy again"
            )
        return arrays[str(node["array"])]
    kind = str(node.get("kind"))
    if kind not in FIELDS:
        raise CheckpointError(
            f"{where} has a node of the unknown kind '{kind}': {nearest(kind, FIELDS)}. fix: export the policy again"
        )
    for field in FIELDS[kind].symmetric_difference(set(node) - {"kind"}):
        problem = "has no field" if field in FIELDS[kind] else "has the unknown field"
        raise CheckpointError(f"{where}: a node of kind '{kind}' {problem} '{field}'. fix: export it again")
    fields = {name: value if name == "kind" else restore_arrays(value, arrays, where) for name, value in node.items()}
    for name, value in fields.items():
        if name in VALUES and not VALUES[name](value):
            raise CheckpointError(
                f"{where}: invalid '{name}' in a node of kind '{kind}': {node[name]!r:.80}. fix: export it again"
            )
    return fields
