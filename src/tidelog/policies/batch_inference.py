"""Acting on the rows of a table: features by name in, the same rows with their actions out. Letters: `B` rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from tidelog.data.core.columns import Columns, names
from tidelog.data.core.order import Order, arrange
from tidelog.data.io.export import column_labels
from tidelog.data.parsing import column as parse
from tidelog.data.sources import table_of
from tidelog.errors import ConfigError, SpecError, nearest
from tidelog.policies.policy import Policy
from tidelog.policies.replay_policy import act_along
from tidelog.runtime.observations import column_names, feature_names, filled
from tidelog.types import Catalogue, Codes, Continuous, Discrete, Image, Leaf, Spec, Vector


def act_on_table(policy: Policy, path: Path, mapping: str | Path | None = None) -> pl.DataFrame:
    """The table's rows with one column `action` (or `action_0`, ... for vectors), deterministic.

    Features of arrays without names are the columns `observation_0`, ... of an exported log (`observation` for one).
    Raises LogError where the table cannot be read, SpecError (naming column and rows) where a feature is missing, does
    not parse, or holds a word that the log never had. `mapping` tells where the allowed actions stand.
    """
    return _acted(policy, _table(policy, path), mapping)


def act_on_known(
    policy: Policy, path: Path, mapping: str | Path | None = None
) -> tuple[pl.DataFrame | None, pl.DataFrame]:
    """As `act_on_table`, without rows that hold a word that the log never had, and those rows.

    The latter with a column `row`, counted from 1, and a column `unknown` that says what is; the former is None where
    no row is left. ConfigError where the policy has a memory, to which every row of an episode counts.
    """
    if policy.is_recurrent:
        raise ConfigError("this policy has a memory, to which every row of an episode counts: no row can be skipped")
    frame = _table(policy, path)
    unknown = _unknown(frame, policy.spec)
    left_out = np.asarray([bool(told) for told in unknown])
    skipped = pl.DataFrame({"row": np.flatnonzero(left_out) + 1, "unknown": [told for told in unknown if told]})
    kept = frame.filter(pl.Series(~left_out))
    return (_acted(policy, kept, mapping) if kept.height else None), skipped.hstack(frame.filter(pl.Series(left_out)))


def _unknown(frame: pl.DataFrame, spec: Spec) -> list[str]:
    """For every row, the words that the log never had, each with its column; empty where there are none."""
    told = [""] * frame.height
    for leaf in spec.observation.values():
        if isinstance(leaf, Codes) and leaf.vocabularies:
            for name, words in zip(leaf.names, leaf.vocabularies, strict=True):
                text = frame[name].cast(pl.String).fill_null("")
                for row in np.flatnonzero(~text.is_in(list(words)).to_numpy()) if words else ():
                    told[row] += f"{'; ' if told[row] else ''}{name}: {text[int(row)] or '(an empty cell)'}"
    return told


def _table(policy: Policy, path: Path) -> pl.DataFrame:
    """The rows of a file; SpecError where there are none, or a feature has no column."""
    if isinstance(policy.spec.action, Catalogue):
        raise SpecError("this policy ranks items of a catalogue: tidelog recommend makes lists of them")
    frame = table_of(path).frame
    if not frame.height:
        raise SpecError(f"{path} has no rows to act on")
    lacking = [name for name in feature_names(_with_names(policy.spec)) if name not in frame.columns]
    if lacking:
        raise SpecError(
            f"{path} lacks the column '{lacking[0]}' ({len(lacking)} in all): {nearest(lacking[0], frame.columns)}"
        )
    return frame


def _acted(policy: Policy, frame: pl.DataFrame, mapping: str | Path | None) -> pl.DataFrame:
    spec = _with_names(policy.spec)
    frame_filled = _carried_forward(frame, spec, mapping)
    leaves = {name: _leaf(frame_filled, leaf) for name, leaf in spec.observation.items()}
    allowed = _mask(frame, policy.spec, mapping)
    if policy.spec.masked and allowed is None:
        raise SpecError(
            "the log said which actions were allowed: give the mapping (--columns) whose action_mask this table has"
        )
    is_recurrent = policy.is_recurrent
    actions = _act_in_order(policy, frame, leaves, allowed, mapping) if is_recurrent else policy(leaves, allowed)
    return frame.with_columns(**_action_columns(actions, policy.spec, frame.columns))


def _with_names(spec: Spec) -> Spec:
    """The spec with names for features that had none in the log's arrays: those that they have in exported tables."""
    leaves = {
        name: replace(leaf, names=tuple(column_labels(name, leaf, _width(leaf))))
        if not isinstance(leaf, Image) and not leaf.names
        else leaf
        for name, leaf in spec.observation.items()
    }
    return replace(spec, observation=leaves)


