"""What `tidelog data inspect` says: about a log in numbers, or about a table that has no mapping yet."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from tidelog.data import parse
from tidelog.data.columns import Columns
from tidelog.data.log import Log
from tidelog.data.sources import table_of

_SHOWN = 12
_WIDTH = 100


@dataclass(frozen=True)
class Inspection:
    """A log in numbers; `data` is plain JSON."""

    data: dict[str, Any]

    def text(self) -> str:
        """Plain lines for a terminal."""
        statistics = self.data["statistics"]
        head = [f"{statistics['episodes']:,} episodes, {statistics['steps']:,} steps, "
                f"{statistics['observations']:,} stored observations",
                f"ends: {statistics['terminated']:,} terminated, {statistics['truncated']:,} truncated; "
                f"{statistics['without_target']:,} rows are no targets of value learning"]  # fmt: skip
        spreads = ((name, statistics[name]) for name in ("lengths", "returns", "rewards", "propensities"))
        body = [f"{name}: {_spread(values)}" for name, values in spreads if values]
        missing = f"missing propensities: {statistics['missing_propensities']:.0%} of rows"
        return "\n".join([*head, *body, missing, *_action_lines(statistics["actions"]), *_feature_lines(statistics)])

    def to_json(self) -> dict[str, Any]:
        """The same as plain dictionaries and lists."""
        return self.data


def inspect_log(log: Log) -> Inspection:
    """Measure a log: episodes, lengths, returns, actions, propensities, features, and what the door said."""
    data = {"spec": log.spec.to_json(), "statistics": log.statistics().to_json(), "report": log.report.to_json()}
    return Inspection({**data, "fingerprint": log.fingerprint()})


@dataclass(frozen=True)
class Field:
    """One column of an unmapped table: `kind` is number, whole number, flag, word, time, list or empty."""

    name: str
    kind: str
    unique: int
    empty: int
    examples: tuple[str, ...]
    role: str | None


@dataclass(frozen=True)
class Description:
    """An unmapped table with a proposed mapping, or with what was not found for one."""

    source: str
    rows: int
    fields: tuple[Field, ...]
    proposed: Columns | None
    toml: str

    def text(self) -> str:
        """Plain lines for a terminal, the proposed mapping last."""
        lines = [f"{self.source}: {self.rows:,} rows, {len(self.fields)} columns", ""]
        for one in self.fields:
            examples = ", ".join(one.examples)[:40]
            empty = f", {one.empty:,} empty" if one.empty else ""
            lines.append(f"{one.name[:28]:28} {one.kind:12} {one.unique:>9,} different{empty}  {examples}")
        return "\n".join([*lines, "", "proposed mapping (columns.toml):", "", self.toml])

    def to_json(self) -> dict[str, Any]:
        """The same as plain dictionaries and lists."""
        fields = [vars(one) | {"examples": list(one.examples)} for one in self.fields]
        return {"source": self.source, "rows": self.rows, "fields": fields, "toml": self.toml}


def describe_table(source: Any) -> Description:
    """Guess what the columns of a table hold, from their names and values; LogError if it cannot be read."""
    table = table_of(source)
    fields = tuple(_field(table.frame[name]) for name in table.frame.columns)
    mapping = _proposal(fields)
    proposed = Columns.from_mapping(mapping) if {"observation", "action"} <= mapping.keys() else None
    source_name = str(Path(source)) if isinstance(source, str | Path) else table.source
    return Description(source_name, table.frame.height, fields, proposed, _toml(mapping))


_GUESSES = {  # role -> names it goes by; the first role that fits a column and is still free takes it
    "episode": (
        "episode",
        "episode_id",
        "patient",
        "patient_id",
        "user",
        "user_id",
        "session",
        "session_id",
        "trajectory",
    ),
    "step": ("step", "t", "hour", "timestep", "step_id", "sequence_number"),
    "time": ("time", "timestamp", "date", "datetime"),
    "reward": ("reward", "r", "click", "rewards", "return"),
    "terminated": ("terminated", "done", "terminal", "died"),
    "truncated": ("truncated", "timeout"),
    "propensity": ("propensity", "propensity_score", "pscore", "action_prob", "action_probability"),
    "weight": ("weight",),
}
_SEVERAL = {"next_observation": ("next_",), "action_mask": ("mask", "allowed"), "action": ("action", "item_id", "dose"),
            "observation": ("obs", "state", "feature", "user_feature", "context", "x_", "affinity")}  # fmt: skip


def _field(series: pl.Series) -> Field:
    empty = int(series.is_null().sum())
    unique = int(series.n_unique()) - bool(empty)
    examples = tuple(map(str, series.drop_nulls().unique(maintain_order=True).head(3)))
    return Field(series.name, _kind(series, unique), unique, empty, examples, _role(series.name))


def _kind(series: pl.Series, unique: int) -> str:
    if not unique:
        return "empty"
    if isinstance(series.dtype, pl.List | pl.Array):
        return "list"
    if series.dtype.is_temporal():
        return "time"
    if parse.is_categorical(series):
        return "time" if not len(parse.moment(series).unreadable) else "word"
    values = parse.number(series).values
    if unique <= 2 and bool(((values == 0) | (values == 1)).all()):
        return "flag"
    return "whole number" if bool((values % 1 == 0).all()) else "number"


def _role(name: str) -> str | None:
    lowered = name.lower()
    for role, known in _GUESSES.items():
        if lowered in known:
            return role
    for role, parts in _SEVERAL.items():
        if any(part in lowered for part in parts):
            return role
    return None


def _proposal(fields: Iterable[Field]) -> dict[str, Any]:
    """A mapping from guessed roles; without columns that look like observations, all columns left over are."""
    mapping: dict[str, Any] = {}
    named = [one for one in fields if one.name]
    for one in named:
        if one.role in _GUESSES:
            mapping.setdefault(one.role, one.name)
    for role in _SEVERAL:
        found = [one.name for one in named if one.role == role]
        if found:
            mapping[role] = found[0] if len(found) == 1 and role != "observation" else found
    if "observation" not in mapping:
        left = [one.name for one in named if one.role is None and one.kind != "time"]
        mapping |= {"observation": left} if left else {}
    observed = mapping.get("observation", [])
    words = [one.name for one in named if one.name in observed and one.kind == "word"]
    if len(mapping.get("next_observation", [])) != len(observed) or isinstance(mapping.get("next_observation"), str):
        mapping.pop("next_observation", None)
    return mapping | ({"categorical": words} if words else {})


def _toml(mapping: dict[str, Any]) -> str:
    lines = [f"{role} = {_value(value)}" for role, value in mapping.items()]
    lines += [
        f"# {role} = ...   (no column looks like it)" for role in ("observation", "action") if role not in mapping
    ]
    return "\n".join(
        [*lines, *([] if "reward" in mapping else ["# reward = ...   (without one, only cloning can learn)"])]
    )


def _value(value: Any) -> str:
    """A TOML string or list; long lists stand on several lines."""
    line = json.dumps(value, ensure_ascii=False)
    if len(line) <= _WIDTH - 20 or isinstance(value, str):
        return line
    words = (json.dumps(word, ensure_ascii=False) + "," for word in value)
    wrapped = textwrap.wrap(
        "\x00".join(words).replace(" ", "\x01").replace("\x00", " "),
        _WIDTH - 4,
        break_on_hyphens=False,
        break_long_words=False,
    )
    return "[\n" + "\n".join(f"  {one}".replace("\x01", " ") for one in wrapped) + "\n]"


def _spread(values: dict[str, Any]) -> str:
    return ", ".join(
        f"{name} {value:.4g}" if isinstance(value, float) else f"{name} {value}" for name, value in values.items()
    )


def _action_lines(actions: dict[str, Any]) -> list[str]:
    if "counts" not in actions:
        return [f"actions: {_spread(actions)}"]
    counts = sorted(actions["counts"].items(), key=lambda item: str(item[1]))
    if all(isinstance(count, int) for _, count in counts):
        counts = sorted(counts, key=lambda item: -item[1])
    more = f" and {len(counts) - _SHOWN} more" if len(counts) > _SHOWN else ""
    return ["actions: " + ", ".join(f"{name}: {count}" for name, count in counts[:_SHOWN]) + more]


def _feature_lines(statistics: dict[str, Any]) -> list[str]:
    lines = [f"  {name}: {_spread(values)}" for name, values in statistics["features"].items()]
    for name, counts in statistics["categories"].items():
        common = sorted(counts.items(), key=lambda item: -item[1])[:5]
        lines.append(
            f"  {name}: {len(counts)} categories, most often "
            + ", ".join(f"{word[:14]} ({count})" for word, count in common)
        )
    return ["observations:", *lines]
