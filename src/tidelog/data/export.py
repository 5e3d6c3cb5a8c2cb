"""Export a log: as arrays, as an npz file, or as a Parquet table with its mapping."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from tidelog._files import stream_to, write_file
from tidelog.data.columns import SHARES_BY, DeclaredPropensities
from tidelog.data.log_columns import LogColumns
from tidelog.data.raw import Values
from tidelog.errors import LogError, SpecError
from tidelog.types import (
    ActionSpace,
    Codes,
    Continuous,
    Discrete,
    Hybrid,
    Image,
    Leaf,
    MultiDiscrete,
    Spec,
    Vector,
    flat_leaves,
    lists_among,
)

ONE_BY_ONE = ("propensity", "weight", "time", "cluster", "elapsed")


def to_arrays(log: LogColumns) -> dict[str, Any]:
    """The arguments of `Log.from_arrays` that give the same columns, without column names and vocabularies."""
    _refuse_hindsight(log)
    transitions = log.transitions
    ends = np.append(log.episode[1:] != log.episode[:-1], True)
    followed = transitions.followed
    arrays: dict[str, Any] = {"observation": transitions.observation, "action": log.action, "reward": log.reward}
    space = log.spec.action
    if isinstance(space, Hybrid):
        arrays["action"] = dict(flat_leaves(space.unpack(np.asarray(log.action))))
    if followed[ends].any():
        arrays["next_observation"] = transitions.next_observation
        if not followed[ends].all():
            arrays["followed"] = followed
    if log.action_mask is not None:
        arrays |= {"action_mask": transitions.mask, "next_action_mask": transitions.next_mask}
    arrays |= declared_space(space)
    arrays |= {"terminated": log.terminated, "truncated": log.truncated, "episode": log.episode_ids[log.episode]}
    arrays |= log.optional(*ONE_BY_ONE)
    if log.declared is not None:
        arrays["propensity"] = _declaration(log, log.declared, (), lambda stratum: stratum)
    arrays |= log.optional("reward_unit", "elapsed_unit", "missing_reward")
    arrays |= {"atoms": list(log.atoms)} if log.atoms else {}
    return arrays | ({"extra": log.extra} if log.extra else {})


def _refuse_hindsight(log: LogColumns) -> None:
    """Raise LogError for goals in hindsight: arrays and tables do not say so, and the log could then be judged."""
    if log.hindsight is not None:
        raise LogError("a log with goals in hindsight cannot be written as arrays", fix="save a folder (log.save)")


def declared_space(space: ActionSpace) -> dict[str, Any]:
    """The arguments `actions` and `bounds` of `Log.from_arrays` that give a space."""
    if isinstance(space, Hybrid):
        each = [(name, declared_space(part)) for name, part in space.parts]
        named = {key: {name: one[key] for name, one in each if key in one} for key in ("actions", "bounds")}
        return {key: value for key, value in named.items() if value}
    if isinstance(space, Continuous):
        return {"bounds": [list(space.low), list(space.high)]}
    return {"actions": space.n if isinstance(space, Discrete) else list(space.sizes)}


def save_npz(log: LogColumns, path: str | Path, overwrite: bool = False) -> None:
    """Write `to_arrays` to a file that `read_log` reads; LogError if it exists, or if the log has extra columns."""
    path = _free(path, overwrite)
    arrays = to_arrays(log)
    if "extra" in arrays:
        raise LogError(
            f"an npz file does not support extra columns ({', '.join(log.extra)})", fix="save the log as a folder"
        )
    if log.declared is not None:
        raise LogError(
            "an npz file does not support declared propensities", fix="save the log as a folder, or write it to Parquet"
        )
    flat = {name: value for name, value in arrays.items() if value is not None and not isinstance(value, dict)}
    for role in ("observation", "next_observation", "action", "actions", "bounds"):
        if isinstance(arrays.get(role, {}), dict):
            flat |= {f"{role}/{name}": leaf for name, leaf in arrays.get(role, {}).items()}

    def save(aside: Path) -> None:
        with stream_to(aside) as stream:
            np.savez(stream, allow_pickle=False, **flat)

    write_file(path, save, LogError)


def to_parquet(log: LogColumns, path: str | Path, overwrite: bool = False) -> Path:
    """Write a table and, next to it, the mapping that reads it; return the path of the mapping.

    Rows are in episode order. `next_...` columns hold the observation after the last row of an episode and are empty
    elsewhere, where the next row holds it. Flagged fills become empty cells again. LogError for image observations.
    """
    _refuse_hindsight(log)
    pictures = [name for name, leaf in log.spec.observation.items() if isinstance(leaf, Image)]
    if pictures:
        raise LogError(f"a table does not support images ('{pictures[0]}')", fix="save the log as a folder")
    path = _free(path, overwrite)
    mapping_path = _free(path.with_suffix(".toml"), overwrite)
    sheet = _Sheet(log)
    lines = "\n".join(f"{key} = {toml_text(value)}" for key, value in sheet.mapping.items())
    write_file(path, sheet.write, LogError)  # before the mapping: it needs more room
    write_file(mapping_path, f"# how tidelog reads {path.name}\n{lines}\n".encode(), LogError)
    return mapping_path


def _declaration(
    log: LogColumns, declared: DeclaredPropensities, labels: Sequence[str], name_of: Callable[[Values], Any]
) -> Any:
    """What `propensity` declares: shares, shares by what `name_of` makes of the strata, or probabilities.

    `labels` are those of the actions, () for their numbers.
    """
    if log.stratum is not None:
        return {SHARES_BY: name_of(log.stratum)}
    if declared.probabilities is None:
        return {SHARES_BY: []}
    return dict(zip(labels or map(str, range(len(declared.probabilities))), declared.probabilities, strict=True))


class _Sheet:
    """The columns and the mapping of a log during export."""

    def __init__(self, log: LogColumns) -> None:
        self.log = log
        self.columns: dict[str, Any] = {}
        self.mapping: dict[str, Any] = {"episode": self.add("episode", log.episode_ids[log.episode])}
        self.mapping["step"] = self.add("step", log.step)
        ends = np.append(log.episode[1:] != log.episode[:-1], True)
        self.after = np.flatnonzero(ends & (log.next_position > log.position))
        for name, leaf in log.spec.observation.items():
            self._leaf(name, leaf)
        self._action()
        self.mapping |= {"atoms": list(log.atoms)} if log.atoms else {}
        if log.reward is not None:
            self.mapping["reward"] = self._wide("reward", log.reward)
            self.mapping |= log.optional("reward_unit", "missing_reward")
        self.mapping["terminated"] = self.add("terminated", log.terminated)
        self.mapping["truncated"] = self.add("truncated", log.truncated)
        single = [name for name in ONE_BY_ONE if name != "propensity" or not log.declared]
        self.mapping |= {name: self.add(name, values) for name, values in log.optional(*single).items()}
        self.mapping |= log.optional("elapsed_unit")
        if log.declared is not None:
            labels = getattr(log.spec.action, "names", ())
            self.mapping["propensity"] = _declaration(
                log, log.declared, labels, lambda stratum: [self.add("stratum", stratum)]
            )
        self._masks()
        if log.extra:
            self.mapping["extra"] = [self._extra(name, values) for name, values in log.extra.items()]

    def write(self, path: Path) -> None:
        """Write the table."""
        with stream_to(path) as stream:
            pl.DataFrame(self.columns).write_parquet(stream)

    def add(self, name: str, values: Any) -> str:
        """Add a column under this name, with underscores appended if the name is used."""
        while name in self.columns:
            name += "_"
        self.columns[name] = values
        return name

    def _extra(self, name: str, values: Values) -> str:
        """Add an extra column; it replaces an observation column of the same name and content."""
        if name in self.columns:
            existing, added = pl.Series(self.columns[name]), pl.Series(values)
            if added.cast(existing.dtype, strict=False).equals(existing):
                del self.columns[name]
        return self.add(name, values)

    def _wide(self, name: str, values: Values) -> str | list[str]:
        if values.ndim == 1:
            return self.add(name, values)
        return [self.add(f"{name}_{place}", values[:, place]) for place in range(values.shape[1])]

    def _leaf(self, name: str, leaf: Vector | Codes | Image) -> None:
        """Add a table column for each column of a leaf, and one for its next observation."""
        stored = self.log.observation[name]
        labels = column_labels(name, leaf, stored.shape[1])
        for place, label in enumerate(labels):
            flag = None
            if isinstance(leaf, Vector):
                if label.endswith(" missing") and label.removesuffix(" missing") in labels:
                    continue  # a flag, which the reader adds again
                flag = labels.index(f"{label} missing") if f"{label} missing" in labels else None
            column = self.add(label, _cells(leaf, place, stored[self.log.position], flag))
            self.mapping.setdefault("observation", []).append(column)
            if len(self.after):
                later = _cells(leaf, place, stored[self.log.next_position[self.after]], flag)
                self.mapping.setdefault("next_observation", []).append(
                    self.add(f"next_{label}", self._at_last_rows(later))
                )
            if flag is not None:
                self.mapping.setdefault("missing", {})[column] = "mean+flag"
            if isinstance(leaf, Codes):
                words = _words(leaf, place)
                self.mapping.setdefault("vocabularies", {})[column] = [word for word in words if word]
                if "" in words:
                    self.mapping.setdefault("missing", {})[column] = "mean+flag"

    def _at_last_rows(self, later: pl.Series) -> pl.Series:
        """The observations after last rows as a column that is empty elsewhere."""
        places = np.full(self.log.steps, -1)
        places[self.after] = np.arange(len(self.after))
        rows = pl.Series(places)
        return later.gather(rows.set(rows < 0, None))

    def _action(self) -> None:
        space = self.log.spec.action
        if not isinstance(space, Hybrid):
            self.mapping |= self._action_part("action", space, self.log.action)
            return
        values = dict(flat_leaves(space.unpack(np.asarray(self.log.action))))
        for name, part in space.parts:
            for key, value in self._action_part(name, part, values[name]).items():
                if key == "vocabularies":
                    self.mapping[key] = self.mapping.get(key, {}) | value
                else:
                    self.mapping.setdefault(key, {})[name] = value

    def _action_part(self, label: str, space: Any, action: Values) -> dict[str, Any]:
        """Add the columns of an action, or of one of its parts; return what the mapping says about them."""
        if isinstance(space, Discrete):
            values = pl.Series(space.names).gather(action) if space.names else action
            name = self.add(label, values)
            labels = {**self.mapping.get("vocabularies", {}), name: list(space.names)}
            return {"action": name, **({"vocabularies": labels} if space.names else {"actions": space.n})}
        if isinstance(space, MultiDiscrete):
            return {"action": self._wide(label, action), "actions": list(space.sizes)}
        names = space.names or ([f"{label}_{place}" for place in range(space.size)] if space.size > 1 else [label])
        columns = [self.add(name, action[:, place]) for place, name in enumerate(names)]
        return {"action": columns, "bounds": [list(space.low), list(space.high)]}

    def _masks(self) -> None:
        mask = self.log.action_mask
        if mask is None:
            return
        self.mapping["action_mask"] = self.add("action_mask", _lists(mask[self.log.position]))
        if len(self.after):
            later = self._at_last_rows(_lists(mask[self.log.next_position[self.after]]))
            self.mapping["next_action_mask"] = self.add("next_action_mask", later.cast(pl.List(pl.UInt8)))


def _cells(leaf: Vector | Codes | Image, position: int, rows: Values, flag: int | None) -> pl.Series:
    """One column of observations [B, O]: labels for codes, empty cells where the column `flag` says a filled value."""
    if isinstance(leaf, Codes):
        words = pl.Series([word or None for word in _words(leaf, position)], dtype=pl.String)
        return words.gather(rows[:, position])
    series = pl.Series(np.ascontiguousarray(rows[:, position]))
    return series if flag is None else series.set(pl.Series(rows[:, flag] == 1), None)


def _lists(mask: Values) -> pl.Series:
    return pl.Series(np.ascontiguousarray(mask, np.uint8), dtype=pl.Array(pl.UInt8, mask.shape[1])).arr.to_list()


def column_labels(name: str, leaf: Vector | Codes | Image, width: int) -> list[str]:
    """The table columns of a leaf: the log's names, or the leaf's name, numbered if there are several columns."""
    named = () if isinstance(leaf, Image) else leaf.names
    return list(named) or ([f"{name}_{position}" for position in range(width)] if width > 1 else [name])


def _words(leaf: Codes, position: int) -> tuple[str, ...]:
    """The vocabulary of a column; its codes as text if it has none."""
    return (leaf.vocabularies and leaf.vocabularies[position]) or tuple(map(str, range(leaf.sizes[position])))


def toml_text(value: Any) -> str:
    """Return a value as TOML: text, numbers, lists and tables of these."""
    if isinstance(value, Mapping):
        return (
            "{ "
            + ", ".join(f"{json.dumps(key, ensure_ascii=False)} = {toml_text(one)}" for key, one in value.items())
            + " }"
        )
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(toml_text, value))}]"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _free(path: str | Path, overwrite: bool) -> Path:
    path = Path(path)
    if path.exists() and not overwrite:
        raise LogError(f"{path} exists", fix="choose another path, or overwrite=True (--overwrite) to replace it")
    if not path.parent.is_dir():
        raise LogError(f"{path} cannot be written: the folder {path.parent} does not exist")
    return path


# Observations as a table of features: the columns of the source in its own units and labels.
#
# Letters: `B` rows, `C` columns.


def feature_table(spec: Spec, leaves: Mapping[str, Values]) -> pl.DataFrame:
    """Return the raw columns [B, C] of observations by leaf, in the order of the spec; SpecError for a picture.

    Numbers are float64, missing ones NaN instead of their fill. Codes with labels are text, or whole numbers if every
    label is one; codes without labels are whole numbers. The numbers of a column of lists are `name_0`, `name_1`, ...,
    because XGBoost and LightGBM refuse brackets in names.
    """
    columns: dict[str, Any] = {}
    for name, leaf in spec.observation.items():
        if isinstance(leaf, Image):
            raise SpecError(
                f"observation '{name}' is a picture",
                "columns of a table",
                "pass an object with probabilities(observation, mask), which is given the picture as an array",
            )
        for label, values in _columns(name, leaf, np.asarray(leaves[name])):
            while label in columns:
                label += "_"
            columns[label] = values
    return pl.DataFrame(columns)


def _columns(name: str, leaf: Leaf, values: Values) -> list[tuple[str, Values]]:
    """Return the columns of a leaf with their labels, without the flags of filled values."""
    labels = column_labels(name, leaf, values.shape[1])
    listed = {label: f"{base}_{position}" for base, several in lists_among(labels).items()
              for position, label in enumerate(several) if f"{base}_{position}" not in labels}  # fmt: skip
    labels = [listed.get(label, label) for label in labels]
    if isinstance(leaf, Codes):
        columns = {label: values[:, position].astype(np.int64) for position, label in enumerate(labels)}
        for label, words in zip(labels, leaf.vocabularies, strict=False):
            if words:
                whole = all(one.lstrip("-").isdecimal() and len(one) < 19 and str(int(one)) == one for one in words)
                columns[label] = np.asarray([int(one) for one in words] if whole else words, None if whole else object)[
                    columns[label]
                ]
        return list(columns.items())
    fills = leaf.fills if isinstance(leaf, Vector) else ()
    flags = {f"{filled} missing": listed.get(filled, filled) for filled, _ in fills}
    columns = {
        label: values[:, position].astype(np.float64) for position, label in enumerate(labels) if label not in flags
    }
    for flag, filled in flags.items():
        if flag in labels:
            columns[filled][values[:, labels.index(flag)] != 0.0] = np.nan
    return list(columns.items())
