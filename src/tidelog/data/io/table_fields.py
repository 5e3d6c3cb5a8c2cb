"""Measure the columns of an unmapped table: their kinds, numbers of values and examples."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from tidelog.data.parsing import column as parse

NUMERIC = ("flag", "whole number", "number")
FEW_ROWS = 10  # from which on a label is learnt by itself
_SAMPLE = 1_000
_MIXED = 0.01


@dataclass(frozen=True)
class Field:
    """One column of an unmapped table: `kind` is number, whole number, flag, word, time, list, objects or empty."""

    name: str
    kind: str
    unique: int
    empty: int
    examples: tuple[str, ...]
    low: float | None = None
    high: float | None = None
    negative: int = 0  # number of values below 0
    usual: float | None = None  # 99% quantile of the values other than 0
    zeros: int = 0  # number of values that are 0
    consecutive: bool = False  # whole numbers that rise by 1 from row to row
    width: int = 0  # numbers in each cell of a column of lists, if there are equally many in all
    words: tuple[tuple[str, float], ...] = ()  # of a flag in words, such as no and yes: each with its value, 0 or 1
    rare: int = 0  # number of labels in fewer than `FEW_ROWS` rows
    rare_rows: int = 0  # number of their rows
    role: str | None = None


def field_of(series: pl.Series) -> Field:
    """Measure one column of a table; empty text is an empty cell."""
    if isinstance(series.dtype, pl.String):
        series = series.set((series.str.strip_chars() == "").fill_null(False), None)
    empty = int(series.is_null().sum())
    unique = int(series.n_unique()) - bool(empty)
    shown = series.drop_nulls().unique(maintain_order=True).head(3).to_list()
    examples = tuple(" ".join(str(one).split()) for one in shown)
    listed = parse.as_lists(series)
    kind = "list" if isinstance(listed.dtype, pl.List) else _kind(series, unique)
    if kind == "list" and examples and examples[0].startswith(("['{", "[{", '["{')):
        kind = "objects"
    if kind != "number":
        counts = series.drop_nulls().value_counts()["count"] if kind == "word" else pl.Series([], dtype=pl.UInt32)
        few, width = counts.filter(counts < FEW_ROWS), _width(listed) if kind == "list" else 0
        words = _words_of(series) if kind == "flag" else ()
        rows = int(few.sum())
        return Field(
            series.name, kind, unique, empty, examples, width=width, words=words, rare=len(few), rare_rows=rows
        )
    column = parse.number(series)
    values = column.values[column.usable]
    values = values[np.isfinite(values)]
    empty = max(empty, len(column.missing))  # words such as n/a are empty cells among numbers
    if not column.usable.any() and not len(column.unreadable):
        return Field(series.name, "empty", unique, empty, examples)
    if len(column.unreadable) > _MIXED * len(series) or not len(values):
        return Field(series.name, "word", unique, empty, examples)
    whole = "whole number" if bool((values % 1 == 0).all()) else "number"
    low, high, negative = float(values.min()), float(values.max()), int((values < 0).sum())
    usual = float(np.quantile(values[values != 0], 0.99)) if values.any() else None
    zeros = int((values == 0).sum())
    rises = whole == "whole number" and not empty and bool((np.diff(values) == 1).all())
    return Field(series.name, whole, unique, empty, examples, low, high, negative, usual, zeros, rises)


def _width(series: pl.Series) -> int:
    """The number of numbers in every cell of a column of lists; 0 if cells differ, or hold other values."""
    if not isinstance(series.dtype, pl.List | pl.Array) or not series.dtype.inner.is_numeric():
        return 0
    lists = series.cast(pl.List(series.dtype.inner)).drop_nulls()
    lengths = lists.list.len().unique().to_list()
    return int(lengths[0]) if len(lengths) == 1 else 0


def _words_of(flags: pl.Series) -> tuple[tuple[str, float], ...]:
    """The words of a column of flags with their values; empty if they are numbers, true or false."""
    if not isinstance(flags.dtype, pl.String | pl.Categorical) or not len(parse.number(flags).unreadable):
        return ()
    words = sorted(str(word) for word in flags.drop_nulls().unique().to_list())
    return tuple((word, float(parse.flag(pl.Series([word])).values[0])) for word in words)


def _kind(series: pl.Series, unique: int) -> str:
    if not unique:
        return "empty"
    if isinstance(series.dtype, pl.List | pl.Array) or holds_several_numbers(series):
        return "list"
    if series.dtype.is_temporal():
        return "time"
    flag = parse.flag(series) if unique <= 2 else None
    if flag is not None and not len(flag.unreadable) and not flag.usable.any():
        return "empty"  # words such as none
    if flag is not None and not len(flag.unreadable) and bool(np.isin(flag.values[flag.usable], (0, 1)).all()):
        return "flag"
    if parse.is_categorical(series):
        return "time" if not len(parse.moment(series).unreadable) else "word"
    return "number"


def holds_several_numbers(series: pl.Series) -> bool:
    """Whether cells of text hold several numbers each, such as 1,0,1 or 606 12 7."""
    if not isinstance(series.dtype, pl.String | pl.Categorical):
        return False
    text = series.drop_nulls().head(_SAMPLE).cast(pl.String)
    packed = text.str.contains(r"^[\[(]?\s*-?[\d.]+([,;| ]\s*-?[\d.]+)+\s*[\])]?$")
    return bool(packed.any()) and bool((packed | text.str.contains(r"^[\[(]?\s*-?[\d.]*\s*[\])]?$")).all())
