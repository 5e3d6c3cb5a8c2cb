"""Reading raw observations: one observation, a batch, a mapping by name, or a data frame.

All become the spec's leaves, optionally padded to a few batch sizes to limit compilation. Wrong names or counts, text,
missing numbers and unknown values are SpecErrors that name the feature. A categorical feature is looked up in its
vocabulary, where the label `other`, if it is there, stands for those that the log does not have; integers under the
leaf's name are codes already. Values that were filled when the log was read are filled in the same way here.

Letters: `B` batch, `P` padded batch, `A` number of actions.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from tidelog.errors import SpecError, nearest
from tidelog.types import (
    OTHER,
    Codes,
    Continuous,
    Discrete,
    Hybrid,
    Image,
    Leaf,
    MultiDiscrete,
    Spec,
    Vector,
    is_masked,
    lists_among,
)

NumpyArray = np.ndarray[Any, Any]

_LIST_MARKS = re.compile(r"[\[\]();,]")  # in text such as [0.1, -0.2]
LONGEST = 200  # largest number of characters of a value in an error


class RawBatch(NamedTuple):
    """Observations in the policy's form."""

    leaves: dict[str, NumpyArray]  # [P, ...]
    size: int  # B: the number of observations
    single: bool  # True for one observation, False for a batch of one
    mask: NumpyArray | None = None  # [P, A] bool

    @property
    def rows(self) -> int:
        """P: the number of rows of the leaves."""
        return len(next(iter(self.leaves.values())))

    @property
    def padding(self) -> int:
        """The number of rows added to reach a compiled batch size."""
        return self.rows - self.size


