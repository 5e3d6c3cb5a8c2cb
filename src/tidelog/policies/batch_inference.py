"""Batch inference: actions for the rows of a table. Letters: `B` rows."""

from __future__ import annotations

import shlex
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeAlias, cast

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tidelog._files import stream_to, write_file
from tidelog.data import parse
from tidelog.data.columns import USUAL_FORM, Columns, names
from tidelog.data.export import column_labels
from tidelog.data.formats import named_arrays
from tidelog.data.parse import ParsedTable, formula_note, without_na, write_csv
from tidelog.data.raw import RowOrder, episode_order
from tidelog.data.read import Source, table_of
from tidelog.errors import ConfigError, SpecError, nearest
from tidelog.runtime.observations import column_names, feature_names, fill_features, unseen_labels
from tidelog.runtime.policy import as_rows, replay
from tidelog.runtime.way_of_acting import BasePolicy
from tidelog.types import (
    OTHER,
    Catalogue,
    Codes,
    Continuous,
    Discrete,
    Hybrid,
    Image,
    Leaf,
    Spec,
    Vector,
    flat_leaves,
    lists_among,
)

AnyMapping: TypeAlias = Columns | str | Path | None  # a mapping, or the path of its file
Unseen: TypeAlias = Literal["other", "skip", "fail"]  # what is done with labels that the policy's log does not have


def act_on_table(
    policy: BasePolicy,
    source: Source,
    mapping: AnyMapping = None,
    seed: int | None = None,
    *,
    probabilities: bool = False,
    unseen: Literal["other", "fail"] = "other",
) -> pl.DataFrame:
    """Return the table's rows with the policy's actions in one column `action` (or `action_0`, ... for vectors).

    The policy acts in its declared way. If it samples, a column `propensity` has the probabilities or densities of its
    actions, and the same `seed` and rows give the same actions (None: new random numbers). With `probabilities`, every
    discrete action has a column `probability_<action>`, of a sample, and if the policy has a critic a column
    `q_<action>`, in the unit of the log's rewards.

    Rows of several files (see `tidelog.read_log`) come one file after another. Features of arrays without names are the
    columns `observation_0`, ... of an exported log (`observation` for one). Raises LogError where the table cannot be
    read, SpecError (with column and rows) for a missing or invalid feature, or for a value outside the log's
    vocabulary, unless that has the label `other` and `unseen` is "other". `mapping`, that of the log, says how text is
    read, and names the columns of the allowed actions.
    """
    mapping, spec = None if mapping is None else Columns.of(mapping), _with_names(policy.spec)
    table = _table(policy, source, mapping)
    read = _read(table, mapping, feature_names(spec))
    if unseen == "fail":
        unknown = list(filter(None, _unknown(read, spec, unseen="fail")))
        if unknown:
            raise SpecError(
                f"{len(unknown):,} rows have values that the policy's log does not have, such as {unknown[0]}",
                fix="correct the cells, or drop --unseen fail (unseen='other')",
            )
    files = [(part.source, part.rows) for part in table.parts]
    acted = _actions(policy, read, mapping, seed, files, probabilities=probabilities)
    return table.frame.with_columns(**acted)


def count_unseen(policy: BasePolicy, acted: pl.DataFrame) -> dict[str, int]:
    """Return how many rows of a table have a label that counts as `other`, by feature."""
    spec = _with_names(policy.spec)
    words = [name for leaf in spec.observation.values() if isinstance(leaf, Codes) and leaf.vocabularies
             for name in leaf.names]  # fmt: skip
    return unseen_labels({name: acted[name].cast(pl.String).to_numpy() for name in words}, spec)


