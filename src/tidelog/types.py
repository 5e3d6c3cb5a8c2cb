"""Types shared by all packages: the spaces of a log, batches and actions.

Letters in shapes: `B` batch, `N` steps in a log, `M` stored observations, `A` action size or number of actions,
`C` categorical columns, `E` ensemble, `K` reward components.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import operator
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from tidelog._text import rows_table
from tidelog.errors import ConfigError, SpecError, nearest

if TYPE_CHECKING:
    import jax

    Array: TypeAlias = jax.Array
else:  # reading logs must work without JAX
    Array = Any
Observation: TypeAlias = dict[str, Array]


LARGEST = float(np.finfo(np.float32).max)
MASKED = np.ma.MaskedArray
OTHER = "other"  # the label that stands for labels in few rows of a log, and for those that it does not have


@dataclass(frozen=True)
class Vector:
    """Numeric features, `[..., size]` float32; `names` are the column names, if the log has any.

    The numbers of a column of lists are named `column[0]`, `column[1]`, ...

    `fills` holds the replacement value of each column in which values may be missing. A feature named
    `"<column> missing"` is 1 in rows that were filled and 0 elsewhere.
    """

    size: int
    names: tuple[str, ...] = ()
    fills: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True)
class Codes:
    """Categorical features, `[..., C]` int32; column `c` takes the codes `0 .. sizes[c] - 1`.

    `vocabularies[c]` holds the label of each code; it is empty if the log itself holds codes. Labels that the log does
    not have take the code of the label `other`, if there is one (`OTHER`); `rare_labels[c]` are the labels in few rows
    of the log for which it stands.
    """

    sizes: tuple[int, ...]
    names: tuple[str, ...] = ()
    vocabularies: tuple[tuple[str, ...], ...] = ()
    rare_labels: tuple[tuple[str, ...], ...] = ()

    def known(self, column: int) -> frozenset[str]:
        """The labels of a column that the log has."""
        return frozenset((*self.vocabularies[column], *(self.rare_labels[column] if self.rare_labels else ())))


@dataclass(frozen=True)
class Image:
    """A picture, `[..., height, width, channels]` uint8."""

    height: int
    width: int
    channels: int


@dataclass(frozen=True)
class History:
    """Past interactions of a user: items and kinds of events `[..., H]` int32, counted from 1, latest last.

    A short history is padded with zeros at the beginning. `events` are the kinds, `usual` the most frequent one.
    """

    events: tuple[str, ...]
    usual: int = 1


@dataclass(frozen=True)
class Profile:
    """Features of a user or an item, `[..., F]` float32; zeros if nothing is known.

    Feature `f` is (column `columns[f]` - `mean[f]`) / `spread[f]`; if `words[f]` is set, the column's value is 1 where
    it holds that word, else 0.
    """

    columns: tuple[str, ...]
    words: tuple[str | None, ...]
    mean: tuple[float, ...]
    spread: tuple[float, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The name of each feature: its column, or `column=word`."""
        pairs = zip(self.columns, self.words, strict=True)
        return tuple(column if word is None else f"{column}={word}" for column, word in pairs)


@dataclass(frozen=True)
class Users:
    """The user, `[...]` int32: the place of the id in `ids`, counted from 1; 0 for any other user."""

    ids: tuple[str | int, ...]


@dataclass(frozen=True)
class Discrete:
    """One of `n` actions, `[...]` int32; `names` are the labels of the actions, if the log has any.

    Example:
        >>> tl.collect("treatment", episodes=200, seed=0).spec.action
        Discrete(n=6, names=('none', 'low', 'high', 'none+support', 'low+support', 'high+support'))
    """

    n: int
    names: tuple[str, ...] = ()


@dataclass(frozen=True)
class MultiDiscrete:
    """Several discrete choices at once, `[..., len(sizes)]` int32.

    Example:
        >>> actions, rewards = np.array([[0, 2], [1, 0], [1, 1]]), np.zeros(3, np.float32)
        >>> log = tl.Log.from_arrays(observation=np.eye(3, dtype=np.float32), action=actions, reward=rewards)
        >>> log.spec.action
        MultiDiscrete(sizes=(2, 3))
    """

    sizes: tuple[int, ...]


