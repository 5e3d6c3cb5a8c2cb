"""Reading what a user hands to a policy: one observation, a batch, a mapping by name, or a data frame.

Everything ends as the spec's leaves, if asked padded to a few batch sizes so that few programs are compiled. Wrong
names or counts, text, missing numbers and unknown words are SpecErrors that name the feature. A categorical feature is
looked up in its vocabulary, unless integers are handed in under the leaf's name: those are codes already. Values that
were filled when the log was read are filled in the same way here.

Letters: `B` batch, `P` padded batch, `A` number of actions.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from tidelog.errors import SpecError, nearest
from tidelog.types import Codes, Continuous, Discrete, Image, Leaf, MultiDiscrete, Spec, Vector

NumpyArray = np.ndarray[Any, Any]

LONGEST = 200  # letters of a word that an error quotes


class Intake(NamedTuple):
    """Observations as a policy reads them."""

    leaves: dict[str, NumpyArray]  # [P, ...]
    size: int  # B: how many were handed in
    single: bool  # whether it was one observation, not a batch of one
    mask: NumpyArray | None = None  # [P, A] bool

    @property
    def rows(self) -> int:
        """P: how many rows the leaves have."""
        return len(next(iter(self.leaves.values())))

    @property
    def padding(self) -> int:
        """Rows added to reach a batch size that is compiled already."""
        return self.rows - self.size


def read_observation(observation: Any, spec: Spec, padded: bool = True) -> Intake:
    """The leaves of a raw observation or batch; SpecError where names, counts or values do not fit."""
    leaves = spec.observation
    if hasattr(observation, "columns"):
        found, single = _named({str(c): _column(observation, c) for c in observation.columns}, leaves), False
    elif isinstance(observation, Mapping):
        found, single = _mapping(observation, leaves)
    else:
        found, single = _array(observation, leaves)
    counts = {name: len(leaf) for name, leaf in found.items()}
    if len(set(counts.values())) != 1:
        raise SpecError(f"observation leaves differ in how many rows they have: {counts}")
    count = next(iter(counts.values()))
    if count == 0:
        raise SpecError("no observation was handed in: the batch has 0 rows")
    rows = _rows_for(count) if padded else count
    return Intake({name: _padded(leaf, rows) for name, leaf in found.items()}, count, single)


def read_mask(intake: Intake, mask: Any, spec: Spec) -> Intake:
    """The intake with an action mask [A] or [B, A]; SpecError where it does not fit or allows nothing."""
    if mask is None:
        return intake
    if not isinstance(spec.action, Discrete):
        raise SpecError("a mask says which discrete actions are allowed; these actions are not discrete")
    allowed = _as_array(mask, "mask")
    if allowed.dtype.kind not in "biuf":
        raise SpecError(f"mask must hold true and false, found {allowed.dtype}")
    if not np.isin(allowed, (0, 1)).all():
        raise SpecError("mask must hold true and false (or 1 and 0), and holds other numbers")
    allowed = np.atleast_2d(allowed.astype(bool))
    wanted = (intake.size, spec.action.n)
    if allowed.shape != wanted:
        raise SpecError(f"mask must have shape {list(wanted)} (or [{wanted[1]}] for one), found {list(allowed.shape)}")
    if not allowed.any(axis=1).all():
        raise SpecError(f"the mask of row {int(np.argmin(allowed.any(axis=1)))} allows no action at all")
    return intake._replace(mask=_padded(allowed, intake.rows))


def read_action(intake: Intake, action: Any, spec: Spec) -> NumpyArray:
    """Given actions as networks see them, [P], [P, M] or [P, A]; SpecError where shape, kind or range does not fit."""
    space, given = spec.action, _as_array(action, "action")
    given = given[None] if intake.single else given
    sizes = space.sizes if isinstance(space, MultiDiscrete) else ()
    wanted = [intake.size, *((space.size,) if isinstance(space, Continuous) else (len(sizes),) if sizes else ())]
    if list(given.shape) != wanted:
        raise SpecError(f"{intake.size} observation(s) need actions of shape {wanted}, found {list(given.shape)}")
    if isinstance(space, Continuous):
        return _padded(space.to_unit(_numbers(given, "action")), intake.rows)
    if isinstance(space, MultiDiscrete):
        choices = [_codes(given[:, i], f"action {i}", size, ()) for i, size in enumerate(sizes)]
        return _padded(np.stack(choices, axis=1), intake.rows)
    return _padded(_codes(given, "action", space.n, ()), intake.rows)


def feature_names(spec: Spec) -> list[str]:
    """The column names that a table of observations needs, where the log had names."""
    return _all_names(spec.observation)


def _column(frame: Any, name: Any) -> NumpyArray:
    return np.asarray(frame[name].to_numpy())


def _mapping(observation: Mapping[str, Any], leaves: Mapping[str, Leaf]) -> tuple[dict[str, NumpyArray], bool]:
    if set(observation) == set(leaves) and not set(leaves) & set(_all_names(leaves)):
        parts = {name: _leaf(observation[name], name, leaf) for name, leaf in leaves.items()}
        if len({single for _, single in parts.values()}) > 1:
            raise SpecError("some leaves are one observation and some are batches; give all of them one shape")
        return {name: part for name, (part, _) in parts.items()}, next(iter(parts.values()))[1]
    known = _all_names(leaves)
    for name in observation:
        if str(name) not in known:
            raise SpecError(f"unknown feature '{name}': {nearest(str(name), known or leaves)}")
    columns = {str(name): _as_array(value, str(name)) for name, value in observation.items()}
    single = all(column.ndim == 0 for column in columns.values())
    return _named({name: np.atleast_1d(column) for name, column in columns.items()}, leaves), single


def _all_names(leaves: Mapping[str, Leaf]) -> list[str]:
    return [name for leaf in leaves.values() if not isinstance(leaf, Image) for name in column_names(leaf)]


def column_names(leaf: Vector | Codes) -> tuple[str, ...]:
    """The columns that a leaf is made of: its names without the flags of filled values."""
    filled = leaf.fills if isinstance(leaf, Vector) else ()
    flags = {f"{name} missing" for name, _ in filled}
    return tuple(name for name in leaf.names if name not in flags)


def _named(columns: Mapping[str, NumpyArray], leaves: Mapping[str, Leaf]) -> dict[str, NumpyArray]:
    known = _all_names(leaves)
    if not known:
        raise SpecError(f"the log had no feature names: hand in arrays for {', '.join(leaves)}")
    missing = [name for name in known if name not in columns]
    if missing:
        more = f" and {len(missing) - 5} more" if len(missing) > 5 else ""
        hint = nearest(missing[0], columns) if columns else "the observation is empty. fix: give every feature a value"
        raise SpecError(f"missing features {', '.join(missing[:5])}{more}: {hint}")
    shapes = {name: list(columns[name].shape) for name in known}
    if any(len(shape) != 1 or shape != shapes[known[0]] for shape in shapes.values()):
        raise SpecError(f"every feature needs one value a row, found shapes {shapes}")
    return {name: _from_columns(columns, leaf) for name, leaf in leaves.items()}


def _from_columns(columns: Mapping[str, NumpyArray], leaf: Leaf) -> NumpyArray:
    if isinstance(leaf, Image):
        raise SpecError("a picture has no columns: hand it in as an array [B, height, width, channels]")
    if isinstance(leaf, Vector):
        return _numbers(filled(leaf, [_as_numbers(columns[name], name) for name in column_names(leaf)]), "observation")
    words = leaf.vocabularies or ((),) * len(leaf.sizes)
    coded = [_codes(columns[n], n, s, v) for n, s, v in zip(leaf.names, leaf.sizes, words, strict=True)]
    return np.stack(coded, axis=-1)


def _array(observation: Any, leaves: Mapping[str, Leaf]) -> tuple[dict[str, NumpyArray], bool]:
    if len(leaves) != 1:
        raise SpecError(f"this policy sees {', '.join(leaves)}: hand in a mapping or a data frame with named features")
    ((name, leaf),) = leaves.items()
    part, single = _leaf(observation, name, leaf)
    return {name: part}, single


def filled(leaf: Vector, columns: list[NumpyArray]) -> NumpyArray:
    """The features [B, O] of a leaf from its columns [B]: missing values replaced, and their flags behind them."""
    fills, made = dict(leaf.fills), dict[str, NumpyArray]()
    for name, values in zip(column_names(leaf), columns, strict=True):
        missing = np.isnan(values)
        made[name] = np.where(missing, fills[name], values) if name in fills else values
        made[f"{name} missing"] = missing.astype(np.float32)
    for name, values in made.items():
        bad = ~np.isfinite(values)
        if bad.any():
            raise SpecError(f"'{name}' is missing or infinite in row {int(np.argmax(bad))}; a policy needs a number")
    return np.stack([made[name] for name in leaf.names], axis=-1).astype(np.float32)


def _picture(values: Any, name: str, leaf: Image) -> tuple[NumpyArray, bool]:
    array, wanted = _as_array(values, name), (leaf.height, leaf.width, leaf.channels)
    if array.dtype != np.uint8:
        raise SpecError(f"'{name}' must be pictures of bytes (uint8), found {array.dtype}")
    if array.ndim not in (3, 4) or array.shape[-3:] != wanted:
        raise SpecError(f"'{name}' must have shape {list(wanted)} or [B, ...], found {list(array.shape)}")
    return (array[None], True) if array.ndim == 3 else (array, False)


def _leaf(values: Any, name: str, leaf: Leaf) -> tuple[NumpyArray, bool]:
    if isinstance(leaf, Image):
        return _picture(values, name, leaf)
    array = _as_array(values, name)
    width = leaf.size if isinstance(leaf, Vector) else len(leaf.sizes)
    if isinstance(leaf, Codes) and width == 1 and array.ndim <= 1 and array.shape != (1,):
        array = array[..., None]
    if array.ndim not in (1, 2) or array.shape[-1] != width:
        raise SpecError(f"'{name}' must have shape [{width}] or [B, {width}], found {list(array.shape)}")
    single = array.ndim == 1
    rows = array[None] if single else array
    if isinstance(leaf, Vector):
        return _numbers(rows, name), single
    coded_already = np.issubdtype(rows.dtype, np.integer)
    words = leaf.vocabularies if leaf.vocabularies and not coded_already else ((),) * width
    coded = [_codes(rows[:, c], f"{name}[{c}]", leaf.sizes[c], words[c]) for c in range(width)]
    return np.stack(coded, axis=-1), single


def _as_array(values: Any, name: str) -> NumpyArray:
    try:
        return np.asarray(values)
    except ValueError:
        raise SpecError(f"'{name}' has rows of different lengths: give every row one shape") from None


def _as_numbers(values: NumpyArray, name: str) -> NumpyArray:
    if values.dtype.kind not in "biufO":
        raise SpecError(f"'{name}' must hold numbers, found {values.dtype}")
    if values.dtype.kind == "O" and any(isinstance(value, str | bytes) for value in values.flat):
        raise SpecError(f"'{name}' must hold numbers, found words")
    try:
        with np.errstate(over="ignore"):  # what becomes infinite is refused later
            return values.astype(np.float32)
    except (TypeError, ValueError) as error:
        raise SpecError(f"'{name}' must hold numbers: {error}") from None


def _numbers(values: NumpyArray, name: str) -> NumpyArray:
    numbers = _as_numbers(values, name)
    bad = ~np.isfinite(numbers)
    if bad.any():
        raise SpecError(
            f"'{name}' is missing or infinite in row {int(np.argwhere(bad)[0][0])}; a policy needs a number"
        )
    return numbers


def _codes(values: NumpyArray, name: str, size: int, vocabulary: tuple[str, ...]) -> NumpyArray:
    if vocabulary:
        return _looked_up(values, name, vocabulary)
    try:
        with np.errstate(invalid="ignore"):  # what is no number is refused below
            codes = values.astype(np.int32)
    except (TypeError, ValueError) as error:
        raise SpecError(f"'{name}' must hold codes 0 to {size - 1}: {error}") from None
    bad = (codes != values) | (codes < 0) | (codes >= size)
    if bad.any():
        row = int(np.argmax(bad))
        raise SpecError(f"'{name}' must hold whole codes 0 to {size - 1}, found {values[row].item()!r} in row {row}")
    return codes


def _looked_up(values: NumpyArray, name: str, vocabulary: tuple[str, ...]) -> NumpyArray:
    table = {word: code for code, word in enumerate(vocabulary)}
    words = ["" if value is None or value != value else str(value) for value in values.tolist()]
    codes = np.asarray([table.get(word, -1) for word in words], np.int32)
    if (codes < 0).any():
        row = int(np.argmax(codes < 0))
        word = words[row][:LONGEST]
        raise SpecError(f"'{name}' has the word {word!r} in row {row}, never seen in the log: {nearest(word, table)}")
    return codes


def _rows_for(count: int) -> int:
    return 1 << max(count - 1, 0).bit_length() if count <= 1024 else -(-count // 1024) * 1024


def _padded(leaf: NumpyArray, rows: int) -> NumpyArray:
    return np.concatenate([leaf, np.repeat(leaf[-1:], rows - len(leaf), axis=0)]) if rows > len(leaf) else leaf