def act_on_known(
    policy: BasePolicy,
    source: Source,
    mapping: AnyMapping = None,
    seed: int | None = None,
    unseen: Unseen = "other",
) -> tuple[pl.DataFrame | None, pl.DataFrame]:
    """Return `act_on_table` of the rows with values that the policy can read, and the skipped rows.

    The skipped rows have a column `row`, counted from 1, after a column `file` if there are several, and a column
    `unknown` with the unknown values; labels that the policy's log does not have are unknown unless `unseen` is "other"
    and its vocabulary has that label. The first table is None where no row is left. ConfigError for a recurrent policy:
    it needs every row of an episode.
    """
    if policy.is_recurrent:
        raise ConfigError(
            "a recurrent policy needs every row of an episode", fix="drop --skip-unknown and --unseen skip"
        )
    mapping, spec = None if mapping is None else Columns.of(mapping), _with_names(policy.spec)
    table = _table(policy, source, mapping)
    frame, files = table.frame, table.files
    read = _read(table, mapping, feature_names(spec))
    unknown = _unknown(read, spec, policy.reads_other_words, unseen)
    is_unknown = np.asarray([*map(bool, unknown)], bool)
    at = np.flatnonzero(is_unknown)
    columns: dict[str, Any] = {} if files is None else {"file": files.of(at)}
    columns |= {"row": at + 1 if files is None else table.numbers[at], "unknown": list(filter(None, unknown))}
    skipped = pl.DataFrame(columns)
    known = frame.filter(pl.Series(~is_unknown))
    acted = None
    if known.height:
        acted = known.with_columns(**_actions(policy, read.filter(pl.Series(~is_unknown)), mapping, seed))
    return acted, skipped.hstack(frame.filter(pl.Series(is_unknown)))


def _unknown(frame: pl.DataFrame, spec: Spec, other_words: bool = False, unseen: Unseen = "other") -> list[str]:
    """Return the values of every row that the policy cannot read, each with its column; empty where there are none.

    These are values outside the log's vocabulary, and cells without a number where a number is needed.
    """
    unknown_values = [""] * frame.height

    def add(name: str, known: np.ndarray[Any, Any]) -> None:
        text = frame[name].cast(pl.String, strict=False)
        for row in np.flatnonzero(~known):
            before = f"{unknown_values[row]}; " if unknown_values[row] else ""
            unknown_values[row] = f"{before}{name}: {text[int(row)] or '(an empty cell)'}"

    for leaf in spec.observation.values():
        if isinstance(leaf, Codes) and leaf.vocabularies:
            other_words = other_words and unseen == "other"
            for position, (name, words) in enumerate(zip(leaf.names, leaf.vocabularies, strict=True)):
                if other_words or not words:
                    continue
                text = frame[name].cast(pl.String).fill_null("")
                readable = text.is_in(list(leaf.known(position)))
                if OTHER in words and unseen == "other":
                    readable = readable | (text != "")
                add(name, readable.to_numpy())
        elif not isinstance(leaf, Image):
            fills = dict(leaf.fills) if isinstance(leaf, Vector) else {}
            for name in column_names(leaf) if isinstance(leaf, Vector) else leaf.names:
                column = parse.number(frame[name])
                known = column.usable & np.isfinite(column.values)
                known[column.missing] = name in fills
                add(name, known)
    return unknown_values


def _table(policy: BasePolicy, source: Source, mapping: Columns | None) -> ParsedTable:
    """Return the table of the rows; SpecError for no rows or a missing feature column."""
    if isinstance(policy.spec.action, Catalogue):
        raise SpecError("this policy ranks items of a catalogue", fix="use `policy.recommend` with histories")
    needed = feature_names(_with_names(policy.spec))
    table = table_of(source, form=USUAL_FORM if mapping is None else mapping.text_form, needed=needed)
    if not table.rows:
        raise SpecError(f"{table.source} has no rows", "at least one", "add rows")
    uneven = [table.uneven[name] for name in needed if name in table.uneven]
    uneven += [table.uneven[name] for name in lists_among(needed) if name in table.uneven]
    if uneven:
        raise SpecError(uneven[0], "the same column in every file", "export the files alike")
    within = {label for name, labels in lists_among(needed).items() if table.has(name) for label in labels}
    missing = [name for name in needed if not table.has(name) and name not in within]
    if missing:
        known = table.frame.columns
        raise SpecError(f"{table.source} has no column '{missing[0]}' ({len(missing)} missing): "
                        f"{nearest(missing[0], known)}")  # fmt: skip
    return table