@dataclass(frozen=True)
class Catalogue:
    """One of many items, `[...]` int32 counted from 1; 0 is no item and is never chosen.

    `ids` are the item identifiers of the log, `features` the names of the item features, and `profile` says how columns
    become these features.
    """

    ids: tuple[str | int, ...]
    features: tuple[str, ...] = ()
    profile: Profile | None = None

    @property
    def n(self) -> int:
        """Number of items."""
        return len(self.ids)


class InBounds(ABC):
    """Actions with bounds, in their own units and in those of networks, in which bounds are [-1, 1]; codes keep theirs.

    Rows of numbers [..., A] here.
    """

    low: Any
    high: Any

    @abstractmethod
    def cut(self, action: Any) -> Any:
        """Actions in network units, clipped to [-1, 1]."""

    @abstractmethod
    def _centre_and_half(self) -> tuple[Any, Any]:
        """The middle of the bounds and half their distance, [A] each; 0 and 1 of codes."""

    @cached_property
    def _units(self) -> tuple[Any, Any, Any, Any]:
        """The middle and half the distance of the bounds, and the bounds, [A] float32 each."""
        return *self._centre_and_half(), np.asarray(self.low, np.float32), np.asarray(self.high, np.float32)

    def to_unit(self, action: Any) -> Any:
        """Actions within the bounds, mapped to [-1, 1]."""
        centre, half, _, _ = self._units
        return (action - centre) / half

    def from_unit(self, action: Any) -> Any:
        """Actions in [-1, 1], mapped to the bounds."""
        centre, half, _, _ = self._units
        return action * half + centre

    def executed(self, action: Any) -> Any:
        """The executed actions for those in network units: mapped and clipped to the bounds."""
        _, _, low, high = self._units
        return self.from_unit(self.cut(action)).clip(low, high)


@dataclass(frozen=True)
class Continuous(InBounds):
    """A vector within bounds, `[..., A]` float32; `low` and `high` have one finite number per dimension.

    Example:
        >>> tl.types.Continuous(low=(-1.0, 0.0), high=(1.0, 5.0), names=("turn", "speed")).size
        2
    """

    low: tuple[float, ...]
    high: tuple[float, ...]
    names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if len(self.low) != len(self.high):
            raise SpecError(f"low has {len(self.low)} bounds and high has {len(self.high)}", "equal lengths")
        for low, high in zip(self.low, self.high, strict=True):
            if not (math.isfinite(low) and math.isfinite(high) and low <= high):
                raise SpecError(f"action bounds = [{low}, {high}]", "finite numbers with low <= high")
            if not max(abs(low), abs(high), high - low) <= LARGEST:
                raise SpecError(f"action bounds = [{low}, {high}]", f"bounds and a range of at most {LARGEST:.3g}")

    @property
    def size(self) -> int:
        """Number of action dimensions."""
        return len(self.low)

    def cut(self, action: Any) -> Any:
        """Actions `[..., A]` in units of [-1, 1], clipped to it."""
        return action.clip(-1.0, 1.0)

    def log_volume(self) -> float:
        """Log-density in units of [-1, 1] minus the log-density in the units of the action."""
        return math.fsum(math.log(h) for h in self._units[1])

    def _centre_and_half(self) -> tuple[Any, Any]:
        low, high = np.asarray(self.low), np.asarray(self.high)
        half = np.where(high > low, (high - low) / 2, 1.0)
        return ((low + high) / 2).astype(np.float32), half.astype(np.float32)


EXACT = 2**24  # whole numbers up to here are exact in float32


