"""A recipe: how a policy's actions are computed, as plain nodes that name arrays. Read here, refused where unknown.

In a manifest an array is `{"array": name}`; `restored` puts the arrays of the weights file in their places. Every other
mapping is a node with a `kind`, and has exactly the fields of that kind.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar

import numpy as np

from tidelog.errors import CheckpointError, TidelogError, nearest
from tidelog.runtime.acts import Made, Seen
from tidelog.runtime.networks import ACTIVATIONS
from tidelog.runtime.ranking import Ranker
from tidelog.types import (
    ActionSpace,
    Catalogue,
    Codes,
    Continuous,
    Discrete,
    History,
    Image,
    MultiDiscrete,
    Spec,
    Vector,
)

NumpyArray = np.ndarray[Any, Any]
Recipe = Mapping[str, Any]
Fit = TypeVar("Fit")

FIELDS: Mapping[str, frozenset[str]] = {
    kind: frozenset(fields.split())
    for kind, fields in {
        "recipe": "act values carry",
        "likely": "encoder trunk head epsilon",
        "supported": "critic imitator threshold epsilon",
        "candidates": "generator perturbation critic latents clip reach",
        "smallest": "critics weights",
        "imitator": "encoder trunk head",
        "network": "encoder body",
        "listed": "catalogue reader critic imagination threshold history width q_weight",
        "catalogue": "weight bias tower features",
        "reader": "events empty body norm",
        "mean": "linear",
        "recurrent": "unit linear",
        "attention": "positions blocks",
        "attending": "before queries keys values out between wide narrow heads",
        "pair": "state item body",
        "imagination": "outward perturbation phi latents",
        "encoder": "leaves memory",
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


def _numbers(value: Any) -> bool:
    return isinstance(value, list) and all(_number(-1e9, 1e9)(one) for one in value) and len(value) > 0


VALUES: Mapping[str, Callable[[Any], bool]] = {  # what fields hold that are neither nodes nor lists of them
    **dict.fromkeys(("weight", "inward", "recurrent", "latents", "events", "positions"), _array(2)),
    **dict.fromkeys(("bias", "candidate_bias", "scale", "shift", "empty"), _array(1)),
    **dict.fromkeys(("kernel", "stride", "heads"), _whole(1, 64)),
    **dict.fromkeys(("history", "width"), _whole(1, 1 << 20)),
    **dict.fromkeys(("activate_last", "squashed"), lambda value: type(value) is bool),
    **dict.fromkeys(("clip", "reach", "phi", "q_weight"), _number(0.0, 1e9)),
    "activation": lambda value: isinstance(value, str) and value in ACTIVATIONS,
    "carry": _whole(0, 1 << 20),
    "epsilon": lambda value: value is None or _number(0.0, 1.0)(value),
    "features": lambda value: value is None or _array(2)(value),
    "log_std": lambda value: isinstance(value, Mapping) or _array(1)(value),
    "name": lambda value: isinstance(value, str),
    "range": lambda value: _numbers(value) and len(value) == 2,
    "sizes": lambda value: isinstance(value, list) and all(_whole(1, 1 << 20)(one) for one in value) and len(value) > 0,
    "tables": lambda value: isinstance(value, list) and all(_array(2)(one) for one in value),
    "threshold": _number(0.0, 1.0),
    "weights": lambda value: value is None or _numbers(value),
}


class Noise(NamedTuple):
    """What samples of a policy are made with: `shape` a row, or of candidates the whole array."""

    kind: str  # "gumbel", "normal" or "latents"
    shape: tuple[int, ...]
    clip: float = math.inf  # of latents


def noise_of(recipe: Recipe, spec: Spec) -> Noise | None:
    """The noise of a recipe's policy; None where it has none."""
    act, space = recipe["act"], spec.action
    if act["kind"] == "candidates":
        return Noise("latents", tuple(act["latents"].shape), act["clip"])
    if isinstance(space, Continuous):
        return Noise("normal", (space.size,)) if act["head"]["kind"] == "gaussian" else None
    return Noise("gumbel", (space.n if isinstance(space, Discrete) else sum(space.sizes),))