def _read(table: ParsedTable, mapping: Columns | None, needed: Sequence[str]) -> pl.DataFrame:
    """Return the rows as the log's mapping reads them: null for words of empty cells, a column for each list's number.

    SpecError for a column of lists of another length; an unreadable list is null.
    """
    frame = table.frame if mapping is None or not mapping.na_values else without_na(table, mapping).frame
    for name, labels in lists_among(needed).items():
        if name not in frame.columns or any(label in frame.columns for label in labels):
            continue
        column = parse.number(parse.as_lists(parse.plain(frame[name])))
        width = 1 if column.values.ndim == 1 else column.values.shape[1]
        if width != len(labels):
            raise SpecError(
                f"column '{name}' of {table.source} has lists of {width}",
                f"{len(labels)} numbers",
                "name the table with the lists of the log",
            )
        numbers = np.where(column.usable[:, None], column.values.reshape(-1, width), np.nan)
        frame = frame.with_columns(
            pl.Series(label, numbers[:, position], nan_to_null=True) for position, label in enumerate(labels)
        )
    return frame


def _actions(
    policy: BasePolicy,
    frame: pl.DataFrame,
    mapping: Columns | None,
    seed: int | None,
    files: Sequence[tuple[str, int]] = (),
    *,
    probabilities: bool = False,
) -> dict[str, Any]:
    """Return the new columns of the rows."""
    check_has_chances(policy, asked=probabilities)
    spec = _with_names(policy.spec)
    parts = [*_by_file(frame, files, partial(_leaves, spec=spec, other_words=policy.reads_other_words))]
    leaves = {name: np.concatenate([part[name] for part in parts]) for name in spec.observation}
    masks = [*_by_file(frame, files, partial(_mask, spec=policy.spec, mapping=mapping))]
    allowed = None if masks[0] is None else np.concatenate(masks)
    if policy.spec.masked and allowed is None:
        raise SpecError(
            "the log has action masks, but this table has none", fix="pass the mapping with its action_mask (--columns)"
        )
    order = _order(frame, mapping, "this policy is recurrent") if policy.is_recurrent else None
    actions, propensities = act_in_order(policy, leaves, allowed, order, seed)
    columns = dict(_action_columns(actions, policy.spec, frame.columns))
    if propensities is not None:
        columns["propensity" if "propensity" not in frame.columns else "policy_propensity"] = propensities
    if probabilities:
        columns |= _chances(policy, leaves, allowed, frame.columns)
    return columns


def check_has_chances(policy: BasePolicy, *, asked: bool) -> None:
    """Raise ConfigError where probabilities of all actions are asked of a policy that cannot return them at once."""
    if asked and (policy.is_recurrent or not isinstance(policy.spec.action, Discrete)):
        what = "a recurrent policy" if policy.is_recurrent else f"{type(policy.spec.action).__name__} actions"
        raise ConfigError(f"probabilities: not available for {what}", fix="drop --probabilities")


def action_chances(policy: BasePolicy, leaves: Any, allowed: Any) -> dict[str, np.ndarray[Any, Any]]:
    """Return `probability` [B, A] of every action, and `q` [B, A] if the policy has a critic."""
    tables = {"probability": policy.probabilities(leaves, allowed)}
    with suppress(SpecError):  # of a policy without a critic, which has no such values
        tables["q"] = policy.q_values(leaves)
    return tables


def _chances(policy: BasePolicy, leaves: Any, allowed: Any, used: list[str]) -> dict[str, Any]:
    """Return the columns of the probabilities of all actions, and of their Q-values if the policy has them."""
    space = policy.spec.action
    names = space.names or tuple(map(str, range(space.n))) if isinstance(space, Discrete) else ()
    tables = action_chances(policy, leaves, allowed)
    columns = {f"{what}_{name}": values[:, i] for what, values in tables.items() for i, name in enumerate(names)}
    return {(name if name not in used else f"policy_{name}"): values for name, values in columns.items()}


