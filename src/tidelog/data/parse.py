"""From columns of a table, or arrays, to the values of a raw log."""

from __future__ import annotations

import csv
import io
import json
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, BinaryIO, Required, TypeAlias, TypedDict, Unpack

import numpy as np
import polars as pl

from tidelog._machine import shortage
from tidelog._text import count_of, shorten
from tidelog.data.columns import (
    AT_RANDOM,
    LEAVES,
    SECONDS,
    SHARES,
    SHARES_BY,
    TIME_UNITS,
    UNKNOWN,
    Bounds,
    Columns,
    Declaration,
    by_part,
    declaration_of,
    declared_actions,
    declared_atoms,
    declared_missing,
    declared_unit,
    horizon_of,
    names,
)
from tidelog.data.dependence import kind_of
from tidelog.data.raw import (
    FIX_MEMORY,
    LASTS,
    STARTS,
    TERMINATIONS,
    TRUNCATIONS,
    Column,
    Feature,
    FileRows,
    Finding,
    Kind,
    RawAction,
    RawLog,
    Values,
    rounded_rewards,
    unreadable,
)
from tidelog.errors import ConfigError, nearest, unknown_name
from tidelog.types import OTHER, as_part, flat_leaves, is_masked, named_leaves

# The actions of a log from their columns: discrete, continuous or several at once.


def decide_action(
    columns: tuple[Column, ...],
    sizes: tuple[int, ...] | None,
    bounds: Bounds | None,
) -> RawAction:
    """Discrete, multi-discrete or continuous: as declared, else discrete for one column of whole numbers."""
    width = sum(int(np.prod(column.values.shape[1:])) for column in columns)
    if sizes is not None:
        return RawAction("discrete" if len(sizes) == 1 and width == 1 else "multi", columns, sizes)
    if bounds is not None or width != 1:
        return RawAction("continuous", columns, None, widened(bounds, width))
    values = columns[0].values[columns[0].usable]
    whole = bool(np.all(values[np.isfinite(values)] % 1 == 0))
    return RawAction("discrete" if whole else "continuous", columns)


def widened(bounds: Bounds | None, width: int) -> Bounds | None:
    """Repeat a single pair of bounds for every dimension."""
    return bounds if bounds is None or len(bounds[0]) != 1 else (bounds[0] * width, bounds[1] * width)


# Parse arrays into a `RawLog`: the common part of `Log.from_arrays`, npz files and Minari data sets.


class LogArrays(TypedDict, total=False):
    """The arrays of a log, of N rows each, and what is declared about them."""

    observation: Required[Any]  # [N], [N, O], [N, height, width, channels] uint8, or a mapping from leaf names to these
    action: Required[Any]  # [N] integers or text, [N, D] integers, [N, A] floats, or a mapping from parts to these
    reward: Required[Any]  # [N] or [N, K]; None: a log without rewards
    terminated: Any  # [N] bool: the environment ended the episode there; True: it ended every episode
    truncated: Any  # [N] bool: the episode was cut off there
    episode: Any  # [N] integers or text; None: every row is an episode of one step
    step: Any  # [N]: the order of the rows of an episode; None: that of the rows
    time: Any  # [N] numbers or dates
    propensity: Any  # [N], or a declaration of how actions were drawn
    weight: Any  # [N] floats from 0
    elapsed: Any  # [N] floats from 0: time to the next decision, or to the end of the episode
    cluster: Any  # [N] integers or text: groups of dependent episodes
    next_observation: Any  # as `observation`: what followed each row
    followed: Any  # [N] bool: rows whose `next_observation` is known; None: all
    action_mask: Any  # [N, actions] bool: the allowed actions
    next_action_mask: Any  # [N, actions] bool: those after the row
    actions: int | Sequence[int] | Mapping[str, Any] | None  # number of discrete actions, of each dimension, or by part
    bounds: (
        Sequence[Any] | Mapping[str, Any] | None
    )  # (low, high) of continuous actions, each a number or one for each dimension
    atoms: float | Sequence[float]  # continuous actions with a probability of their own
    reward_unit: str | None  # the unit of rewards, such as "EUR"
    elapsed_unit: str | None  # that of elapsed times, such as "hour"
    missing_reward: float | str | None  # what NaN among rewards is: a number, "unknown" or "at random"
    categorical: bool  # whether whole numbers of observations are codes; default True
    sizes: Mapping[str, tuple[int, ...]] | None  # numbers of codes of leaves of the observation
    terminations: str  # "stop", or "ignore" to count them as truncations
    extra: Mapping[str, Any] | None  # further columns [N]


SINGLE = ("terminated", "truncated", "episode", "step", "time", "propensity", "weight", "cluster", "elapsed")
_OTHER = ("categorical", "sizes", "terminations", "extra")
ROLES = tuple(name for name in LogArrays.__annotations__ if name not in _OTHER)  # of the arrays of an npz file
_CHANNELS = (1, 3, 4)
_TIMES = "iufM"
_ANY = "biufMU"
_KINDS = {"*": "biuf", "time": _TIMES, "step": _TIMES, "episode": "iufU", "cluster": "iufU", "action": "biufU"}


class _ArrayFindings:
    """Arrays and their findings; N is the length of the action."""

    def __init__(self, action: Any) -> None:
        self.found: list[tuple[str, Finding]] = []
        if isinstance(action, Mapping):
            action = next((part for _, part in flat_leaves(action)), ())
        shape = np.shape(action) if not isinstance(action, list | tuple) else (len(action),)
        self.rows = int(shape[0]) if shape else 0

    def refuse(self, check: str, name: str, found: str, expected: str, advice: str) -> None:
        self.found.append((check, Finding(name, None, found, expected, advice)))

    def array(self, name: str, value: Any, deepest: int = 1) -> Values | None:
        """Convert to an array of N rows and at most `deepest` axes; None and a finding if that fails."""
        if is_masked(value):
            found, expected = "masked values", "values that are known"
            advice = "leave out these rows, or fill them, as in values.filled(0), beside a column that flags them"
            self.refuse("missing value", name, found, expected, advice)
            return None
        try:
            array = np.asarray(value)
        except ValueError:
            array = np.empty(0, object)
        if deepest == 1 and array.ndim == 2 and array.shape[1] == 1 and array.dtype != object:
            array = array[:, 0]  # as replay buffers keep one number a row
        if array.dtype == object or array.ndim > deepest or array.ndim == 0 or (self.rows and not array.size):
            shape = "[N]" if deepest == 1 else "[N] or [N, D]"
            found = "rows of different shapes, or objects" if array.dtype == object else f"shape {list(array.shape)}"
            advice = "give every row the same shape; images are arrays [N, height, width, channels] of uint8"
            self.refuse("changing shapes", name, found, f"one array of shape {shape}", advice)
            return None
        if len(array) != self.rows:
            found, expected = f"{len(array):,} rows", f"{self.rows:,} rows, as many as actions"
            self.refuse("wrong length", name, found, expected, "give one value for every row")
            return None
        return array

    def column(self, name: str, value: Any, deepest: int = 1, kinds: str | None = None) -> Column | None:
        """Convert to a column; None if there is no value, or if it does not fit (with a finding)."""
        if value is None:
            return None
        array = self.array(name, value, deepest)
        if array is None:
            return None
        if array.dtype.kind not in (kinds or _KINDS.get(name, _KINDS["*"])):
            found = f"{array.dtype}, such as {array.reshape(-1)[0]!r}" if array.size else str(array.dtype)
            self.refuse("non-numeric text", name, found, "numbers", "convert the array to numbers")
            return None
        if array.dtype.kind == "U":
            words, codes = np.unique(array, return_inverse=True)
            return Column(name, codes.reshape(array.shape).astype(np.int32), tuple(map(str, words)))
        if array.dtype.kind == "b":
            return Column(name, array.astype(np.float32))
        return Column(name, finest(array) if array.dtype.kind == "M" else array)


NANOSECONDS = (1678, 2261)  # the first and last whole year that 64 bits count in nanoseconds


def finest(moments: Values) -> Values:
    """Return datetimes [N] in microseconds, or in nanoseconds where microseconds would make different times equal."""
    rounded = moments.astype("datetime64[us]")
    same = (rounded == moments) | np.isnat(moments)
    return rounded if same.all() else moments.astype("datetime64[ns]")


