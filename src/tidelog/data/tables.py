"""A table and a mapping become a `RawLog`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import polars as pl

from tidelog.data import parse
from tidelog.data.columns import Bounds, Columns, declared_actions, names
from tidelog.data.order import Values
from tidelog.data.raw import Column, Feature, Finding, RawAction, RawLog
from tidelog.errors import nearest


@dataclass(frozen=True, eq=False)
class Table:
    """A frame as its source has it; `numbers` [N] are the user's row numbers, `columns` all names in the source."""

    source: str
    frame: pl.DataFrame
    numbers: Values
    columns: Sequence[str]
    has_lines: bool = False
    found: list[tuple[str, Finding]] = field(default_factory=list)

    @classmethod
    def of(cls, frame: pl.DataFrame, source: str, columns: Sequence[str] | None = None) -> Table:
        """A table whose rows are counted from 1."""
        return cls(source, frame, np.arange(1, frame.height + 1), columns or frame.columns)

    def has(self, name: str) -> bool:
        """Whether the frame holds the column."""
        return name in self.frame.columns


def from_table(table: Table, columns: Columns) -> RawLog:
    """Parse every column that the mapping names; absent ones are findings, not exceptions."""
    observation, following = _features(table, columns)
    rewards = [parse.number(series) for series in _present(table, columns.reward)]
    return RawLog(
        source=table.source,
        rows=table.frame.height,
        numbers=table.numbers,
        has_lines=table.has_lines,
        observation=observation,
        next_observation=following,
        action=_action(table, columns),
        reward=None if columns.reward is None else tuple(rewards),
        episode=_one(table, columns.episode, parse.identity),
        step=_one(table, columns.step, parse.number),
        time=_one(table, columns.time, parse.moment),
        terminated=_one(table, None if columns.terminated is True else columns.terminated, parse.flag),
        truncated=_one(table, columns.truncated, parse.flag),
        propensity=_one(table, columns.propensity, parse.number),
        weight=_one(table, columns.weight, parse.number),
        action_mask=_mask(table, columns.action_mask),
        next_action_mask=_mask(table, columns.next_action_mask),
        extra=tuple(_extra(series) for series in _present(table, columns.extra)),
        terminations=columns.terminations,
        always_terminated=columns.terminated is True,
        found=(*_relevant(table, columns), *(("missing column", finding) for finding in _absent(table, columns))),
    )


def unique(header: Sequence[str]) -> list[str]:
    """Names that differ, as Polars wants them; the first of equal names keeps its name."""
    return [f"{name}\x00{place}" if name in header[:place] else name for place, name in enumerate(header)]


def _duplicates(header: Sequence[str]) -> list[tuple[str, Finding]]:
    twice = sorted({name for name in header if header.count(name) > 1})
    found = [(name, f"{header.count(name)} columns named '{name}'") for name in twice]
    return [
        ("duplicate column name", Finding(name, None, said, "names that differ", "rename one of them"))
        for name, said in found
    ]


def _relevant(table: Table, columns: Columns) -> list[tuple[str, Finding]]:
    """What the reader found, and the names that stand twice where the mapping uses them."""
    used = {name for several in columns.used().values() for name in several}
    return table.found + [(check, finding) for check, finding in _duplicates(table.columns) if finding.column in used]


def _absent(table: Table, columns: Columns) -> list[Finding]:
    lacking = {name: role for role, used in columns.used().items() for name in used if name not in table.columns}
    lacking |= {name: "categorical" for name in names(columns.categorical) if name not in table.columns}
    shown = ", ".join(map(repr, list(table.columns)[:8])) + (", ..." if len(table.columns) > 8 else "")
    return [
        Finding(name, None, f"no column '{name}' for {role}; the columns are {shown}", f"a column '{name}'",
                f"correct the mapping: {nearest(name, table.columns)}")
        for name, role in lacking.items()
    ]  # fmt: skip


def _present(table: Table, wanted: str | Sequence[str] | bool | None) -> list[pl.Series]:
    return [table.frame[name] for name in names(wanted) if table.has(name)]


def _one(table: Table, name: str | bool | None, read: Callable[[pl.Series], Column]) -> Column | None:
    found = _present(table, name)
    return read(found[0]) if found else None


def _mask(table: Table, wanted: str | Sequence[str] | None) -> Column | None:
    found = _present(table, wanted)
    return parse.mask(found) if found and len(found) == len(names(wanted)) else None


def _extra(series: pl.Series) -> Column:
    return parse.categories(series)[0] if parse.is_categorical(series) else parse.moment(series)


def _action(table: Table, columns: Columns) -> RawAction | None:
    wanted = names(columns.action)
    found = _present(table, columns.action)
    if len(found) != len(wanted):
        return None
    sizes, bounds = declared_actions(columns.actions, columns.bounds)
    if len(found) == 1 and sizes is None and bounds is None and parse.is_categorical(found[0]):
        return RawAction("discrete", (parse.categories(found[0])[0],))
    return decide_action(tuple(map(parse.number, found)), sizes, bounds)


def decide_action(
    columns: tuple[Column, ...],
    sizes: tuple[int, ...] | None,
    bounds: Bounds | None,
) -> RawAction:
    """Discrete, several choices or continuous: as declared, else by whether one column holds whole numbers only."""
    width = sum(int(np.prod(column.values.shape[1:])) for column in columns)
    if sizes is not None:
        return RawAction("discrete" if len(sizes) == 1 and width == 1 else "multi", columns, sizes)
    if bounds is not None or width != 1:
        return RawAction("continuous", columns, None, widened(bounds, width))
    values = columns[0].values[columns[0].usable]
    whole = bool(np.all(values[np.isfinite(values)] % 1 == 0))
    return RawAction("discrete" if whole else "continuous", columns)


def widened(bounds: Bounds | None, width: int) -> Bounds | None:
    """One pair of bounds for every dimension, where only one was declared."""
    return bounds if bounds is None or len(bounds[0]) != 1 else (bounds[0] * width, bounds[1] * width)


def _features(table: Table, columns: Columns) -> tuple[dict[str, Feature], dict[str, Feature]]:
    now = _present(table, columns.observation)
    following = dict(zip(names(columns.observation), names(columns.next_observation), strict=False))
    pairs = [[series, *_present(table, following.get(series.name))] for series in now]
    coded = [pair for pair in pairs if _coded(pair, names(columns.categorical))]
    plain = [pair for pair in pairs if not any(pair is other for other in coded)]
    kinds = {"numeric": [list(map(parse.number, pair)) for pair in plain]}
    kinds["categorical"] = [parse.categories(*pair) for pair in coded]
    return _side(kinds, 0), _side(kinds, 1)


def _coded(pair: list[pl.Series], declared: list[str]) -> bool:
    return pair[0].name in declared or parse.is_categorical(pair[0])


def _side(kinds: dict[str, list[list[Column]]], side: int) -> dict[str, Feature]:
    """Leaves of the observation (side 0) or of the next observation (side 1), where every column has that side."""
    leaves = {}
    for name, pairs in kinds.items():
        if pairs and all(len(pair) > side for pair in pairs):
            kind = "codes" if name == "categorical" else "vector"
            leaves[name] = Feature(kind, tuple(pair[side] for pair in pairs))  # type: ignore[arg-type]
    return leaves