@dataclass(frozen=True)
class Hybrid(InBounds):
    """Several parts of an action, each discrete, multi-discrete or continuous; nested ones are named `outer/inner`.

    Logs, stores and networks hold an action as one row of `size` float32 numbers, the parts side by side, codes as
    numbers (`log.action`); `unpack` returns the mapping that people write, `pack` the row. SpecError without parts, for
    a name twice or of both a part and a mapping, and for more codes than float32 counts exactly (2**24).

    Example:
        >>> action = {"steer": np.array([[0.5], [-1.0]], np.float32), "gear": np.array([0, 2])}
        >>> zeros = np.zeros(2, np.float32)
        >>> log = tl.Log.from_arrays(observation=zeros, action=action, reward=zeros, bounds={"steer": (-1, 1)})
        >>> log.action.shape, log.spec.action.unpack(log.action)["gear"]
        ((2, 2), array([0, 2], dtype=int32))
    """

    parts: tuple[tuple[str, Discrete | MultiDiscrete | Continuous], ...]

    def __post_init__(self) -> None:
        names, fix = [name for name, _ in self.parts], "give every part its own name"
        if not names or len(set(names)) < len(names):
            raise SpecError(f"the parts of an action are {names}", "at least one, each with its own name", fix)
        for name in names:
            if inner := next((one for one in names if one.startswith(f"{name}/")), None):
                raise SpecError(f"the action has a part '{name}' and one in it, '{inner}'", fix=fix)
        for name, space in self.parts:
            if max(_codes_of(space)) > EXACT:
                raise SpecError(
                    f"the part '{name}' has {max(_codes_of(space)):,} codes",
                    f"at most {EXACT:,}",
                    "divide the choice into two parts",
                )

    @property
    def size(self) -> int:
        """W: numbers of a row."""
        return len(self.codes)

    @property
    def codes(self) -> tuple[int, ...]:
        """[W]: how many codes each number of a row has, 0 for one that is continuous."""
        return tuple(n for _, space in self.parts for n in _codes_of(space))

    @property
    def low(self) -> tuple[float, ...]:
        """[W]: lower bounds; 0 of codes."""
        return tuple(low for _, space in self.parts for low in getattr(space, "low", (0.0,) * len(_codes_of(space))))

    @property
    def high(self) -> tuple[float, ...]:
        """[W]: upper bounds; the largest of codes."""
        each = (getattr(space, "high", None) or [n - 1.0 for n in _codes_of(space)] for _, space in self.parts)
        return tuple(high for part in each for high in part)

    @property
    def is_discrete(self) -> bool:
        """Whether no part is continuous."""
        return all(self.codes)

    @property
    def labels(self) -> tuple[str, ...]:
        """[W]: the name of each number of a row: of its part, or `part[0]`, `part[1]`, ... of several."""
        each = ((name,) if isinstance(space, Discrete) else getattr(space, "names", ())
                or list_labels(name, len(_codes_of(space))) for name, space in self.parts)  # fmt: skip
        return tuple(label for part in each for label in part)

    def columns(self) -> dict[str, slice]:
        """The numbers of a row that belong to each part, by name."""
        ends = [0, *itertools.accumulate(len(_codes_of(space)) for _, space in self.parts)]
        return {name: slice(ends[i], ends[i + 1]) for i, (name, _) in enumerate(self.parts)}

    def pack(self, action: Mapping[str, Any]) -> np.ndarray[Any, Any]:
        """Return the rows [..., W] float32 of a mapping, nested or with names `outer/inner`; SpecError for a misfit."""
        values, names = named_leaves(action), [name for name, _ in self.parts]
        if set(values) != set(names):
            different = sorted({*values}.symmetric_difference(names))
            raise SpecError(f"the action has the parts {', '.join(values) or 'none'}", f"{', '.join(names)}",
                            f"check {', '.join(different[:3])}")  # fmt: skip
        arrays = []
        for name, space in self.parts:
            array, width = as_part(name, values[name]), len(_codes_of(space))
            if isinstance(space, Discrete) and space.names and array.dtype.kind in "UOT":
                array = _codes_of_labels(array, space, name)
            array = array[..., None] if isinstance(space, Discrete) else array
            if array.dtype.kind not in "biuf" or array.ndim == 0 or array.shape[-1] != width:
                shape = "[] or [B]" if isinstance(space, Discrete) else f"[{width}] or [B, {width}]"
                raise SpecError(f"the part '{name}' has shape {list(np.shape(values[name]))} of {array.dtype}",
                                f"numbers of shape {shape}", "give it this shape")  # fmt: skip
            arrays.append(array.astype(np.float32))
        if len({array.shape[:-1] for array in arrays}) > 1:
            pairs = zip(self.parts, arrays, strict=True)
            counts = {name: len(array) if array.ndim > 1 else "one action" for (name, _), array in pairs}
            raise SpecError(
                f"the parts of the action have different numbers of rows: {counts}", fix="use equal numbers"
            )
        return np.concatenate(arrays, axis=-1)

    def unpack(self, action: Any) -> dict[str, Any]:
        """Return rows [..., W] as a nested mapping: int32 codes [...] or [..., M], float32 numbers [..., A]."""
        flat: dict[str, Any] = {}
        for (name, space), columns in zip(self.parts, self.columns().values(), strict=True):
            part = action[..., columns]
            part = part if isinstance(space, Continuous) else part.astype(np.int32)
            flat[name] = part[..., 0][()] if isinstance(space, Discrete) else part
        return nested(flat)

    def cut(self, action: Any) -> Any:
        """Rows [..., W] in network units, clipped to [-1, 1]; codes are unchanged."""
        low, high = ([c if n else u for c, n in zip(codes, self.codes, strict=True)]
                     for codes, u in ((self.low, -1.0), (self.high, 1.0)))  # fmt: skip
        return action.clip(np.asarray(low, np.float32), np.asarray(high, np.float32))

    def log_volume(self) -> float:
        """Log-density in network units minus the log-density in the units of the action."""
        return math.fsum(space.log_volume() for _, space in self.parts if isinstance(space, Continuous))

    def _centre_and_half(self) -> tuple[Any, Any]:
        whole = (np.zeros(1, np.float32), np.ones(1, np.float32))
        each = [space._centre_and_half() if isinstance(space, Continuous) else [np.repeat(one, len(_codes_of(space)))
                for one in whole] for _, space in self.parts]  # fmt: skip
        centre, half = (np.concatenate(one) for one in zip(*each, strict=True))
        return centre, half