def _by_file(
    frame: pl.DataFrame, files: Sequence[tuple[str, int]], read: Callable[[pl.DataFrame], Any]
) -> Iterator[Any]:
    """Read the rows of each file apart; a SpecError then names the file, and rows are counted in it."""
    if not files:
        yield read(frame)
    start = 0
    for name, rows in files:
        try:
            yield read(frame[start : start + rows])
        except SpecError as error:
            raise SpecError(f"{name}: {error.found}", error.expected, error.fix) from error
        start += rows


def _with_names(spec: Spec) -> Spec:
    """Return the spec with the column names of an exported table for features without names."""
    leaves = {
        name: replace(
            leaf, names=tuple(column_labels(name, leaf, leaf.size if isinstance(leaf, Vector) else len(leaf.sizes)))
        )
        if not isinstance(leaf, Image) and not leaf.names
        else leaf
        for name, leaf in spec.observation.items()
    }
    return replace(spec, observation=leaves)


def _order(frame: pl.DataFrame, mapping: Columns | None, why: str) -> RowOrder:
    """Return the table's rows in episode order by the mapping; SpecError, with the reason, without a mapping."""
    columns = mapping
    if columns is None or columns.episode is None:
        raise SpecError(why, fix="pass the mapping with the episode column (--columns)")
    named = {"episode": columns.episode, "step": columns.step or columns.time}
    missing = [name for name in named.values() if name is not None and name not in frame.columns]
    if missing:
        raise SpecError(f"the table has no column '{missing[0]}': {nearest(missing[0], frame.columns)}")
    identity = parse.identity(frame[columns.episode])
    key = None if named["step"] is None else parse.moment(frame[named["step"]]).values
    return episode_order(frame.height, identity.values, identity.vocabulary, key)


def act_in_order(
    policy: BasePolicy, leaves: Any, allowed: Any, order: RowOrder | None, seed: int | None
) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any] | None]:
    """Return actions [B, ...] (rows of parts) in file order and, if the policy samples and has them, propensities [B].

    A recurrent policy processes each episode from its start, in `order`.
    """
    generator, propensities = np.random.default_rng(seed), []

    def answer(seen: Any, may: Any, rows: Any, state: Any) -> Any:
        if policy.acting != "sample":
            return as_rows(policy.spec.action, policy.act(seen, None, may, state)[0])
        actions, likely = policy.act(seen, int(generator.integers(2**32)), may, state)
        propensities.append((rows, likely))
        return as_rows(policy.spec.action, actions)

    if order is None:
        actions = answer(leaves, allowed, slice(None), None)
        return actions, propensities[0][1] if propensities else None
    starts = np.searchsorted(order.episode, np.arange(len(order.ids) + 1))
    sorted_leaves = {name: leaf[order.rows] for name, leaf in leaves.items()}
    mask = None if allowed is None else allowed[order.rows]
    actions = cast("np.ndarray[Any, Any]", replay(policy, sorted_leaves, starts, mask, answer))
    likely = None
    if propensities and propensities[0][1] is not None:
        likely = np.empty(len(actions))
        for rows, values in propensities:
            likely[order.rows[rows]] = values
    back = np.empty_like(actions)
    back[order.rows] = actions
    return back, likely


def _leaves(frame: pl.DataFrame, spec: Spec, other_words: bool = False) -> dict[str, np.ndarray[Any, Any]]:
    """Return the leaves of a table's rows; SpecError names every column with an unreadable cell."""
    problems: list[str] = []
    leaves = {name: _leaf(frame, leaf, problems, other_words) for name, leaf in spec.observation.items()}
    if problems:
        fix = (
            "correct the cells, leave the rows out, or pass the log's mapping (--columns) if it says how they are "
            "read; --unseen skip leaves such rows out"
        )
        raise SpecError("; ".join(problems), fix=fix)
    return leaves