def _width(leaf: Vector | Codes) -> int:
    return leaf.size if isinstance(leaf, Vector) else len(leaf.sizes)


def _carried_forward(frame: pl.DataFrame, spec: Spec, mapping: str | Path | None) -> pl.DataFrame:
    """The frame with empty cells filled by the last value of the episode, where that was the log's rule."""
    leaves = [leaf for leaf in spec.observation.values() if isinstance(leaf, Vector)]
    carried = [name for leaf in leaves for name, _ in leaf.fills if f"{name} missing" not in leaf.names]
    empty = [name for name in carried if frame[name].null_count() or (parse.number(frame[name]).missing.size > 0)]
    if not empty:
        return frame
    order = _order(frame, mapping, f"'{empty[0]}' was carried forward within episodes")
    back = np.argsort(order.rows)
    for name in empty:
        values = pl.Series(np.where(parse.number(frame[name]).usable, parse.number(frame[name]).values, np.nan))
        sorted_values = pl.DataFrame({"v": values.fill_nan(None)[order.rows], "e": order.episode})
        filled_values = sorted_values.select(pl.col("v").forward_fill().over("e")).to_series()
        frame = frame.with_columns(filled_values[back].rename(name))
    return frame


def _order(frame: pl.DataFrame, mapping: str | Path | None, why: str) -> Order:
    """The table's rows in episode order, as the mapping says; SpecError, with why it is needed, where it does not."""
    columns = None if mapping is None else Columns.from_file(mapping)
    if columns is None or columns.episode is None:
        raise SpecError(f"{why}: give the mapping that says which rows belong together (--columns)")
    named = {"episode": columns.episode, "step": columns.step or columns.time}
    lacking = [name for name in named.values() if name is not None and name not in frame.columns]
    if lacking:
        raise SpecError(f"the table lacks the column '{lacking[0]}': {nearest(lacking[0], frame.columns)}")
    identity = parse.identity(frame[columns.episode])
    key = None if named["step"] is None else parse.moment(frame[named["step"]]).values
    return arrange(frame.height, identity.values, identity.words, key)


def _act_in_order(policy: Policy, frame: pl.DataFrame, leaves: Any, allowed: Any, mapping: str | Path | None) -> Any:
    """Actions in file order of a policy with a memory, which goes through each episode from its start."""
    order = _order(frame, mapping, "this policy has a memory")
    sorted_leaves = {name: leaf[order.rows] for name, leaf in leaves.items()}
    starts = np.searchsorted(order.episode, np.arange(len(order.ids) + 1))
    acted = act_along(policy, sorted_leaves, starts, None if allowed is None else allowed[order.rows])
    back = np.empty_like(acted)
    back[order.rows] = acted
    return back


def _leaf(frame: pl.DataFrame, leaf: Leaf) -> np.ndarray[Any, Any]:
    if isinstance(leaf, Image):
        raise SpecError("this policy sees pictures: call it from Python")
    if isinstance(leaf, Codes):
        if not leaf.vocabularies:
            return np.stack([_counted(frame[n], size) for n, size in zip(leaf.names, leaf.sizes, strict=True)], axis=-1)
        return np.stack([_codes(frame[n], v) for n, v in zip(leaf.names, leaf.vocabularies, strict=True)], axis=-1)
    fills = dict(leaf.fills)
    return filled(leaf, [_numbers(frame[name], name in fills) for name in column_names(leaf)])