def read_observation(observation: Any, spec: Spec, padded: bool = True, *, other_words: bool = False) -> RawBatch:
    """Return the leaves of a raw observation or batch; SpecError for wrong names, counts or values.

    With `other_words`, a word that the log does not have gets the code -1 and is no error.
    """
    leaves = spec.observation
    if hasattr(observation, "columns"):
        columns = _with_lists({str(c): _column(observation, c) for c in observation.columns}, leaves, table=True)
        read, single = _named(columns, leaves, other_words), False
    elif isinstance(observation, Mapping):
        read, single = _mapping(observation, leaves, other_words)
    else:
        read, single = _array(observation, leaves, other_words)
    count = len(next(iter(read.values())))
    if any(len(leaf) != count for leaf in read.values()):
        counts = {name: len(leaf) for name, leaf in read.items()}
        raise SpecError(f"the observation leaves have different numbers of rows: {counts}", fix="use equal numbers")
    if count == 0:
        raise SpecError("the batch has 0 rows", "at least 1", "pass an observation")
    rows = count
    if padded:  # to a power of two, or to a multiple of 1,024
        rows = 1 << max(count - 1, 0).bit_length() if count <= 1024 else -(-count // 1024) * 1024
    return RawBatch({name: _padded(leaf, rows) for name, leaf in read.items()}, count, single)


def read_mask(inputs: RawBatch, mask: Any, spec: Spec) -> RawBatch:
    """Add an action mask [A] or [B, A]; SpecError where it does not match or allows nothing."""
    if mask is None:
        return inputs
    if not isinstance(spec.action, Discrete):
        raise SpecError("a mask is for discrete actions, and these are not discrete", fix="drop the mask")
    allowed = _as_array(mask, "mask")
    if allowed.dtype.kind not in "biuf":
        raise SpecError(f"mask has the type {allowed.dtype}", "true and false", "use these")
    if not np.isin(allowed, (0, 1)).all():
        raise SpecError("mask has other numbers than 0 and 1", fix="use true and false")
    allowed = np.atleast_2d(allowed.astype(bool))
    expected = (inputs.size, spec.action.n)
    if allowed.shape != expected:
        raise SpecError(
            f"mask has shape {list(allowed.shape)}",
            f"{list(expected)} (or [{expected[1]}] for one)",
            "give it this shape",
        )
    if not allowed.any(axis=1).all():
        raise SpecError(
            f"the mask of row {int(np.argmin(allowed.any(axis=1)))} allows no action", fix="allow at least one"
        )
    return inputs._replace(mask=_padded(allowed, inputs.rows))


def read_action(inputs: RawBatch, action: Any, spec: Spec) -> NumpyArray:
    """Return given actions in network units, [P], [P, M] or [P, A]; SpecError for a wrong shape, kind or range.

    An action with parts is a mapping, or the rows [P, W] that it packs to.
    """
    space: Any = spec.action
    if isinstance(action, Mapping) and not isinstance(space, Hybrid):
        raise SpecError("the action is a mapping of parts", f"{type(space).__name__} actions", "pass an array")
    actions = _as_array(space.pack(action) if isinstance(action, Mapping) else action, "action")
    actions = actions[None] if inputs.single else actions
    sizes = space.sizes if isinstance(space, MultiDiscrete) else ()
    expected = [
        inputs.size,
        *((space.size,) if isinstance(space, Continuous | Hybrid) else (len(sizes),) if sizes else ()),
    ]
    if list(actions.shape) != expected:
        raise SpecError(
            f"actions have shape {list(actions.shape)}",
            f"{expected} for {inputs.size} observation(s)",
            "one action per observation",
        )
    for column, size in enumerate(space.codes if isinstance(space, Hybrid) else ()):
        if size:
            _codes(actions[:, column], f"action '{space.labels[column]}'", size, ())
    if isinstance(space, Continuous | Hybrid):
        return _padded(space.to_unit(_numbers(actions, "action")), inputs.rows)
    if isinstance(space, MultiDiscrete):
        choices = [_codes(actions[:, i], f"action {i}", size, ()) for i, size in enumerate(sizes)]
        return _padded(np.stack(choices, axis=1), inputs.rows)
    labelled = actions.dtype.kind in "UOT" and isinstance(space, Discrete)
    return _padded(_codes(actions, "action", space.n, space.names if labelled else ()), inputs.rows)


def feature_names(spec: Spec) -> list[str]:
    """Return the column names of a table of observations, where the log had names."""
    return [*_all_names(spec.observation)]


def _column(frame: Any, name: Any) -> NumpyArray:
    return np.asarray(frame[name].to_numpy())


def _mapping(
    observation: Mapping[str, Any], leaves: Mapping[str, Leaf], other_words: bool
) -> tuple[dict[str, NumpyArray], bool]:
    if set(observation) == set(leaves) and not set(leaves) & set(_all_names(leaves)):
        parts = {name: _leaf(observation[name], name, leaf, other_words) for name, leaf in leaves.items()}
        if len({single for _, single in parts.values()}) > 1:
            raise SpecError("some leaves are one observation and some are batches", fix="use one form for all")
        return {name: part for name, (part, _) in parts.items()}, next(iter(parts.values()))[1]
    known = _all_names(leaves)
    columns = _with_lists({str(name): _as_array(value, str(name)) for name, value in observation.items()}, leaves)
    for name in columns:
        if name not in known:
            raise SpecError(f"unknown feature '{name}': {nearest(name, known or leaves)}")
    single = all(column.ndim == 0 for column in columns.values())
    return _named({name: np.atleast_1d(column) for name, column in columns.items()}, leaves, other_words), single


def _all_names(leaves: Mapping[str, Leaf]) -> tuple[str, ...]:
    return _names_and_lists(tuple(leaves.values()))[0]


@lru_cache(maxsize=64)  # a third of a single decision
def _names_and_lists(leaves: tuple[Leaf, ...]) -> tuple[tuple[str, ...], dict[str, tuple[str, ...]]]:
    names = tuple(name for leaf in leaves if not isinstance(leaf, Image) for name in column_names(leaf))
    return names, lists_among(names)


def _with_lists(
    columns: dict[str, NumpyArray], leaves: Mapping[str, Leaf], table: bool = False
) -> dict[str, NumpyArray]:
    """Return the columns with one for each number of a column of lists, [D] or [B, D], as the log had it."""
    spread = dict(columns)
    for name, labels in _names_and_lists(tuple(leaves.values()))[1].items():
        if name in columns and not any(label in columns for label in labels):
            numbers = _numbers_of_lists(spread.pop(name), name, len(labels), table)
            spread |= {label: numbers[..., position] for position, label in enumerate(labels)}
    return spread


def _numbers_of_lists(values: NumpyArray, name: str, width: int, table: bool) -> NumpyArray:
    """Return lists as numbers [D] or [B, D], NaN for a list that is missing or lacks a number.

    SpecError for lists of another length.
    """
    if values.dtype.kind not in "OUST":
        numbers = values.reshape(len(values), -1) if values.ndim > 2 else values
        if values.ndim == 0 or numbers.shape[-1] != width:
            raise SpecError(f"'{name}' has shape {list(values.shape)}", f"[{width}] or [B, {width}]", "reshape it")
        return numbers
    cells = values.reshape(-1).tolist() if values.ndim < 2 else values.tolist()
    whole = (
        values.ndim == 1 and not table and not any(isinstance(cell, str | list | tuple | np.ndarray) for cell in cells)
    )
    cells = [cells] if whole else cells  # one list in which a number is missing
    rows = np.full((len(cells), width), np.nan)
    for row, cell in enumerate(cells):
        if cell is None or (isinstance(cell, float) and cell != cell) or (isinstance(cell, str) and not cell.strip()):
            continue
        words = _LIST_MARKS.sub(" ", cell).split() if isinstance(cell, str) else cell
        try:
            numbers = np.asarray(words, np.float64).reshape(-1)
        except (TypeError, ValueError):
            raise SpecError(f"'{name}' holds no numbers in row {row}", fix=f"pass a list of {width} numbers") from None
        if len(numbers) != width:
            raise SpecError(f"'{name}' has a list of {len(numbers)} in row {row}", f"{width} numbers", "pass as many")
        rows[row] = np.nan if np.isnan(numbers).any() else numbers
    return rows if values.ndim and not whole else rows[0]


@lru_cache(maxsize=256)
def column_names(leaf: Vector | Codes) -> tuple[str, ...]:
    """Return the columns of a leaf: its names without the flags of filled values."""
    fills = leaf.fills if isinstance(leaf, Vector) else ()
    flags = {f"{name} missing" for name, _ in fills}
    return tuple(name for name in leaf.names if name not in flags)


def _named(
    columns: Mapping[str, NumpyArray], leaves: Mapping[str, Leaf], other_words: bool = False
) -> dict[str, NumpyArray]:
    known = _all_names(leaves)
    if not known:
        raise SpecError("the log has no feature names", fix=f"pass arrays for {', '.join(leaves)}")
    missing = [name for name in known if name not in columns]
    if missing:
        more = f" and {len(missing) - 5} more" if len(missing) > 5 else ""
        if not columns:
            raise SpecError("the observation is empty", fix="give every feature a value")
        close = nearest(missing[0], [name for name in columns if name not in known])
        hint = close if close.startswith("did you mean") else "give every feature a value"
        raise SpecError(f"missing features {', '.join(missing[:5])}{more}", f"{len(known)} features", hint)
    shapes = {name: list(columns[name].shape) for name in known}
    if any(len(shape) != 1 or shape != shapes[known[0]] for shape in shapes.values()):
        raise SpecError(f"features have shapes {shapes}", "one value per row", "use equal 1-D columns")
    return {name: _from_columns(columns, leaf, other_words) for name, leaf in leaves.items()}


def _from_columns(columns: Mapping[str, NumpyArray], leaf: Leaf, other_words: bool = False) -> NumpyArray:
    if isinstance(leaf, Image):
        raise SpecError("a picture is not a column", fix="pass it as an array [B, height, width, channels]")
    if isinstance(leaf, Vector):
        return fill_features(leaf, [_as_numbers(columns[name], name) for name in column_names(leaf)])
    words = leaf.vocabularies or ((),) * len(leaf.sizes)
    parts = zip(leaf.names, leaf.sizes, words, strict=True)
    coded = [_codes(columns[n], n, s, v, other_words) for n, s, v in parts]
    return np.stack(coded, axis=-1)


def _array(observation: Any, leaves: Mapping[str, Leaf], other_words: bool) -> tuple[dict[str, NumpyArray], bool]:
    if len(leaves) != 1:
        raise SpecError(f"the observation needs {', '.join(leaves)}", fix="pass a mapping or a data frame with names")
    ((name, leaf),) = leaves.items()
    part, single = _leaf(observation, name, leaf, other_words)
    return {name: part}, single


def fill_features(leaf: Vector, columns: list[NumpyArray]) -> NumpyArray:
    """Return the features [B, O] of a leaf from its columns [B]: missing values filled, and their flags."""
    features = dict(zip(column_names(leaf), columns, strict=True))
    for name, fill in leaf.fills:
        missing = np.isnan(features[name])
        features[name] = np.where(missing, fill, features[name])
        features[f"{name} missing"] = missing.astype(np.float32)
    with np.errstate(over="ignore"):  # infinite values are refused
        rows: NumpyArray = np.stack([features[name] for name in leaf.names], axis=-1).astype(np.float32)
    bad = ~np.isfinite(rows)
    if bad.any():
        column = int(np.argmax(bad.any(axis=0)))
        row = int(np.argmax(bad[:, column]))
        raise SpecError(f"'{leaf.names[column]}' is missing or infinite in row {row}", fix="pass a finite number")
    return rows


def _picture(values: Any, name: str, leaf: Image) -> tuple[NumpyArray, bool]:
    array, expected = _as_array(values, name), (leaf.height, leaf.width, leaf.channels)
    if array.dtype != np.uint8:
        raise SpecError(f"'{name}' has the type {array.dtype}", "uint8 pictures", "convert to uint8")
    if array.ndim not in (3, 4) or array.shape[-3:] != expected:
        raise SpecError(f"'{name}' has shape {list(array.shape)}", f"{list(expected)} or [B, ...]", "reshape it")
    return (array[None], True) if array.ndim == 3 else (array, False)


def _leaf(values: Any, name: str, leaf: Leaf, other_words: bool) -> tuple[NumpyArray, bool]:
    if isinstance(leaf, Image):
        return _picture(values, name, leaf)
    array = _as_array(values, name)
    width = leaf.size if isinstance(leaf, Vector) else len(leaf.sizes)
    if isinstance(leaf, Codes) and width == 1 and array.ndim <= 1 and array.shape != (1,):
        array = array[..., None]
    if array.ndim not in (1, 2) or array.shape[-1] != width:
        raise SpecError(f"'{name}' has shape {list(array.shape)}", f"[{width}] or [B, {width}]", "reshape it")
    single = array.ndim == 1
    rows = array[None] if single else array
    if isinstance(leaf, Vector):
        return _numbers(rows, name), single
    coded_already = np.issubdtype(rows.dtype, np.integer)
    words = leaf.vocabularies if leaf.vocabularies and not coded_already else ((),) * width
    coded = [_codes(rows[:, c], f"{name}[{c}]", leaf.sizes[c], words[c], other_words) for c in range(width)]
    return np.stack(coded, axis=-1), single


def _as_array(values: Any, name: str) -> NumpyArray:
    if is_masked(values):
        raise SpecError(f"'{name}' is masked in some places", "values", "fill it, as in values.filled(numpy.nan)")
    try:
        return np.asarray(values)
    except ValueError:
        raise SpecError(f"'{name}' has rows of different lengths", fix="give every row one shape") from None


def _as_numbers(values: NumpyArray, name: str) -> NumpyArray:
    if values.dtype == np.float32:
        return values.copy()
    if values.dtype.kind not in "biufO":
        raise SpecError(f"'{name}' has the type {values.dtype}", "numbers", "convert it")
    if values.dtype.kind == "O" and any(isinstance(value, str | bytes) for value in values.flat):
        raise SpecError(f"'{name}' has text", "numbers", "convert it")
    try:
        with np.errstate(over="ignore"):  # infinite values are refused later
            return values.astype(np.float32)
    except (TypeError, ValueError) as error:
        raise SpecError(f"'{name}'", f"numbers ({error})", "convert it") from None


def _numbers(values: NumpyArray, name: str) -> NumpyArray:
    numbers = _as_numbers(values, name)
    finite = np.isfinite(numbers)
    if not finite.all():
        raise SpecError(
            f"'{name}' is missing or infinite in row {int(np.argwhere(~finite)[0][0])}", fix="pass a finite number"
        )
    return numbers


def _codes(
    values: NumpyArray, name: str, size: int, vocabulary: tuple[str, ...], other_words: bool = False
) -> NumpyArray:
    if vocabulary:
        table = {word: code for code, word in enumerate(vocabulary)}
        words = _words(values)
        unseen = table.get(OTHER, -1)
        codes = np.asarray([table.get(word, unseen if word else -1) for word in words], np.int32)
        if (codes < 0).any() and not other_words:
            row = int(np.argmax(codes < 0))
            word = words[row][:LONGEST]
            raise SpecError(f"'{name}' is {word!r} in row {row}, unknown in the log: {nearest(word, table)}")
        return codes
    try:
        with np.errstate(invalid="ignore"):  # NaN is refused below
            codes = values.astype(np.int32)
    except (TypeError, ValueError) as error:
        raise SpecError(f"'{name}'", f"codes 0 to {size - 1} ({error})", "use integers") from None
    bad = (codes != values) | (codes < (-1 if other_words else 0)) | (codes >= size)
    if bad.any():
        row = int(np.argmax(bad))
        raise SpecError(
            f"'{name}' is {values[row].item()!r} in row {row}", f"codes 0 to {size - 1}", "use the log's codes"
        )
    return codes


def _words(values: NumpyArray) -> list[str]:
    """Return labels as text, empty where they are missing."""
    return ["" if value is None or value != value else str(value) for value in values.tolist()]


def unseen_labels(observation: Mapping[str, Any], spec: Spec) -> dict[str, int]:
    """Return how many rows have a label that counts as `OTHER`, because the log does not have it, by feature.

    `observation` has columns [B] by feature, or leaves [B, C].
    """
    counts = {}
    for key, leaf in spec.observation.items():
        for column, words in enumerate(leaf.vocabularies if isinstance(leaf, Codes) else ()):
            name = leaf.names[column] if leaf.names else key  # type: ignore[union-attr]
            values = observation.get(name)
            if values is None and key in observation:
                values = np.asarray(observation[key])[..., column]
            if OTHER not in words or values is None or np.asarray(values).dtype.kind in "iu":
                continue
            known = {*leaf.known(column), ""}  # type: ignore[union-attr]
            counts[name] = sum(word not in known for word in _words(np.atleast_1d(values)))
    return {name: count for name, count in counts.items() if count}


def unseen_text(counts: Mapping[str, int]) -> str:
    """Return a sentence about the labels that `unseen_labels` counts."""
    listed = ", ".join(f"{count:,} of '{name}'" for name, count in counts.items())
    return f"labels that the log of the policy does not have count as '{OTHER}': {listed}"


def blank(leaf: Any, highest: bool = False) -> NumpyArray:
    """Return one value of a leaf, [1, ...]: zeros, or the `highest` codes."""
    if isinstance(leaf, Image):
        return np.zeros((1, leaf.height, leaf.width, leaf.channels), np.uint8)
    if isinstance(leaf, Codes):
        return np.asarray([leaf.sizes], np.int32) - 1 if highest else np.zeros((1, len(leaf.sizes)), np.int32)
    return np.zeros((1, leaf.size), np.float32)


def _padded(leaf: NumpyArray, rows: int) -> NumpyArray:
    return np.concatenate([leaf, np.repeat(leaf[-1:], rows - len(leaf), axis=0)]) if rows > len(leaf) else leaf
