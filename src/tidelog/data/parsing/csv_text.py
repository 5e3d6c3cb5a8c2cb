"""Tables as CSV, and the cells of them that a spreadsheet would compute."""

from __future__ import annotations

import csv
import io
import json
from typing import BinaryIO

import polars as pl

from tidelog.data.parsing.formulas import FORMULA, NUMBER, harmless


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
            pl.when(_computed(name)).then(pl.concat_str(pl.lit("'"), _text(name))).otherwise(_text(name)).alias(name)
            for name in _columns_of_words(frame)
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
    return _text(name).str.contains(FORMULA) & ~_text(name).str.contains(NUMBER)


def _text(name: str) -> pl.Expr:
    return pl.col(name).cast(pl.String)
