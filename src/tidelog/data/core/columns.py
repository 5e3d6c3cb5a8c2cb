"""The mapping from a user's columns to what a log is made of."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, TypeAlias

from tidelog.errors import ConfigError, nearest

Names: TypeAlias = str | Sequence[str]
Bounds: TypeAlias = tuple[tuple[float, ...], tuple[float, ...]]
_LARGEST = 3.4028234663852886e38  # of 32-bit floats
RULES = ("error", "mean+flag", "forward")
LEAVES = ("numeric", "categorical")


@dataclass(frozen=True, kw_only=True)
class Columns:
    """Which column of a table holds what; ConfigError for values that cannot be meant.

    `episode=None`: every row is an episode of one step. `step=None`: steps follow `time`, or else the order of the
    rows. `reward=None`: only cloning can learn from the log. `terminated=True`: the world ended every episode at its
    last row, and no column says so. `action` and `reward` may be several columns. A mask is one column an action, or
    one column that holds lists such as `1,0,1`. `actions`: how many there are (a list for several choices at once).
    `cluster`: which episodes belong together (those of one person, store or day).
    `bounds`: `(low, high)`, numbers or one a dimension. `terminations="ignore"`: the task has a fixed length, and
    terminated rows count as truncated. `extra`: further columns to carry along. `image`: observation columns that hold
    names of picture files. `vocabularies`: column -> its words, in the order of their codes, for observations and
    actions. `missing`: what becomes of empty cells of observations, "error", "mean+flag" or "forward", or column ->
    one of these.
    """

    observation: Names
    action: Names
    reward: Names | None
    episode: str | None = None
    step: str | None = None
    terminated: str | bool | None = None
    truncated: str | None = None
    propensity: str | None = None
    action_mask: Names | None = None
    next_action_mask: Names | None = None
    next_observation: Names | None = None
    weight: str | None = None
    time: str | None = None
    cluster: str | None = None
    actions: int | Sequence[int] | None = None
    bounds: Sequence[Any] | None = None
    categorical: Names = ()
    image: Names = ()
    vocabularies: Mapping[str, Sequence[str]] | tuple[tuple[str, tuple[str, ...]], ...] = ()
    extra: Names = ()
    missing: str | Mapping[str, str] | tuple[tuple[str, str], ...] = "error"
    terminations: str = "stop"

    def __new__(cls, **given: Any) -> Columns:
        """Refuse unknown names before the fields are set."""
        _refuse_unknown(given, [field.name for field in fields(cls)], "Columns")
        return super().__new__(cls)

    def __post_init__(self) -> None:
        for field in fields(self):
            _check_names(field.name, getattr(self, field.name))
            object.__setattr__(self, field.name, _frozen(getattr(self, field.name)))
        self._check_missing()
        self._check_kinds()
        _one_of("terminations", self.terminations, ("stop", "ignore"))
        declared_actions(self.actions, self.bounds)
        if self.next_action_mask is not None and self.action_mask is None:
            raise ConfigError("next_action_mask is named without action_mask; name both, or action_mask alone")
        following = names(self.next_observation)
        if following and len(following) != len(names(self.observation)):
            raise ConfigError(
                f"next_observation names {len(following)} columns, observation {len(names(self.observation))}; "
                "name them in the same order, one for one"
            )

    @property
    def rules(self) -> dict[str, str]:
        """Observation column -> what becomes of its empty cells."""
        observed = names(self.observation)
        if isinstance(self.missing, str):
            return dict.fromkeys(observed, self.missing)
        return dict.fromkeys(observed, "error") | dict(self.missing)

    @property
    def words(self) -> dict[str, tuple[str, ...]]:
        """Column -> its declared vocabulary."""
        return {name: tuple(words) for name, words in dict(self.vocabularies).items()}

    def _check_missing(self) -> None:
        if not isinstance(self.missing, str):
            _pairs("missing", self.missing, str)
            _refuse_strangers("missing", dict(self.missing), names(self.observation))
        for rule in self.rules.values():
            _one_of("missing", rule, RULES)

    def _check_kinds(self) -> None:
        _pairs("vocabularies", self.vocabularies, tuple)
        known = [*names(self.observation), *names(self.action)]
        _refuse_strangers("vocabularies", self.words, known)
        for name, words in self.words.items():
            if not words or len(set(words)) < len(words) or not all(isinstance(word, str) for word in words):
                raise ConfigError(f"vocabularies: '{name}' needs words that differ, found {list(words)!r}")
        _refuse_strangers("image", names(self.image), names(self.observation))
        taken = [name for name in names(self.image) if name in LEAVES]
        if taken:
            raise ConfigError(f"image column '{taken[0]}': this name is a leaf's; rename the column")

    @classmethod
    def of(cls, columns: Columns | Mapping[str, Any] | str | Path) -> Columns:
        """A mapping from itself, a dictionary, or the path of a TOML or JSON file."""
        if isinstance(columns, Columns):
            return columns
        return cls.from_mapping(columns) if isinstance(columns, Mapping) else cls.from_file(columns)

    @classmethod
    def from_file(cls, path: str | Path) -> Columns:
        """Read a mapping from a TOML or JSON file; ConfigError if it is unreadable or holds an unknown key."""
        path = Path(path)
        return cls.from_mapping(_parse(path), str(path))

    @classmethod
    def from_mapping(cls, data: Mapping[str, Any], source: str = "the mapping") -> Columns:
        """Build from keys and values; ConfigError names unknown and lacking keys."""
        _refuse_unknown(data, [field.name for field in fields(cls)], source)
        lacking = [key for key in ("observation", "action") if key not in data]
        if lacking:
            raise ConfigError(f"{source}: {' and '.join(lacking)} must name a column of the log")
        return cls(**{"reward": None, **data})

    def used(self) -> dict[str, list[str]]:
        """Role -> the names of the columns it reads."""
        roles = {field.name: getattr(self, field.name) for field in fields(self)}
        settings = {"actions", "bounds", "categorical", "image", "vocabularies", "missing", "terminations"}
        named = {role: names(value) for role, value in roles.items() if role not in settings and value is not True}
        return {role: found for role, found in named.items() if found}


def names(value: Names | bool | None) -> list[str]:
    """A name, several, or none as a list."""
    if value is None or isinstance(value, bool):
        return []
    return [value] if isinstance(value, str) else list(value)


def declared_actions(actions: Any, bounds: Any) -> tuple[tuple[int, ...] | None, Bounds | None]:
    """Check `actions` and `bounds` as a user declares them: sizes, and (low, high) with equally many numbers."""
    if actions is not None and bounds is not None:
        raise ConfigError(
            "actions and bounds are both declared: actions counts choices, bounds limit numbers; keep one"
        )
    return _sizes(actions), _limits(bounds)


def _refuse_unknown(given: Mapping[str, Any], known: list[str], source: str) -> None:
    unknown = [str(key) for key in given if key not in known]
    if unknown:
        said = "; ".join(f"unknown key '{key}' ({nearest(key, known)})" for key in unknown)
        raise ConfigError(f"{source}: {said}")


def _frozen(value: Any) -> Any:
    """Lists and mappings as tuples, so that equal mappings are equal and can be hashed."""
    if isinstance(value, Mapping):
        return tuple(sorted(((name, _frozen(one)) for name, one in value.items()), key=lambda pair: str(pair[0])))
    return tuple(map(_frozen, value)) if isinstance(value, list | tuple) else value


def _pairs(field: str, value: Any, kind: type) -> None:
    fits = isinstance(value, tuple) and all(
        isinstance(pair, tuple) and len(pair) == 2 and isinstance(pair[0], str) and isinstance(pair[1], kind)
        for pair in value
    )
    if not fits:
        raise ConfigError(f"{field} must map columns to {'words' if kind is tuple else 'rules'}, found {value!r}")


def _refuse_strangers(field: str, given: Iterable[str], known: list[str]) -> None:
    for name in given:
        if name not in known:
            raise ConfigError(f"{field} names '{name}', which the mapping does not read; {nearest(name, known)}")


def _sizes(actions: Any) -> tuple[int, ...] | None:
    if actions is None:
        return None
    listed = list(actions) if isinstance(actions, Sequence) and not isinstance(actions, str) else [actions]
    if not listed or not all(isinstance(size, int) and not isinstance(size, bool) and size >= 1 for size in listed):
        raise ConfigError(f"actions must be a whole number of at least 1, or a list of them, found {actions!r}")
    return tuple(listed)


def _limits(bounds: Any) -> Bounds | None:
    if bounds is None:
        return None
    try:
        plain = (end.tolist() if hasattr(end, "tolist") else end for end in bounds)  # NumPy's ends, as a Box has them
        low, high = (tuple(map(float, end)) if isinstance(end, Sequence) else (float(end),) for end in plain)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"bounds must be (low, high), numbers or one a dimension, found {bounds!r}") from error
    size = max(len(low), len(high))
    low, high = (end * size if len(end) == 1 else end for end in (low, high))
    ordered = all(-_LARGEST <= a <= b <= _LARGEST for a, b in zip(low, high, strict=False))
    if len(low) != len(high) or not ordered:
        raise ConfigError(f"bounds must be finite 32-bit numbers, ordered and equally many, found {bounds!r}")
    return low, high


def _check_names(field: str, value: Any) -> None:
    if field in ("actions", "bounds", "vocabularies", "missing", "terminations") or value is None:
        return
    if field == "terminated" and value is True:
        return
    listed = [value] if isinstance(value, str) else value
    several = field in ("observation", "next_observation", "action", "reward", "action_mask", "next_action_mask")
    if not (several or field in ("categorical", "image", "extra") or isinstance(value, str)):
        raise ConfigError(f"{field} must name one column, found {value!r}")
    if not isinstance(listed, Sequence) or not all(isinstance(name, str) for name in listed):
        raise ConfigError(f"{field} must name a column or a list of columns, found {value!r}")
    if several and not listed:
        raise ConfigError(f"{field} names no column")


def _one_of(field: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise ConfigError(f"{field}={value!r} is not known; {nearest(str(value), known)}")


def _parse(path: Path) -> dict[str, Any]:
    try:
        text = path.read_text(encoding="utf-8-sig")
        data = json.loads(text) if path.suffix.lower() == ".json" else tomllib.loads(text)
    except (OSError, UnicodeDecodeError, json.JSONDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"{path}: the mapping cannot be read ({error})") from error
    if not isinstance(data, dict):
        raise ConfigError(f"{path}: a mapping is keys and values, found {type(data).__name__}")
    return data
