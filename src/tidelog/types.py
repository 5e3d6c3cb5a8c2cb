"""What every room speaks of: the shapes of a log, of a batch and of an action.

Letters in shapes: `B` batch, `N` steps in a log, `M` stored observations, `A` action size or number of actions,
`C` categorical columns, `E` ensemble, `K` reward components.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from tidelog.errors import SpecError

if TYPE_CHECKING:
    import jax

    Array: TypeAlias = jax.Array
else:  # so that the door for logs starts without JAX
    Array = Any
Observation: TypeAlias = dict[str, Array]


@dataclass(frozen=True)
class Vector:
    """Numeric features, `[..., size]` float32; `names` where the log had named columns.

    `fills` holds, for columns in which values may be missing, the value that stands in; where the feature
    `"<column> missing"` is among the names, it is 1 in rows that were filled and 0 elsewhere.
    """

    size: int
    names: tuple[str, ...] = ()
    fills: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True)
class Codes:
    """Categorical features, `[..., C]` int32; column `c` takes the codes `0 .. sizes[c] - 1`.

    `vocabularies[c]` holds the word behind each code, or is empty where the log had codes to begin with.
    """

    sizes: tuple[int, ...]
    names: tuple[str, ...] = ()
    vocabularies: tuple[tuple[str, ...], ...] = ()


@dataclass(frozen=True)
class Image:
    """A picture, `[..., height, width, channels]` uint8."""

    height: int
    width: int
    channels: int


@dataclass(frozen=True)
class History:
    """What a user took before, items and kinds of events `[..., H]` int32, counted from 1; the latest stands last.

    A short history begins with zeros. `events` are the kinds, `usual` the most frequent one.
    """

    events: tuple[str, ...]
    usual: int = 1


@dataclass(frozen=True)
class Profile:
    """What describes a user, `[..., F]` float32; zeros where nothing is known.

    Number `f` is column `columns[f]` less `mean[f]`, over `spread[f]`; where there is `words[f]`, 1 if the column holds
    that word, else 0.
    """

    columns: tuple[str, ...]
    words: tuple[str | None, ...]
    mean: tuple[float, ...]
    spread: tuple[float, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """What each number is called: its column, or `column=word`."""
        pairs = zip(self.columns, self.words, strict=True)
        return tuple(column if word is None else f"{column}={word}" for column, word in pairs)


@dataclass(frozen=True)
class Discrete:
    """One of `n` actions, `[...]` int32; `names` where the log had words for them."""

    n: int
    names: tuple[str, ...] = ()


@dataclass(frozen=True)
class MultiDiscrete:
    """Several choices at once, `[..., len(sizes)]` int32."""

    sizes: tuple[int, ...]


@dataclass(frozen=True)
class Catalogue:
    """One of many items, `[...]` int32 counted from 1; 0 is no item and is never chosen.

    `ids` are the log's own names of the items, `features` those of the numbers that describe each.
    """

    ids: tuple[str | int, ...]
    features: tuple[str, ...] = ()

    @property
    def n(self) -> int:
        """Number of items."""
        return len(self.ids)


@dataclass(frozen=True)
class Continuous:
    """A vector within bounds, `[..., A]` float32; `low` and `high` have one finite number a dimension."""

    low: tuple[float, ...]
    high: tuple[float, ...]
    names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if len(self.low) != len(self.high):
            raise SpecError(f"bounds differ in length: {len(self.low)} low, {len(self.high)} high")
        for low, high in zip(self.low, self.high, strict=True):
            if not (math.isfinite(low) and math.isfinite(high) and low <= high):
                raise SpecError(f"action bounds must be finite and ordered, found [{low}, {high}]")

    @property
    def size(self) -> int:
        """Number of action dimensions."""
        return len(self.low)

    def to_unit(self, action: Any) -> Any:
        """Actions `[..., A]` within the bounds, mapped to [-1, 1]."""
        centre, half = self._centre_and_half()
        return (action - centre) / half

    def from_unit(self, action: Any) -> Any:
        """Actions `[..., A]` in [-1, 1], mapped to the bounds."""
        centre, half = self._centre_and_half()
        return action * half + centre

    def executed(self, action: Any) -> Any:
        """What is done of actions `[..., A]` in units of [-1, 1]: mapped, and cut at the bounds."""
        low, high = (np.asarray(bound, np.float32) for bound in (self.low, self.high))
        return self.from_unit(action.clip(-1.0, 1.0)).clip(low, high)

    def log_volume(self) -> float:
        """What a log-density in units of [-1, 1] exceeds the log-density in the action's own units by."""
        return math.fsum(math.log(h) for h in self._centre_and_half()[1])

    def _centre_and_half(self) -> tuple[Any, Any]:
        low, high = np.asarray(self.low), np.asarray(self.high)
        half = np.where(high > low, (high - low) / 2, 1.0)
        return ((low + high) / 2).astype(np.float32), half.astype(np.float32)


