"""ReAgent's JSON: one decision per line, with maps from feature numbers to values.

| key | read as |
|---|---|
| `mdp_id`, `sequence_number` | episode, step |
| `state_features`, `next_state_features` | numeric observation; a feature that is not in a map is a missing value |
| `action` | a name or a number, or one-hot maps such as `{"4": 1.0}`: a discrete action; other maps: a vector |
| `reward` | reward |
| `action_probability`, `propensity` | propensity, if every line has one |
| `possible_actions_mask`, `possible_actions` | action mask: flags, or the allowed names (or one-hot maps) |
| `possible_next_actions_mask`, `possible_next_actions` | the same for the next state |
| `next_action` | whether a decision follows |

An episode ends after its last line, where no action is possible next, or where the next state is not the state of the
following line, as in files of sampled transitions. As in ReAgent, an end is a termination if no action is possible next
(`possible_next_actions`, else `next_action`). Without these keys, and without a next state in a file that has them, an
end without a next state is a termination; an end with one is a truncation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from tidelog.data.core.columns import Columns
from tidelog.data.core.ends import refuse_unread_ends
from tidelog.data.core.order import Values
from tidelog.data.core.raw import Finding, RawLog
from tidelog.data.core.registry import conversion_note, unread_note, unreadable
from tidelog.data.parsing.tables import Table, from_table
from tidelog.data.sources.json_objects import read_objects
from tidelog.data.validation.errors import CODES_FIX, differences, most_codes
from tidelog.input_files import parse_json
from tidelog.number_text import count_of

_MASKS = ("possible_actions_mask", "possible_actions")
_NEXT_MASKS = ("possible_next_actions_mask", "possible_next_actions")
_PROPENSITIES = ("action_probability", "propensity")
_NEEDED = ("mdp_id", "sequence_number", "state_features", "action")
_KEYS = (*_NEEDED, "next_action", "next_state_features", "reward", *_PROPENSITIES, *_MASKS, *_NEXT_MASKS)
_EXPECTED = "one decision a line with mdp_id, sequence_number, state_features and action"
_DIGITS = 18  # of a feature's number; longer names are words
_STATE, _NEXT = "state_features.", "next_state_features."


def raw_reagent(path: str | Path, missing: str = "mean+flag") -> RawLog:
    """Read a file of lines, plain, gzipped or bzip2; `missing` is the rule for features that a map does not have."""
    ignored: set[str] = set()

    def read(key: str) -> bool:
        if key not in _KEYS:
            ignored.add(key)
        return key in _KEYS

    table = read_objects(Path(path), read)
    _check_keys(path, table.frame, ignored)
    refuse_unread_ends(path, ignored, "what is possible next, as in ReAgent")
    # by episode, in the order of first appearance, and by sequence number
    frame, one_hot = _one_hot(table.frame)
    table = replace(table, data=frame)
    first, sequence = pl.col("row").min().over("mdp_id"), pl.col("sequence_number").cast(pl.Float64, strict=False)
    _check_actions(path, table)
    frame, features = _same_features(table.frame.with_row_index("row").sort(first, sequence, "row"))
    frame, notes = _with_ends(frame, features)
    mapping, frame = _mapping(frame.sort("row"), features, missing)
    if mapping.action_mask is None:
        ignored.update(key for key in (*_MASKS, *_NEXT_MASKS) if key in frame.columns)
    raw = from_table(Table(table.source, frame, table.numbers, frame.columns), mapping)
    return replace(raw, found=(*raw.found, *one_hot, *notes, *unread_note(ignored)))


def _check_keys(path: str | Path, frame: pl.DataFrame, ignored: set[str]) -> None:
    """LogError if a required key is on no line, or if a state is not a map."""
    missing = [key for key in _NEEDED if not _under(frame, key if key != "state_features" else _STATE)]
    if missing:
        keys = ", ".join(sorted({name.split(".")[0] for name in frame.columns} | ignored))
        raise unreadable(
            path, f"no {', '.join(missing)}; lines hold {keys}", _EXPECTED, "rename them", "missing column"
        )
    for key in ("state_features", "next_state_features"):
        if key in frame.columns and frame[key].null_count() < frame.height:
            values = frame[key].drop_nulls()
            found = f"{len(values):,} lines whose {key} is not a map, such as {values.to_list()[0]!r}"
            raise unreadable(path, found, "maps from feature numbers to values", "write maps", "changing shapes")
    for key in ("mdp_id", "sequence_number"):
        if key not in frame.columns:
            raise unreadable(path, f"{key} is a map", "one value", f"give {key} a value", "changing shapes")
    single = [*_under(frame, _STATE), *_under(frame, _NEXT), *_under(frame, "action"), "mdp_id", "sequence_number"]
    lists = [name for name in single if isinstance(frame.schema[name], pl.List)]
    if lists:
        raise unreadable(path, f"lists in '{lists[0]}'", "one value", "write one number for each", "changing shapes")


def _one_hot(frame: pl.DataFrame) -> tuple[pl.DataFrame, list[tuple[str, Finding]]]:
    """Replace one-hot maps of actions, sparse or dense, by the feature that is 1; return a note about it."""
    columns = [name for name in _under(frame, "action") if name != "action"]
    masks = [key for key in (*_MASKS, *_NEXT_MASKS) if key in frame.columns and _named(frame[key])]
    if len(columns) < (1 if masks else 2) or "action" in frame.columns:
        return frame, []
    values = frame.select(pl.col(columns).cast(pl.Float64, strict=False)).to_numpy()
    absent = np.asarray(frame.select(pl.all_horizontal(pl.col(columns).is_null())).to_series())
    flags = np.nan_to_num(values)[~absent]
    if not len(flags) or not (np.isin(flags, (0.0, 1.0)).all() and (flags.sum(axis=1) == 1.0).all()):
        return frame, []
    features = np.asarray([name.removeprefix("action.") for name in columns])
    chosen = pl.Series("action", features[np.nan_to_num(values).argmax(axis=1)]).set(pl.Series(absent), None)
    for key in masks:
        texts = frame[key].explode().drop_nulls().unique().to_list()
        named = pl.element().replace(texts, [_hot_feature(text) for text in texts])
        frame = frame.with_columns(pl.col(key).list.eval(named))
    frame = frame.drop(columns).with_columns(chosen)
    found = (
        f"actions are one-hot maps of {len(features)} features: read as {len(_action_names(frame))} discrete actions"
    )
    return frame, [conversion_note(found, "names of actions", "nothing, if each feature is one action")]


def _hot_feature(text: str) -> str:
    """The feature that is 1 in a one-hot map, as JSON; any other text unchanged."""
    try:
        entries = parse_json(text.encode())
    except ValueError:
        return text
    hot = [name for name, value in entries.items() if value == 1] if isinstance(entries, dict) else []
    return hot[0] if len(hot) == 1 else text


def _check_actions(path: str | Path, table: Table) -> None:
    """LogError if numbered actions are so far apart that their number is not plausible."""
    frame = table.frame
    if "action" not in frame.columns or _action_names(frame):
        return
    several = [one.cast(pl.Int64, strict=False).drop_nulls() for one in _action_numbers(frame)]
    values = np.unique(np.concatenate([one.to_numpy() for one in several]))
    most = most_codes(values)
    if not len(values) or values[-1] < most:
        return
    logged = frame["action"].cast(pl.Int64, strict=False).fill_null(-1).to_numpy()
    lines = table.numbers[logged >= most].tolist()
    found = f"action {values[-1]:,} among {len(values):,} different actions"
    raise unreadable(path, found, f"actions below {most:,}", CODES_FIX, "sparse codes", lines[:10], len(lines))


def _action_numbers(frame: pl.DataFrame) -> list[pl.Series]:
    """The logged actions, and the allowed actions that masks name."""
    columns = [frame[key] for key in (*_MASKS, *_NEXT_MASKS) if key in frame.columns]
    return [frame["action"], *(one.explode() for one in columns if _named(one))]


def _under(frame: pl.DataFrame, key: str) -> list[str]:
    return [name for name in frame.columns if name == key or name.startswith(f"{key.removesuffix('.')}.")]


def _same_features(frame: pl.DataFrame) -> tuple[pl.DataFrame, list[str]]:
    """Give both states all features of either state, in the order of their numbers."""
    current = {name.removeprefix(_STATE) for name in frame.columns if name.startswith(_STATE)}
    following = {name.removeprefix(_NEXT) for name in frame.columns if name.startswith(_NEXT)}
    numbered = {name: int(name) for name in current | following if name.isdecimal() and len(name) <= _DIGITS}
    features = sorted(current | following, key=lambda name: (name not in numbered, numbered.get(name, 0), name))
    sides = (_STATE, _NEXT) if following else (_STATE,)
    known = frozenset(frame.columns)
    missing = [f"{side}{name}" for side in sides for name in features if f"{side}{name}" not in known]
    return frame.with_columns(pl.lit(None, pl.Float64).alias(name) for name in missing), features


def _with_ends(frame: pl.DataFrame, features: Sequence[str]) -> tuple[pl.DataFrame, list[tuple[str, Finding]]]:
    """Add the columns `episode`, `terminated` and `truncated`; return the frame and notes on conversions."""
    continues = _continues(frame)
    last = frame.select((pl.col("mdp_id") != pl.col("mdp_id").shift(-1)).fill_null(True)).to_series().to_numpy()
    known, off = np.zeros(frame.height, bool), np.zeros(frame.height, bool)
    if f"{_NEXT}{features[0]}" in frame.columns:
        later = _numbers(frame, _NEXT, features)
        known = np.asarray(~np.isnan(later).all(axis=1))
        off[:-1] = _differ(_numbers(frame, _STATE, features)[1:], later[:-1])
    ends = last | (off & known)
    terminal = ~known if continues is None else ~continues | (~known & known.any())
    ends |= False if continues is None else ~continues
    piece = pl.Series(np.cumsum(ends) - ends)
    first = piece.to_frame("piece").select(pl.col("piece").min().over(frame["mdp_id"])).to_series()
    names = frame["mdp_id"].cast(pl.String)
    broken = ends & ~last
    episode = names + "/" + (piece - first).cast(pl.String) if broken.any() else frame["mdp_id"]
    notes = []
    if broken.any():
        found = f"{int(broken.sum()):,} next states differ from the state of the mdp_id's next line: episodes end there"
        notes.append(conversion_note(found, "consecutive lines", "nothing, if the lines were sampled"))
    if continues is None and (ends & ~known).any():
        several = count_of(int((ends & ~known).sum()), "episode")
        found = f"no next state at the end of {several}, which ReAgent counts as terminated"
        notes.append(conversion_note(found, "explicit ends", "add next_state_features where the episode was truncated"))
    if continues is not None and (ends & terminal).any():
        several = count_of(int((ends & terminal).sum()), "episode")
        found = f"no action is possible after {several}: terminated, as in ReAgent"
        notes.append(conversion_note(found, "explicit ends", "name the possible next actions of truncated episodes"))
    flags = {"episode": episode, "terminated": pl.Series(ends & terminal), "truncated": pl.Series(ends & ~terminal)}
    return frame.with_columns(**flags), notes


def _continues(frame: pl.DataFrame) -> Values | None:
    """[N] bool: whether an action is possible next, or follows; None if no line says so."""
    several = [
        frame[key].list.len() > 0 if _named(frame[key]) else frame[key].list.sum() > 0
        for key in _NEXT_MASKS
        if key in frame.columns and isinstance(frame[key].dtype, pl.List)
    ]
    following = _under(frame, "next_action")
    if following:
        several.append(
            frame.select(pl.any_horizontal(pl.col(following).is_not_null() & (pl.col(following).cast(pl.String) != "")))
            .to_series()
        )  # fmt: skip
    flags = (np.asarray(one.fill_null(False)) for one in several)
    return next((one for one in flags if one.any()), None)


def _numbers(frame: pl.DataFrame, side: str, features: Sequence[str]) -> Values:
    columns = frame.select(pl.col(f"{side}{name}").cast(pl.Float64, strict=False) for name in features)
    return columns.to_numpy().astype(np.float64)


def _differ(actual: Values, stated: Values) -> Values:
    """[N - 1] bool: rows with a different feature, or with a feature on only one side."""
    lacks_here, lacks_there = np.isnan(stated), np.isnan(actual)
    alone: Values = (lacks_here != lacks_there).any(axis=1)
    return alone | differences(np.where(lacks_here, 0.0, stated), np.where(lacks_there, 0.0, actual))


def _mapping(frame: pl.DataFrame, features: Sequence[str], missing: str) -> tuple[Columns, pl.DataFrame]:
    """Build the mapping, and the frame with masks as flags."""
    has_next = f"{_NEXT}{features[0]}" in frame.columns
    vector = _under(frame, "action") != ["action"]
    words = [] if vector else _action_names(frame)
    count = None if vector else _action_count(frame, words)
    masks = [None if vector else _mask(frame, keys, words, count) for keys in (_MASKS, _NEXT_MASKS)]
    frame = frame.with_columns(mask.alias(name) for mask, name in zip(masks, _FLAGS, strict=True) if mask is not None)
    if masks[0] is None:
        masks[1] = None
    propensity = [name for name in _PROPENSITIES if name in frame.columns and frame[name].null_count() < frame.height]
    settings: dict[str, Any] = {"vocabularies": {"action": words}} if words else {"actions": count}
    mapping = Columns(
        observation=[f"{_STATE}{name}" for name in features],
        next_observation=[f"{_NEXT}{name}" for name in features] if has_next else None,
        action=sorted(_under(frame, "action")),
        reward="reward" if "reward" in frame.columns else None,
        episode="episode",
        step="sequence_number",
        terminated="terminated",
        truncated="truncated",
        propensity=propensity[0] if propensity else None,
        action_mask=_FLAGS[0] if masks[0] is not None else None,
        next_action_mask=_FLAGS[1] if masks[1] is not None else None,
        missing=missing,
        **settings,
    )
    return mapping, frame


_FLAGS = ("action_mask", "next_action_mask")


def _action_names(frame: pl.DataFrame) -> list[str]:
    """All action names, sorted; empty if actions are numbers."""
    lists = [frame[key] for key in (*_MASKS, *_NEXT_MASKS) if key in frame.columns and _named(frame[key])]
    every = [frame["action"].cast(pl.String), *(one.explode() for one in lists)]
    words = pl.concat([one.rename("name") for one in every]).drop_nulls().unique().sort().to_list()
    words = [word for word in words if word]
    if not all(word.isdecimal() and len(word) <= _DIGITS for word in words):
        return words
    numbers = sorted(words, key=int)
    # numbers from 0 count the actions; others, such as the numbers of features, are names if lists say which exist
    return numbers if lists and int(numbers[0]) > 0 else []


def _action_count(frame: pl.DataFrame, words: Sequence[str]) -> int | None:
    """The number of numbered actions: the width of a mask, or one more than the largest logged."""
    if words:
        return None
    columns = [frame[key] for key in (*_MASKS, *_NEXT_MASKS) if key in frame.columns]
    widths = [one.list.len().max() for one in columns if not _named(one) and isinstance(one.dtype, pl.List)]
    tops = [one.cast(pl.Int64, strict=False).fill_null(-1).to_numpy().max(initial=-1)
            for one in _action_numbers(frame)]  # fmt: skip
    return max([*(int(top) + 1 for top in tops), *(int(str(width)) for width in widths if width is not None)]) or None


def _named(series: pl.Series) -> bool:
    return series.dtype == pl.List(pl.String)


def _mask(frame: pl.DataFrame, keys: Sequence[str], words: Sequence[str], count: int | None) -> pl.Series | None:
    """Lists of flags, from flags or from names; empty where a line has no mask."""
    for key in keys:
        if key in frame.columns and isinstance(frame[key].dtype, pl.List):
            names = list(words) or list(map(str, range(count or 0)))
            mask = frame[key].set(frame[key].list.len() == 0, None)
            if not _named(mask):
                return mask
            flags = [None if allowed is None else [name in allowed for name in names] for allowed in mask.to_list()]
            return pl.Series(flags, dtype=pl.List(pl.Boolean))
    return None