def _leaf(frame: pl.DataFrame, leaf: Leaf, problems: list[str], other_words: bool) -> np.ndarray[Any, Any]:
    if isinstance(leaf, Image):
        raise SpecError("this policy reads pictures, and tables hold none", fix="pass an .npz file")
    if isinstance(leaf, Codes):
        if not leaf.vocabularies:
            return np.stack(
                [_counted(frame[n], size, problems) for n, size in zip(leaf.names, leaf.sizes, strict=True)], axis=-1
            )
        return np.stack(
            [_codes(frame[n], v, problems, other_words) for n, v in zip(leaf.names, leaf.vocabularies, strict=True)],
            axis=-1,
        )
    fills = dict(leaf.fills)
    return fill_features(leaf, [_numbers(frame[name], problems, name in fills) for name in column_names(leaf)])


def _numbers(series: pl.Series, problems: list[str], may_lack: bool = False) -> np.ndarray[Any, Any]:
    """Return the numbers of a column; `problems` gets a sentence about cells that hold none, which are 0 then."""
    column = parse.number(series)
    if may_lack:
        values = np.asarray(column.values, np.float32).copy()
        values[column.missing] = np.nan
        column = replace(column, values=values, missing=column.missing[:0])
    bad = np.flatnonzero(~(column.usable & (np.isfinite(column.values) | (may_lack & np.isnan(column.values)))))
    if len(bad):
        found = "empty" if series[int(bad[0])] is None else repr(series[int(bad[0])])
        problems.append(f"column '{series.name}' is {found} in {_rows(bad)}, expected a number")
        return np.zeros(len(series), np.float32)
    return np.asarray(column.values)


def _counted(series: pl.Series, size: int, problems: list[str]) -> np.ndarray[Any, Any]:
    """Return the codes of a log whose columns were codes."""
    codes = _numbers(series, problems)
    bad = np.flatnonzero((codes % 1 != 0) | (codes < 0) | (codes >= size))
    if len(bad):
        problems.append(f"column '{series.name}' has invalid codes in {_rows(bad)}, expected 0 to {size - 1}")
    return codes.astype(np.int32)


def _codes(series: pl.Series, words: tuple[str, ...], problems: list[str], other_words: bool) -> np.ndarray[Any, Any]:
    """Return the codes of words; one outside the vocabulary is a problem, or gets -1 with `other_words`."""
    known = pl.Series(words, dtype=pl.String)
    text = series.cast(pl.String).fill_null("")
    codes = text.replace_strict(
        known, pl.Series(range(len(words)), dtype=pl.Int32), default=None, return_dtype=pl.Int32
    )
    if OTHER in words:
        codes = pl.select(pl.when(codes.is_null() & (text != "")).then(words.index(OTHER)).otherwise(codes)).to_series()
    bad = np.flatnonzero(codes.is_null().to_numpy())
    if len(bad) and not other_words:
        word = text[int(bad[0])] or "(an empty cell)"
        problem = f"column '{series.name}' is {word!r} in {_rows(bad)}, unknown in the policy's log"
        problems.append(f"{problem}: {nearest(word, words)}".removesuffix("."))
    return codes.fill_null(-1 if other_words else 0).to_numpy()


def _rows(bad: np.ndarray[Any, Any]) -> str:
    listed = ", ".join(str(row + 1) for row in bad[:10])
    return f"{len(bad)} row(s) ({listed}{', ...' if len(bad) > 10 else ''})"


def _mask(frame: pl.DataFrame, spec: Spec, mapping: Columns | None) -> np.ndarray[Any, Any] | None:
    if mapping is None:
        return None
    columns = names(mapping.action_mask)
    if not columns:
        return None
    missing = [name for name in columns if name not in frame.columns]
    if missing:
        raise SpecError(f"the table has no mask column '{missing[0]}': {nearest(missing[0], frame.columns)}")
    several, space = [frame[name] for name in columns], spec.action
    tokens = parse.mask_tokens(several) if isinstance(space, Discrete) else None
    if tokens is not None and isinstance(space, Discrete):
        column = parse.named_mask(columns[0], tokens, space.names or tuple(map(str, range(space.n))))
    else:
        column = parse.mask(several)
    bad = np.flatnonzero(~column.usable)
    if len(bad):
        raise SpecError(f"the action mask is invalid in {_rows(bad)}", column.expects, "correct these cells")
    return np.asarray(column.values == 1)