Leaf: TypeAlias = Vector | Codes | Image
ActionSpace: TypeAlias = Discrete | MultiDiscrete | Continuous
# History, Profile and Catalogue stand apart: `recommend` knows them, and whoever acts need not.
_KINDS: dict[str, type[Any]] = {
    kind.__name__: kind
    for kind in (Vector, Codes, Image, History, Profile, Discrete, MultiDiscrete, Continuous, Catalogue)
}


@dataclass(frozen=True)
class Spec:
    """What is seen and what can be done: named observation leaves, the action space, reward components, masks."""

    observation: Mapping[str, Leaf]
    action: ActionSpace
    rewards: int | None = None  # K components; None: one number
    masked: bool = False  # whether rows say which actions were allowed

    def to_json(self) -> dict[str, Any]:
        """Plain dictionaries and lists that `from_json` reads back."""
        leaves = {name: _tagged(leaf) for name, leaf in self.observation.items()}
        return {"observation": leaves, "action": _tagged(self.action), "rewards": self.rewards, "masked": self.masked}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Spec:
        """Rebuild a spec from `to_json`; an unknown kind is a SpecError."""
        leaves = {name: _untagged(leaf) for name, leaf in data["observation"].items()}
        return cls(leaves, _untagged(data["action"]), data["rewards"], data["masked"])


def _tagged(value: Any) -> dict[str, Any]:
    return {"kind": type(value).__name__, **asdict(value)}


def _untagged(data: Mapping[str, Any]) -> Any:
    fields = dict(data)
    kind = fields.pop("kind", None)
    if kind not in _KINDS:
        raise SpecError(f"unknown kind {kind!r} in a spec; known kinds: {', '.join(_KINDS)}")
    return _KINDS[kind](**{name: _tuples(value) for name, value in fields.items()})


def _tuples(value: Any) -> Any:
    return tuple(_tuples(item) for item in value) if isinstance(value, list) else value


class Decision(NamedTuple):
    """What was seen and what was done, in the units that networks see; in windows, [B, T, ...] throughout."""

    observation: Observation  # leaves [B, ...]
    action: Array  # [B] int, [B, M] ints, or [B, A] float
    mask: Array | None = None  # [B, A] bool: the actions allowed; None: all of them
    real: Array | None = None  # windows only, [B, T] bool: steps that the episode has

    @property
    def window(self) -> dict[str, Array]:
        """What a network with a memory is told beside the observations."""
        return {} if self.real is None else {"real": self.real}


class Transition(NamedTuple):
    """One decision and what followed, in the units that networks see (scaled observations, actions in [-1, 1]).

    In windows everything is [B, T, ...].
    """

    observation: Observation  # leaves [B, ...]
    action: Array  # [B] int, [B, M] ints, or [B, A] float
    reward: Array  # [B] or [B, K]: sum of gamma**k * reward over the m <= n steps actually summed
    discount: Array  # [B]: gamma**m * (1 - terminated within the window)
    next_observation: Observation  # leaves [B, ...]: after those m steps
    mask: Array | None = None  # [B, A] bool: the actions allowed now; None: all of them
    next_mask: Array | None = None  # [B, A] bool: those allowed afterwards
    real: Array | None = None  # windows only, [B, T] bool: steps that the episode has
    last: Array | None = None  # windows only, [B, T] int32: the step of the window that `next_observation` follows

    @property
    def window(self) -> dict[str, Array]:
        """What a network with a memory is told beside the observations."""
        return {} if self.real is None else {"real": self.real}


class Histories(NamedTuple):
    """What users took before, by item index and kind of event from 1 on (0: none), and what describes each user."""

    items: Any  # [B, H] int32, the latest last
    events: Any  # [B, H] int32
    users: Any  # [B, F] float32; F is 0 where nothing is told of users


class Act(NamedTuple):
    """What a policy does: `log_probability` is None where it has no density, `carry` where it has no memory."""

    action: Array  # [B], [B, M] or [B, A]
    log_probability: Array | None = None  # [B]
    carry: Any = None


def same_shape(**arrays: Array) -> None:
    """Raise TypeError unless all arrays have one shape, so that (B,) never meets (B, 1)."""
    shapes = {name: tuple(array.shape) for name, array in arrays.items()}
    if len(set(shapes.values())) > 1:
        raise TypeError(f"shapes must agree, found {shapes}")
