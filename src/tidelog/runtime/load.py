"""Loading a saved policy, folder or zip, for acting or ranking with NumPy alone.

A recipe is checked against its arrays and the spec before use: an invalid manifest must not reserve memory. Every size
is limited by the number of weights, and intermediate values by a budget; then the recipe runs on blank observations,
including the highest codes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from tidelog.errors import CheckpointError, TidelogError
from tidelog.runtime.artefact import AGAIN, SavedPolicy
from tidelog.runtime.networks import (
    FiniteNumbers,
    PolicyInputs,
    Recipe,
    restore_arrays,
)
from tidelog.runtime.observations import blank
from tidelog.runtime.policy import NumpyPolicy
from tidelog.runtime.ranking import RANKING, Ranker, ranking_functions, reach
from tidelog.runtime.recommender import Recommender, Vocabulary
from tidelog.runtime.rule import Rule, is_rule_file, load_rule
from tidelog.types import (
    ActionSpace,
    Catalogue,
    Codes,
    Discrete,
    History,
    HistoryArrays,
    Hybrid,
    Image,
    MultiDiscrete,
    Profile,
    Spec,
    Users,
    Vector,
)

NumpyArray = np.ndarray[Any, Any]
Fit = TypeVar("Fit")
BUDGET = 1 << 26  # intermediate numbers of one row


def load(path: str | Path) -> NumpyPolicy | Recommender | Rule:
    """Load a saved folder or zip, or the file of a rule: a policy that acts, or one that ranks items.

    Raises CheckpointError where it is missing, of another kind, changed, incomplete, or a custom module without recipe.

    Example:
        >>> from tidelog import runtime  # imports NumPy and safetensors, not JAX
        >>> log = tl.collect("treatment", episodes=200, seed=0)
        >>> path = tl.fit(tl.BC(hidden=(16,)), log, steps=20).policy().save("policy.zip")
        >>> runtime.load("policy.zip").mode(log.features()).shape == log.action.shape
        True
    """
    return load_rule(path) if is_rule_file(path) else load_saved(SavedPolicy(path))


def load_saved(saved: SavedPolicy) -> NumpyPolicy | Recommender:
    """Return the policy of an opened folder or zip; CheckpointError as for `load`."""
    if saved.manifest["recipe"] is None:
        raise CheckpointError(
            f"{saved.path} contains a custom module; only the JAX runtime can run it", fix="tl.load_policy"
        )
    try:
        arrays = saved.arrays()
        recipe = restore_arrays(saved.manifest["recipe"], arrays, saved.where)
        _check_sizes(recipe, saved.spec, arrays, saved.where)
        if recipe["act"]["kind"] == RANKING:
            return Recommender(saved, _checked_ranker(recipe, saved.spec, saved.where))
        policy = NumpyPolicy(saved, recipe)
        _check_outputs(policy, recipe["carry"], saved.where)
        return policy
    except (LookupError, TypeError, AttributeError, RecursionError) as error:
        raise CheckpointError(f"{saved.where}: invalid recipe: {error!r}", fix=AGAIN) from error


# Checks of a recipe, before it is used.


def _check_sizes(recipe: Recipe, spec: Spec, arrays: Mapping[str, NumpyArray], where: str) -> None:
    """Raise CheckpointError where a spec has larger sizes than its arrays allow, before any computation.

    An incomplete or invalid manifest must not make a runtime reserve memory.
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
        elif isinstance(leaf, Users):
            sizes.append(len(leaf.ids))
        else:
            sizes += [leaf.height * leaf.width * leaf.channels // 4096]
    sizes += [recipe["carry"], *_action_sizes(spec.action)]
    if not all(isinstance(size, int) and 0 <= size <= most for size in sizes):
        raise CheckpointError(f"{where} declares sizes {sizes[:8]}, more than its {most - 1:,} weights", fix=AGAIN)
    numbers = [0]  # intermediate ones of one row, where few weights can require many
    for node in _nodes(recipe):
        if node["kind"] == "leaf" and node["picture"] is not None:
            numbers += _picture_sizes(node["picture"], spec.observation.get(node["name"]))
        if node["kind"] == RANKING:
            body, steps = node["encoder"]["body"], node["history"]
            numbers.append(max(steps, reach(node)) * node["catalogue"]["weight"].shape[1])
            if body["kind"] == "attention":
                numbers.append(steps * steps * max([1, *(block["heads"] for block in body["blocks"])]))
    if max(numbers) > BUDGET:
        found = f"{where}: one row needs {max(numbers):,} intermediate values, at most {BUDGET:,}"
        raise CheckpointError(found, fix="use a smaller network")


def _picture_sizes(node: Any, leaf: Any) -> Iterator[int]:
    """Return the inputs of each layer, as views of its kernel."""
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
    if isinstance(space, Discrete | Catalogue):
        return [space.n]
    if isinstance(space, Hybrid):
        return [space.size, *space.codes]
    return list(space.sizes) if isinstance(space, MultiDiscrete) else [len(space.low)]


def _check_outputs(policy: NumpyPolicy, carry: int, where: str) -> None:
    """Raise CheckpointError unless blank observations, and the highest codes, give outputs that match the spec."""
    spec = policy.spec
    for highest in (False, True):
        leaves = {name: blank(leaf, highest) for name, leaf in spec.observation.items()}
        space = spec.action
        mask = np.ones((1, space.n), bool) if isinstance(space, Discrete) else None
        before = np.zeros((1, carry), np.float32) if carry else None
        seen = PolicyInputs(leaves, mask, before)
        outputs = _fits(lambda seen=seen: policy.outputs(seen), where)  # type: ignore[misc]
        if isinstance(space, Discrete):
            _expect(outputs.action, (1,), "actions", where)
            _expect(outputs.probabilities, (1, space.n), "probabilities", where)
        else:
            wide = space.sizes if isinstance(space, MultiDiscrete) else space.low
            _expect(outputs.action, (1, len(wide)), "actions", where)
        if carry:
            _expect(outputs.carry, (1, carry), "carries", where)
        if policy.has_values:
            values = _fits(lambda leaves=leaves: policy.values(leaves), where)  # type: ignore[misc]
            _expect(values, (1, *_action_sizes(space)), "values", where)


def _expect(actual: Any, expected: tuple[int, ...], name: str, where: str) -> None:
    if np.shape(actual) != expected:
        raise CheckpointError(
            f"{where}: the recipe returns {name} {list(np.shape(actual)[1:])}",
            f"{list(expected[1:])}",
            AGAIN,
        )


def _checked_ranker(recipe: Recipe, spec: Spec, where: str) -> Ranker:
    """Return a recipe's ranker after a test on an empty history and each kind of event; CheckpointError as above."""
    kinds = len(spec.observation["history"].events)  # type: ignore[union-attr]
    events = np.stack([np.zeros(kinds, np.int32), np.arange(1, kinds + 1, dtype=np.int32)])

    def rank() -> Ranker:
        functions = ranking_functions(recipe["act"])
        ranker = Ranker(functions)
        if not isinstance(spec.action, Catalogue) or ranker.items != spec.action.n:
            raise ValueError(f"its table has {ranker.items} items, unlike the spec")
        who = spec.observation.get("user")
        if ranker.features not in (0, len(who.columns) if isinstance(who, Profile) else 0):
            raise ValueError(f"it reads {ranker.features} user features, unlike the spec")
        ids = spec.observation.get("user_id")
        if ranker.known_users != (len(ids.ids) if isinstance(ids, Users) else 0):
            raise ValueError(f"it has vectors of {ranker.known_users} users, unlike the spec")
        last = np.array([0, ranker.known_users])
        ranker.rank(HistoryArrays(events * ranker.items // np.maximum(events, 1), events, None, last), 1)
        return Ranker(functions, vocabulary=Vocabulary(spec))

    return _fits(rank, where)


def _fits(compute: Callable[[], Fit], where: str) -> Fit:
    try:
        with FiniteNumbers():
            return compute()
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError, MemoryError, RecursionError,
            TidelogError) as error:  # fmt: skip
        raise CheckpointError(f"{where}: the recipe and its arrays differ: {error!r}", fix="export it again") from error