def restored(node: Any, arrays: Mapping[str, NumpyArray], where: str) -> Any:
    """A node of a manifest with its arrays; CheckpointError names what is not understood."""
    if isinstance(node, list):
        return [restored(item, arrays, where) for item in node]
    if not isinstance(node, Mapping):
        return node
    if set(node) == {"array"}:
        if str(node["array"]) not in arrays:
            raise CheckpointError(f"{where} names the array {node['array']!r}, which the weights do not hold")
        return arrays[str(node["array"])]
    kind = str(node.get("kind"))
    if kind not in FIELDS:
        raise CheckpointError(f"{where} has a node of unknown kind '{kind}': {nearest(kind, FIELDS)}")
    for field in FIELDS[kind].symmetric_difference(set(node) - {"kind"}):
        wrong = "lacks" if field in FIELDS[kind] else "has the unknown field"
        raise CheckpointError(f"{where}: a node of kind '{kind}' {wrong} '{field}'")
    found = {name: value if name == "kind" else restored(value, arrays, where) for name, value in node.items()}
    for name, value in found.items():
        if name in VALUES and not VALUES[name](value):
            raise CheckpointError(
                f"{where}: '{name}' of a node of kind '{kind}' cannot be understood: {node[name]!r:.80}"
            )
    return found


def check_sizes(recipe: Recipe, spec: Spec, arrays: Mapping[str, NumpyArray], where: str) -> None:
    """Raise CheckpointError where a spec speaks of more than the arrays could be made for, before anything is computed.

    A cut or invented manifest must not make a reader reserve memory.
    """
    most = sum(array.size for array in arrays.values()) + 1
    sizes: list[Any] = []
    for leaf in spec.observation.values():
        if isinstance(leaf, Vector):
            sizes.append(leaf.size)
        elif isinstance(leaf, Codes):
            sizes += [len(leaf.sizes), *leaf.sizes]
        elif isinstance(leaf, History):
            sizes.append(len(leaf.events))
        elif isinstance(leaf, Image):
            sizes += [leaf.height * leaf.width * leaf.channels // 4096]
    sizes += [recipe["carry"], *_action_sizes(spec.action)]
    if not all(isinstance(size, int) and 0 <= size <= most for size in sizes):
        raise CheckpointError(f"{where} speaks of sizes {sizes[:8]} that its {most - 1:,} weights were not made for")


def _action_sizes(space: ActionSpace) -> list[Any]:
    if isinstance(space, Discrete):
        return [space.n]
    if isinstance(space, Catalogue):
        return [space.n]
    return list(space.sizes) if isinstance(space, MultiDiscrete) else [len(space.low)]


def tried(make: Any, recipe: Recipe, spec: Spec, where: str) -> Made:
    """What the recipe makes of one blank observation; CheckpointError where it does not fit its arrays or the spec."""
    leaves = {name: _blank(leaf) for name, leaf in spec.observation.items()}
    carry = np.zeros((1, recipe["carry"]), np.float32) if recipe["carry"] else None
    space = spec.action
    wanted = () if isinstance(space, Discrete) else (len(space.low if isinstance(space, Continuous) else space.sizes),)
    made: Made = _fits(lambda: make(Seen(leaves, None, carry)), where)
    if np.shape(made.action) != (1, *wanted):
        raise CheckpointError(
            f"{where}: the recipe makes actions {list(np.shape(made.action)[1:])}, not {list(wanted)}"
        )
    return made


def tried_lists(make: Callable[[], Ranker], spec: Spec, where: str) -> Ranker:
    """The ranker of a recipe, tried on an empty history and on one of every kind of event; CheckpointError as above."""
    kinds = len(spec.observation["history"].events)  # type: ignore[union-attr]
    events = np.stack([np.zeros(kinds, np.int32), np.arange(1, kinds + 1, dtype=np.int32)])

    def rank() -> Ranker:
        ranker = make()
        if not isinstance(spec.action, Catalogue) or ranker.items != spec.action.n:
            raise ValueError(f"its table has {ranker.items} items")
        ranker.rank(events * ranker.items // np.maximum(events, 1), events, 1)
        return ranker

    return _fits(rank, where)


def _fits(compute: Callable[[], Fit], where: str) -> Fit:
    try:
        with np.errstate(all="ignore"):
            return compute()
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError, MemoryError, TidelogError) as error:
        raise CheckpointError(f"{where}: the recipe does not fit its arrays: {error!r}") from error


def _blank(leaf: Vector | Codes | Image) -> NumpyArray:
    if isinstance(leaf, Image):
        return np.zeros((1, leaf.height, leaf.width, leaf.channels), np.uint8)
    if isinstance(leaf, Codes):
        return np.zeros((1, len(leaf.sizes)), np.int32)
    return np.zeros((1, leaf.size), np.float32)