def _action_columns(actions: np.ndarray[Any, Any], spec: Spec, used: list[str]) -> Mapping[str, Any]:
    space = spec.action
    columns: dict[str, Any] = {}
    if isinstance(space, Hybrid):
        for (name, part), own in zip(space.parts, dict(flat_leaves(space.unpack(actions))).values(), strict=True):
            own = own[:, 0] if isinstance(part, Continuous) and part.size == 1 else own
            words = isinstance(part, Discrete) and part.names
            columns[f"action_{name}"] = np.asarray(part.names)[own] if words else own  # type: ignore[union-attr]
    elif isinstance(space, Continuous):
        labels = list(space.names or map(str, range(space.size)))
        lists = lists_among(space.names)
        columns = {f"action_{name}": pl.Series(actions[:, [labels.index(label) for label in listed]].tolist())
                   for name, listed in lists.items()}  # fmt: skip
        if len(lists) == 1 and len(labels) == len(next(iter(lists.values()))):  # the log's one column of lists
            columns = {"action": next(iter(columns.values()))}
        within = {label for listed in lists.values() for label in listed}
        columns |= {f"action_{label}": actions[:, i] for i, label in enumerate(labels) if label not in within}
    elif isinstance(space, Discrete) and space.names:
        numbers = pl.Series(space.names, dtype=pl.String).cast(pl.Int64, strict=False)
        whole = not numbers.null_count() and numbers.cast(pl.String).to_list() == list(space.names)
        columns = {"action": (numbers.to_numpy() if whole else np.asarray(space.names))[actions]}
    else:
        columns = {"action": actions}
    return {(name if name not in used else f"policy_{name}"): values for name, values in columns.items()}


def write_table(frame: pl.DataFrame, path: Path, csv_safe: bool = False) -> str | None:
    """Write a table as .csv or .parquet atomically; return a note where a spreadsheet would compute text in the .csv.

    `csv_safe` writes an apostrophe before such text.
    """
    writers: dict[str, Callable[[Any], Any]] = {
        ".csv": partial(write_csv, frame, csv_safe=csv_safe),
        ".parquet": frame.write_parquet,
    }
    if path.suffix not in writers:
        raise ConfigError(f"{path}", "a path that ends in .csv or .parquet", "change the suffix")

    def save(aside: Path) -> None:
        with stream_to(aside) as file:
            writers[path.suffix](file)

    write_file(path, save, ConfigError)
    return formula_note(frame, path) if path.suffix == ".csv" and not csv_safe else None


# Batch inference on arrays: an npz file with observations in, its arrays with actions out. Letters: `B` rows.

Arrays = dict[str, NDArray[Any]]
_ONE = "observation"
_MANY = f"{_ONE}/"