def _codes_of_labels(labels: np.ndarray[Any, Any], space: Discrete, name: str) -> np.ndarray[Any, Any]:
    """The codes of labels of a discrete part; SpecError for one that it does not have."""
    table = {label: code for code, label in enumerate(space.names)}
    unknown = [label for label in map(str, labels.ravel()) if label not in table]
    if unknown:
        raise SpecError(f"the part '{name}' is {unknown[0]!r:.80}: {nearest(unknown[0], space.names)}")
    return np.asarray([table[str(label)] for label in labels.ravel()], np.int64).reshape(labels.shape)


def _codes_of(space: Any) -> tuple[int, ...]:
    """How many codes each number of a part has, 0 for continuous ones."""
    if isinstance(space, Discrete):
        return (space.n,)
    return space.sizes if isinstance(space, MultiDiscrete) else (0,) * space.size


def same_choices(one: Any, two: Any) -> bool:
    """Whether two spaces hold the same actions, whatever the bounds of their continuous numbers."""
    if isinstance(one, Hybrid) and isinstance(two, Hybrid):
        pairs = zip(one.parts, two.parts, strict=False)
        alike = len(one.parts) == len(two.parts)
        return alike and all(a[0] == b[0] and same_choices(a[1], b[1]) for a, b in pairs)
    if isinstance(one, Continuous) and isinstance(two, Continuous):
        return one.size == two.size and (one.names == two.names or not (one.names and two.names))
    return bool(one == two)


def has_densities(space: Any) -> bool:
    """Whether the propensities of a space's actions are densities, and no probabilities."""
    return isinstance(space, Continuous) or (isinstance(space, Hybrid) and not space.is_discrete)