def from_arrays(source: str = "arrays", /, **arrays: Unpack[LogArrays]) -> RawLog:
    """Parse the arrays; a misfit is a finding, not an exception. ConfigError for unknown and missing names."""
    for name in arrays:
        if name not in LogArrays.__annotations__:
            raise unknown_name("Log.from_arrays", "array", name, LogArrays.__annotations__)
    for name in ("observation", "action", "reward"):
        if name not in arrays:
            fix = "pass reward=None for a log without rewards" if name == "reward" else f"pass {name}="
            raise ConfigError(f"no array '{name}'", "observation, action and reward", fix)
    get: Any = arrays.get
    if get("next_action_mask") is not None and get("action_mask") is None:
        raise ConfigError("next_action_mask is set without action_mask", fix="set both or only action_mask")
    observation, action = arrays["observation"], arrays["action"]
    if isinstance(action, Mapping):
        _check_parts(named_leaves(action))
    checked = _ArrayFindings(action)
    always = get("terminated") is True
    declared, strata = _declared(checked, get("propensity"))
    unread = {"terminated"} if always else set[str]()
    unread |= set() if declared is None else {"propensity"}
    single: dict[str, Any] = {name: None if name in unread else checked.column(name, get(name)) for name in SINGLE}
    elapsed: Column | None = single["elapsed"]
    if elapsed is not None and elapsed.values.dtype.kind == "f":
        single["elapsed"] = replace(elapsed, missing=np.flatnonzero(np.isnan(elapsed.values)))
    rewards = checked.column("reward", arrays["reward"], 2)
    missing = declared_missing(get("missing_reward"))
    if rewards is not None and get("missing_reward") is not None and rewards.values.dtype.kind == "f":
        empty = np.isnan(rewards.values)
        filled = np.where(empty, np.float64(0.0 if missing else get("missing_reward")), rewards.values)
        at = np.flatnonzero(empty.reshape(len(empty), -1).any(axis=1)) if missing else rewards.missing
        rewards = replace(rewards, values=filled.astype(rewards.values.dtype), missing=at)
    categorical, sizes = get("categorical", True), get("sizes")
    observed = _features(checked, "observation", observation, categorical, sizes)
    for name, value in (("observation", observation), ("action", action)):
        if value is None or (name == "observation" and isinstance(value, Mapping) and not value):
            checked.refuse("missing column", name, "no array", "an array of N rows", f"pass {name}=")
    following = _following(checked, observed, get("next_observation"), categorical, sizes)
    extra = (checked.column(name, value, 1, _ANY) for name, value in (get("extra") or {}).items())
    return RawLog(
        source=source,
        rows=checked.rows,
        numbers=np.arange(1, checked.rows + 1),
        has_lines=False,
        observation=observed,
        next_observation=_where(checked, get("followed"), following),
        action=_action(checked, action, get("actions"), get("bounds")),
        reward=None if rewards is None else (rewards,),
        action_mask=checked.column("action_mask", get("action_mask"), 2),
        next_action_mask=checked.column("next_action_mask", get("next_action_mask"), 2),
        extra=tuple(filter(None, extra)),
        terminations=get("terminations", "stop"),
        reward_unit=declared_unit(get("reward_unit")),
        elapsed_unit=declared_unit(get("elapsed_unit"), "elapsed_unit"),
        missing_reward=missing,
        atoms=declared_atoms(get("atoms", ())),
        declared=declared,
        strata=strata,
        always_terminated=always,
        from_table=False,
        found=(*checked.found, *(() if rewards is None else rounded_rewards(rewards))),
        **single,
    )


def _declared(arrays: _ArrayFindings, value: Any) -> tuple[Declaration | None, tuple[Column, ...]]:
    """What `propensity` declares, and the strata of shares; None for an array of recorded propensities."""
    if isinstance(value, Mapping) and list(value) == [SHARES_BY] and len(np.shape(value[SHARES_BY])) == 1:
        if not len(value[SHARES_BY]):
            return Declaration(by=()), ()
        column = arrays.column("stratum", value[SHARES_BY], 1, "biufU")
        return Declaration(by=("stratum",)), () if column is None else (column,)
    is_declared = isinstance(value, str | Mapping | int | float)
    return (declaration_of(value), ()) if is_declared else (None, ())


def _features(
    arrays: _ArrayFindings, role: str, values: Any, categorical: bool, sizes: Mapping[str, tuple[int, ...]] | None
) -> dict[str, Feature]:
    leaves = named_leaves(values) if isinstance(values, Mapping) else {"observation": values}
    features = {}
    for name, value in leaves.items():
        label = name if isinstance(values, Mapping) and role == "observation" else role
        feature = _image(arrays, label, value) if _is_image(value) else None
        column = None if _is_image(value) else arrays.column(label, value, 2, "biufU")
        if column is not None:
            whole = column.values.dtype.kind in "iu"
            coded = column.vocabulary is not None or (whole and categorical)
            feature = Feature("codes" if coded else "vector", (column,), (sizes or {}).get(name))
        if feature is not None:
            features[name] = feature
    return features


