"""Reading an untrusted spec: every field of every leaf is checked, or refused."""

from __future__ import annotations

import math
from typing import Any

from tidelog.errors import CheckpointError, TidelogError
from tidelog.types import Catalogue, Codes, Continuous, Discrete, History, Image, MultiDiscrete, Profile, Spec, Vector


def read_spec(data: Any, where: str) -> Spec:
    """Return the spec of a manifest; CheckpointError names the invalid part."""
    try:
        spec = Spec.from_json(data)
    except (LookupError, TypeError, AttributeError, ValueError, OverflowError, TidelogError) as error:
        raise CheckpointError(f"{where}: the spec is invalid: {error}. fix: export it again") from error
    parts = {**spec.observation, "action": spec.action}
    for name, part in parts.items():
        if not _sound(part):
            raise CheckpointError(f"{where}: the spec of '{name}' is invalid: {part!r:.200}. fix: export it again")
    actions = isinstance(spec.action, Discrete | MultiDiscrete | Continuous | Catalogue)
    leaves = all(isinstance(leaf, _LEAVES) for leaf in spec.observation.values())
    plain = (spec.rewards is None or _count(spec.rewards)) and isinstance(spec.masked, bool)
    if not (actions and leaves and plain and spec.observation):
        raise CheckpointError(f"{where}: the spec has invalid leaves, actions, rewards or masked. fix: export it again")
    return spec


def described(spec: Spec) -> dict[str, Any]:
    """Return the meaning of masks and the fills of missing values, for programs that do not read specs."""
    space, missing = spec.action, {}
    for leaf in spec.observation.values():
        if isinstance(leaf, Vector):
            for name, value in leaf.fills:
                flag = f"{name} missing" if f"{name} missing" in leaf.names else None
                missing[name] = {"value": value, "flag": flag}
    masks = None
    if isinstance(space, Discrete):
        masks = {"actions": space.n, "true": "allowed", "in_the_log": spec.masked}
    return {"masks": masks, "missing": missing}


_LEAVES = (Vector, Codes, Image, History, Profile)


def _sound(part: Any) -> bool:
    """Return whether the fields of a leaf or an action space have the types and lengths of its kind."""
    if isinstance(part, Vector):
        return _count(part.size) and _names(part.names, part.size) and _all(part.fills, lambda p: _fill(p, part.names))
    if isinstance(part, Codes):
        sizes = _all(part.sizes, _count) and len(part.sizes) > 0
        return sizes and _names(part.names, len(part.sizes)) and _words(part.vocabularies, part.sizes)
    if isinstance(part, Image):
        return all(_count(size) for size in (part.height, part.width, part.channels))
    if isinstance(part, History):
        kinds = isinstance(part.events, tuple) and len(part.events) > 0 and _names(part.events, len(part.events))
        return kinds and _count(part.usual) and part.usual <= len(part.events)
    if isinstance(part, Profile):
        parts = (part.columns, part.words, part.mean, part.spread)
        alike = all(isinstance(one, tuple) and 0 < len(one) == len(part.columns) for one in parts)
        words = _all(part.columns, _word) and _all(part.words, lambda word: word is None or _word(word))
        return alike and words and _all(part.mean, _number) and _all(part.spread, lambda one: _number(one) and one > 0)
    if isinstance(part, Catalogue):
        types = {type(one) for one in part.ids} if isinstance(part.ids, tuple) else set()
        ids = types == {str} or (types == {int} and all(abs(int(one)) < 2**63 for one in part.ids))
        unlike = ids and 0 < len(part.ids) == len(set(part.ids))
        return unlike and isinstance(part.features, tuple) and _names(part.features, len(part.features))
    if isinstance(part, Discrete):
        return _count(part.n) and _names(part.names, part.n)
    if isinstance(part, MultiDiscrete):
        return _all(part.sizes, _count) and len(part.sizes) > 0
    bounds = _all(part.low, _number) and _all(part.high, _number) and len(part.low) > 0
    return bounds and _names(part.names, len(part.low))


def _fill(pair: Any, names: tuple[str, ...]) -> bool:
    return (
        isinstance(pair, tuple)
        and len(pair) == 2
        and isinstance(pair[0], str)
        and pair[0] in names
        and _number(pair[1])
    )


def _words(vocabularies: Any, sizes: tuple[int, ...]) -> bool:
    """Return whether there are no vocabularies, or for each column none or one value per code."""
    if vocabularies == ():
        return True
    listed = _all(vocabularies, lambda words: _all(words, lambda word: isinstance(word, str)))
    return listed and [len(words) or size for words, size in zip(vocabularies, sizes, strict=False)] == list(sizes)


def _all(items: Any, holds: Any) -> bool:
    return isinstance(items, tuple) and all(holds(item) for item in items)


def _word(value: Any) -> bool:
    return isinstance(value, str)


def _count(value: Any) -> bool:
    return type(value) is int and value > 0


def _number(value: Any) -> bool:
    return type(value) in (int, float) and abs(value) < 1e300 and math.isfinite(value)


def _names(names: Any, count: int) -> bool:
    words = _all(names, lambda name: isinstance(name, str))
    return words and len(names) in (0, count) and len(set(names)) == len(names)