def _numbers(series: pl.Series, may_lack: bool = False) -> np.ndarray[Any, Any]:
    column = parse.number(series)
    if may_lack:
        values = np.asarray(column.values, np.float32).copy()
        values[column.missing] = np.nan
        column = replace(column, values=values, missing=column.missing[:0])
    bad = np.flatnonzero(~(column.usable & (np.isfinite(column.values) | (may_lack & np.isnan(column.values)))))
    if len(bad):
        raise SpecError(
            f"column '{series.name}' has no number in {_rows(bad)}, found {series[int(bad[0])]!r}: fill it in"
        )
    return np.asarray(column.values)


def _counted(series: pl.Series, size: int) -> np.ndarray[Any, Any]:
    """Codes of a log that had codes to begin with."""
    codes = _numbers(series)
    bad = np.flatnonzero((codes % 1 != 0) | (codes < 0) | (codes >= size))
    if len(bad):
        raise SpecError(f"column '{series.name}' must hold whole codes 0 to {size - 1}, found others in {_rows(bad)}")
    return codes.astype(np.int32)


def _codes(series: pl.Series, words: tuple[str, ...]) -> np.ndarray[Any, Any]:
    known = pl.Series(words, dtype=pl.String)
    text = series.cast(pl.String).fill_null("")
    codes = text.replace_strict(
        known, pl.Series(range(len(words)), dtype=pl.Int32), default=None, return_dtype=pl.Int32
    )
    bad = np.flatnonzero(codes.is_null().to_numpy())
    if len(bad):
        word = text[int(bad[0])] or "(an empty cell)"
        raise SpecError(
            f"column '{series.name}' has {word!r} in {_rows(bad)}, which the log never had: {nearest(word, words)}"
        )
    return codes.to_numpy()


def _rows(bad: np.ndarray[Any, Any]) -> str:
    listed = ", ".join(str(row + 1) for row in bad[:10])
    return f"{len(bad)} row(s) ({listed}{', ...' if len(bad) > 10 else ''})"


def _mask(frame: pl.DataFrame, spec: Spec, mapping: str | Path | None) -> np.ndarray[Any, Any] | None:
    if mapping is None:
        return None
    columns = names(Columns.from_file(mapping).action_mask)
    if not columns:
        return None
    lacking = [name for name in columns if name not in frame.columns]
    if lacking:
        raise SpecError(f"the table lacks the mask column '{lacking[0]}': {nearest(lacking[0], frame.columns)}")
    column = parse.mask([frame[name] for name in columns])
    bad = np.flatnonzero(~column.usable)
    if len(bad):
        raise SpecError(f"the action mask cannot be read in {_rows(bad)}; expected {column.expects}")
    return np.asarray(column.values == 1)


def _action_columns(actions: np.ndarray[Any, Any], spec: Spec, taken: list[str]) -> Mapping[str, Any]:
    space = spec.action
    if isinstance(space, Continuous):
        labels = space.names or tuple(str(i) for i in range(space.size))
        found = {f"action_{label}": actions[:, i] for i, label in enumerate(labels)}
    elif isinstance(space, Discrete) and space.names:
        found = {"action": np.asarray(space.names)[actions]}
    else:
        found = {"action": actions}
    return {(name if name not in taken else f"policy_{name}"): values for name, values in found.items()}


def write_table(frame: pl.DataFrame, path: Path) -> None:
    """Write a table as .csv or .parquet, whole or not at all."""
    writers: dict[str, Callable[[Path], Any]] = {".csv": frame.write_csv, ".parquet": frame.write_parquet}
    if path.suffix not in writers:
        raise ConfigError(f"{path}: expected a file that ends in .csv or .parquet")
    aside = path.with_name(f".{path.name}.writing")
    try:
        writers[path.suffix](aside)
        aside.replace(path)
    except OSError as error:
        aside.unlink(missing_ok=True)
        raise ConfigError(f"{path} cannot be written: {error}") from error