def _is_image(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.dtype == np.uint8 and value.ndim == 4


def _image(arrays: _ArrayFindings, name: str, value: Values) -> Feature | None:
    """Images [N, H, W, C]; a shape like [N, C, H, W] is a finding."""
    array = arrays.array(name, value, 4)
    if array is None:
        return None
    first, last = array.shape[1], array.shape[3]
    if first in _CHANNELS and last not in _CHANNELS:
        advice = "transpose them: images.transpose(0, 2, 3, 1)"
        found = f"shape {list(array.shape)}, with channels before height and width"
        arrays.refuse("changing shapes", name, found, "images [N, height, width, channels]", advice)
        return None
    return Feature("image", (Column(name, array),))


def _following(
    arrays: _ArrayFindings, observed: dict[str, Feature], values: Any, categorical: bool, sizes: Any
) -> dict[str, Feature]:
    """Leaves of the next observation; each must have the kind and width of its leaf in `observed`."""
    if values is None:
        return {}
    following = _features(arrays, "next_observation", values, categorical, sizes)
    fitting = {}
    for name, feature in observed.items():
        other = following.get(name)
        if other is None or _form(other) != _form(feature):
            found = "nothing" if other is None else _form(other)
            expected = f"{_form(feature)}, like the observation"
            advice = "give both the same shape and type"
            arrays.refuse("changing shapes", f"next_observation '{name}'", found, expected, advice)
            continue
        now, then = feature.columns[0], other.columns[0]
        words = sorted({*(now.vocabulary or ()), *(then.vocabulary or ())})
        if words:  # both have the union of their vocabularies
            now, then = (
                replace(
                    one,
                    values=np.searchsorted(words, one.vocabulary or ()).astype(np.int32)[one.values],
                    vocabulary=tuple(words),
                )
                for one in (now, then)
            )
        observed[name], fitting[name] = replace(feature, columns=(now,)), replace(other, columns=(then,))
    return fitting


def _where(arrays: _ArrayFindings, followed: Any, following: dict[str, Feature]) -> dict[str, Feature]:
    """Mark next observations as missing in rows where `followed` is not set."""
    known = arrays.column("followed", followed)
    if known is None:
        return following
    unknown = np.flatnonzero(known.values != 1)
    return {
        name: replace(leaf, columns=tuple(replace(column, missing=unknown) for column in leaf.columns))
        for name, leaf in following.items()
    }


def _form(feature: Feature) -> str:
    return f"{feature.kind} of shape {list(feature.columns[0].values.shape)}"


def _action(arrays: _ArrayFindings, action: Any, actions: Any, bounds: Any, name: str = "action") -> RawAction | None:
    if isinstance(action, Mapping):
        read = {
            part: _action(arrays, value, *declared, f"action/{part}")
            for (part, value), declared in by_part(named_leaves(action), actions, bounds)
        }
        parts = {part: value for part, value in read.items() if value is not None}
        return RawAction.of_parts(parts) if parts and len(parts) == len(read) else None
    column = arrays.column(name, action, 2, _KINDS["action"])
    if column is None:
        return None
    sizes, limits = declared_actions(actions, bounds)
    if column.vocabulary is not None:
        return RawAction("discrete", (column,))
    if sizes is not None:
        return decide_action((column,), sizes, None)
    if limits is not None or np.asarray(action).dtype.kind == "f":
        return RawAction("continuous", (column,), None, widened(limits, column.values[0:1].size))
    return RawAction("multi" if column.values.ndim == 2 and column.values.shape[1] > 1 else "discrete", (column,))


def _check_parts(parts: Mapping[str, Any]) -> None:
    """Raise ConfigError unless an action has parts, each an array, of equally many rows."""
    rows = {
        name: len(part) if as_part(name, part).ndim or isinstance(part, list | tuple) else None
        for name, part in parts.items()
    }
    if not rows or None in rows.values() or len(set(rows.values())) > 1:
        found = ", ".join(
            f"'{name}' with {'no' if count is None else f'{count:,}'} rows" for name, count in rows.items()
        )
        raise ConfigError(f"the action is a mapping of {found or 'no parts'}", "parts that are arrays of N rows each",
                          "give every part one value for every row")  # fmt: skip


# Parse one column of a table into numbers, codes, flags, masks or times; list the rows that do not parse.
#
# No row is dropped: an unreadable value becomes a placeholder, and its row is listed in the `Column`.

MISSING_WORDS = ("", "na", "n/a", "null", "none")
_TRUE = ("1", "1.0", "true", "t", "yes", "y")
_FALSE = ("0", "0.0", "false", "f", "no", "n")
_PART = r"[^,;\s\[\]()]+"  # of a list in text


def narrow(series: pl.Series) -> Column:
    """Like `number`, rounded to 32 bits if numeric; numbers that are too large become infinite."""
    return number(series.cast(pl.Float32) if series.dtype.is_numeric() else series)


def plain(series: pl.Series) -> pl.Series:
    """Convert a column to a type that the functions below read: durations to seconds, other types to text."""
    kind = series.dtype
    inner = kind.inner if isinstance(kind, pl.List | pl.Array) else kind
    if isinstance(kind, pl.Duration):
        return (series.dt.total_microseconds() / 1e6).rename(series.name)
    if kind in (pl.Int128, pl.UInt128):
        return series.cast(pl.Float64)
    if inner == pl.Object or (isinstance(inner, pl.List | pl.Array | pl.Struct | pl.Duration)) or inner == pl.Binary:
        return spelled(series)
    return series


def spelled(series: pl.Series) -> pl.Series:
    """Every cell as Python writes it; bytes are decoded as UTF-8 with replacements."""
    cells = series.to_list()
    words = (cell.decode("utf-8", "replace") if isinstance(cell, bytes) else str(cell) for cell in cells)
    return pl.Series(series.name, [None if cell is None else word for cell, word in zip(cells, words, strict=True)],
                     pl.String)  # fmt: skip


def number(series: pl.Series) -> Column:
    """Numbers [N], or [N, D] from a column of lists."""
    if isinstance(series.dtype, pl.List | pl.Array):
        return _lists(series)
    if series.dtype.is_numeric() or series.dtype == pl.Null:
        missing = _positions(series.is_null())
        wide = series.dtype.is_decimal() or (len(missing) and not series.dtype.is_float())
        values = (series.cast(pl.Float64) if wide else series).fill_null(0).to_numpy()
        return Column(series.name, values, missing=missing)
    text = plain_text(series)
    absent = _absent(text)
    numbers = _truth(text) if _is_true_false(text, absent) else text.cast(pl.Float64, strict=False)
    return _column(series.name, numbers, absent, text)


def as_lists(series: pl.Series) -> pl.Series:
    """Lists of numbers [N] from text such as `[0.1, -0.2]` or `[[1 2]]` in every cell; any other column as it is."""
    if not isinstance(series.dtype, pl.String | pl.Categorical | pl.Enum):
        return series
    first = plain_text(series.head(_SAMPLE))
    first = first.filter(~_absent(first))
    if len(first) and first[0][:1] not in ("[", "("):
        return series
    text = plain_text(series)
    absent = _absent(text)
    present = text.filter(~absent)
    if not len(present) or not present.str.contains(r"^[\[(].*[\])]$").all():
        return series
    numbers = present.str.extract_all(_PART).cast(pl.List(pl.Float64), strict=False)
    if numbers.explode().null_count() > int((numbers.list.len() == 0).sum()):
        return series  # other text in brackets
    every = text.str.extract_all(_PART).cast(pl.List(pl.Float64), strict=False)
    return pl.select(pl.when(~absent).then(every)).to_series().rename(series.name)


def is_empty(series: pl.Series) -> pl.Series:
    """[N] bool: rows without a value: null, NaN, an empty list, empty text, or a word such as `na` among numbers."""
    if isinstance(series.dtype, pl.List):
        return series.is_null() | (series.list.len() == 0).fill_null(False)
    if isinstance(series.dtype, pl.String | pl.Categorical | pl.Enum):
        text = plain_text(series)
        return text.is_null() | (text == "").fill_null(False) if is_categorical(series) else _absent(text)
    return series.is_null() | (series.is_nan() if series.dtype.is_float() else False)


def is_categorical(series: pl.Series) -> bool:
    """Whether no value of a text column parses as a number (or as true and false)."""
    if not isinstance(series.dtype, pl.String | pl.Categorical | pl.Enum):
        return False
    if plain_text(series.head(_SAMPLE)).cast(pl.Float64, strict=False).is_not_null().any():
        return False  # as in most columns of numbers, which need not be read twice
    text = plain_text(series)
    absent = _absent(text)
    if absent.all() or _is_true_false(text, absent):
        return False
    return bool(text.cast(pl.Float64, strict=False).filter(~absent).is_null().all())


def categories(*many: pl.Series, words: Sequence[str] | None = None) -> list[Column]:
    """Codes [N] of several columns in one vocabulary: `words`, or all their values, sorted.

    Empty text is missing; a value outside a declared vocabulary is unreadable.
    """
    texts = [plain_text(series) for series in many]
    if words is None:
        vocabulary = pl.concat([text.rename("word") for text in texts]).unique().drop_nulls().sort()
        words = tuple(vocabulary.filter(vocabulary != ""))
    kind = pl.Enum(words)
    columns = []
    for series, text in zip(many, texts, strict=True):
        codes = text.cast(kind, strict=False).to_physical().cast(pl.Int32)
        absent = text.is_null() | (text == "").fill_null(True)
        unreadable = _positions(codes.is_null() & ~absent)
        values = codes.fill_null(0).to_numpy()
        shown = _shown(text, unreadable)
        columns.append(Column(series.name, values, tuple(words), _positions(absent), unreadable, texts=shown))
    return columns


def join_rare(columns: list[Column], rows: int) -> tuple[list[Column], list[tuple[str, Finding]]]:
    """Join labels in fewer than `rows` rows of the first column to one, `other`, in all; and a note about them.

    A label `other` of the log itself is joined to them. Nothing is joined where no label is rare.
    """
    first, words = columns[0], columns[0].vocabulary or ()
    counts = np.bincount(first.values[first.usable], minlength=len(words))[: len(words)]
    rare = [position for position, word in enumerate(words) if counts[position] < rows and word != OTHER]
    if not rare:
        return columns, []
    kept = sorted({OTHER, *(word for position, word in enumerate(words) if position not in set(rare))})
    code = {word: position for position, word in enumerate(kept)}
    codes = np.asarray([code.get(word, code[OTHER]) for word in words], np.int32)
    codes[rare] = code[OTHER]
    labels = tuple(words[position] for position in rare)
    joined = [replace(one, values=codes[one.values], vocabulary=tuple(kept), rare_labels=labels) for one in columns]
    found = (
        f"{len(rare):,} of {len(words):,} labels in fewer than {rows:,} rows each, {int(counts[rare].sum()):,} rows "
        f"together, are joined to '{OTHER}': {shorten(map(repr, labels), 3)}"
    )
    fix = "nothing, if they may be treated alike; labels that the log does not have count as it, too"
    return joined, [("rare labels", Finding(first.name, None, found, f"labels in at least {rows:,} rows", fix))]


def identity(series: pl.Series) -> Column:
    """Episode identifiers: integers if all values are integers, else codes of text."""
    if series.dtype.is_integer():
        missing = _positions(series.is_null())
        return Column(series.name, series.fill_null(0).to_numpy().astype(np.int64), missing=missing)
    column = categories(series)[0]
    integers = pl.Series(column.vocabulary or (), dtype=pl.String).cast(pl.Int64, strict=False)
    if integers.null_count() or not column.vocabulary or tuple(integers.cast(pl.String)) != column.vocabulary:
        return column
    return Column(series.name, integers.to_numpy()[column.values], missing=column.missing)


def flag(series: pl.Series) -> Column:
    """Flags [N] float, 0 or 1, from booleans, 0/1, true/false or yes/no."""
    if series.dtype == pl.Boolean or series.dtype.is_integer() or series.dtype.is_float():
        missing = _positions(series.is_null())
        return Column(series.name, series.fill_null(0).to_numpy(), missing=missing)
    text = plain_text(series)
    return _column(series.name, _truth(text), _absent(text), text, "0 or 1, true or false, yes or no")


def moment(series: pl.Series, date_format: str | None = None) -> Column:
    """Times [N]: numbers unchanged, ISO dates and datetimes in UTC, in microseconds or, if they are finer, nanoseconds.

    With a `date_format` (of `strptime`), every text has that format.
    """
    if date_format is not None and not series.dtype.is_temporal():
        text = plain_text(series)
        moments = text.str.strptime(pl.Datetime("us"), date_format, strict=False)
        return _times(series.name, moments, text, f"a time as {date_format}")
    if series.dtype.is_numeric():
        return number(series)
    text = plain_text(series)
    absent = _absent(text)
    numbers = text.cast(pl.Float64, strict=False)
    if numbers.filter(~absent).is_not_null().any():
        return ordinal(series)
    return _dates(series, text)


def ordinal(series: pl.Series) -> Column:
    """Numbers [N] that order rows: whole ones stay exact beyond 2^53, also as text."""
    column = number(series)
    if column.values.dtype.kind != "f" or not (np.abs(column.values) >= 2**53).any():
        return column
    whole = plain_text(series).cast(pl.Int64, strict=False)
    known = whole.is_not_null().to_numpy()
    if not known[column.usable].all():
        return column
    return replace(column, values=whole.fill_null(0).to_numpy())


def date_formats(series: pl.Series) -> list[str]:
    """The formats other than ISO that all times of a column of text have; several where the values fit them all."""
    cells = plain_text(series)
    cells = cells.filter(~_absent(cells)).unique()
    if not len(cells) or not cells.str.contains(_DATE).all():
        return []
    sample = cells.head(_SAMPLE)
    return [
        form
        for day in _DAYS
        for form in (day, *(f"{day}{between}{clock}" for between in (" ", "T") for clock in _CLOCKS))
        if not sample.str.strptime(pl.Datetime("us"), form, strict=False).has_nulls()
        and not cells.str.strptime(pl.Datetime("us"), form, strict=False).has_nulls()
    ]


_DATE = r"^\d{1,4}[./-]\d{1,2}[./-]\d{1,4}([ T]\d{1,2}:\d\d(:\d\d)?)?$"
_DAYS = ("%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%d-%m-%Y", "%m-%d-%Y", "%Y/%m/%d", "%Y.%m.%d")
_CLOCKS = ("%H:%M", "%H:%M:%S")
_SAMPLE = 1_000


def mask(many: list[pl.Series]) -> Column:
    """Allowed actions [N, A] float, 0 or 1, from one column per action or one column of lists."""
    if len(many) > 1:
        columns = [flag(series) for series in many]
        values = np.stack([column.values for column in columns], axis=1)
        return _merged(f"{columns[0].name} .. {columns[-1].name}", values, columns)
    series = many[0]
    if not isinstance(series.dtype, pl.List | pl.Array):
        text = plain_text(series)
        tokens = text.str.extract_all(_PART)
        series = pl.select(pl.when(~_absent(text)).then(tokens)).to_series().rename(series.name)
    return _lists(series, flags=True)


def _merged(name: str, values: Values, columns: Sequence[Column]) -> Column:
    """A column made of several; a row without a value in one of them has none."""
    missing, unreadable = (
        np.unique(np.concatenate(several))
        for several in zip(*((one.missing, one.unreadable) for one in columns), strict=True)
    )
    texts = tuple(text for column in columns for text in column.texts)
    return Column(name, values, None, missing, unreadable, texts=texts, expects=columns[0].expects)


def mask_tokens(many: Sequence[pl.Series]) -> pl.Series | None:
    """The names of allowed actions in one mask column, as lists [N]; None for flags, and for several columns.

    Names are mostly no flags; numbers are names only if the lists differ in length.
    """
    if len(many) != 1:
        return None
    series = many[0]
    if isinstance(series.dtype, pl.List | pl.Array):
        lists = series.cast(pl.List(series.dtype.inner)) if isinstance(series.dtype, pl.Array) else series
        inner = lists.explode()
        if inner.dtype.is_float() and inner.drop_nulls().is_finite().all() and (inner.drop_nulls() % 1 == 0).all():
            lists = lists.cast(pl.List(pl.Int64))
        lists = lists.cast(pl.List(pl.String))
    else:
        text = plain_text(series)
        tokens = text.str.extract_all(_PART).explode().drop_nulls().str.to_lowercase()
        if tokens.is_in([*_TRUE, *_FALSE]).all():
            return None
        bare = text.str.strip_chars("[]()").str.replace_all(r"""["']""", "")
        parts = bare.str.replace_all(r"[;|]", ",").str.split(",")
        lists = pl.select(pl.when(~_absent(text)).then(parts)).to_series()
        lists = lists.list.eval(pl.element().str.strip_chars()).rename(series.name)
    words = lists.explode().drop_nulls()
    words = words.filter(words != "")
    flags = words.str.to_lowercase().is_in([*_TRUE, *_FALSE])
    numbers = words.cast(pl.Float64, strict=False).is_not_null()
    few = len(words) == 0 or bool(flags.all()) or int((flags | numbers).sum()) * 2 > len(words)
    uneven = lists.drop_nulls().list.len().n_unique() > 1
    return lists if not few or (len(words) and numbers.all() and not flags.all() and uneven) else None


def named_mask(name: str, lists: pl.Series, words: Sequence[str]) -> Column:
    """Allowed actions [N, A], 0 or 1, from lists of the names of allowed actions; `words` [A] are all names."""
    values = np.stack([lists.list.contains(word).fill_null(False).to_numpy() for word in words], axis=1)
    known = lists.list.eval(pl.element().is_in([*words, ""])).list.all().fill_null(True)
    unreadable = _positions(~known)
    shown = tuple(", ".join(lists[int(row)].to_list()) for row in unreadable[:3])
    expects = f"names of actions: {', '.join(words[:8])}"
    return Column(
        name, values.astype(np.float64), None, _positions(lists.is_null()), unreadable, texts=shown, expects=expects
    )


def _lists(series: pl.Series, flags: bool = False) -> Column:
    """Lists of equal length as [N, D]; rows whose list differs in length from most are `odd`."""
    series = series.cast(pl.List(series.dtype.inner)) if isinstance(series.dtype, pl.Array) else series
    lengths = series.list.len()
    absent = series.is_null()
    usual = lengths.filter(~absent).mode().sort()
    size = int(usual[0]) if len(usual) else 0
    odd = (lengths != size).fill_null(False) & ~absent
    if size == 0:
        return Column(series.name, np.zeros((len(series), 0)), None, _positions(absent), odd=_positions(~absent))
    padded = pl.select(pl.when(lengths == size).then(series)).to_series()
    flat = padded.drop_nulls().explode().rename(series.name)
    inner = flag(flat) if flags else number(flat)
    values = np.full((len(series), size), np.nan)
    rows = _positions(lengths == size)
    values[rows] = inner.values.reshape(-1, size)
    unreadable = rows[np.unique(inner.unreadable // size)]
    missing = np.union1d(_positions(absent), rows[np.unique(inner.missing // size)])
    expects = f"{size} flags (0 or 1)" if flags else f"{size} numbers"
    return Column(series.name, values, None, missing, unreadable, _positions(odd), inner.texts, expects)


def _dates(series: pl.Series, text: pl.Series) -> Column:
    if isinstance(series.dtype, pl.Datetime | pl.Date):
        fine = isinstance(series.dtype, pl.Datetime) and series.dtype.time_unit == "ns"
        moments = series.cast(pl.Datetime("ns" if fine else "us"))  # in UTC
    else:
        iso = text.str.replace(r"^(\d{4}-\d\d-\d\d)$", "${1}T00:00:00").str.replace(" ", "T", literal=True)
        iso = iso.str.replace(r"Z$", "+00:00").str.replace(r"([+-]\d\d)$", "${1}:00")
        iso = iso.str.replace(r"^(.*T\d\d:\d\d)(|[+-]\d\d:?\d\d)$", "${1}:00${2}")
        iso = pl.select(
            pl.when(iso.str.contains(r"T.*[+-]\d\d:?\d\d$")).then(iso).otherwise(iso + "+00:00")
        ).to_series()
        form = "%Y-%m-%dT%H:%M:%S%.f%z"
        moments = iso.str.to_datetime(form, strict=False, time_unit="us").dt.replace_time_zone(None)
        years = moments.dt.year().drop_nulls()
        if text.str.contains(r"\d\.\d{7,9}").any() and years.is_between(*NANOSECONDS).all():
            moments = iso.str.to_datetime(form, strict=False, time_unit="ns").dt.replace_time_zone(None)
    return _times(series.name, moments, text, "an ISO date or a number")


def _times(name: str, moments: pl.Series, text: pl.Series, expects: str) -> Column:
    absent = _absent(text)
    unreadable = _positions(moments.is_null() & ~absent)
    values = finest(moments.fill_null(strategy="zero").to_numpy())
    return Column(name, values, None, _positions(absent), unreadable, texts=_shown(text, unreadable), expects=expects)


def plain_text(series: pl.Series) -> pl.Series:
    """The column as stripped text; 2.0 becomes 2, which makes all sources agree."""
    if series.dtype.is_float():
        series = series.fill_nan(None)
        whole = series.cast(pl.Int64, strict=False)
        if (whole.cast(series.dtype) == series).fill_null(series.is_null()).all():
            series = whole
    return series.cast(pl.String).str.strip_chars()


def _absent(text: pl.Series) -> pl.Series:
    return text.is_null() | text.str.to_lowercase().is_in(MISSING_WORDS).fill_null(False)


def _is_true_false(text: pl.Series, absent: pl.Series) -> bool:
    words = text.filter(~absent)
    some = words.head(_SAMPLE)
    return len(words) > 0 and all(one.str.to_lowercase().is_in(["true", "false"]).all() for one in (some, words))


def _truth(text: pl.Series) -> pl.Series:
    lowered = text.str.to_lowercase()
    yes, no = lowered.is_in(_TRUE), lowered.is_in(_FALSE)
    return pl.select(pl.when(yes).then(1.0).when(no).then(0.0)).to_series()


def _column(name: str, values: pl.Series, absent: pl.Series, text: pl.Series, expects: str = "a number") -> Column:
    unreadable = _positions(values.is_null() & ~absent)
    numbers = values.cast(pl.Float64).fill_null(0.0).to_numpy()
    return Column(name, numbers, None, _positions(absent), unreadable, texts=_shown(text, unreadable), expects=expects)


def _shown(text: pl.Series, rows: Values) -> tuple[str, ...]:
    return tuple(str(text[int(row)]) for row in rows[:3])


def _positions(mask: pl.Series) -> Values:
    return np.flatnonzero(mask.to_numpy())


# Text that a spreadsheet would compute: what begins with = + - @ TAB or CR and is no number.
#
# Source: OWASP, CSV Injection.

FORMULA = r"^[=+\-@\t\r]"
NUMBER = r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$|^[+-]?([iI]nf|[iI]nfinity|[nN]a[nN])$"


def harmless(text: str) -> str:
    """Return the text, after an apostrophe if a spreadsheet would compute it."""
    return f"'{text}" if re.search(FORMULA, text) and not re.search(NUMBER, text) else text


# Tables as CSV, and the cells of them that a spreadsheet would compute.


def write_csv(frame: pl.DataFrame, stream: BinaryIO, csv_safe: bool = False) -> None:
    """Write a table as CSV, under the labels of its columns (see `tables.unique`); lists become JSON text.

    `csv_safe` writes an apostrophe before words and labels that a spreadsheet would compute; numbers stay.
    """
    labels = [name.partition("\x00")[0] for name in frame.columns]
    frame = frame.with_columns(
        pl.Series(name, [None if cell is None else json.dumps(cell, default=str) for cell in frame[name].to_list()])
        for name, kind in frame.schema.items()
        if kind.is_nested()
    )
    if csv_safe:
        labels = [harmless(label) for label in labels]
        frame = frame.with_columns(
            pl.when(_computed(name)).then(pl.concat_str(pl.lit("'"), text)).otherwise(text).alias(name)
            for name in _columns_of_words(frame)
            for text in [pl.col(name).cast(pl.String)]
        )
    header = io.StringIO(newline="")
    csv.writer(header, lineterminator="\n").writerow(labels)
    stream.write(header.getvalue().encode())
    frame.write_csv(stream, include_header=False)


def formula_note(frame: pl.DataFrame, target: object) -> str | None:
    """Return a note that names a column with a cell that a spreadsheet would compute; None without such a cell."""
    words = _columns_of_words(frame)
    found = [name for name in frame.columns if harmless(name) != name]
    found += [name for name in words if frame.select(_computed(name).any()).item()]
    if not found:
        return None
    return (
        f"{target} has text that a spreadsheet computes as a formula, in the column '{found[0]}'. fix: add --csv-safe, "
        "which writes an apostrophe before it, or open the file as text"
    )


def _columns_of_words(frame: pl.DataFrame) -> list[str]:
    return [name for name, kind in frame.schema.items() if kind in (pl.String, pl.Categorical, pl.Enum)]


def _computed(name: str) -> pl.Expr:
    text = pl.col(name).cast(pl.String)
    return text.str.contains(FORMULA) & ~text.str.contains(NUMBER)


# Fill empty cells of observations by the mapping's rule: the mean with a flag, or a category of their own.
#
# Letters: `N` rows. No value crosses from one episode to another.

Filled: TypeAlias = tuple[Column, Column | None]  # a column and its next-observation column
_NONE = np.zeros(0, np.int64)


def fill_missing(raw: RawLog, rules: Mapping[str, str]) -> RawLog:
    """Fill empty cells of observation columns that have a rule; each filled column is a note in `found`.

    A row without a next observation has nothing filled in its next-observation columns. Other empty cells there are
    filled as those of the following row.
    """
    with_rule = {name for name, rule in rules.items() if rule != "error"}
    if raw.rows == 0 or not with_rule:
        return raw
    observation, following, found = dict(raw.observation), dict(raw.next_observation), list(raw.found)
    unknown, rows, inner = np.flatnonzero(~raw.followed), raw.order.rows, np.flatnonzero(~raw.order.last)
    here, next_row = rows[inner], rows[inner + 1]

    def empty(column: Column | None) -> Values:
        return np.zeros(raw.rows, bool) if column is None else column.is_missing

    def fill(now: Column, then: Column | None, fill: float, values: Values, later: Values) -> tuple[Filled, Filled]:
        """The filled columns, and flags of the cells that were filled; `values` and `later` have a place for them."""
        absent, after = empty(now), empty(then) & raw.followed
        values[absent], still = fill, after.copy()
        later[after] = fill
        holes = after[here]
        later[here[holes]] = values[next_row[holes]]
        still[here[holes]] = absent[next_row[holes]]
        flag = f"{now.name} missing"
        return (
            (replace(now, values=values, missing=_NONE), then and replace(then, values=later, missing=unknown)),
            (Column(flag, absent.astype(np.float32)), then and Column(flag, still.astype(np.float32), missing=unknown)),
        )

    for name, feature in raw.observation.items():
        later = raw.next_observation.get(name)
        columns, flags, fills, before = list[Filled](), list[Filled](), list[tuple[str, float]](), len(found)
        for now, then in zip(feature.columns, later.columns if later else [None] * len(feature.columns), strict=True):
            absent, after = empty(now), empty(then) & raw.followed
            count = int(absent.sum() + after.sum())
            if now.name not in with_rule or not count or not (~absent & now.usable).any():
                columns.append((now, then))
                continue
            what = f"{count:,} empty cells, filled by the rule '{rules[now.name]}'"
            if now.vocabulary is not None:
                what, words = f"{count:,} empty cells, which form a separate category", ("", *now.vocabulary)
                codes = [np.zeros(raw.rows, np.int32) if one is None else one.values.astype(np.int32) + 1
                         for one in (now, then)]  # fmt: skip
                if then is not None:
                    codes[1][empty(then)] = 0
                (one, other), _ = fill(now, then, 0, *codes)
                columns.append((replace(one, vocabulary=words), other and replace(other, vocabulary=words)))
            else:  # a column of lists becomes one column per dimension
                parts = _dimensions(now)
                next_parts = [None] * len(parts) if then is None else _dimensions(then)
                for part, next_part in zip(parts, next_parts, strict=True):
                    with np.errstate(over="ignore", invalid="ignore"):  # a check reports what is not finite
                        mean = float(np.float32(part.values[~absent & part.usable].mean(dtype=np.float64)))
                        values = part.values.astype(np.float32)
                    fills.append((part.name, mean))
                    after_values = values if next_part is None else next_part.values.astype(np.float32)
                    pair, flag = fill(part, next_part, mean, values, after_values)
                    columns.append(pair)
                    flags.append(flag)
            advice = "nothing, if the cells are empty for a reason; else change the rule `missing` in the mapping"
            found.append(("filled", Finding(now.name, np.flatnonzero(absent), what, "a value in every row", advice)))
        if len(found) == before:
            continue
        columns += flags
        observation[name] = replace(feature, columns=tuple(now for now, _ in columns), fills=tuple(fills))
        if later:
            following[name] = replace(later, columns=tuple(then for _, then in columns if then is not None))
    return replace(raw, observation=observation, next_observation=following, found=tuple(found))


def _dimensions(column: Column) -> list[Column]:
    """The dimensions of a column of lists, each a column."""
    if column.values.ndim == 1:
        return [column]
    return [replace(column, name=f"{column.name}[{i}]", values=values) for i, values in enumerate(column.values.T)]


# Parse a table and its mapping into a `RawLog`.


@dataclass(frozen=True, eq=False)
class ParsedTable:
    """A frame as read from its source; `numbers` [N] are the user's row numbers, `columns` all names in the source.

    A lazy frame yields one column at a time; the whole table is never in memory at once. A table of several files has
    their tables in `parts`; a column that differs between them is in `uneven`, with the difference, and is not read.
    Rows of `data` that are False in `chosen` are left out everywhere else.
    """

    source: str
    data: pl.DataFrame | pl.LazyFrame
    numbers: Values
    columns: Sequence[str]
    has_lines: bool = False
    found: list[tuple[str, Finding]] = field(default_factory=list)
    parts: tuple[ParsedTable, ...] = ()
    uneven: Mapping[str, str] = field(default_factory=dict)
    chosen: pl.Series | None = None

    @classmethod
    def of(cls, data: pl.DataFrame | pl.LazyFrame, source: str, columns: Sequence[str] | None = None) -> ParsedTable:
        """Build a table whose rows are counted from 1."""
        rows = data.height if isinstance(data, pl.DataFrame) else data.select(pl.len()).collect().item()
        return cls(source, data, np.arange(1, rows + 1, dtype=np.int32), columns or data.collect_schema().names())

    @cached_property
    def names(self) -> frozenset[str]:
        """The columns that were read."""
        return frozenset(self.data.collect_schema().names()) - self.uneven.keys()

    @cached_property
    def files(self) -> FileRows | None:
        """The files of the rows; None for one file."""
        ends = np.cumsum([part.rows for part in self.parts], dtype=np.int64)
        return FileRows(tuple(part.source for part in self.parts), ends) if self.parts else None

    @property
    def rows(self) -> int:
        """Number of rows N."""
        return len(self.numbers)

    @cached_property
    def frame(self) -> pl.DataFrame:
        """All columns at once; LogError if the file is damaged."""
        frame = self.data if isinstance(self.data, pl.DataFrame) else self._collected(self.data)
        return frame if self.chosen is None else frame.filter(self.chosen)

    def series(self, name: str) -> pl.Series:
        """One column; LogError if the file is damaged."""
        frame = self.data if isinstance(self.data, pl.DataFrame) else self._collected(self.data.select(name))
        return plain(frame[name] if self.chosen is None else frame[name].filter(self.chosen))

    def _collected(self, data: pl.LazyFrame) -> pl.DataFrame:
        try:
            frame = data.collect()
        except (OSError, pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
            for part in self.parts:
                _ = part.frame  # raises for the damaged file, by its name
            raise unreadable(self.source, first_error_line(error), "a whole table") from error
        counted = self.rows if self.chosen is None else len(self.chosen)
        if frame.height != counted:
            found = f"{frame.height:,} rows in '{frame.columns[0]}', and {counted:,} in the file's own count"
            raise unreadable(self.source, found, "a whole table", "export or copy the file again")
        return frame

    def has(self, name: str) -> bool:
        """Whether the column was read."""
        return name in self.names


def first_error_line(error: BaseException) -> str:
    """The first line of an error's message; a fixed text for a panic, whose message names threads."""
    return "damaged contents" if isinstance(error, pl.exceptions.PanicException) else str(error).split("\n")[0]


def check_memory(
    table: ParsedTable, columns: Iterable[str], ids: Collection[str | None], copies: Mapping[str, float]
) -> None:
    """Raise LogError unless the available memory holds these columns of a table as a log, and what its checks need.

    The sizes of cells are those of the first rows, since compressed columns do not tell theirs. `ids` are columns whose
    every different text is a word; `copies`: how often cells of other columns are in memory at once, where that is
    known. The numbers were measured on tables of 10^4 to 10^7 rows.
    """
    named = [name for name in dict.fromkeys(columns) if table.has(name)]
    some = replace(table, data=table.data.lazy().select(named))
    if len(table.numbers if table.chosen is None else table.chosen) > _SIZED:
        chosen = None if table.chosen is None else table.chosen.head(_SIZED)
        some = replace(some, data=some.data.head(_SIZED), numbers=table.numbers[:_SIZED], chosen=chosen)
    first = some.frame if named else pl.DataFrame()
    row, widest = float(_ROW), 0.0
    for series in first:
        size, usual = series.estimated_size() / max(1, len(series)), 2.5 if series.dtype.is_nested() else 1.0
        if series.dtype == pl.String:
            if series.name in ids or (series.name not in copies and is_categorical(series)):
                row += series.n_unique() / max(1, len(series)) * (_WORD + 8 * size)
            size, usual = size + 16, 0.0  # 16: the view of a text
            widest = max(widest, 1.5 * size)
        row += size * copies.get(series.name, usual)
    problem = shortage(int(table.rows * (row + widest)) + _KEPT * min(table.rows, 1_000_000))
    if problem is not None:
        raise unreadable(table.source, problem, "a table whose log fits into memory", FIX_MEMORY)


_SIZED = 100_000  # rows whose cells are measured
_ROW = 110  # bytes of a row: its numbers in the log, and the temporaries of the checks
_KEPT = 50  # bytes of a row in small arrays, which the allocator keeps when they are freed
_WORD = 60  # bytes of a different word, beside its letters


def from_table(table: ParsedTable, columns: Columns) -> RawLog:
    """Parse every column that the mapping names; a missing column is a finding, not an exception.

    LogError if memory does not suffice.
    """
    copies = dict.fromkeys(names(columns.time), 0.0)
    copies |= dict.fromkeys((*names(columns.action_mask), *names(columns.next_action_mask)), 2.5)
    used = [name for several in columns.used().values() for name in several]
    check_memory(table, used, (columns.episode, columns.cluster), copies)
    table = rows_to_read(table, columns)
    if columns.na_values:
        table = without_na(table, columns)
    observation, following, rare = _features_of_table(table, columns)
    selections = (columns.action_mask, columns.next_action_mask)
    named = [mask_tokens(_present(table, selected)) for selected in selections]
    action = _action_of_table(table, columns, [one for one in named if one is not None])
    labels = _labels(action) if any(one is not None for one in named) else ()
    masks = [
        named_mask(one.name, one, labels) if one is not None and labels else _mask(table, selected)
        for one, selected in zip(named, selections, strict=True)
    ]
    rewards, rounded = _rewards(table, columns)
    episode, cluster = (column_of(table, name, identity) for name in (columns.episode, columns.cluster))
    time = column_of(table, columns.time, partial(moment, date_format=columns.date_format))
    if columns.episode_gap is not None and episode is not None and time is not None:
        cluster = episode if columns.cluster is None else cluster  # parts of one episode are dependent
        episode = _split_at_gaps(episode, time, columns.episode_gap)
    roles = {name: role for role, several in columns.used().items() for name in several}
    found = table.found + [(check, one) for check, one in duplicates(table.columns) if one.column in roles]
    roles |= dict.fromkeys(names(columns.categorical), "categorical")
    found += [*lacking(table, roles), *_two_meanings(table, columns), *_possible_ends(table, columns)]
    found += [*_rounded_identifiers(table, columns), *_late_rewards(table, columns, time)]
    is_duration = isinstance(table.data.collect_schema().get(columns.elapsed or ""), pl.Duration)
    seconds = SECONDS.get(TIME_UNITS.get(columns.elapsed_unit or "", ""))  # of a unit; durations are read as seconds
    raw = RawLog(
        source=table.source,
        rows=table.rows,
        numbers=table.numbers,
        has_lines=table.has_lines,
        observation=observation,
        next_observation=following,
        action=action,
        reward=None if columns.reward is None else tuple(rewards),
        episode=episode,
        step=column_of(table, columns.step, ordinal),
        time=time,
        terminated=column_of(table, None if columns.terminated is True else columns.terminated, flag),
        truncated=column_of(table, columns.truncated, flag),
        propensity=column_of(table, columns.recorded, narrow),
        declared=columns.declared,
        strata=tuple(identity(_single(one)) for one in _present(table, (columns.declared or NOT_DECLARED).by)),
        weight=column_of(table, columns.weight, narrow),
        elapsed=None
        if columns.elapsed == columns.time
        else column_of(table, columns.elapsed, partial(_elapsed, unit=seconds or 1.0 if is_duration else 1.0)),
        cluster=cluster,
        action_mask=masks[0],
        next_action_mask=masks[1],
        extra=tuple(
            categories(one)[0] if _is_word(one, columns) else moment(one)
            for one in map(_single, _present(table, columns.extra))
        ),
        unused=tuple(_unused(table, columns)),
        terminations=columns.terminations,
        reward_unit=columns.reward_unit,
        elapsed_unit=columns.elapsed_unit,
        missing_reward=declared_missing(columns.missing_reward),
        atoms=declared_atoms(columns.atoms),
        always_terminated=columns.terminated is True,
        files=table.files,
        found=(*found, *rare, *rounded),
    )
    if is_duration and seconds is None:
        raw = replace(raw, found=(*raw.found, _without_time_unit(columns.elapsed_unit, "durations")))
    elif columns.elapsed is not None and columns.elapsed == columns.time:
        raw = _with_elapsed_of_time(raw, is_duration)
    return fill_missing(_report_unknown_values(raw), columns.rules)


def _elapsed(series: pl.Series, unit: float) -> Column:
    """Elapsed times in their unit, that many seconds of durations; NaN is an empty cell, as in frames of pandas."""
    return number(series.fill_nan(None) / unit if series.dtype.is_float() else series)


def _without_time_unit(unit: str | None, of: str) -> tuple[str, Finding]:
    """The finding about dates or durations without a unit of time."""
    found, expected = f"elapsed_unit = {unit!r} of {of}", f"one of {', '.join(TIME_UNITS)}"
    fix = 'write elapsed_unit = "hour", or name a column of elapsed times in numbers'
    return "bad mapping", Finding("elapsed", None, found, expected, fix)


def _with_elapsed_of_time(raw: RawLog, is_duration: bool) -> RawLog:
    """The log with the time from each row to the next one of its episode, empty in the last row.

    Times of durations are seconds. A finding for dates without a unit of time.
    """
    if raw.time is None or not raw.time.usable.all():  # an error of its own
        return raw
    order, unit = raw.order, raw.elapsed_unit
    passed = np.diff(order.sort(raw.time.values), append=raw.time.values[:1])
    if passed.dtype.kind == "m":
        if unit not in TIME_UNITS:
            return replace(raw, found=(*raw.found, _without_time_unit(unit, "dates")))
        passed = passed / np.timedelta64(1, "s") / SECONDS[TIME_UNITS[unit]]
    elif is_duration:
        passed = passed / SECONDS[TIME_UNITS[unit or ""]]
    values = np.zeros(raw.rows)
    values[order.rows] = passed
    return replace(raw, elapsed=Column(raw.time.name, values, missing=np.sort(order.rows[order.last])))


def _rounded_identifiers(table: ParsedTable, columns: Columns) -> list[tuple[str, Finding]]:
    """The findings about decimal identifiers so large that different whole ones are written as the same number."""
    findings = []
    for series in (*_present(table, columns.episode), *_present(table, columns.cluster)):
        if series.dtype.is_float() and ((series.abs() >= 2**53) & series.is_finite()).any():
            advice = "write the identifiers as whole numbers or as text where they are made"
            found = f"decimal numbers such as {series.abs().to_numpy().max():.0f}, whose neighbours were rounded"
            findings.append(("rounded identifiers", Finding(series.name, None, found, "exact identifiers", advice)))
    return findings


def _split_at_gaps(episode: Column, time: Column, gap: float) -> Column:
    """The identifiers of episodes that end before a pause longer than `gap` (seconds for dates): `id/0`, `id/1`, ..."""
    order = np.lexsort((time.values, episode.values))
    pauses = np.diff(time.values[order])
    if pauses.dtype.kind == "m":
        pauses = pauses / np.timedelta64(1, "s")
    same = episode.values[order][1:] == episode.values[order][:-1]
    parts = np.concatenate([[0], np.cumsum(same & (pauses > gap))]) if len(order) else order
    first = np.concatenate([[0], np.where(~same, np.arange(1, len(order)), 0)]) if len(order) else order
    parts = parts - parts[np.maximum.accumulate(first)]  # counted from 0 in each episode
    pairs = np.stack([episode.values[order].astype(np.int64), parts.astype(np.int64)], axis=1)
    distinct, codes = np.unique(pairs, axis=0, return_inverse=True)
    words = episode.vocabulary
    names = tuple(f"{one if words is None else words[one]}/{part}" for one, part in distinct.tolist())
    values = np.empty(len(order), np.int32)
    values[order] = codes.reshape(-1)
    return replace(episode, values=values, vocabulary=names)


def without_na(table: ParsedTable, columns: Columns) -> ParsedTable:
    """The table with null in cells of the used columns whose text is one of `na_values`."""
    absent, schema = list(columns.na_values), table.data.collect_schema()
    numbers = pl.Series(absent, dtype=pl.String).cast(pl.Float64, strict=False).drop_nulls()
    used = dict.fromkeys(name for several in columns.used().values() for name in several if name in schema)

    def is_absent(name: str) -> pl.Expr:
        if schema[name].is_numeric():
            return pl.col(name).cast(pl.Float64, strict=False).is_in(numbers.implode())
        return pl.col(name).cast(pl.String).str.strip_chars().is_in(absent)

    cells = (
        pl.when(~is_absent(name).fill_null(False)).then(pl.col(name)).alias(name)
        for name in used
        if not schema[name].is_nested() and not schema[name].is_temporal()
    )
    return replace(table, data=table.data.with_columns(cells))


def rows_to_read(table: ParsedTable, columns: Columns) -> ParsedTable:
    """The table without rows that a mapping leaves out, and notes that count them; the same table if it is one."""
    return table if table.chosen is not None else _without_recent(_without_empty(table, columns), columns)


_LONGEST = 1e11  # seconds, some 3,000 years: no log is longer, and a date holds no more


def _without_recent(table: ParsedTable, columns: Columns) -> ParsedTable:
    """The table without episodes too young for their rewards, by `reward_horizon`, and a note that counts them.

    By time alone: an early success would stand in for decisions whose failure is not known yet. So would a short
    episode for long ones: all are left out that began no earlier than the first one with a decision that is too young.
    """
    if columns.reward_horizon is None or not table.has(str(columns.time)):
        return table
    read = without_na(table, columns) if columns.na_values else table
    series = read.series(str(columns.time))
    time = moment(_single(series), columns.date_format)
    if not table.rows or not time.usable.all():  # an error of its own
        return table
    (length, in_seconds), dates = horizon_of(columns.reward_horizon), time.values.dtype.kind == "M"

    def refuse(found: str, expected: str, fix: str) -> ParsedTable:
        return replace(table, found=[*table.found, ("bad mapping", Finding(columns.time, None, found, expected, fix))])

    if in_seconds and not dates:
        found = f"reward_horizon = {columns.reward_horizon!r}, and times that are numbers without a unit"
        return refuse(found, "a horizon in the unit of the times", "write it as a number, or the times as dates")
    newest = end = time.values.max()
    if columns.export_time is not None:
        stated = pl.Series(series.name, [columns.export_time])
        one = moment(stated, columns.date_format if dates else None)
        if not one.usable.all() or (one.values.dtype.kind == "M") != dates:
            found, shown = f"export_time = {columns.export_time!r}", str(newest)[:19]
            return refuse(found, f"a time as in '{series.name}', such as {shown}", "write it as the log does")
        end = one.values[0]
        if end < newest:
            found = f"export_time = {columns.export_time!r}, before the newest time, {str(newest)[:19]}"
            return refuse(found, "the time at which the log was exported", "correct export_time")
    since = end - (np.timedelta64(round(min(length, _LONGEST) * 1e6), "us") if dates else length)
    recent = np.asarray(time.values > since)
    what = f"younger than {columns.reward_horizon} at {str(end)[:19]}"
    if columns.episode is not None and table.has(columns.episode):
        rows = pl.DataFrame({"id": read.series(columns.episode), "time": time.values, "recent": recent})
        rows = rows.with_columns(began=pl.col("time").min().over("id"))
        first = rows.filter("recent")["began"].min()
        recent = (rows["began"] >= first).to_numpy() if recent.any() else recent
        what = f"of episodes that began when the first one with a decision {what} did, or later"
    if not recent.any():
        return table
    if recent.all():
        return refuse(f"every row is {what}", "older decisions, whose rewards are known", "read a longer log")
    counted = f"{count_of(int(recent.sum()), 'row')} of {table.rows:,} left out: {what}, whatever their reward says"
    fix = "nothing: their rewards may still come, and early ones alone would be misleading (`reward_horizon`)"
    note = ("late rewards", Finding(columns.time, None, counted, "decisions whose reward is known", fix))
    return _without_rows(table, recent, [note])


def _without_rows(table: ParsedTable, dropped: Values, notes: Sequence[tuple[str, Finding]]) -> ParsedTable:
    """The table without these rows [N], with notes on them."""
    chosen = np.ones(table.rows, bool) if table.chosen is None else table.chosen.to_numpy().copy()
    chosen[np.flatnonzero(chosen)] = ~dropped
    ends = np.cumsum([part.rows for part in table.parts], dtype=np.int64).tolist()
    parts = (
        replace(part, numbers=part.numbers[~dropped[end - part.rows : end]])
        for part, end in zip(table.parts, ends, strict=True)
    )
    numbers, found = table.numbers[~dropped], [*table.found, *notes]
    return replace(table, numbers=numbers, chosen=pl.Series(chosen), parts=tuple(parts), found=found)


def _without_empty(table: ParsedTable, columns: Columns) -> ParsedTable:
    """The table without the rows in which a column of `drop_rows_without` is empty, and a note that counts them."""
    named = [name for name in names(columns.drop_rows_without) if table.has(name)]
    if not named:
        return table
    read = without_na(table, columns) if columns.na_values else table
    empty = {name: is_empty(read.series(name)).to_numpy() for name in named}
    dropped = np.any(list(empty.values()), axis=0)
    if not dropped.any():
        return table
    each = ", ".join(f"'{name}' in {int(rows.sum()):,}" for name, rows in empty.items() if rows.any())
    numbers = shorten(table.numbers[dropped], 10)
    counted = f"{count_of(int(dropped.sum()), 'row')} of {table.rows:,} left out: empty is {each}; rows {numbers}"
    fix = "nothing, if these rows say nothing about the decisions; the mapping drops them by `drop_rows_without`"
    notes = [("rows left out", Finding(None, None, counted, "a value in these columns", fix))]
    if columns.episode is not None and table.has(columns.episode):
        ids = read.series(columns.episode)
        several = ids.filter(pl.Series(dropped)).unique()
        several = several.filter(several.is_in(ids.filter(pl.Series(~dropped)).unique().implode()))
        cut = f"{count_of(len(several), 'episode')} with rows left out and others that remain: {several[:3].to_list()}"
        fix = "leave out whole episodes, or fill the cells; nothing, if what remains are the first rows of each"
        if len(several):
            notes.append(("incomplete episodes", Finding(columns.episode, None, cut, "whole episodes", fix)))
    return _without_rows(table, dropped, notes)


def _labels(action: RawAction | None) -> tuple[str, ...]:
    """The names of discrete actions; of numbered ones the numbers."""
    if action is None or action.kind != "discrete":
        return ()
    (column,) = action.columns
    if column.vocabulary is not None:
        return column.vocabulary
    codes = column.values[column.usable & np.isfinite(column.values)]
    most = int(codes.max(initial=-1)) + 1 if action.sizes is None else action.sizes[0]
    return tuple(map(str, range(most))) if most <= MOST_MASKED else ()


_FEW, _WIDE = 100, 10  # codes that are plausible, whatever their number, and for each different one
MOST_MASKED = 10_000  # numbered actions of a mask
NOT_DECLARED = Declaration()


def _two_meanings(table: ParsedTable, columns: Columns) -> list[tuple[str, Finding]]:
    """A finding if "shares" could be the column of that name, or each action's own share."""
    if columns.propensity != SHARES or SHARES not in table.columns:
        return []
    found = f'propensity = "{SHARES}", which means each action\'s own share, and a column of that name'
    fix = (
        f"write propensity = {{ {SHARES_BY} = [] }} for each action's own share; if the column holds recorded "
        "probabilities, rename it"
    )
    return [("bad mapping", Finding(SHARES, None, found, "one of them", fix))]


def _possible_ends(table: ParsedTable, columns: Columns) -> list[tuple[str, Finding]]:
    """Findings on columns named like ends or beginnings of episodes, where the mapping names none and no episode."""
    used = {name for several in columns.used().values() for name in several}
    expected = "a role for each column of ends or beginnings"
    roles = [("terminated", TERMINATIONS), ("truncated", TRUNCATIONS)]
    fixes = {
        name: f"{role} = {json.dumps(name, ensure_ascii=False)} in the mapping"
        for role, known in roles
        if getattr(columns, role) is None and columns.episode is not None
        for name in table.columns
        if name.lower() in known
    }
    if columns.episode is None:
        number = "every row is an episode of one step: number the episodes in a column, and name it in `episode`"
        fixes |= {name: number for name in table.columns if name.lower() in (*STARTS, *LASTS)}
    return [
        ("possible end column", Finding(name, None, f"a column '{name}' that is not read", expected,
                                        f"{fix}; nothing, if '{name}' means something else"))
        for name, fix in fixes.items()
        if name not in used
    ]  # fmt: skip


def _rewards(table: ParsedTable, columns: Columns) -> tuple[list[Column], list[tuple[str, Finding]]]:
    """The columns of rewards: words as their values, the weighted sum if there are weights, within the limits.

    And findings about those that 32 bits change.
    """
    worth = {word: float(value) for word, value in dict(columns.reward_values).items()}
    found: list[tuple[str, Finding]] = []
    empty = worth.pop("", None)  # the reward of a row without one
    if columns.missing_reward is not None and declared_missing(columns.missing_reward) is None:
        empty = float(columns.missing_reward)

    def read(series: pl.Series) -> Column:
        series = _with_nan_empty(series, columns)
        if worth and isinstance(series.dtype, pl.String | pl.Categorical | pl.Enum):
            text = series.cast(pl.String).str.strip_chars()
            series = text.replace(list(worth), [str(value) for value in worth.values()]).rename(series.name)
        column = number(series)
        if empty is None or not len(column.missing):
            return column
        values = np.array(column.values)
        values[column.missing] = empty
        if columns.missing_reward is not None:
            counted = (
                f"{count_of(len(column.missing), 'row')} of {table.rows:,} without a reward, which counts as {empty:g}"
            )
            fix = "nothing, if these rewards never came; missing_reward says so"
            found.append(("empty rewards", Finding(column.name, None, counted, "a reward in every row", fix)))
        return replace(column, values=values, missing=column.missing[:0])

    rewards = [read(series) for series in _present(table, columns.reward)]
    weights = columns.reward_weights
    if weights is not None and len(rewards) == len(weights) and all(one.values.ndim == 1 for one in rewards):
        weighted = [weight * np.asarray(one.values, np.float64) for weight, one in zip(weights, rewards, strict=True)]
        total = np.asarray(np.sum(weighted, axis=0), np.float64)
        rewards = [_merged(" + ".join(one.name for one in rewards), total, rewards)]
    if columns.reward_clip is not None:
        low, high = columns.reward_clip
        rewards = [replace(one, values=np.clip(one.values, low, high)) for one in rewards]
    found += [finding for one in rewards for finding in rounded_rewards(one)]
    with np.errstate(over="ignore"):  # infinite rewards are refused later
        return [replace(one, values=one.values.astype(np.float32)) for one in rewards], found


def _with_nan_empty(series: pl.Series, columns: Columns) -> pl.Series:
    """Rewards with NaN as an empty cell, as frames of pandas have it, where the mapping says what that is."""
    return series.fill_nan(None) if columns.missing_reward is not None and series.dtype.is_float() else series


NEWEST = (0.02, 0.05, 0.1, 0.2, 0.3)  # shares of the rows that may be too young for their reward
ERRORS, APART = 4.5, 0.02  # difference of shares of empty rewards, in standard errors, and at least


def _late_rewards(table: ParsedTable, columns: Columns, time: Column | None) -> list[tuple[str, Finding]]:
    """A finding if empty rewards that count as a number are more frequent among the newest decisions."""
    series = _present(table, columns.reward)
    has_default = "" in dict(columns.reward_values) or columns.missing_reward not in (None, UNKNOWN, AT_RANDOM)
    if not has_default or columns.reward_horizon is not None or len(series) != 1 or time is None:
        return []
    if not time.usable.all() or time.values.ndim != 1 or not len(time.values):
        return []
    empty = is_empty(_with_nan_empty(series[0], columns)).to_numpy()[np.argsort(time.values, kind="stable")]
    for newest in NEWEST:
        count = round(newest * len(empty))
        if count < 10:
            continue
        new, old = float(empty[-count:].mean()), float(empty[:-count].mean())
        share = float(empty.mean())
        error = np.sqrt(share * (1.0 - share) * (1.0 / count + 1.0 / (len(empty) - count)))
        if new - old > max(ERRORS * error, APART):
            found = (
                f"empty rewards are {new:.1%} of the newest {newest:.0%} of the rows and {old:.1%} of the others: "
                "these rewards may still come"
            )
            fix = 'set reward_horizon in the mapping, such as "30d": the longest time after which a reward comes'
            return [("late rewards unread", Finding(series[0].name, None, found, "rewards that are known", fix))]
    return []


def unique(header: Sequence[str]) -> list[str]:
    """Distinct names, as Polars requires; the first of equal names stays unchanged."""
    known: set[str] = set()
    names = []
    for position, name in enumerate(header):
        names.append(f"{name}\x00{position}" if name in known else name)
        known.add(name)
    return names


def duplicates(header: Sequence[str]) -> list[tuple[str, Finding]]:
    """The names that appear twice in a header, as findings."""
    twice = sorted((name, count) for name, count in Counter(header).items() if count > 1)
    return [
        ("duplicate column name",
         Finding(name, None, f"{count} columns named '{name}'", "distinct names", "rename one of them"))
        for name, count in twice
    ]  # fmt: skip


def lacking(table: ParsedTable, roles: Mapping[str, str]) -> list[tuple[str, Finding]]:
    """The columns with a role that the table, or one of its files, does not have; `roles` maps columns to roles."""
    known = [name for name in table.columns if name]
    found, has = [], frozenset(table.columns)
    for name, role in roles.items():
        if name in has:
            continue
        near = nearest(name, known)
        advice = f": {near}" if near.startswith("did you mean") else ", or add the column to the file"
        what = f"no column '{name}' for {role}; the columns are {shorten(map(repr, table.columns), 8)}"
        fix = f"correct the name in the mapping{advice}"
        found.append(("missing column", Finding(name, None, what, f"a column '{name}'", fix)))
    fix = "export the files alike, or read them apart and join the logs with tidelog.Log.concat"
    return found + [
        ("files differ", Finding(name, None, table.uneven[name], "the same columns and types in every file", fix))
        for name in roles
        if name in table.uneven
    ]


def _present(table: ParsedTable, selected: str | Sequence[str] | bool | None) -> list[pl.Series]:
    return [table.series(name) for name in names(selected) if table.has(name)]


def column_of(table: ParsedTable, name: str | bool | None, read: Callable[[pl.Series], Column]) -> Column | None:
    """The column of that name, read by a function; None if the table does not have it."""
    series = _present(table, name)
    return read(_single(series[0])) if series else None


def _single(series: pl.Series) -> pl.Series:
    """One value per row: lists become text, which is neither a number, a flag nor a time."""
    return spelled(series) if isinstance(series.dtype, pl.List | pl.Array) else series


def _mask(table: ParsedTable, selected: str | Sequence[str] | None) -> Column | None:
    series = _present(table, selected)
    return mask(series) if series and len(series) == len(names(selected)) else None


def _unused(table: ParsedTable, columns: Columns) -> Iterator[Column]:
    """Columns without a role, named like clusters: numbers and days, and text as hashes, which need no vocabulary.

    A row without a value is in `missing`.
    """
    used = {name for several in columns.used().values() for name in several}
    for name in sorted(table.names - used) if columns.cluster is None else ():
        if "\x00" in name or kind_of(name) is None or (series := table.series(name)).dtype.is_nested():
            continue
        if series.dtype.is_float() or series.dtype.is_decimal():
            yield Column(name, series.cast(pl.Float64).fill_null(float("nan")).to_numpy())
            continue
        if series.dtype.is_temporal():
            series = (series.dt.date() if isinstance(series.dtype, pl.Datetime) else series).to_physical()
        missing = series.is_null()
        if not series.dtype.is_integer():
            text = series.cast(pl.String)
            missing |= (text == "").fill_null(True)
            series = text.hash() // 4
        values = series.cast(pl.Int64, strict=False).fill_null(0).to_numpy()
        yield Column(name, values, missing=_positions(missing))


def _is_word(series: pl.Series, columns: Columns) -> bool:
    return series.name in columns.categorical_names or is_categorical(series)


def _action_of_table(table: ParsedTable, columns: Columns, named_masks: Sequence[pl.Series] = ()) -> RawAction | None:
    """The logged actions; `named_masks` are masks as lists of names, whose names are actions as well."""
    if columns.parts is None:
        return _action_of_columns(table, columns, columns.action, columns.actions, columns.bounds, named_masks)
    read = {
        name: _action_of_columns(table, columns, selected, *declared)
        for (name, selected), declared in by_part(columns.parts, columns.actions, columns.bounds)
    }
    parts = {name: part for name, part in read.items() if part is not None}
    return RawAction.of_parts(parts) if len(parts) == len(read) else None


def _action_of_columns(
    table: ParsedTable, columns: Columns, action: Any, actions: Any, bounds: Any, named_masks: Sequence[pl.Series] = ()
) -> RawAction | None:
    selected, series = names(action), _present(table, action)
    if len(series) != len(selected):
        return None
    sizes, bounds = declared_actions(actions, bounds)
    words = columns.vocabulary_of.get(selected[0])
    series = [one if words or one.name in columns.categorical_names else as_lists(one) for one in series]
    if len(series) == 1 and (words or (sizes is None and bounds is None and _is_word(series[0], columns))):
        if words is None and named_masks:
            every = [series[0].cast(pl.String).str.strip_chars(), *(one.explode() for one in named_masks)]
            unique_words = pl.concat([one.rename("name") for one in every]).drop_nulls().unique().sort()
            words = tuple(unique_words.filter(unique_words != ""))
        count = None if words is None else (len(words),)
        return RawAction("discrete", tuple(categories(series[0], words=words)), count)
    numbers = tuple(map(number, series))
    if len(series) == 1 and sizes is None and bounds is None and not named_masks:
        labelled = counted_from_one(numbers[0], len(names(columns.action_mask)))
        if labelled is not None:
            return RawAction("discrete", (labelled,))
    return decide_action(numbers, sizes, bounds)


def counted_from_one(column: Column, flags: int = 0) -> Column | None:
    """The same actions with labels, where the codes [N] count from 1 to the largest; None for any other column.

    `flags` is the number of columns of an action mask, which counts the actions: codes from 1 have as many.
    """
    values = column.values
    if values.ndim != 1 or len(column.unreadable) or not column.usable.any():
        return None
    codes = np.unique(values[column.usable])
    top = float(codes[-1])
    if codes[0] != 1 or len(codes) < 2 or not np.all(codes % 1 == 0) or top > max(_FEW, _WIDE * len(codes)):
        return None
    if flags and flags != top:
        return None
    words = tuple(str(code) for code in range(1, int(top) + 1))
    return replace(column, values=np.where(column.usable, values, 1).astype(np.int32) - 1, vocabulary=words)


def _features_of_table(
    table: ParsedTable, columns: Columns
) -> tuple[dict[str, Feature], dict[str, Feature], list[tuple[str, Finding]]]:
    """Leaves of observations, leaves of next observations, and notes about rare labels."""
    following = dict(zip(names(columns.observation), names(columns.next_observation), strict=False))
    kinds: dict[Kind, list[list[Column]]] = {"vector": [], "codes": []}
    rules = columns.rules
    found: list[tuple[str, Finding]] = []
    for name in names(columns.observation):
        pair = [*_present(table, name), *_present(table, following.get(name))]
        if not table.has(name):
            continue
        words = columns.vocabulary_of.get(name)
        if not words and name not in columns.categorical_names:
            lists = list(map(as_lists, pair))
            pair = lists if isinstance(lists[0].dtype, pl.List) else pair
        if words or _is_word(pair[0], columns):
            joined, note = join_rare(categories(*pair, words=words), columns.rows_of_a_label(name))
            kinds["codes"].append(joined)
            found += note
        else:
            numbers = list(map(narrow, pair))
            kinds["vector"].append(list(map(_without_nan, numbers)) if rules[name] != "error" else numbers)
    now, later = (
        {leaf: Feature(kind, tuple(pair[side] for pair in pairs))
         for leaf, (kind, pairs) in zip(LEAVES, kinds.items(), strict=True)
         if pairs and all(len(pair) > side for pair in pairs)}
        for side in (0, 1)
    )  # fmt: skip
    return now, later, found


def _without_nan(column: Column) -> Column:
    """The column with NaN as an empty cell, where a rule fills those."""
    if column.values.dtype.kind != "f":
        return column
    nan = np.isnan(column.values).any(axis=tuple(range(1, column.values.ndim))) & column.usable
    return replace(column, missing=np.union1d(column.missing, np.flatnonzero(nan)))


def _report_unknown_values(raw: RawLog) -> RawLog:
    """Report values outside a declared vocabulary as unknown categories instead of as text among numbers."""
    found = list(raw.found)

    def known(column: Column) -> Column:
        if column.vocabulary is None or not len(column.unreadable):
            return column
        texts, expected = ", ".join(map(repr, column.texts)), f"one of {', '.join(map(repr, column.vocabulary[:8]))}"
        advice = "correct the cells, or add the values to vocabularies="
        found.append(("unknown category", Finding(column.name, column.unreadable, texts, expected, advice)))
        return replace(column, unreadable=column.unreadable[:0], reported=column.unreadable)

    sides = [
        {name: replace(leaf, columns=tuple(map(known, leaf.columns))) for name, leaf in side.items()}
        for side in (raw.observation, raw.next_observation)
    ]
    action = raw.action
    if action is not None:
        parts = {name: replace(part, columns=tuple(map(known, part.columns))) for name, part in action.parts}
        columns = tuple(map(known, action.columns)) if not parts else ()
        action = RawAction.of_parts(parts) if parts else replace(action, columns=columns)
    return replace(raw, observation=sides[0], next_observation=sides[1], action=action, found=tuple(found))