def act_on_arrays(
    policy: BasePolicy, path: str | Path, seed: int | None = None, *, probabilities: bool = False
) -> tuple[Arrays, list[str]]:
    """Return the arrays of an npz file with the policy's actions, and the names of arrays of objects, not read.

    The file has the names of `Log.from_arrays`: `observation` [B, ...], or `observation/<leaf>` for each leaf, and
    `action_mask` [B, A] where the log had masks. A recurrent policy needs `episode` [B], and `step` or `time` [B] where
    the rows of an episode are not in their order. New arrays: `action` (codes [B] of discrete actions, [B, M] of
    several, or vectors [B, A]), `propensity` [B] if the policy samples, with `probabilities` those of a sample [B, A],
    and `q` [B, A] if the policy has a critic. A new array whose name the file has is called `policy_<name>`. Raises
    LogError for a file that is not an archive of arrays, SpecError for arrays that do not fit the policy.
    """
    if isinstance(policy.spec.action, Catalogue):
        raise SpecError("this policy ranks items of a catalogue", fix="use `policy.recommend` with histories")
    check_has_chances(policy, asked=probabilities)
    arrays, objects = named_arrays(path)
    leaves = _leaves_of_arrays(arrays, policy.spec.observation, str(path))
    rows = len(next(iter(leaves.values())))
    by_row = {name: arrays[name] for name in ("action_mask", "episode", "step", "time") if name in arrays}
    lengths = {name: values.shape[0] if values.ndim else 0 for name, values in (leaves | by_row).items()}
    if len(set(lengths.values())) > 1:
        found = ", ".join(f"{name} {length:,}" for name, length in lengths.items())
        raise SpecError(f"{path}: arrays have different numbers of rows ({found})", fix="one row per decision in each")
    if not rows:
        raise SpecError(f"{path} has no rows", "at least one", "add rows")
    if policy.spec.masked and "action_mask" not in arrays:
        raise SpecError(
            f"the log has action masks, but {path} has none", fix="add an array 'action_mask' [rows, actions]"
        )
    mask = arrays.get("action_mask") if policy.spec.masked else None
    order = None
    if policy.is_recurrent:
        if "episode" not in arrays:
            raise SpecError(f"this policy is recurrent, but {path} has no array 'episode'", fix="add it, one per row")
        identity = parse.identity(pl.Series("episode", arrays["episode"]))
        key = next((arrays[name] for name in ("step", "time") if name in arrays), None)
        moment = None if key is None else parse.moment(pl.Series("step", key)).values
        order = episode_order(rows, identity.values, identity.vocabulary, moment)
    actions, propensities = act_in_order(policy, leaves, mask, order, seed)
    space = policy.spec.action
    new = {"action": actions}
    if isinstance(space, Hybrid):
        new = {f"action/{name}": own for name, own in flat_leaves(space.unpack(actions))}
    if propensities is not None:
        new["propensity"] = propensities
    if probabilities:
        chances = action_chances(policy, leaves, mask)
        new |= {"probabilities" if name == "probability" else name: values for name, values in chances.items()}
    named = {name if name not in arrays else f"policy_{name}": values for name, values in new.items()}
    return arrays | named, objects


def _leaves_of_arrays(arrays: Mapping[str, NDArray[Any]], expected: Mapping[str, Leaf], source: str) -> Arrays:
    """Return the leaves [B, ...] by the policy's names; one array fits the one leaf of a policy under either name."""
    found = {name.removeprefix(_MANY): values for name, values in arrays.items() if name.startswith(_MANY)}
    if _ONE in arrays:
        found[_ONE] = arrays[_ONE]
    if len(found) == len(expected) == 1:
        found = dict(zip(expected, found.values(), strict=True))
    if set(found) != set(expected):
        wanted = [_ONE] if len(expected) == 1 else [f"{_MANY}{name}" for name in expected]
        has = ", ".join(arrays) or "no arrays"
        fix = "add or rename them"
        if "obs" in arrays or "observations" in arrays:  # layouts of demonstrations, D4RL and OGBench
            convert = shlex.join(["tidelog", "log", "convert", "--data", source, "--out", "rows.npz"])
            fix = f"`{convert}`, then use rows.npz"
        raise SpecError(f"{source} has {has}", f"the arrays {', '.join(wanted)}", fix)
    return {  # one number per row becomes [B, 1], as in a log
        name: found[name][:, None] if found[name].ndim == 1 and not isinstance(leaf, Image) else found[name]
        for name, leaf in expected.items()
    }


def write_arrays(arrays: Mapping[str, NDArray[Any]], path: Path) -> None:
    """Write arrays as an .npz file, complete or not at all; ConfigError if it cannot be written."""

    def save(aside: Path) -> None:
        with stream_to(aside) as stream, zipfile.ZipFile(stream, "w") as archive:
            for name, values in arrays.items():
                with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                    np.lib.format.write_array(member, values, allow_pickle=False)

    write_file(path, save, ConfigError)