def as_part(name: str, values: Any) -> np.ndarray[Any, Any]:
    """A part of an action as an array; SpecError where its rows have different lengths."""
    try:
        return np.asarray(values)
    except ValueError as error:
        raise SpecError(f"the part '{name}' of the action has rows of different lengths", "equal lengths") from error


def flat_leaves(values: Mapping[Any, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Leaves of nested mappings, named `outer/inner`."""
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from flat_leaves(value, f"{prefix}{key}/")
        else:
            yield f"{prefix}{key}", value


def named_leaves(values: Mapping[Any, Any]) -> dict[str, Any]:
    """`flat_leaves` by name; SpecError for two of one name, and for an empty name."""
    leaves: dict[str, Any] = {}
    for name, leaf in flat_leaves(values):
        if name in leaves or not all(name.split("/")):
            what = f"two are named '{name}'" if name in leaves else f"one is named '{name}'"
            raise SpecError(f"parts of a mapping: {what}", "different names, none of them empty", "rename one")
        leaves[name] = leaf
    return leaves


def nested(leaves: Mapping[str, Any]) -> dict[str, Any]:
    """The nested mappings of leaves named `outer/inner`."""
    mapping: dict[str, Any] = {}
    for name, leaf in leaves.items():
        *outer, last = name.split("/")
        inner = mapping
        for one in outer:
            inner = inner.setdefault(one, {})
        inner[last] = leaf
    return mapping


Leaf: TypeAlias = Vector | Codes | Image
ActionSpace: TypeAlias = Discrete | MultiDiscrete | Continuous | Hybrid
# History, Profile, Users and Catalogue are not in these unions: only `recommend` uses them.
_KINDS: dict[str, type[Any]] = {
    kind.__name__: kind
    for kind in (Vector, Codes, Image, History, Profile, Users, Discrete, MultiDiscrete, Continuous, Hybrid, Catalogue)
}


def list_labels(name: str, width: int) -> tuple[str, ...]:
    """The names of the numbers in a column of lists of this width: `name[0]`, `name[1]`, ..."""
    return tuple(f"{name}[{position}]" for position in range(width))


def lists_among(names: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """The columns of lists whose numbers are all among these names, each with `list_labels` of its width."""
    listed, widths = set(names), dict[str, int]()
    for name in listed:
        base, opened, position = name.removesuffix("]").rpartition("[") if name.endswith("]") else ("", "", "")
        if opened and position.isdecimal():
            widths[base] = widths.get(base, 0) + 1
    labels = {base: list_labels(base, width) for base, width in widths.items() if base not in listed}
    return {base: several for base, several in sorted(labels.items()) if listed.issuperset(several)}


MOST_NAMES = 8  # of a part, in a table of a notebook


def in_words(part: Leaf | ActionSpace) -> str:
    """The kind of a part of the observation, or of the action, and the first of its names."""
    if isinstance(part, Hybrid):
        return f"Hybrid ({', '.join(f'{name}: {in_words(one)}' for name, one in part.parts[:MOST_NAMES])})"
    names = [str(name) for name in getattr(part, "names", ())]
    listed = f" ({', '.join(names[:MOST_NAMES])}{', ...' if len(names) > MOST_NAMES else ''})" if names else ""
    return f"{type(part).__name__}{listed}"


@dataclass(frozen=True)
class Spec:
    """The observation leaves by name, the action space, the number of reward components, and whether masks exist.

    `masked`: each observation comes with a mask `[A]` of the allowed actions. A log has it if it has `action_mask`; an
    environment declares it, and then returns a mask with every observation. A recipe is docs/gallery/masks.md.
    `elapsed_unit`: an environment of unevenly spaced decisions names its unit of time, such as "hour", and returns the
    time to the next decision with every step; discounts are then per unit.

    Example:
        >>> spec = tl.types.Spec({"observation": tl.types.Vector(2)}, tl.types.Discrete(3), masked=True)
        >>> tl.types.Spec.from_json(spec.to_json()) == spec
        True
    """

    observation: Mapping[str, Leaf]
    action: ActionSpace
    rewards: int | None = None  # K components; None: one number
    masked: bool = False  # whether each row has a mask of allowed actions
    elapsed_unit: str | None = None  # of an environment that returns elapsed times; that of a log is in the log

    def _repr_html_(self) -> str:
        """Return a table for notebooks."""
        rows = [*((f"observation: {name}", in_words(leaf)) for name, leaf in self.observation.items())]
        rows += [
            ("action", in_words(self.action)),
            ("rewards", "one number" if self.rewards is None else f"{self.rewards} numbers"),
        ]
        rows.append(("mask of allowed actions", "yes" if self.masked else "no"))
        rows += [] if self.elapsed_unit is None else [("time between decisions", self.elapsed_unit)]
        return rows_table("Spec", ("part", "kind"), rows)

    def to_json(self) -> dict[str, Any]:
        """Plain dictionaries and lists that `from_json` reads back."""
        leaves = {name: _tagged(leaf) for name, leaf in self.observation.items()}
        unit = {} if self.elapsed_unit is None else {"elapsed_unit": self.elapsed_unit}
        action = _tagged(self.action)
        return {"observation": leaves, "action": action, "rewards": self.rewards, "masked": self.masked, **unit}

    @classmethod
    def from_json(cls, data: Any) -> Spec:
        """Rebuild a spec from `to_json`; SpecError for an unknown kind, or a field of another type or length."""
        try:
            leaves = {name: _untagged(leaf) for name, leaf in data["observation"].items()}
            unit = data.get("elapsed_unit")
            spec = cls(leaves, _untagged(data["action"]), data["rewards"], data["masked"], unit)
        except (LookupError, TypeError, AttributeError, ValueError, OverflowError) as error:
            raise SpecError(f"a spec is invalid: {error!r}", fix="write it again") from error
        for name, part in {**spec.observation, "action": spec.action}.items():
            if not _is_sound(part):
                raise SpecError(f"the spec of '{name}' is invalid: {part!r:.200}", fix="write it again")
        actions = isinstance(spec.action, ActionSpace | Catalogue)
        inputs = all(isinstance(leaf, Vector | Codes | Image | History | Profile | Users) for leaf in leaves.values())
        plain = (spec.rewards is None or _is_count(spec.rewards)) and isinstance(spec.masked, bool)
        if not (actions and inputs and plain and leaves and isinstance(unit, str | None)):
            raise SpecError("a spec has invalid leaves, actions, rewards, masked or unit", fix="write it again")
        return spec


def _tagged(value: Any) -> dict[str, Any]:
    if isinstance(value, Hybrid):
        return {"kind": "Hybrid", "parts": [[name, _tagged(part)] for name, part in value.parts]}
    fields = asdict(value)
    if not fields.get("rare_labels", True):
        del fields["rare_labels"]  # of labels, which few logs have
    return {"kind": type(value).__name__, **fields}


def _untagged(data: Mapping[str, Any]) -> Any:
    fields = dict(data)
    kind = fields.pop("kind", None)
    if kind not in _KINDS:
        raise SpecError(f"kind = {kind!r} in a spec is unknown", f"one of {', '.join(_KINDS)}", "write it again")
    if kind == "Hybrid":
        fields["parts"] = [[name, _untagged(part)] for name, part in fields["parts"]]
    parts = {name: _tuples(value) for name, value in fields.items()}
    if kind == "History":
        parts.pop("times", None)  # of policies that were saved when some read the times between events
    if kind == "Catalogue" and isinstance(parts.get("profile"), Mapping):
        parts["profile"] = Profile(**{name: _tuples(value) for name, value in parts["profile"].items()})
    return _KINDS[kind](**parts)


def _tuples(value: Any) -> Any:
    return tuple(_tuples(item) for item in value) if isinstance(value, list) else value


def _is_sound(part: Any) -> bool:
    """Return whether the fields of a leaf or an action space have the types and lengths of its kind."""
    if isinstance(part, Vector):
        return (
            _is_count(part.size)
            and _are_names(part.names, part.size)
            and _all(part.fills, lambda pair: isinstance(pair, tuple) and len(pair) == 2)
            and all(isinstance(name, str) and name in part.names and _is_number(number) for name, number in part.fills)
        )
    if isinstance(part, Codes):
        sizes = _all(part.sizes, _is_count) and len(part.sizes) > 0
        named = sizes and _are_names(part.names, len(part.sizes)) and _are_vocabularies(part.vocabularies, part.sizes)
        listed = named and _all(part.rare_labels, lambda words: _all(words, _is_word))
        return listed and len(part.rare_labels) in (0, len(part.vocabularies))
    if isinstance(part, Image):
        return all(_is_count(size) for size in (part.height, part.width, part.channels))
    if isinstance(part, History):
        kinds = isinstance(part.events, tuple) and len(part.events) > 0 and _are_names(part.events, len(part.events))
        return kinds and _is_count(part.usual) and part.usual <= len(part.events)
    if isinstance(part, Profile):
        parts = (part.columns, part.words, part.mean, part.spread)
        alike = all(isinstance(one, tuple) and 0 < len(one) == len(part.columns) for one in parts)
        words = _all(part.columns, _is_word) and _all(part.words, lambda word: word is None or _is_word(word))
        return (
            alike
            and words
            and _all(part.mean, _is_number)
            and _all(part.spread, lambda one: _is_number(one) and one > 0)
        )
    if isinstance(part, Users):
        return _are_ids(part.ids)
    if isinstance(part, Catalogue):
        named = isinstance(part.features, tuple) and _are_names(part.features, len(part.features))
        profile = part.profile
        read = profile is None or (
            isinstance(profile, Profile) and _is_sound(profile) and profile.names == part.features
        )
        return _are_ids(part.ids) and named and read
    if isinstance(part, Discrete):
        return _is_count(part.n) and _are_names(part.names, part.n)
    if isinstance(part, MultiDiscrete):
        return _all(part.sizes, _is_count) and len(part.sizes) > 0
    if isinstance(part, Hybrid):
        inner = all(isinstance(one, Discrete | MultiDiscrete | Continuous) and _is_sound(one) for _, one in part.parts)
        return inner and all(_is_word(name) for name, _ in part.parts)
    bounds = _all(part.low, _is_number) and _all(part.high, _is_number) and len(part.low) > 0
    return bounds and _are_names(part.names, len(part.low))


def _are_vocabularies(vocabularies: Any, sizes: tuple[int, ...]) -> bool:
    """Return whether there are no vocabularies, or for each column none or one value per code."""
    if vocabularies == ():
        return True
    listed = _all(vocabularies, lambda words: _all(words, _is_word))
    return listed and [len(words) or size for words, size in zip(vocabularies, sizes, strict=False)] == list(sizes)


def _are_names(names: Any, count: int) -> bool:
    return _all(names, _is_word) and len(names) in (0, count)


def _are_ids(ids: Any) -> bool:
    """Return whether these are different texts, or different whole numbers of 64 bits."""
    types = {type(one) for one in ids} if isinstance(ids, tuple) else set()
    alike = types == {str} or (types == {int} and all(abs(int(one)) < 2**63 for one in ids))
    return alike and 0 < len(ids) == len(set(ids))


def _all(items: Any, holds: Callable[[Any], bool]) -> bool:
    return isinstance(items, tuple) and all(holds(item) for item in items)


def _is_word(value: Any) -> bool:
    return isinstance(value, str)


def _is_count(value: Any) -> bool:
    return type(value) is int and value > 0


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and abs(value) < 1e300 and math.isfinite(value)


class Decision(NamedTuple):
    """Observation and action, in the units of the networks; in windows, all shapes are [B, T, ...]."""

    observation: Observation  # leaves [B, ...]
    action: Array  # [B] int, [B, M] ints, or [B, A] float; of parts [B, W] float
    mask: Array | None = None  # [B, A] bool: the actions allowed; None: all of them
    real: Array | None = None  # windows only, [B, T] bool: False at padding steps

    @property
    def window(self) -> dict[str, Array]:
        """The arguments of a recurrent network besides the observations."""
        return {} if self.real is None else {"real": self.real}


class Transition(NamedTuple):
    """One decision and its outcome, in the units of the networks (scaled observations, actions in [-1, 1]).

    In windows, all shapes are [B, T, ...].
    """

    observation: Observation  # leaves [B, ...]
    action: Array  # [B] int, [B, M] ints, or [B, A] float; of parts [B, W] float
    reward: Array  # [B] or [B, K]: sum of gamma**k * reward over the m <= n steps actually summed
    discount: Array  # [B]: gamma**m * (1 - terminated within the window); [B, K] with a gamma for each reward
    next_observation: Observation  # leaves [B, ...]: after those m steps
    mask: Array | None = None  # [B, A] bool: the actions allowed now; None: all of them
    next_mask: Array | None = None  # [B, A] bool: the actions allowed at the next step
    real: Array | None = None  # windows only, [B, T] bool: False at padding steps
    last: Array | None = None  # windows only, [B, T] int32: the step of the window that `next_observation` follows
    log_propensity: Array | None = None  # [B]: of the behaviour policy, where an algorithm reads it
    next_action: Array | None = None  # [B, A]: the logged action in `next_observation`, where an algorithm reads it
    has_next_action: Array | None = None  # [B] bool: whether the log has it; False after the last step of an episode

    @property
    def window(self) -> dict[str, Array]:
        """The arguments of a recurrent network besides the observations."""
        return {} if self.real is None else {"real": self.real}


class HistoryNames(NamedTuple):
    """The names of the numbers in histories: number 1 is the first name."""

    items: Any  # [N] ids
    events: tuple[str, ...]  # kinds of events
    users: Any = None  # [U] ids


class HistoryArrays(NamedTuple):
    """Past interactions of users, item indices and kinds of events from 1 on (0: none), and what is known of users.

    They are left-padded with 0. None for users is not known, or not read.
    """

    items: Any  # [B, H] int32, latest last
    events: Any  # [B, H] int32
    users: Any = None  # [B, F] float32 features
    user_index: Any = None  # [B] int32: places of the users from 1 on, 0: unknown
    names: HistoryNames | None = None  # of these numbers; a log's histories have those of the log

    def part(self, rows: Any) -> HistoryArrays:
        """The histories of some rows: a slice, indices or a mask [B]."""
        arrays = {"items": self.items, "events": self.events, "users": self.users, "user_index": self.user_index}
        return self._replace(**{name: None if one is None else one[rows] for name, one in arrays.items()})


class Act(NamedTuple):
    """A policy's action; `log_probability` is None without a density, `carry` is None if it is not recurrent."""

    action: Array  # [B], [B, M] or [B, A]
    log_probability: Array | None = None  # [B]
    carry: Any = None


def is_masked(values: Any) -> bool:
    """Whether an array of `numpy.ma`, or one in a list, hides values; `np.asarray` would show what the mask hides."""
    if isinstance(values, list | tuple):
        rows = [row for row in values if isinstance(row, MASKED)]
        return any(map(np.ma.is_masked, rows))
    return isinstance(values, MASKED) and bool(np.ma.is_masked(values))


def same_shape(**arrays: Array) -> None:
    """Raise TypeError unless all arrays have one shape; this prevents (B,) with (B, 1)."""
    shapes = {name: tuple(array.shape) for name, array in arrays.items()}
    if len(set(shapes.values())) > 1:
        raise TypeError(f"shapes = {shapes}: expected equal shapes")


def check_seed(seed: Any, most: int | None = None) -> int:
    """Return the seed of a random number generator as an int; ConfigError unless it is a whole number of at least 0."""
    number = -1
    if not isinstance(seed, bool):
        with contextlib.suppress(TypeError):  # what is no whole number is refused below
            number = operator.index(seed)
    if number < 0:
        raise ConfigError(f"seed = {seed!r}", "a whole number of at least 0", "use seed=0")
    if most is not None and number > most:
        raise ConfigError(f"seed = {seed!r}", f"at most {most:,}", "use seed=0")
    return number
