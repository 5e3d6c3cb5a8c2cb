"""Whether a recipe fits its arrays and the spec, before it is used: a cut or invented manifest must not take memory.

Every size is held to what the weights could be made for, and what is computed on the way to a budget; then blank
observations are tried, the highest codes among them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

import numpy as np

from tidelog.errors import CheckpointError, TidelogError
from tidelog.runtime.policy_heads import Made, Seen
from tidelog.runtime.recipe import Recipe
from tidelog.runtime.recommend import Ranks
from tidelog.types import (
    ActionSpace,
    Catalogue,
    Codes,
    Continuous,
    Discrete,
    History,
    Image,
    MultiDiscrete,
    Profile,
    Spec,
    Vector,
)

NumpyArray = np.ndarray[Any, Any]
Fit = TypeVar("Fit")
Lists = TypeVar("Lists", bound=Ranks)
Rate = Callable[[Mapping[str, NumpyArray]], NumpyArray]
BUDGET = 1 << 26  # numbers that one row may take on its way


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
        elif isinstance(leaf, Profile):
            sizes.append(len(leaf.columns))
        elif isinstance(leaf, Image):
            sizes += [leaf.height * leaf.width * leaf.channels // 4096]
    sizes += [recipe["carry"], *_action_sizes(spec.action)]
    if not all(isinstance(size, int) and 0 <= size <= most for size in sizes):
        raise CheckpointError(f"{where} speaks of sizes {sizes[:8]} that its {most - 1:,} weights were not made for")
    needed = max([0, *_needed(recipe, spec)])
    if needed > BUDGET:
        raise CheckpointError(f"{where}: one row would take {needed:,} numbers on its way, at most {BUDGET:,} may be")


def _needed(recipe: Recipe, spec: Spec) -> Iterator[int]:
    """Numbers that one row takes at the places where few weights can ask for many."""
    for node in _nodes(recipe):
        if node["kind"] == "leaf" and node["picture"] is not None:
            yield from _of_picture(node["picture"], spec.observation.get(node["name"]))
        if node["kind"] == "listed":
            body, steps = node["reader"]["body"], node["history"]
            yield steps * node["catalogue"]["weight"].shape[1]
            if body["kind"] == "attention":
                yield steps * steps * max([1, *(block["heads"] for block in body["blocks"])])


def _of_picture(node: Any, leaf: Any) -> Iterator[int]:
    """What each layer sees, views of its kernel side by side."""
    if not isinstance(leaf, Image):
        return
    down, right = leaf.height, leaf.width
    yield down * right * leaf.channels
    for layer in node["layers"]:
        depths = [part["weight"].shape[0] for part in _nodes(layer) if "weight" in part]
        if layer["kind"] == "convolution":
            down, right = ((size - layer["kernel"]) // layer["stride"] + 1 for size in (down, right))
        yield down * right * max([1, *depths])
        if layer["kind"] != "convolution":  # pooled
            down, right = (-(-size // 2) for size in (down, right))


def _nodes(node: Any) -> Iterator[Any]:
    if isinstance(node, Mapping):
        yield node
    for part in node.values() if isinstance(node, Mapping) else node if isinstance(node, list) else ():
        yield from _nodes(part)


def _action_sizes(space: ActionSpace) -> list[Any]:
    if isinstance(space, Discrete):
        return [space.n]
    if isinstance(space, Catalogue):
        return [space.n]
    return list(space.sizes) if isinstance(space, MultiDiscrete) else [len(space.low)]


def tried(make: Callable[[Seen], Made], rate: Rate | None, carry: int, spec: Spec, where: str) -> None:
    """Raise CheckpointError unless blank observations, and those of the highest codes, lead to what the spec says."""
    for highest in (False, True):
        leaves = {name: _blank(leaf, highest) for name, leaf in spec.observation.items()}
        space = spec.action
        mask = np.ones((1, space.n), bool) if isinstance(space, Discrete) else None
        before = np.zeros((1, carry), np.float32) if carry else None
        seen = Seen(leaves, mask, before)
        made = _fits(lambda seen=seen: make(seen), where)  # type: ignore[misc]
        _check_shapes(made, spec, carry, where)
        if rate is not None:
            rated = _fits(lambda leaves=leaves: rate(leaves), where)  # type: ignore[misc]
            _expect(rated, (1, *_action_sizes(space)), "values", where)


def _check_shapes(made: Made, spec: Spec, carry: int, where: str) -> None:
    space = spec.action
    wide = () if isinstance(space, Discrete) else (len(space.low if isinstance(space, Continuous) else space.sizes),)
    _expect(made.action, (1, *wide), "actions", where)
    if isinstance(space, Discrete):
        _expect(made.probabilities, (1, space.n), "probabilities", where)
    if carry:
        _expect(made.carry, (1, carry), "what is carried", where)


def _expect(found: Any, wanted: tuple[int, ...], name: str, where: str) -> None:
    if np.shape(found) != wanted:
        raise CheckpointError(f"{where}: the recipe makes {name} {list(np.shape(found)[1:])}, not {list(wanted[1:])}")


def tried_lists(make: Callable[[], Lists], spec: Spec, where: str) -> Lists:
    """The ranker of a recipe, tried on an empty history and on one of every kind of event; CheckpointError as above."""
    kinds = len(spec.observation["history"].events)  # type: ignore[union-attr]
    events = np.stack([np.zeros(kinds, np.int32), np.arange(1, kinds + 1, dtype=np.int32)])

    def rank() -> Lists:
        ranker = make()
        if not isinstance(spec.action, Catalogue) or ranker.items != spec.action.n:
            raise ValueError(f"its table has {ranker.items} items")
        who = spec.observation.get("user")
        if ranker.features not in (0, len(who.columns) if isinstance(who, Profile) else 0):
            raise ValueError(f"it reads {ranker.features} features of users")
        ranker.rank(events * ranker.items // np.maximum(events, 1), events, 1)
        return ranker

    return _fits(rank, where)


def _fits(compute: Callable[[], Fit], where: str) -> Fit:
    try:
        with np.errstate(all="ignore"):
            return compute()
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError, MemoryError, RecursionError,
            TidelogError) as error:  # fmt: skip
        raise CheckpointError(f"{where}: the recipe does not fit its arrays: {error!r}") from error


def _blank(leaf: Any, highest: bool) -> NumpyArray:
    if isinstance(leaf, Image):
        return np.zeros((1, leaf.height, leaf.width, leaf.channels), np.uint8)
    if isinstance(leaf, Codes):
        return np.asarray([leaf.sizes], np.int32) - 1 if highest else np.zeros((1, len(leaf.sizes)), np.int32)
    return np.zeros((1, leaf.size), np.float32)
